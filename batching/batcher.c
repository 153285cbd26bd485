/* The life of a request: batcher_submit queues it in its flow, or, as the head of the flow, among
 * the waiting requests, and arms the timer. All else happens in batcher_schedule, which the tick
 * and the end of each step call. It ends requests whose deadline has passed or whose batch is not
 * complete in time, settles the futures of ended requests, and, when no step runs, forms one
 * (step.c) and hands it to compute. When the step is done, stepped takes over what compute left;
 * rows that are DONE or FAILED end, the others stay running. Their more is called after the next
 * step has begun, so that compute does not wait while replies are written.
 *
 * A future's continuation and more may submit, cancel or close. These calls only move requests
 * between lists and make no callbacks; the batcher_schedule that runs, or the next tick, settles
 * futures. A request in a step is only marked as cancelled; it ends after the step. */
#include "batching/batcher.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/shared_limit.h"
#include "batching/requests.h"
#include "batching/state.h"
#include "batching/step.h"
#include "batching/yield.h"

static const struct limit_kind kind_of_queue = {"waiting requests of a model", "--max-queue", NULL};

/* Delays and ageing are at most a day, so that sums of times cannot wrap. */
static const uint64_t longest_us = UINT64_C(86400) * 1000 * 1000;
static const uint64_t default_ageing_us = 100 * 1000;

static enum status batcher_check_config(const struct batcher_config *c, struct error *err)
{
    if (c->max_rows == 0)
        return error_field(err, "max_rows", "is 0, it must be at least 1");
    if (c->max_waiting == 0)
        return error_field(err, "max_waiting", "is 0, it must be at least 1");
    if (c->min_rows > c->max_rows)
        return error_field(err, "min_rows", "is %zu, it must be at most max_rows (%zu)",
                           c->min_rows, c->max_rows);
    if (c->policy == BATCH_FIXED && c->max_waiting < c->max_rows)
        return error_field(
            err, "max_waiting",
            "is %zu, it must be at least max_rows (%zu), else a fixed batch never fills",
            c->max_waiting, c->max_rows);
    if (c->max_delay_us > longest_us)
        return error_field(err, "max_delay_us", "is longer than a day, which is the maximum");
    if (c->max_itl_us > longest_us)
        return error_field(err, "max_itl_us", "is longer than a day, which is the maximum");
    if (c->ageing_us > longest_us)
        return error_field(err, "ageing_us", "is longer than a day, which is the maximum");
    return STATUS_OK;
}

static void batcher_free(struct batcher *b)
{
    length_buckets_close(&b->length_buckets);
    deadlines_close(&b->deadlines);
    waiting_deinit(&b->waiting);
    free(b->rows);
    free(b);
}

static void batcher_apply(struct batcher *b, const struct batcher_config *config)
{
    b->config = *config;
    if (b->config.max_cost == 0)
        b->config.max_cost = SIZE_MAX;
    b->waiting.ageing_us = config->ageing_us == 0 ? default_ageing_us : config->ageing_us;
    b->policy = policy_of(config->policy);
    b->adaptive = (struct adaptive){0};
}

/* Opens the buckets once, for a policy that sorts waiting requests. */
static enum status batcher_open_length_buckets(struct batcher *b,
                                               const struct batcher_config *config,
                                               struct error *err)
{
    if (policy_of(config->policy)->choose == NULL || b->length_buckets.items != NULL)
        return STATUS_OK;
    return length_buckets_open(&b->length_buckets, b->cap_waiting, &b->agent, &b->env, err);
}

static void batcher_step_done(struct batch_step *step);

