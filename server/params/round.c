/* The path of a gradient into a round: it becomes an update (pushed gradients are joined, fan_in at
 * a time), which is requested from the set's batcher as a turn on its client's clone. The batcher's
 * policy forms the round; when it settles, the update's waiters are called, and its memory is
 * released. Requests of one clone run one after the other, so a client is in a round once; an
 * update of pushed gradients has its own clone, since a push does not wait. */
#include "server/params/round.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/params/checkpoint.h"
#include "server/params/contributors.h"

struct round_update {
    struct link link;
    struct params_set *set;
    struct params_client *client;
    struct params_turn turn;
    struct list waiters;
    bool is_pushed, is_dropped;
    struct params_gradient **gradients; /* [n] */
    struct tensor_view *views;          /* [n] of their values */
    size_t n;
};

/* --- gradients --- */

struct pushed {
    struct link link; /* of set->queue */
    struct params_gradient gradient;
    char client[];
};

static struct pushed *pushed_of(struct params_gradient *g)
{
    return container_of(g, struct pushed, gradient);
}

enum status gradient_make(struct params_gradient **out, const char *client, uint64_t step_id,
                          uint64_t base_version, float *values, struct error *err)
{
    size_t len = strlen(client);
    struct pushed *p = try_alloc(1, sizeof(*p) + len + 1);

    if (p == NULL)
        return error_no_memory(err, sizeof(*p) + len + 1, "a gradient");
    memcpy(p->client, client, len);
    p->gradient = (struct params_gradient){
        .client = p->client, .step_id = step_id, .base_version = base_version, .values = values};
    *out = &p->gradient;
    return STATUS_OK;
}

static void gradient_free(struct params_set *set, struct params_gradient *g)
{
    params_memory_give(set->memory, g->values);
    snapshot_unref(g->follows);
    free(g->skips);
    free(pushed_of(g));
}

/* --- updates --- */

static struct round_update *round_update_of(struct link *l)
{
    return container_of(l, struct round_update, link);
}

static void round_update_free(struct round_update *c)
{
    while (list_pop(&c->waiters) != NULL)
        continue;
    for (size_t i = 0; i < c->n; i++)
        if (c->gradients[i] != NULL)
            gradient_free(c->set, c->gradients[i]);
    if (c->is_pushed && c->client != NULL)
        clone_close(&c->client->base);
    agent_turn_deinit(&c->turn.base);
    free(c->gradients);
    free(c->views);
    free(c);
}

/* Makes an update with its gradients; takes them on success. */
static struct round_update *round_update_make(struct params_set *set,
                                              struct params_gradient *const *gradients, size_t n)
{
    struct round_update *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->gradients = try_alloc(n, sizeof(c->gradients[0]));
    c->views = try_alloc(n, sizeof(c->views[0]));
    if (c->gradients == NULL || c->views == NULL) {
        free(c->gradients);
        free(c->views);
        free(c);
        return NULL;
    }
    c->set = set;
    c->n = n;
    list_init(&c->waiters);
    agent_turn_init(&c->turn.base, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        c->gradients[i] = gradients[i];
        c->views[i] = (struct tensor_view){
            .name = "gradient",
            .type = TENSOR_F32,
            .n_dims = 1,
            .dims = {(int64_t)set->spec.n},
            .data = gradients[i]->values,
            .size_bytes = set->spec.n * sizeof(float),
        };
    }
    c->turn.gradients = c->gradients;
    c->turn.n_gradients = n;
    c->turn.base.seen.tensors = c->views;
    c->turn.base.seen.n_tensors = n;
    return c;
}

static void notify_subscribers(struct params_set *set)
{
    struct link *l, *next;

    for (l = list_first(&set->subscribers); l != NULL; l = next) {
        struct params_subscriber *u = container_of(l, struct params_subscriber, link);

        next = list_next(&set->subscribers, l);
        if (u->published != NULL)
            u->published(u);
    }
}

