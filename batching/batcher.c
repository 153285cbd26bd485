/* The road of an ask: batcher_ask puts it behind its asker's earlier ones or among those who wait,
 * and wants a tick. All else happens in pump, which the tick and the end of each step call: asks
 * whose deadline has passed, or whose batch is not complete in time, end; futures of ended asks
 * settle; and when no step is under way, one is formed (step.c) and handed to compute. When it
 * comes back, stepped takes over what compute left; rows that are DONE or FAILED end, the others
 * stay running, and their more is called once the next step is on its way, so that compute does not
 * wait for the writing of replies.
 *
 * Whoever is called (a future's continuation, more) may ask, cancel or close: these only move asks
 * from list to list, never call out, and leave the settling to the pump that runs or to the next
 * tick. An ask that compute has is only marked; its end waits for the step. */
#include "batching/batcher.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "batching/batcher_parts.h"

/* No delay and no ageing is longer than a day, so that sums of times cannot wrap. */
static const uint64_t longest_us = UINT64_C(86400) * 1000 * 1000;
static const uint64_t default_ageing_us = 100 * 1000;

static enum status check_config(const struct batcher_config *c, struct error *err)
{
    if (c->max_rows == 0)
        return error_field(err, "max_rows", "is 0, a step needs at least one row");
    if (c->max_waiting == 0)
        return error_field(err, "max_waiting", "is 0, nobody could ask");
    if (c->min_rows > c->max_rows)
        return error_field(err, "min_rows", "is %zu, a batch has at most %zu", c->min_rows,
                           c->max_rows);
    if (c->policy == BATCH_FIXED && c->max_waiting < c->max_rows)
        return error_field(err, "max_waiting", "is %zu, a fixed batch of %zu would never fill",
                           c->max_waiting, c->max_rows);
    if (c->max_delay_us > longest_us)
        return error_field(err, "max_delay_us", "is above a day");
    if (c->max_itl_us > longest_us)
        return error_field(err, "max_itl_us", "is above a day");
    if (c->ageing_us > longest_us)
        return error_field(err, "ageing_us", "is above a day");
    return STATUS_OK;
}

static void free_batcher(struct batcher *b)
{
    by_length_close(&b->by_length);
    deadlines_close(&b->deadlines);
    free(b->rows);
    free(b);
}

static void apply(struct batcher *b, const struct batcher_config *config)
{
    b->config = *config;
    if (b->config.max_cost == 0)
        b->config.max_cost = SIZE_MAX;
    b->waiting.ageing_us = config->ageing_us == 0 ? default_ageing_us : config->ageing_us;
    b->policy = policy_of(config->policy);
    b->gather = (struct gather){0};
}

/* Once, for a policy that sorts those who wait. */
static enum status open_by_length(struct batcher *b, const struct batcher_config *config,
                                  struct error *err)
{
    if (policy_of(config->policy)->choose == NULL || b->by_length.items != NULL)
        return STATUS_OK;
    return by_length_open(&b->by_length, b->cap_waiting, &b->agent, &b->env, err);
}

static void run_step(struct batch_step *step);
static void step_done(struct batch_step *step);

enum status batcher_open(struct batcher **out, const struct batcher_config *config,
                         const struct batch_agent *agent, const struct batch_compute *compute,
                         const struct batch_timer *timer, const struct env *env, struct error *err)
{
    struct batcher *b;
    size_t max_asks;
    enum status rc = check_config(config, err);

    if (rc != STATUS_OK)
        return rc;
    assert((agent->reserve == NULL) == (agent->release == NULL));
    b = try_alloc(1, sizeof(*b));
    if (b == NULL)
        return error_no_memory(err, sizeof(*b), "a batcher");
    home_init(&b->home);
    b->agent = *agent;
    b->compute = *compute;
    b->timer = *timer;
    b->env = *env;
    b->step = (struct batch_step){.run = run_step, .done = step_done};
    waiting_init(&b->waiting);
    b->cap_rows = config->max_rows;
    b->cap_waiting = config->max_waiting;
    apply(b, config);
    list_init(&b->running);
    list_init(&b->ending);
    list_init(&b->in_step);
    list_init(&b->to_tell);
    b->rows = try_alloc(config->max_rows, sizeof(b->rows[0]));
    if (b->rows == NULL) {
        rc = error_no_memory(err, (uint64_t)config->max_rows * sizeof(b->rows[0]),
                             "the rows of a step");
        goto out;
    }
    /* Preempted asks wait beside those that max_waiting counts. */
    if (__builtin_add_overflow(config->max_waiting, config->max_rows, &max_asks))
        max_asks = SIZE_MAX;
    rc = deadlines_open(&b->deadlines, max_asks, err);
    if (rc != STATUS_OK)
        goto out;
    rc = open_by_length(b, config, err);
    if (rc != STATUS_OK)
        goto out;
    *out = b;
    b = NULL; /* given away */
out:
    if (b != NULL)
        free_batcher(b);
    return rc;
}