enum status batcher_open(struct batcher **out, const struct batcher_config *config,
                         const struct batch_agent *agent, const struct batch_compute *compute,
                         const struct batch_timer *timer, const struct env *env, struct error *err)
{
    struct batcher *b;
    size_t max_requests;
    enum status rc = batcher_check_config(config, err);

    if (rc != STATUS_OK)
        return rc;
    assert((agent->reserve == NULL) == (agent->release == NULL));
    b = try_alloc(1, sizeof(*b));
    if (b == NULL)
        return error_no_memory(err, sizeof(*b), "a batcher");
    owner_thread_init(&b->owner);
    b->agent = *agent;
    b->compute = *compute;
    b->timer = *timer;
    b->env = *env;
    b->step = (struct batch_step){.done = batcher_step_done};
    waiting_init(&b->waiting);
    b->row_cost = 1;
    b->cap_rows = config->max_rows;
    b->cap_waiting = config->max_waiting;
    batcher_apply(b, config);
    list_init(&b->running);
    list_init(&b->ending);
    list_init(&b->in_step);
    list_init(&b->to_notify);
    b->rows = try_alloc(config->max_rows, sizeof(b->rows[0]));
    if (b->rows == NULL) {
        rc = error_no_memory(err, (uint64_t)config->max_rows * sizeof(b->rows[0]),
                             "the rows of a step");
        goto out;
    }
    /* max_waiting does not count preempted requests that wait. */
    if (__builtin_add_overflow(config->max_waiting, yield_max_running(config), &max_requests))
        max_requests = SIZE_MAX;
    rc = deadlines_open(&b->deadlines, max_requests, err);
    if (rc != STATUS_OK)
        goto out;
    rc = batcher_open_length_buckets(b, config, err);
    if (rc != STATUS_OK)
        goto out;
    *out = b;
    b = NULL; /* owned by the caller */
out:
    if (b != NULL)
        batcher_free(b);
    return rc;
}

/* Arms the timer for at_us, unless it is armed for earlier. Does nothing inside batcher_schedule,
 * which arms the timer before it returns. */
static void batcher_wake_by(struct batcher *b, uint64_t at_us)
{
    if (b->is_scheduling || (b->armed_us != 0 && b->armed_us <= at_us))
        return;
    b->armed_us = at_us;
    b->timer.arm(b->timer.self, at_us);
}

/* The earlier of two times; 0 means never. */
static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
    if (a_us == 0 || b_us == 0)
        return a_us + b_us;
    return a_us < b_us ? a_us : b_us;
}

/* When the waiting requests of an incomplete batch end; 0: never. */
static uint64_t batcher_give_up_us(struct batcher *b)
{
    struct policy_view v;

    if (b->policy->give_up_us == NULL)
        return 0;
    v = step_view(b, 0);
    return v.n_queued > 0 ? b->policy->give_up_us(&v) : 0;
}

/* When a refused client should submit again. If no request runs, a batch is about to begin. */
static uint32_t batcher_hint_ms(const struct batcher *b, uint64_t now_us)
{
    size_t n_queued = b->waiting.n_queued + b->waiting.n_preempted;
    size_t n_together = b->n_running > 0 ? b->n_running : n_queued;

    if (n_together > b->config.max_rows)
        n_together = b->config.max_rows;
    return retry_after_ms(&b->retry, n_queued + b->n_flow_queued, n_together, now_us, &b->env);
}

/* Of several tenants none has more than half of the queue, so that none locks the others out. */
static enum status batcher_check_half(const struct batcher *b, const struct batch_request *request,
                                      struct error *err)
{
    const struct tenant *t = request->flow->tenant;
    const size_t max = b->config.max_waiting, max_cost = b->config.max_waiting_cost / 2;
    size_t n, half = max / 2;

    if (t == NULL)
        return STATUS_OK;
    if (b->config.policy == BATCH_FIXED && half < b->config.max_rows)
        half = b->config.max_rows; /* a batch may be one principal's */
    n = t->n_active - t->n_rows - t->n_paused + t->n_flow_queued;
    if (max > 1 && n >= half)
        return error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                             "the principal's half of the limit of %zu %s (%s) is reached: it has "
                             "%zu: try again later",
                             max, kind_of_queue.noun, kind_of_queue.option, n);
    if (max_cost != 0 && t->waiting_cost != 0 &&
        (t->waiting_cost >= max_cost || request->cost > max_cost - t->waiting_cost))
        return error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                             "the principal's waiting requests cost %zu of at most %zu, half of "
                             "what all may, this one would add %zu: try again later",
                             t->waiting_cost, max_cost, request->cost);
    return STATUS_OK;
}

static enum status batcher_check_request(const struct batcher *b,
                                         const struct batch_request *request, uint64_t now_us,
                                         struct error *err)
{
    size_t n = b->waiting.n_queued + b->waiting.n_preempted + b->n_flow_queued + b->n_ending;
    enum status rc;