/* Counts an update's outcome, and a round with its first row. */
static void round_update_count_end(struct round_update *c, enum status status)
{
    struct params_set *set = c->set;

    if (status == STATUS_ABORTED)
        set->counters.aborted++;
    if (c->is_pushed && status != STATUS_OK && !c->is_dropped)
        set->counters.dropped += c->n;
    if (status != STATUS_OK || c->turn.counted_in == set->told_version)
        return;
    set->told_version = c->turn.counted_in;
    set->attempt++;
    set->counters.rounds++;
    set->counters.partial += c->turn.n_rows < set->spec.round_size;
    notify_subscribers(set);
    checkpoint_after_round(set);
}

/* --- who is missing --- */

enum { MISSING_TEXT_SIZE = 160 };

/* The clients that have sent gradients before, and none for this attempt. */
static void params_missing(char out[MISSING_TEXT_SIZE], const struct params_set *set)
{
    size_t at = 0, n_named = 0, n_more = 0;

    out[0] = '\0';
    for (struct link *l = list_first(&set->contributors); l != NULL;
         l = list_next(&set->contributors, l)) {
        const struct contributor *t = container_of(l, struct contributor, link);

        if (t->attempt == set->attempt + 1)
            continue;
        if (at > MISSING_TEXT_SIZE / 2) {
            n_more++;
            continue;
        }
        at += (size_t)snprintf(out + at, MISSING_TEXT_SIZE - at, "%s'%.40s'",
                               n_named++ == 0 ? "" : ", ", t->client->id);
    }
    if (n_named == 0)
        (void)snprintf(out, MISSING_TEXT_SIZE, "clients that have sent no gradient yet");
    else if (n_more > 0)
        (void)snprintf(out + at, MISSING_TEXT_SIZE - at, " and %zu more", n_more);
}

/* The client's gradient of this attempt counts no more. */
static void params_withdraw(struct params_set *set, const struct params_client *client)
{
    for (struct link *l = list_first(&set->contributors); l != NULL;
         l = list_next(&set->contributors, l)) {
        struct contributor *t = container_of(l, struct contributor, link);

        if (t->client == client)
            t->attempt = 0;
    }
}

/* Completes the error of an update whose round did not come about. */
static void round_update_explain(const struct round_update *c, struct error *err)
{
    const bool is_late = err->status == STATUS_DEADLINE;
    char missing[MISSING_TEXT_SIZE];

    if (c->is_pushed || c->is_dropped || (!is_late && err->status != STATUS_ABORTED))
        return;
    params_missing(missing, c->set);
    (void)error_because(err, err->status, err->reason, NULL,
                        "the round of '%.64s' is not complete after %s: missing are %s",
                        c->set->spec.name, is_late ? "the gradient's timeout" : "its timeout",
                        missing);
    if (is_late)
        params_withdraw(c->set, c->client);
}

static void on_ended(struct agent_turn *turn, const struct error *err)
{
    struct round_update *c = container_of(turn, struct round_update, turn.base);
    struct update_outcome end = {.err = *err, .counted_in = c->turn.counted_in};
    struct params_set *set = c->set;
    struct link *l;

    end.wait_us = env_now_us(set->sets->env) - turn->request.arrival_us;
    if (err->status == STATUS_OK)
        agent_turn_keep(turn);
    else
        agent_turn_drop(turn);
    list_remove(&c->link);
    round_update_explain(c, &end.err);
    round_update_count_end(c, err->status);
    if (err->status == STATUS_ABORTED && list_is_empty(&set->updates))
        set->attempt++;
    while ((l = list_pop(&c->waiters)) != NULL) {
        struct update_waiter *w = container_of(l, struct update_waiter, link);

        w->settled(w, &end);
    }
    round_update_free(c);
}

/* Requests c's part in a round; frees c on failure. */
static enum status round_update_ask(struct round_update *c, uint64_t timeout_ms, struct error *err)
{
    const struct agent_turn_terms terms = {
        .ended = on_ended,
        .deadline_us = timeout_ms > 0 ? env_now_us(c->set->sets->env) + timeout_ms * 1000 : 0,
    };
    struct agent_turn *turn = &c->turn.base;
    enum status rc = agent_turn_observe(turn, &c->client->base, err);