void asker_init(struct asker *a)
{
    list_init(&a->behind);
    a->front = NULL;
}

/* A tick, please, at at_us or before. Inside pump there is no need: it looks at everything before
 * it returns. */
static void wake_by(struct batcher *b, uint64_t at_us)
{
    if (b->is_pumping || (b->armed_us != 0 && b->armed_us <= at_us))
        return;
    b->armed_us = at_us;
    b->timer.arm(b->timer.self, at_us);
}

/* 0 is never. */
static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
    if (a_us == 0 || b_us == 0)
        return a_us + b_us;
    return a_us < b_us ? a_us : b_us;
}

static uint64_t now_of(const struct batcher *b)
{
    uint64_t now_us = env_now_us(&b->env);

    return now_us > 0 ? now_us : 1; /* 0 means "never" to the timer and in an ask */
}

struct policy_view batcher_view(struct batcher *b, uint64_t now_us)
{
    return (struct policy_view){
        .config = &b->config,
        .now_us = now_us,
        .oldest_us = b->waiting.n_queued > 0 ? waiting_oldest_us(&b->waiting) : now_us,
        .n_queued = b->waiting.n_queued - b->n_admitted,
        .n_admitted = b->n_admitted + b->waiting.n_returned,
        .n_running = b->n_running,
        .gather = &b->gather,
    };
}

/* When those who wait give up; 0: never. */
static uint64_t give_up_us(struct batcher *b)
{
    struct policy_view v;

    if (b->policy->give_up_us == NULL)
        return 0;
    v = batcher_view(b, 0);
    return v.n_queued > 0 ? b->policy->give_up_us(&v) : 0;
}

void ask_wait(struct batcher *b, struct ask *ask, bool is_returned)
{
    ask->state = ASK_WAITING;
    ask->cost = b->agent.cost(b->agent.self, ask->row);
    b->waiting_cost += ask->cost;
    deadlines_add(&b->deadlines, ask);
    if (is_returned)
        waiting_return(&b->waiting, ask);
    else
        waiting_add(&b->waiting, ask);
}

void ask_take_out(struct batcher *b, struct ask *ask)
{
    assert(!link_is_on(&ask->in_step));
    assert(ask->state >= ASK_BEHIND && ask->state <= ASK_RUNNING);
    switch (ask->state) {
    case ASK_BEHIND:
        list_remove(&ask->link);
        b->n_behind--;
        break;
    case ASK_WAITING:
        if (ask->is_chosen)
            b->n_admitted--; /* nobody else begins in its stead */
        waiting_remove(&b->waiting, ask);
        if (b->n_admitted > b->waiting.n_queued)
            b->n_admitted = b->waiting.n_queued;
        break;
    case ASK_RUNNING:
        list_remove(&ask->link);
        b->n_running--;
        return;
    case ASK_NEW:
    case ASK_ENDING:
    case ASK_SETTLED:
        break;
    }
    b->waiting_cost -= ask->cost;
    deadlines_remove(&b->deadlines, ask);
}

void ask_end(struct batcher *b, struct ask *ask)
{
    if (link_is_on(&ask->to_tell))
        list_remove(&ask->to_tell);
    ask->state = ASK_ENDING;
    list_push(&b->ending, &ask->link);
    b->n_ending++;
}

static void end_closing(struct batcher *b, struct ask *ask)
{
    ask_take_out(b, ask);
    (void)error_set(&ask->row->err, STATUS_UNAVAILABLE, "the agent is being closed");
    ask_end(b, ask);
}

static void end_cancelled(struct batcher *b, struct ask *ask)
{
    ask_take_out(b, ask);
    (void)error_set(&ask->row->err, STATUS_CANCELLED, "cancelled");
    ask_end(b, ask);
}

static void end_overdue(struct batcher *b, struct ask *ask)
{
    ask_take_out(b, ask);
    if (ask->n_steps == 0)
        (void)error_set(&ask->row->err, STATUS_DEADLINE, "the deadline passed while it waited");
    else
        (void)error_set(&ask->row->err, STATUS_DEADLINE, "the deadline passed after %u steps",
                        ask->n_steps);
    ask_end(b, ask);
}