    if (b->is_closing)
        return error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL,
                             "the agent is being closed");
    if (request->deadline_us != 0 && request->deadline_us <= now_us)
        return error_set(err, STATUS_DEADLINE, "the deadline has passed already");
    rc = batcher_check_half(b, request, err);
    if (rc != STATUS_OK) {
        err->retry_after_ms = batcher_hint_ms(b, now_us);
        return rc;
    }
    if (n >= b->config.max_waiting)
        rc = error_because(
            err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
            "%zu requests are waiting already, which is the maximum: try again later", n);
    else if (b->config.max_waiting_cost != 0 && b->waiting_cost != 0 &&
             (b->waiting_cost >= b->config.max_waiting_cost ||
              request->cost > b->config.max_waiting_cost - b->waiting_cost))
        rc = error_because(
            err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
            "the waiting requests cost %zu of at most %zu, this one would add %zu: try again later",
            b->waiting_cost, b->config.max_waiting_cost, request->cost);
    else
        return STATUS_OK;
    err->retry_after_ms = batcher_hint_ms(b, now_us);
    return rc;
}

static int clamp_priority(int priority)
{
    if (priority > PRIORITY_MAX)
        return PRIORITY_MAX;
    return priority < -PRIORITY_MAX ? -PRIORITY_MAX : priority;
}

static void batch_request_become_head(struct batcher *b, struct batch_request *request,
                                      uint64_t now_us)
{
    request->since_us = now_us;
    request->number = ++b->n_numbered;
    waiting_enter(&b->waiting, waiting_tenant(&b->waiting, request));
    adaptive_submitted(&b->adaptive, now_us);
    batch_request_wait(b, request, false);
}

enum status batcher_submit(struct batcher *b, struct batch_request *request, struct error *err)
{
    uint64_t now_us = now_of(b);
    uint64_t wake_us;
    enum status rc;

    ASSERT_OWNER(&b->owner);
    assert(request->state == REQUEST_NEW && request->flow != NULL && request->reply.then != NULL);
    request->cost = b->agent.cost(b->agent.self, request->row);
    rc = batcher_check_request(b, request, now_us, err);
    if (rc != STATUS_OK) {
        b->stats.n_refused++;
        return rc;
    }
    request->priority = clamp_priority(request->priority);
    b->stats.n_submitted++;
    request->arrival_us = now_us;
    if (request->flow->head == NULL) {
        request->flow->head = request;
        batch_request_become_head(b, request, now_us);
    } else {
        request->state = REQUEST_FLOW_QUEUED;
        list_push(&request->flow->queued, &request->link);
        b->n_flow_queued++;
        batch_request_count_cost(b, request, request->cost);
        waiting_tenant(&b->waiting, request)->n_flow_queued++;
        deadlines_add(&b->deadlines, request);
    }
    if (!b->is_stepping) {
        batcher_wake_by(b, now_us);
        return STATUS_OK;
    }
    wake_us = earlier(request->deadline_us, batcher_give_up_us(b));
    if (wake_us != 0)
        batcher_wake_by(b, wake_us);
    return STATUS_OK;
}

/* Running and admitted requests are a batch that has begun. */
static bool batcher_is_between_batches(const struct batcher *b)
{
    return b->n_running == 0 && b->n_admitted == 0 && b->waiting.n_preempted == 0;
}

enum status batcher_configure(struct batcher *b, const struct batcher_config *config,
                              struct error *err)
{
    enum status rc = batcher_check_config(config, err);

    ASSERT_OWNER(&b->owner);
    if (rc != STATUS_OK)
        return rc;
    if (config->max_rows > b->cap_rows)
        return error_field(err, "max_rows", "is %zu, it must be at most %zu", config->max_rows,
                           b->cap_rows);
    if (config->max_waiting > b->cap_waiting)
        return error_field(err, "max_waiting", "is %zu, it must be at most %zu",
                           config->max_waiting, b->cap_waiting);
    rc = batcher_open_length_buckets(b, config, err);
    if (rc != STATUS_OK)
        return rc;
    b->next = *config;
    b->is_changing = true;
    b->policy = &policy_hold;
    if (!b->is_stepping)
        batcher_wake_by(b, now_of(b));
    return STATUS_OK;
}

