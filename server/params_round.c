/* The road of a gradient into a round: it becomes a contribution (a pushed one together with
 * others, fan_in at a time), which asks the set's batcher as a turn on its client's clone. The
 * batcher's policy makes the round; when it settles, everybody who waits for the contribution is
 * told, and what it held is given back. Asks of one clone run one after the other, so a client is
 * in a round once; a contribution of pushed gradients has a clone of its own, since who pushes
 * waits for nobody. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/params.h"

struct trainer {
    struct link link;
    struct params_client *client;
};

struct contribution {
    struct link link;
    struct params_set *set;
    struct params_client *client;
    struct params_turn turn;
    struct ask ask;
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
    p->gradient = (struct params_gradient){p->client, step_id, base_version, values};
    *out = &p->gradient;
    return STATUS_OK;
}

static void gradient_free(struct params_set *set, struct params_gradient *g)
{
    params_memory_give(set->memory, g->values);
    free(pushed_of(g));
}

/* --- trainers --- */

static void forget(struct params_set *set, struct trainer *t)
{
    list_remove(&t->link);
    set->n_trainers--;
    clone_close(&t->client->base);
    free(t);
}

static void forget_the_oldest(struct params_set *set)
{
    struct link *l = list_last(&set->trainers);

    while (l != &set->trainers.head) {
        struct trainer *t = container_of(l, struct trainer, link);

        if (t->client->base.asker.front == NULL) {
            forget(set, t);
            return;
        }
        l = l->prev;
    }
}

static struct trainer *find_trainer(struct params_set *set, const char *client)
{
    for (struct link *l = list_first(&set->trainers); l != NULL; l = list_next(&set->trainers, l)) {
        struct trainer *t = container_of(l, struct trainer, link);

        if (strcmp(t->client->id, client) == 0) {
            list_remove(&t->link);
            list_push_front(&set->trainers, &t->link);
            return t;
        }
    }
    return NULL;
}

static enum status meet_trainer(struct trainer **out, struct params_set *set, const char *client,
                                struct error *err)
{
    struct trainer *t = find_trainer(set, client);
    enum status rc = STATUS_OK;

    if (t != NULL) {
        *out = t;
        return STATUS_OK;
    }
    t = try_alloc(1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a client");
    rc = params_client_open(&t->client, set->model->agent, client, err);
    if (rc != STATUS_OK) {
        free(t);
        return rc;
    }
    if (set->n_trainers == PARAMS_MAX_TRAINERS)
        forget_the_oldest(set);
    list_push_front(&set->trainers, &t->link);
    set->n_trainers++;
    *out = t;
    return STATUS_OK;
}

/* --- contributions --- */

static struct contribution *contribution_of(struct link *l)
{
    return container_of(l, struct contribution, link);
}

static void contribution_free(struct contribution *c)
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

/* With its gradients, which it takes if it is made. */
static struct contribution *contribution_make(struct params_set *set,
                                              struct params_gradient *const *gradients, size_t n)
{
    struct contribution *c = try_alloc(1, sizeof(*c));

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

static void tell_users(struct params_set *set)
{
    struct link *l, *next;

    for (l = list_first(&set->users); l != NULL; l = next) {
        struct params_user *u = container_of(l, struct params_user, link);

        next = list_next(&set->users, l);
        if (u->published != NULL)
            u->published(u);
    }
}

/* Counts how it ended, and a round with its first row. */
static void count_end(struct contribution *c, enum status status)
{
    struct params_set *set = c->set;

    if (status == STATUS_ABORTED)
        set->counters.aborted++;
    if (c->is_pushed && status != STATUS_OK && !c->is_dropped)
        set->counters.dropped += c->n;
    if (status != STATUS_OK || c->turn.counted_in == set->told_version)
        return;
    set->told_version = c->turn.counted_in;
    set->counters.rounds++;
    set->counters.partial += c->turn.n_rows < set->spec.round_size;
    tell_users(set);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct contribution *c = arg;
    struct contribution_end end = {.err = *err, .counted_in = c->turn.counted_in};
    struct params_set *set = c->set;
    struct link *l;

    (void)f;
    end.wait_us = env_now_us(set->sets->env) - c->ask.arrival_us;
    if (err->status == STATUS_OK)
        params_agent.self_observe(&c->client->base, &c->turn.base);
    else
        params_agent.drop(&c->client->base, &c->turn.base);
    list_remove(&c->link);
    count_end(c, err->status);
    while ((l = list_pop(&c->waiters)) != NULL) {
        struct contribution_waiter *w = container_of(l, struct contribution_waiter, link);

        w->settled(w, &end);
    }
    contribution_free(c);
}

/* Asks for c's part in a round; frees it if it may not have one. */
static enum status ask(struct contribution *c, struct error *err)
{
    enum status rc = params_agent.observe(&c->client->base, &c->turn.base, err);