static void end_missed(struct batcher *b, struct ask *ask, size_t n)
{
    ask_take_out(b, ask);
    (void)error_set(&ask->row->err, STATUS_ABORTED, "%zu of %zu came within %llu us", n,
                    b->config.max_rows, (unsigned long long)b->config.max_delay_us);
    ask_end(b, ask);
}

/* The time in which, at the recent rate, a quarter of those who wait are through: early enough that
 * the queue does not run dry, late enough that not all who were refused find it full again. */
static uint32_t retry_after_ms(const struct batcher *b)
{
    uint64_t interval_us = b->interval_us > 0 ? b->interval_us : 1000;
    size_t n = b->waiting.n_queued / 4 + 1;
    uint64_t ms_max = 60 * 1000;
    uint64_t ms;

    if (interval_us > ms_max * 1000 / n)
        return (uint32_t)ms_max;
    ms = interval_us * n / 1000;
    return ms > 0 ? (uint32_t)ms : 1;
}

static enum status check_ask(const struct batcher *b, const struct ask *ask, uint64_t now_us,
                             struct error *err)
{
    size_t n = b->waiting.n_queued + b->waiting.n_returned + b->n_behind + b->n_ending;
    enum status rc;

    if (b->is_closing)
        return error_set(err, STATUS_UNAVAILABLE, "the agent is being closed");
    if (ask->deadline_us != 0 && ask->deadline_us <= now_us)
        return error_set(err, STATUS_DEADLINE, "the deadline has passed already");
    if (n >= b->config.max_waiting)
        rc = error_set(err, STATUS_EXHAUSTED, "%zu requests wait already", n);
    else if (b->config.max_waiting_cost != 0 && b->waiting_cost != 0 &&
             (b->waiting_cost >= b->config.max_waiting_cost ||
              ask->cost > b->config.max_waiting_cost - b->waiting_cost))
        rc = error_set(err, STATUS_EXHAUSTED,
                       "what waits already costs %zu of at most %zu, this would add %zu",
                       b->waiting_cost, b->config.max_waiting_cost, ask->cost);
    else
        return STATUS_OK;
    err->retry_after_ms = retry_after_ms(b);
    return rc;
}

static int clamp_priority(int priority)
{
    if (priority > PRIORITY_MAX)
        return PRIORITY_MAX;
    return priority < -PRIORITY_MAX ? -PRIORITY_MAX : priority;
}

static void come_to_front(struct batcher *b, struct ask *ask, uint64_t now_us)
{
    ask->since_us = now_us;
    ask->number = ++b->n_numbered;
    gather_asked(&b->gather, now_us);
    ask_wait(b, ask, false);
}

enum status batcher_ask(struct batcher *b, struct ask *ask, struct error *err)
{
    uint64_t now_us = now_of(b);
    uint64_t wake_us;
    enum status rc;

    ASSERT_HOME(&b->home);
    assert(ask->state == ASK_NEW && ask->asker != NULL && ask->reply.then != NULL);
    ask->cost = b->agent.cost(b->agent.self, ask->row);
    rc = check_ask(b, ask, now_us, err);
    if (rc != STATUS_OK) {
        b->stats.n_refused++;
        return rc;
    }
    ask->priority = clamp_priority(ask->priority);
    b->stats.n_asked++;
    ask->arrival_us = now_us;
    if (ask->asker->front == NULL) {
        ask->asker->front = ask;
        come_to_front(b, ask, now_us);
    } else {
        ask->state = ASK_BEHIND;
        list_push(&ask->asker->behind, &ask->link);
        b->n_behind++;
        b->waiting_cost += ask->cost;
        deadlines_add(&b->deadlines, ask);
    }
    if (!b->is_stepping) {
        wake_by(b, now_us);
        return STATUS_OK;
    }
    wake_us = earlier(ask->deadline_us, give_up_us(b));
    if (wake_us != 0)
        wake_by(b, wake_us);
    return STATUS_OK;
}

/* Rows that run, and those that were let in, are a batch that has begun. */
static bool is_between_batches(const struct batcher *b)
{
    return b->n_running == 0 && b->n_admitted == 0 && b->waiting.n_returned == 0;
}

enum status batcher_configure(struct batcher *b, const struct batcher_config *config,
                              struct error *err)
{
    enum status rc = check_config(config, err);