    if (rc == STATUS_OK)
        rc = agent_turn_ask(turn, c->set->model->batcher, &terms, err);
    if (rc == STATUS_OK) {
        list_push(&c->set->updates, &c->link);
        return rc;
    }
    if (agent_turn_is_open(turn))
        agent_turn_drop(turn);
    round_update_free(c);
    return rc;
}

static struct round_update *params_find_update(const struct params_set *set, const char *client,
                                               uint64_t step_id)
{
    for (struct link *l = list_first(&set->updates); l != NULL; l = list_next(&set->updates, l)) {
        struct round_update *c = round_update_of(l);

        if (!c->is_pushed && !c->is_dropped && c->gradients[0]->step_id == step_id &&
            strcmp(c->client->id, client) == 0)
            return c;
    }
    return NULL;
}

enum status params_look_up(enum params_step *out, uint64_t *ret_version, struct params_set *set,
                           const char *client, uint64_t step_id, uint64_t base_version,
                           struct error *err)
{
    struct contributor *t = set->spec.dedupe ? contributor_find(set, client) : NULL;

    *out = PARAMS_STEP_NEW;
    if (t != NULL && t->client->has_step && step_id <= t->client->last_step) {
        *out = PARAMS_STEP_STORED;
        *ret_version = t->client->last_version;
        return step_id == t->client->last_step ? STATUS_OK
                                               : params_check_step(t->client, step_id, err);
    }
    if (t != NULL && params_find_update(set, client, step_id) != NULL)
        *out = PARAMS_STEP_JOINS;
    return *out == PARAMS_STEP_JOINS ? STATUS_OK
                                     : params_check_fresh(set->model->agent, base_version, err);
}

enum status params_submit(struct params_set *set, struct params_gradient *gradient,
                          uint64_t timeout_ms, struct update_waiter *w, struct error *err)
{
    struct round_update *c = NULL;
    struct contributor *t;
    enum status rc = contributor_meet(&t, set, gradient->client, err);

    if (rc == STATUS_OK) {
        c = round_update_make(set, &gradient, 1);
        if (c == NULL)
            rc = error_no_memory(err, sizeof(*c), "a contribution");
    }
    if (rc != STATUS_OK) {
        gradient_free(set, gradient);
        return rc;
    }
    c->client = t->client;
    t->attempt = set->attempt + 1;
    list_push(&c->waiters, &w->link);
    return round_update_ask(c, timeout_ms, err);
}

enum status params_follow(struct params_set *set, const char *source, struct snapshot *to,
                          float tau, struct update_waiter *w, struct error *err)
{
    uint64_t version = params_current(set->model->agent)->version;
    struct params_gradient *step = NULL;
    float *values;

    assert(to->n == set->spec.n);
    if (set->spec.round_size != 1)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "name",
                             "a round of '%.64s' has %zu gradients: only a set whose round_size "
                             "is 1 can follow another",
                             set->spec.name, set->spec.round_size);
    if (params_memory_take(&values, set->memory, err) != STATUS_OK)
        return err->status;
    if (gradient_make(&step, source, 0, version, values, err) != STATUS_OK) {
        params_memory_give(set->memory, values);
        return err->status;
    }
    step->follows = snapshot_ref(to);
    step->tau = tau;
    return params_submit(set, step, 0, w, err);
}

uint64_t params_last_step(struct params_set *set, const char *client)
{
    const struct contributor *t = contributor_find(set, client);

    return t != NULL && t->client->has_step ? t->client->last_step : 0;
}

void params_join(struct params_set *set, const char *client, uint64_t step_id,
                 struct update_waiter *w)
{
    struct round_update *c = params_find_update(set, client, step_id);

    assert(c != NULL);
    list_push(&c->waiters, &w->link);
}

static void round_update_drop(struct round_update *c)
{
    c->is_dropped = true;
    agent_turn_cancel(&c->turn.base);
}