void batcher_postpone(struct batcher *b, struct batch_request *request, uint64_t deadline_us)
{
    ASSERT_OWNER(&b->owner);
    assert(request->state != REQUEST_NEW && request->state != REQUEST_SETTLED);
    if (request->deadline_us == 0 || (deadline_us != 0 && deadline_us <= request->deadline_us))
        return;
    deadlines_remove(&b->deadlines, request);
    request->deadline_us = deadline_us;
    if (request->state == REQUEST_FLOW_QUEUED || request->state == REQUEST_WAITING)
        deadlines_add(&b->deadlines, request);
}

void batcher_cancel(struct batcher *b, struct batch_request *request)
{
    ASSERT_OWNER(&b->owner);
    assert(request->state != REQUEST_NEW && request->state != REQUEST_SETTLED);
    if (request->state == REQUEST_ENDING)
        return;
    if (link_is_on(&request->in_step)) {
        request->is_cancelled = true;
        if (b->compute.interrupt != NULL)
            b->compute.interrupt(b->compute.self);
        return;
    }
    batch_request_end_cancelled(b, request);
    batcher_wake_by(b, now_of(b));
}

/* The next request of the flow becomes its head, after the head settled. */
static void batcher_advance(struct batcher *b, struct flow *flow, uint64_t now_us)
{
    struct link *l = list_first(&flow->queued);
    struct batch_request *request;

    flow->head = NULL;
    if (l == NULL)
        return;
    request = container_of(l, struct batch_request, link);
    flow->head = request;
    if (b->is_closing) {
        batch_request_end_closing(b, request);
        return;
    }
    batch_request_take_out(b, request);
    batch_request_become_head(b, request, now_us);
}

static void batcher_count_end(struct batcher *b, enum status status)
{
    switch (status) {
    case STATUS_OK:
        b->stats.n_done++;
        break;
    case STATUS_CANCELLED:
        b->stats.n_cancelled++;
        break;
    case STATUS_DEADLINE:
        b->stats.n_expired++;
        break;
    default:
        b->stats.n_failed++;
        break;
    }
}

static void batcher_settle_ended(struct batcher *b)
{
    struct link *l;

    while ((l = list_pop(&b->ending)) != NULL) {
        struct batch_request *request = container_of(l, struct batch_request, link);
        struct error err = request->row->err; /* the continuation may free the row */

        b->n_ending--;
        request->state = REQUEST_SETTLED;
        batcher_count_end(b, err.status);
        if (request->flow->head == request)
            batcher_advance(b, request->flow, now_of(b));
        future_settle(&request->reply, &err);
    }
}

/* Ends requests whose deadline has passed; those in a step end after it. */
static void batcher_expire(struct batcher *b, uint64_t now_us)
{
    struct batch_request *request;
    struct link *next;

    while ((request = deadlines_first(&b->deadlines)) != NULL && request->deadline_us <= now_us)
        batch_request_end_overdue(b, request);
    for (struct link *l = list_first(&b->running); l != NULL; l = next) {
        next = list_next(&b->running, l);
        request = container_of(l, struct batch_request, link);
        if (request->deadline_us != 0 && request->deadline_us <= now_us &&
            !link_is_on(&request->in_step))
            batch_request_end_overdue(b, request);
    }
}

/* A batch that is not complete in time ends as a whole. */
static void batcher_give_up(struct batcher *b, uint64_t now_us)
{
    uint64_t at_us = batcher_give_up_us(b);
    size_t n = b->waiting.n_queued;

    if (at_us == 0 || at_us > now_us)
        return;
    while (b->waiting.n_queued > 0)
        batch_request_end_missed(b, waiting_first(&b->waiting), n);
}

static void batcher_count_step(struct batcher *b)
{
    struct batcher_stats *s = &b->stats;
    size_t last = sizeof(s->rows_histogram) / sizeof(s->rows_histogram[0]) - 1;
    size_t i = 0;

    while (i < last && b->n_rows > (size_t)1 << i)
        i++;
    s->rows_histogram[i]++;
    s->n_steps++;
    s->n_rows += b->n_rows;
    s->last_rows = b->n_rows;
    if (b->n_rows > s->max_rows_seen)
        s->max_rows_seen = b->n_rows;
}

static void batcher_start_step(struct batcher *b)
{
    batcher_count_step(b);
    retry_begin(&b->retry, b->step_us);
    b->is_stepping = true;
    b->step.rows = b->rows;
    b->step.n_rows = b->n_rows;
    b->step.begun_us = b->step_us;
    b->compute.begin(b->compute.self, &b->step);
}