    ASSERT_HOME(&b->home);
    if (rc != STATUS_OK)
        return rc;
    if (config->max_rows > b->cap_rows)
        return error_field(err, "max_rows", "is %zu, a step has at most %zu", config->max_rows,
                           b->cap_rows);
    if (config->max_waiting > b->cap_waiting)
        return error_field(err, "max_waiting", "is %zu, at most %zu can wait", config->max_waiting,
                           b->cap_waiting);
    rc = open_by_length(b, config, err);
    if (rc != STATUS_OK)
        return rc;
    b->next = *config;
    b->is_changing = true;
    b->policy = &policy_hold;
    if (!b->is_stepping)
        wake_by(b, now_of(b));
    return STATUS_OK;
}

void batcher_postpone(struct batcher *b, struct ask *ask, uint64_t deadline_us)
{
    ASSERT_HOME(&b->home);
    assert(ask->state != ASK_NEW && ask->state != ASK_SETTLED);
    if (ask->deadline_us == 0 || (deadline_us != 0 && deadline_us <= ask->deadline_us))
        return;
    deadlines_remove(&b->deadlines, ask);
    ask->deadline_us = deadline_us;
    if (ask->state == ASK_BEHIND || ask->state == ASK_WAITING)
        deadlines_add(&b->deadlines, ask);
}

void batcher_cancel(struct batcher *b, struct ask *ask)
{
    ASSERT_HOME(&b->home);
    assert(ask->state != ASK_NEW && ask->state != ASK_SETTLED);
    if (ask->state == ASK_ENDING)
        return;
    if (link_is_on(&ask->in_step)) {
        ask->is_cancelled = true;
        return;
    }
    end_cancelled(b, ask);
    wake_by(b, now_of(b));
}

/* The one behind a settled ask comes to the front of its asker. */
static void advance(struct batcher *b, struct asker *asker, uint64_t now_us)
{
    struct link *l = list_first(&asker->behind);
    struct ask *ask;

    asker->front = NULL;
    if (l == NULL)
        return;
    ask = container_of(l, struct ask, link);
    asker->front = ask;
    if (b->is_closing) {
        end_closing(b, ask);
        return;
    }
    ask_take_out(b, ask);
    come_to_front(b, ask, now_us);
}

static void count_end(struct batcher *b, enum status status)
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

static void settle_ended(struct batcher *b)
{
    struct link *l;

    while ((l = list_pop(&b->ending)) != NULL) {
        struct ask *ask = container_of(l, struct ask, link);
        struct error err = ask->row->err; /* the continuation may free the row */

        b->n_ending--;
        ask->state = ASK_SETTLED;
        count_end(b, err.status);
        if (ask->asker->front == ask)
            advance(b, ask->asker, now_of(b));
        future_settle(&ask->reply, &err);
    }
}

/* Nobody starts, and nobody goes on, after the deadline. Rows that compute has are seen to when
 * they are back. */
static void expire(struct batcher *b, uint64_t now_us)
{
    struct ask *ask;
    struct link *next;

    while ((ask = deadlines_first(&b->deadlines)) != NULL && ask->deadline_us <= now_us)
        end_overdue(b, ask);
    for (struct link *l = list_first(&b->running); l != NULL; l = next) {
        next = list_next(&b->running, l);
        ask = container_of(l, struct ask, link);
        if (ask->deadline_us != 0 && ask->deadline_us <= now_us && !link_is_on(&ask->in_step))
            end_overdue(b, ask);
    }
}

/* A batch that is not complete in time ends as a whole. */
static void give_up(struct batcher *b, uint64_t now_us)
{
    uint64_t at_us = give_up_us(b);
    size_t n = b->waiting.n_queued;

    if (at_us == 0 || at_us > now_us)
        return;
    while (b->waiting.n_queued > 0)
        end_missed(b, waiting_first(&b->waiting), n);
}