void params_leave(struct params_set *set, struct update_waiter *w)
{
    if (!link_is_on(&w->link))
        return;
    list_remove(&w->link);
    if (set->state == PARAMS_CLOSING) /* its batcher settles all waiting updates */
        return;
    for (struct link *l = list_first(&set->updates); l != NULL; l = list_next(&set->updates, l)) {
        struct round_update *c = round_update_of(l);

        if (!c->is_pushed && !c->is_dropped && list_is_empty(&c->waiters)) {
            params_withdraw(set, c->client);
            round_update_drop(c);
        }
    }
}

/* --- pushed gradients --- */

/* An update whose gradients are waiting: neither in a step nor dropped. */
static bool is_waiting(const struct round_update *c)
{
    return c->is_pushed && !c->is_dropped && c->turn.base.request.state == REQUEST_WAITING;
}

size_t params_depth(const struct params_set *set)
{
    size_t n = set->n_queued;

    for (struct link *l = list_first(&set->updates); l != NULL; l = list_next(&set->updates, l))
        if (is_waiting(round_update_of(l)))
            n += round_update_of(l)->n;
    return n;
}

static void drop_the_oldest(struct params_set *set)
{
    struct link *l;

    for (l = list_first(&set->updates); l != NULL; l = list_next(&set->updates, l)) {
        struct round_update *c = round_update_of(l);

        if (is_waiting(c)) {
            set->counters.dropped += c->n;
            round_update_drop(c);
            return;
        }
    }
    l = list_pop(&set->queue);
    set->n_queued--;
    set->counters.dropped++;
    gradient_free(set, &container_of(l, struct pushed, link)->gradient);
}

static int by_order(const void *a, const void *b)
{
    const struct params_gradient *const *x = a, *const *y = b;

    return params_compare(*x, *y);
}

/* Joins fan_in queued gradients into one update. Without memory they stay queued. */
static bool round_gather(struct params_set *set)
{
    struct params_gradient *gradients[PARAMS_MAX_QUEUE];
    struct link *l = list_first(&set->queue);
    size_t n = set->spec.fan_in;
    struct round_update *c;
    struct error err;

    for (size_t i = 0; i < n; i++, l = list_next(&set->queue, l))
        gradients[i] = &container_of(l, struct pushed, link)->gradient;
    qsort(gradients, n, sizeof(gradients[0]), by_order);
    c = round_update_make(set, gradients, n);
    if (c == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        (void)list_pop(&set->queue);
    set->n_queued -= n;
    c->is_pushed = true;
    if (params_client_open(&c->client, set->model->agent, gradients[0]->client, &err) != STATUS_OK)
        round_update_free(c);
    else if (round_update_ask(c, 0, &err) == STATUS_OK)
        return true;
    set->counters.dropped += n; /* their call is over: only the counter shows it */
    log_warn("pushed", "params=%s dropped=%zu why=%s", set->spec.name, n, err.text);
    return true;
}

void params_push(struct params_set *set, struct params_gradient *gradient)
{
    struct contributor *t;
    struct error err; /* without memory for a new client its step is not remembered */

    if (params_depth(set) >= set->spec.max_queue)
        drop_the_oldest(set);
    if (set->spec.dedupe && contributor_meet(&t, set, gradient->client, &err) == STATUS_OK) {
        t->client->has_step = true;
        t->client->last_step = gradient->step_id;
        t->client->last_version = params_current(set->model->agent)->version;
        t->attempt = set->attempt + 1;
    }
    list_push(&set->queue, &pushed_of(gradient)->link);
    set->n_queued++;
    while (set->n_queued >= set->spec.fan_in && round_gather(set))
        continue;
}

void params_forget(struct params_set *set)
{
    struct link *l;

    while ((l = list_first(&set->contributors)) != NULL)
        contributor_forget(set, container_of(l, struct contributor, link));
    while ((l = list_pop(&set->queue)) != NULL)
        gradient_free(set, &container_of(l, struct pushed, link)->gradient);
    set->n_queued = 0;
}