    if (rc == STATUS_OK) {
        c->ask.row = &c->turn.base.row;
        c->ask.asker = &c->client->base.asker;
        future_init(&c->ask.reply, on_settled, c);
        rc = batcher_ask(c->set->model->batcher, &c->ask, err);
    }
    if (rc == STATUS_OK)
        list_push(&c->set->contributions, &c->link);
    else
        contribution_free(c);
    return rc;
}

static struct contribution *find_contribution(const struct params_set *set, const char *client,
                                              uint64_t step_id)
{
    for (struct link *l = list_first(&set->contributions); l != NULL;
         l = list_next(&set->contributions, l)) {
        struct contribution *c = contribution_of(l);

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
    struct trainer *t = set->spec.dedupe ? find_trainer(set, client) : NULL;

    *out = PARAMS_STEP_NEW;
    if (t != NULL && t->client->has_step && step_id <= t->client->last_step) {
        *out = PARAMS_STEP_STORED;
        *ret_version = t->client->last_version;
        return step_id == t->client->last_step ? STATUS_OK
                                               : params_check_step(t->client, step_id, err);
    }
    if (t != NULL && find_contribution(set, client, step_id) != NULL)
        *out = PARAMS_STEP_JOINS;
    return *out == PARAMS_STEP_JOINS ? STATUS_OK
                                     : params_check_fresh(set->model->agent, base_version, err);
}

enum status params_contribute(struct params_set *set, struct params_gradient *gradient,
                              struct contribution_waiter *w, struct error *err)
{
    struct contribution *c = NULL;
    struct trainer *t;
    enum status rc = meet_trainer(&t, set, gradient->client, err);

    if (rc == STATUS_OK) {
        c = contribution_make(set, &gradient, 1);
        if (c == NULL)
            rc = error_no_memory(err, sizeof(*c), "a contribution");
    }
    if (rc != STATUS_OK) {
        gradient_free(set, gradient);
        return rc;
    }
    c->client = t->client;
    list_push(&c->waiters, &w->link);
    return ask(c, err);
}

void params_join(struct params_set *set, const char *client, uint64_t step_id,
                 struct contribution_waiter *w)
{
    struct contribution *c = find_contribution(set, client, step_id);

    assert(c != NULL);
    list_push(&c->waiters, &w->link);
}

static void drop(struct contribution *c)
{
    c->is_dropped = true;
    batcher_cancel(c->set->model->batcher, &c->ask);
}

void params_leave(struct params_set *set, struct contribution_waiter *w)
{
    if (!link_is_on(&w->link))
        return;
    list_remove(&w->link);
    if (set->state == PARAMS_CLOSING) /* its batcher settles all that waits */
        return;
    for (struct link *l = list_first(&set->contributions); l != NULL;
         l = list_next(&set->contributions, l)) {
        struct contribution *c = contribution_of(l);

        if (!c->is_pushed && !c->is_dropped && list_is_empty(&c->waiters))
            drop(c);
    }
}

/* --- pushed gradients --- */

/* A contribution whose gradients still wait: not in a step, not given up. */
static bool is_waiting(const struct contribution *c)
{
    return c->is_pushed && !c->is_dropped && c->ask.state == ASK_WAITING;
}

size_t params_depth(const struct params_set *set)
{
    size_t n = set->n_queued;

    for (struct link *l = list_first(&set->contributions); l != NULL;
         l = list_next(&set->contributions, l))
        if (is_waiting(contribution_of(l)))
            n += contribution_of(l)->n;
    return n;
}

static void drop_the_oldest(struct params_set *set)
{
    struct link *l;

    for (l = list_first(&set->contributions); l != NULL; l = list_next(&set->contributions, l)) {
        struct contribution *c = contribution_of(l);

        if (is_waiting(c)) {
            set->counters.dropped += c->n;
            drop(c);
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

/* fan_in of the queue become one contribution. Without memory they stay where they are. */
static bool gather(struct params_set *set)
{
    struct params_gradient *gradients[PARAMS_MAX_QUEUE];
    struct link *l = list_first(&set->queue);
    size_t n = set->spec.fan_in;
    struct contribution *c;
    struct error err;

    for (size_t i = 0; i < n; i++, l = list_next(&set->queue, l))
        gradients[i] = &container_of(l, struct pushed, link)->gradient;
    qsort(gradients, n, sizeof(gradients[0]), by_order);
    c = contribution_make(set, gradients, n);
    if (c == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        (void)list_pop(&set->queue);
    set->n_queued -= n;
    c->is_pushed = true;
    if (params_client_open(&c->client, set->model->agent, gradients[0]->client, &err) != STATUS_OK)
        contribution_free(c);
    else if (ask(c, &err) == STATUS_OK)
        return true;
    set->counters.dropped += n; /* who pushed them has gone its way: only the count tells */
    log_warn("pushed", "params=%s dropped=%zu why=%s", set->spec.name, n, err.text);
    return true;
}

void params_push(struct params_set *set, struct params_gradient *gradient)
{
    struct trainer *t;
    struct error err; /* without memory for a new client its step is not remembered */

    if (params_depth(set) >= set->spec.max_queue)
        drop_the_oldest(set);
    if (set->spec.dedupe && meet_trainer(&t, set, gradient->client, &err) == STATUS_OK) {
        t->client->has_step = true;
        t->client->last_step = gradient->step_id;
        t->client->last_version = params_current(set->model->agent)->version;
    }
    list_push(&set->queue, &pushed_of(gradient)->link);
    set->n_queued++;
    while (set->n_queued >= set->spec.fan_in && gather(set))
        continue;
}

void params_forget(struct params_set *set)
{
    struct link *l;

    while ((l = list_first(&set->trainers)) != NULL)
        forget(set, container_of(l, struct trainer, link));
    while ((l = list_pop(&set->queue)) != NULL)
        gradient_free(set, &container_of(l, struct pushed, link)->gradient);
    set->n_queued = 0;
}