static void count_step(struct batcher *b)
{
    struct batcher_stats *s = &b->stats;
    size_t last = sizeof s->rows_histogram / sizeof s->rows_histogram[0] - 1;
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

static void start_step(struct batcher *b)
{
    count_step(b);
    if (b->progress_us == 0)
        b->progress_us = now_of(b);
    b->is_stepping = true;
    b->step.begun_us = b->step_us;
    b->compute.submit(b->compute.self, &b->step);
}

static void tell(struct batcher *b)
{
    struct link *l;

    while ((l = list_pop(&b->to_tell)) != NULL) {
        struct ask *ask = container_of(l, struct ask, to_tell);

        ask->more(ask, ask->more_arg);
    }
}

static bool is_empty(const struct batcher *b)
{
    return !b->is_stepping && b->n_running == 0 && b->n_ending == 0 && b->n_behind == 0 &&
           b->waiting.n_queued == 0 && b->waiting.n_returned == 0;
}

static void pump(struct batcher *b)
{
    uint64_t wake_us = 0;
    struct ask *first;

    if (b->is_pumping)
        return;
    b->is_pumping = true;
    do {
        expire(b, now_of(b));
        give_up(b, now_of(b));
        settle_ended(b);
        if (b->is_changing && is_between_batches(b)) {
            b->is_changing = false;
            apply(b, &b->next);
        }
        if (!b->is_stepping && !b->is_closing) {
            step_form(b, now_of(b), &wake_us);
            if (b->n_rows > 0)
                start_step(b);
        }
        tell(b);
    } while (!list_is_empty(&b->ending));
    b->is_pumping = false;

    if (b->is_closing && is_empty(b)) {
        void (*closed)(void *arg) = b->closed;
        void *arg = b->closed_arg;

        if (b->armed_us != 0)
            b->timer.arm(b->timer.self, 0);
        free_batcher(b);
        closed(arg);
        return;
    }
    if (b->is_stepping)
        wake_us = 0;
    else
        b->progress_us = 0;
    first = deadlines_first(&b->deadlines);
    wake_us = earlier(wake_us, first != NULL ? first->deadline_us : 0);
    wake_us = earlier(wake_us, give_up_us(b));
    if (wake_us != b->armed_us) {
        b->armed_us = wake_us;
        b->timer.arm(b->timer.self, wake_us);
    }
}

void batcher_tick(struct batcher *b)
{
    ASSERT_HOME(&b->home);
    b->armed_us = 0;
    pump(b);
}

/* Compute thread. */
static void run_step(struct batch_step *step)
{
    struct batcher *b = container_of(step, struct batcher, step);

    b->agent.batch_act(b->agent.self, b->rows, b->n_rows);
}

static void end_row(struct batcher *b, struct ask *ask)
{
    struct row *row = ask->row;

    ask_take_out(b, ask);
    if (row->outcome == ROW_DONE)
        row->err = (struct error){0};
    else if (row->err.status == STATUS_OK)
        (void)error_set(&row->err, STATUS_INTERNAL, "the agent failed and did not say why");
    ask_end(b, ask);
}

static void take_back(struct batcher *b, struct ask *ask)
{
    if (b->agent.stepped != NULL)
        b->agent.stepped(b->agent.self, ask->row);
    if (ask->row->outcome != ROW_MORE)
        end_row(b, ask);
    else if (ask->is_cancelled)
        end_cancelled(b, ask);
    else if (b->is_closing)
        end_closing(b, ask);
    else if (ask->more != NULL)
        list_push(&b->to_tell, &ask->to_tell);
}

/* Smooths the time from one finished ask to the next; idle time does not count. */
static void count_progress(struct batcher *b, size_t n_ended)
{
    uint64_t now_us = now_of(b);
    uint64_t each_us;

    if (n_ended == 0)
        return;
    each_us = (now_us - b->progress_us) / n_ended;
    b->interval_us = b->interval_us == 0 ? each_us : (7 * b->interval_us + each_us) / 8;
    b->progress_us = now_us;
}

static void step_done(struct batch_step *step)
{
    struct batcher *b = container_of(step, struct batcher, step);
    size_t n_running = b->n_running;
    struct link *l;

    ASSERT_HOME(&b->home);
    assert(b->is_stepping);
    b->is_stepping = false;
    step_learn(b, now_of(b));
    while ((l = list_pop(&b->in_step)) != NULL)
        take_back(b, container_of(l, struct ask, in_step));
    count_progress(b, n_running - b->n_running);
    gather_answered(&b->gather, n_running - b->n_running, now_of(b));
    pump(b);
}

void batcher_stats(const struct batcher *b, struct batcher_stats *out)
{
    *out = b->stats;
    out->n_waiting = b->waiting.n_queued + b->waiting.n_returned + b->n_ending;
    out->n_running = b->n_running;
    out->n_behind = b->n_behind;
}

void batcher_close(struct batcher *b, void (*closed)(void *arg), void *arg)
{
    struct ask *ask;
    struct link *next;

    ASSERT_HOME(&b->home);
    assert(!b->is_closing);
    b->is_closing = true;
    b->closed = closed;
    b->closed_arg = arg;
    while ((ask = waiting_first(&b->waiting)) != NULL)
        end_closing(b, ask);
    for (struct link *l = list_first(&b->running); l != NULL; l = next) {
        next = list_next(&b->running, l);
        ask = container_of(l, struct ask, link);
        if (!link_is_on(&ask->in_step))
            end_closing(b, ask);
    }
    wake_by(b, now_of(b));
}