static void batcher_notify(struct batcher *b)
{
    struct link *l;

    while ((l = list_pop(&b->to_notify)) != NULL) {
        struct batch_request *request = container_of(l, struct batch_request, to_notify);

        request->more(request, request->more_arg);
    }
}

static bool batcher_is_empty(const struct batcher *b)
{
    return !b->is_stepping && b->n_running == 0 && b->n_ending == 0 && b->n_flow_queued == 0 &&
           b->waiting.n_queued == 0 && b->waiting.n_preempted == 0;
}

static void batcher_schedule(struct batcher *b)
{
    uint64_t wake_us = 0;
    struct batch_request *first;

    if (b->is_scheduling)
        return;
    b->is_scheduling = true;
    do {
        batcher_expire(b, now_of(b));
        batcher_give_up(b, now_of(b));
        batcher_settle_ended(b);
        if (b->is_changing && batcher_is_between_batches(b)) {
            b->is_changing = false;
            yield_unbound(b);
            batcher_apply(b, &b->next);
        }
        if (!b->is_stepping && !b->is_closing) {
            step_form(b, now_of(b), &wake_us);
            if (b->n_rows > 0)
                batcher_start_step(b);
        }
        batcher_notify(b);
    } while (!list_is_empty(&b->ending));
    b->is_scheduling = false;

    if (b->is_closing && batcher_is_empty(b)) {
        void (*closed)(void *arg) = b->closed;
        void *arg = b->closed_arg;

        if (b->armed_us != 0)
            b->timer.arm(b->timer.self, 0);
        batcher_free(b);
        closed(arg);
        return;
    }
    if (b->is_stepping)
        wake_us = 0;
    else
        retry_rest(&b->retry);
    first = deadlines_first(&b->deadlines);
    wake_us = earlier(wake_us, first != NULL ? first->deadline_us : 0);
    wake_us = earlier(wake_us, batcher_give_up_us(b));
    if (wake_us != b->armed_us) {
        b->armed_us = wake_us;
        b->timer.arm(b->timer.self, wake_us);
    }
}

void batcher_tick(struct batcher *b)
{
    ASSERT_OWNER(&b->owner);
    b->armed_us = 0;
    batcher_schedule(b);
}

static void batch_request_take_back(struct batcher *b, struct batch_request *request)
{
    if (b->agent.stepped != NULL)
        b->agent.stepped(b->agent.self, request->row);
    if (request->row->outcome != ROW_MORE)
        batch_request_end_row(b, request);
    else if (request->is_cancelled)
        batch_request_end_cancelled(b, request);
    else if (b->is_closing)
        batch_request_end_closing(b, request);
    else if (request->more != NULL)
        list_push(&b->to_notify, &request->to_notify);
}

static void batcher_step_done(struct batch_step *step)
{
    struct batcher *b = container_of(step, struct batcher, step);
    size_t n_running = b->n_running;
    struct link *l;

    ASSERT_OWNER(&b->owner);
    assert(b->is_stepping);
    b->is_stepping = false;
    step_learn(b, now_of(b));
    while ((l = list_pop(&b->in_step)) != NULL)
        batch_request_take_back(b, container_of(l, struct batch_request, in_step));
    adaptive_answered(&b->adaptive, n_running - b->n_running, now_of(b));
    batcher_schedule(b);
}

void batcher_stats(const struct batcher *b, struct batcher_stats *out)
{
    *out = b->stats;
    out->n_waiting = b->waiting.n_queued + b->waiting.n_preempted + b->n_ending;
    out->n_running = b->n_running;
    out->n_flow_queued = b->n_flow_queued;
}

void batcher_close(struct batcher *b, void (*closed)(void *arg), void *arg)
{
    struct batch_request *request;
    struct link *next;

    ASSERT_OWNER(&b->owner);
    assert(!b->is_closing);
    b->is_closing = true;
    b->closed = closed;
    b->closed_arg = arg;
    yield_unbound(b);
    while ((request = waiting_first(&b->waiting)) != NULL)
        batch_request_end_closing(b, request);
    for (struct link *l = list_first(&b->running); l != NULL; l = next) {
        next = list_next(&b->running, l);
        request = container_of(l, struct batch_request, link);
        if (!link_is_on(&request->in_step))
            batch_request_end_closing(b, request);
    }
    batcher_wake_by(b, now_of(b));
}
