/* Hosts: how a request is divided into orders for them, and how they answer. vector_order makes the
 * orders, the host's stream takes them (environment_host_order, _taken), and
 * environment_host_answer writes the results into the rows of the request, in the order in which
 * the orders were sent. A host that is at fault, silent or gone is closed: the rows of its orders
 * fail, and its instances are lost. */
#include "server/environment/host.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name.h"
#include "server/environment/plugged.h"

enum { HOST_RETRY_MS = 1000 };

static struct environment_host *host_of(struct link *l)
{
    return container_of(l, struct environment_host, peer.link);
}

static struct host_order *host_order_of(struct peer_order *o)
{
    return container_of(o, struct host_order, base);
}

static enum status hosts_gone(const char *name, struct error *err)
{
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_WORKER_LOST, "name",
                        "no worker with room for environment '%.63s' is attached", name);
    err->retry_after_ms = HOST_RETRY_MS;
    return err->status;
}

enum status hosts_find_spaces(struct environment_spaces *out, const struct vectors *all,
                              const char *name, struct error *err)
{
    for (struct link *l = list_first(&all->hosts.list); l != NULL;
         l = list_next(&all->hosts.list, l)) {
        if (strcmp(host_of(l)->name, name) != 0)
            continue;
        *out = host_of(l)->spaces;
        return STATUS_OK;
    }
    (void)error_field(err, "name",
                      "'%.63s' is no environment that is built in (%s, %s, %s) or plugged in, and "
                      "no worker that offers it is attached",
                      name, environment_type_at(0)->name, environment_type_at(1)->name,
                      environment_type_at(2)->name);
    return err->status = STATUS_NOT_FOUND;
}

/* --- instances --- */

static void vector_instance_leave(struct vector_instance *i)
{
    if (i->host == NULL)
        return;
    list_remove(&i->on_host);
    i->host->n_instances--;
    i->host = NULL;
}

static void vector_instance_lose(struct vector_instance *i)
{
    vector_instance_leave(i);
    i->state = VECTOR_LOST;
}

/* The least loaded host of the vector's name. */
static enum status vector_instance_place(struct vector *v, struct vector_instance *i,
                                         struct error *err)
{
    struct environment_host *best = NULL;

    for (struct link *l = list_first(&v->all->hosts.list); l != NULL;
         l = list_next(&v->all->hosts.list, l)) {
        struct environment_host *h = host_of(l);

        if (strcmp(h->name, v->name) == 0 && environment_spaces_equal(&h->spaces, &v->spaces) &&
            h->n_instances < h->max_instances &&
            (best == NULL || h->n_instances < best->n_instances))
            best = h;
    }
    if (best == NULL)
        return hosts_gone(v->name, err);
    i->host = best;
    i->number = ++best->n_numbered;
    list_push(&best->instances, &i->on_host);
    best->n_instances++;
    return STATUS_OK;
}

/* Of the next episode: the seed that was given, then others that follow from it (splitmix64). */
static uint64_t vector_instance_seed(struct vector_instance *i)
{
    uint64_t x = i->seed + i->n_episodes * UINT64_C(0x9e3779b97f4a7c15);

    if (i->n_episodes++ == 0)
        return i->seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* --- orders --- */

static size_t aligned(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

/* NULL: no memory. */
static struct host_order *host_order_make(enum host_order_kind kind, size_t n,
                                          const struct environment_spaces *spaces)
{
    size_t head = aligned(sizeof(struct host_order)), words = aligned(n * sizeof(uint64_t));
    size_t halves = aligned(n * sizeof(uint32_t));
    size_t numbers = aligned(n * spaces->n_action_numbers * sizeof(float));
    struct host_order *o = try_alloc(1, head + 3 * words + 2 * halves + numbers);
    char *at = (char *)o + head;

    if (o == NULL)
        return NULL;
    o->kind = kind;
    o->numbers = (uint64_t *)(void *)at;
    o->seeds = (uint64_t *)(void *)(at + words);
    o->choices = (int64_t *)(void *)(at + 2 * words);
    o->indices = (uint32_t *)(void *)(at + 3 * words);
    o->rows = (uint32_t *)(void *)(at + 3 * words + halves);
    o->action_numbers = (float *)(void *)(at + 3 * words + 2 * halves);
    return o;
}

static void host_push(struct environment_host *h, struct host_order *o)
{
    o->id = ++h->n_numbered_orders;
    peer_give(&h->peer, &o->base, o->kind != HOST_CLOSE);
}

static enum host_order_kind order_kind(const struct vector_request *r,
                                       const struct vector_instance *i)
{
    return vector_request_resets(r, i) ? HOST_RESET : HOST_STEP;
}

static struct vector_instance *request_instance(struct vector *v, const struct vector_request *r,
                                                size_t row)
{
    return &v->instances[vector_request_index(r, row)];
}

/* Counts the rows of each host; those to be reset get one. Rows that get none fail. */
static void vector_divide(struct vector *v, struct vector_request *r)
{
    struct error err;

    for (struct link *l = list_first(&v->all->hosts.list); l != NULL;
         l = list_next(&v->all->hosts.list, l))
        memset(host_of(l)->n_rows, 0, sizeof(host_of(l)->n_rows));
    for (size_t row = 0; row < r->n; row++) {
        struct vector_instance *i = request_instance(v, r, row);
        enum host_order_kind kind = order_kind(r, i);

        if (kind == HOST_STEP && i->state != VECTOR_RUNNING) {
            (void)error_because(&err, STATUS_UNAVAILABLE, REASON_WORKER_LOST, "indices",
                                "the environment is lost with its worker, reset it");
            vector_request_fail(r, row, &err);
        } else if (i->host == NULL && vector_instance_place(v, i, &err) != STATUS_OK) {
            vector_request_fail(r, row, &err);
        } else {
            i->host->n_rows[kind]++;
        }
    }
}

static enum status vector_make_orders(struct vector *v, struct error *err)
{
    bool is_full = false;
    struct link *l;

    for (l = list_first(&v->all->hosts.list); l != NULL; l = list_next(&v->all->hosts.list, l)) {
        for (int kind = 0; kind < 2; kind++) {
            struct environment_host *h = host_of(l);

            h->order[kind] = NULL;
            if (h->n_rows[kind] > 0 && !is_full)
                h->order[kind] =
                    host_order_make((enum host_order_kind)kind, h->n_rows[kind], &v->spaces);
            is_full = is_full || (h->n_rows[kind] > 0 && h->order[kind] == NULL);
        }
    }
    if (!is_full)
        return STATUS_OK;
    for (l = list_first(&v->all->hosts.list); l != NULL; l = list_next(&v->all->hosts.list, l))
        for (int kind = 0; kind < 2; kind++)
            free(host_of(l)->order[kind]);
    return error_no_memory(err, v->n * sizeof(uint64_t), "environments' orders");
}

static void order_add(struct host_order *o, const struct vector *v, const struct vector_request *r,
                      size_t row, struct vector_instance *i)
{
    size_t n_numbers = v->spaces.n_action_numbers;

    o->numbers[o->n] = i->number;
    o->indices[o->n] = (uint32_t)(i - v->instances);
    o->rows[o->n] = (uint32_t)row;
    if (o->kind == HOST_RESET)
        o->seeds[o->n] = vector_instance_seed(i);
    else if (n_numbers == 0)
        o->choices[o->n] = r->choices[row];
    else
        memcpy(o->action_numbers + o->n * n_numbers, r->action_numbers + row * n_numbers,
               n_numbers * sizeof(float));
    o->n++;
    i->is_busy = true;
}

/* Their hosts were not told of them. */
static void vector_unplace(struct vector *v, const struct vector_request *r)
{
    for (size_t row = 0; row < r->n; row++) {
        struct vector_instance *i = request_instance(v, r, row);

        if (i->state == VECTOR_FRESH || i->state == VECTOR_LOST)
            vector_instance_leave(i);
    }
}

enum status vector_order(struct vector *v, struct vector_request *r, struct error *err)
{
    struct link *l;

    vector_divide(v, r);
    if (vector_make_orders(v, err) != STATUS_OK) {
        vector_unplace(v, r);
        return err->status;
    }
    for (size_t row = 0; row < r->n; row++) {
        struct vector_instance *i = request_instance(v, r, row);

        if (r->failed[row] == NULL)
            order_add(i->host->order[order_kind(r, i)], v, r, row, i);
    }
    for (l = list_first(&v->all->hosts.list); l != NULL; l = list_next(&v->all->hosts.list, l)) {
        for (int kind = 0; kind < 2; kind++) {
            struct host_order *o = host_of(l)->order[kind];

            if (o == NULL)
                continue;
            o->vector = v;
            o->request = r;
            v->n_orders++;
            r->n_pending++;
            host_push(host_of(l), o);
        }
    }
    return STATUS_OK;
}

void vector_leave_hosts(struct vector *v)
{
    struct link *l;

    if (v->type != NULL || v->plugged != NULL)
        return;
    for (l = list_first(&v->all->hosts.list); l != NULL; l = list_next(&v->all->hosts.list, l))
        memset(host_of(l)->order, 0, sizeof(host_of(l)->order));
    for (size_t i = 0; i < v->n; i++) {
        struct vector_instance *in = &v->instances[i];
        struct environment_host *h = in->host;

        if (h == NULL)
            continue;
        if (h->order[0] == NULL)
            h->order[0] = host_order_make(HOST_CLOSE, v->n, &(struct environment_spaces){0});
        if (h->order[0] != NULL) /* without memory the host keeps it until it goes */
            h->order[0]->numbers[h->order[0]->n++] = in->number;
        vector_instance_leave(in);
    }
    for (l = list_first(&v->all->hosts.list); l != NULL; l = list_next(&v->all->hosts.list, l))
        if (host_of(l)->order[0] != NULL)
            host_push(host_of(l), host_of(l)->order[0]);
}

void hosts_forget(struct vectors *all, const struct vector_request *r)
{
    for (struct link *l = list_first(&all->hosts.list); l != NULL;
         l = list_next(&all->hosts.list, l)) {
        const struct list *awaited = &host_of(l)->peer.awaited;

        for (struct link *o = list_first(awaited); o != NULL; o = list_next(awaited, o))
            if (container_of(o, struct host_order, base.awaited)->request == r)
                container_of(o, struct host_order, base.awaited)->request = NULL;
    }
}

const struct host_order *environment_host_order(const struct environment_host *h)
{
    struct peer_order *o = peer_next(&h->peer);

    return o == NULL ? NULL : host_order_of(o);
}

void environment_host_taken(struct environment_host *h)
{
    struct host_order *o = host_order_of(peer_take(&h->peer));

    if (o->kind == HOST_CLOSE)
        free(o);
}

/* --- answers --- */

/* The numbers of rows that have not failed are finite. */
static enum status answer_check_numbers(const struct host_answer *a, const struct tensor_view *t,
                                        size_t n, const char *field, struct error *err)
{
    const float *numbers = t->data;
    size_t failure = 0;

    for (size_t at = 0; at < n; at++) {
        size_t width = t->size_bytes / sizeof(numbers[0]) / n;

        if (failure < a->n_failures && a->failures[failure].place == at) {
            failure++;
            continue;
        }
        for (size_t i = at * width; i < (at + 1) * width; i++)
            if (!isfinite(numbers[i]))
                return error_field(err, field, "holds %g at %zu", (double)numbers[i], i);
    }
    return STATUS_OK;
}

static enum status answer_check_failures(const struct host_answer *a, const struct host_order *o,
                                         struct error *err)
{
    if (a->n_failures > o->n)
        return error_field(err, "env_result.failures", "has %zu, order %" PRIu64 " has %zu",
                           a->n_failures, o->id, o->n);
    for (size_t i = 0; i < a->n_failures; i++) {
        if (a->failures[i].place >= o->n)
            return error_field(err, "env_result.failures",
                               "has place %u, order %" PRIu64 " has %zu", a->failures[i].place,
                               o->id, o->n);
        if (i > 0 && a->failures[i].place <= a->failures[i - 1].place)
            return error_field(err, "env_result.failures", "has place %u twice or out of order",
                               a->failures[i].place);
    }
    return STATUS_OK;
}

static enum status answer_check_infos(const struct host_answer *a, const struct host_order *o,
                                      struct error *err)
{
    for (size_t i = 0; i < a->n_infos; i++) {
        if (a->infos[i].place >= o->n)
            return error_field(err, "env_result.infos", "has place %u, order %" PRIu64 " has %zu",
                               a->infos[i].place, o->id, o->n);
        if (i > 0 && a->infos[i].place <= a->infos[i - 1].place)
            return error_field(err, "env_result.infos", "has place %u twice or out of order",
                               a->infos[i].place);
    }
    return STATUS_OK;
}

static enum status answer_check_tensor(const struct host_answer *a, const struct tensor_view *t,
                                       enum tensor_type type, const int64_t *shape, size_t n_dims,
                                       const char *field, struct error *err)
{
    if (tensor_expect(t, type, shape, n_dims, err) != STATUS_OK)
        return error_name_field(err, field);
    return type == TENSOR_F32 ? answer_check_numbers(a, t, (size_t)shape[0], field, err)
                              : STATUS_OK;
}

static enum status host_check_answer(const struct environment_host *h, const struct host_order *o,
                                     const struct host_answer *a, struct error *err)
{
    const int64_t shape[2] = {(int64_t)o->n, (int64_t)h->spaces.n_observation};

    if (answer_check_failures(a, o, err) != STATUS_OK ||
        answer_check_infos(a, o, err) != STATUS_OK ||
        answer_check_tensor(a, &a->observation, TENSOR_F32, shape, 2, "env_result.observation",
                            err) != STATUS_OK)
        return err->status;
    if (o->kind == HOST_STEP && (answer_check_tensor(a, &a->reward, TENSOR_F32, shape, 1,
                                                     "env_result.reward", err) != STATUS_OK ||
                                 answer_check_tensor(a, &a->terminated, TENSOR_BOOL, shape, 1,
                                                     "env_result.terminated", err) != STATUS_OK ||
                                 answer_check_tensor(a, &a->truncated, TENSOR_BOOL, shape, 1,
                                                     "env_result.truncated", err) != STATUS_OK))
        return err->status;
    return STATUS_OK;
}

/* The row of an instance that has not failed. */
static void host_take_row(const struct environment_host *h, const struct host_order *o,
                          const struct host_answer *a, size_t at)
{
    struct vector_instance *i = &o->vector->instances[o->indices[at]];
    size_t n = h->spaces.n_observation, row = o->rows[at];
    bool terminated = false, truncated = false;
    struct vector_request *r = o->request;

    if (o->kind == HOST_STEP) {
        terminated = ((const uint8_t *)a->terminated.data)[at] != 0;
        truncated = ((const uint8_t *)a->truncated.data)[at] != 0;
    }
    i->state = terminated || truncated ? VECTOR_OVER : VECTOR_RUNNING;
    vector_note_seen(o->vector, i, (const float *)a->observation.data + at * n);
    if (r == NULL)
        return;
    memcpy(r->observation + row * n, (const float *)a->observation.data + at * n,
           n * sizeof(float));
    if (o->kind == HOST_STEP)
        r->reward[row] = ((const float *)a->reward.data)[at];
    r->terminated[row] = terminated;
    r->truncated[row] = truncated;
}

static void host_take(struct environment_host *h, const struct host_order *o,
                      const struct host_answer *a)
{
    struct vector *v = o->vector;
    struct error err;
    size_t failure = 0, info = 0;

    for (size_t at = 0; at < o->n; at++) {
        struct vector_instance *i = &v->instances[o->indices[at]];

        i->is_busy = false;
        if (info < a->n_infos && a->infos[info].place == at) {
            if (o->request != NULL)
                vector_request_note(o->request, o->rows[at], a->infos[info].json);
            info++;
        }
        if (failure == a->n_failures || a->failures[failure].place != at) {
            host_take_row(h, o, a, at);
            continue;
        }
        (void)error_set(&err, STATUS_INTERNAL, "the environment failed: %s",
                        a->failures[failure++].text);
        i->state = VECTOR_OVER;
        if (o->request != NULL)
            vector_request_fail(o->request, o->rows[at], &err);
    }
}

enum status environment_host_answer(struct environment_host *h, const struct host_answer *answer,
                                    struct error *err)
{
    struct peer_order *oldest = peer_oldest(&h->peer);
    struct host_order *o =
        oldest == NULL || !peer_order_is_taken(oldest) ? NULL : host_order_of(oldest);

    if (o == NULL || o->id != answer->order)
        return error_field(err, "env_result.order",
                           "is %" PRIu64 ", the oldest order without a result is %" PRIu64,
                           answer->order, o == NULL ? 0 : o->id);
    if (host_check_answer(h, o, answer, err) != STATUS_OK)
        return err->status;
    peer_drop(&h->peer, &o->base);
    peer_heard(&h->peer);
    host_take(h, o, answer);
    vector_order_over(o->vector, o->request);
    free(o);
    return STATUS_OK;
}

/* --- coming and going --- */

static enum status host_check_spaces(const struct environment_spaces *s, struct error *err)
{
    if (s->n_observation == 0 || s->n_observation > VECTOR_MAX_NUMBERS)
        return error_field(err, "offer.environment.observations", "is %zu, it is 1 to %d",
                           s->n_observation, VECTOR_MAX_NUMBERS);
    if ((s->n_actions == 0) == (s->n_action_numbers == 0))
        return error_field(err, "offer.environment.actions",
                           "is %zu and action_numbers %zu: set exactly one of them", s->n_actions,
                           s->n_action_numbers);
    if (s->described != NULL && strlen(s->described) > HOST_MAX_SPACES_BYTES)
        return error_field(err, "offer.environment.spaces", "has %zu bytes, at most %d are taken",
                           strlen(s->described), HOST_MAX_SPACES_BYTES);
    if (s->n_action_numbers > VECTOR_MAX_NUMBERS)
        return error_field(err, "offer.environment.action_numbers", "is %zu, at most %d are taken",
                           s->n_action_numbers, VECTOR_MAX_NUMBERS);
    return STATUS_OK;
}

static enum status host_check_name(const struct vectors *all, const char *name,
                                   const struct environment_spaces *spaces, struct error *err)
{
    if (!name_is_valid(name, strlen(name), HOST_NAME_SIZE - 1, NAME_MARKS "/"))
        return error_field(err, "offer.name",
                           "of an environment has 1 to %d letters, digits, '.', '_', '/' and '-'",
                           HOST_NAME_SIZE - 1);
    if (environment_type_find(name) != NULL || vectors_find_plugged(all, name) != NULL) {
        (void)error_field(err, "offer.name", "'%s' is an environment that is built in%s", name,
                          environment_type_find(name) != NULL ? "" : ", by a plug-in");
        return err->status = STATUS_EXISTS;
    }
    for (struct link *l = list_first(&all->hosts.list); l != NULL;
         l = list_next(&all->hosts.list, l))
        if (strcmp(host_of(l)->name, name) == 0 &&
            !environment_spaces_equal(&host_of(l)->spaces, spaces))
            return error_set(err, STATUS_PRECONDITION,
                             "the attached workers of environment '%s' have other spaces", name);
    return STATUS_OK;
}

enum status environment_host_open(struct environment_host *h, struct vectors *all, const char *name,
                                  const struct environment_spaces *spaces, size_t max_instances,
                                  struct error *err)
{
    if (!all->config.is_allowed)
        return error_draining(err);
    if (host_check_spaces(spaces, err) != STATUS_OK ||
        host_check_name(all, name, spaces, err) != STATUS_OK)
        return err->status;
    if (max_instances > HOST_MAX_INSTANCES)
        return error_field(err, "offer.environment.max_instances", "is %zu, at most %d are used",
                           max_instances, HOST_MAX_INSTANCES);
    if (environment_spaces_copy(&h->spaces, spaces, err) != STATUS_OK)
        return err->status;
    memcpy(h->name, name, strlen(name) + 1);
    h->max_instances = max_instances != 0 ? max_instances : HOST_MAX_INSTANCES;
    list_init(&h->instances);
    peer_open(&h->peer, &all->hosts, false);
    return STATUS_OK;
}

static void host_lose(const struct host_order *o)
{
    struct error err;

    for (size_t at = 0; at < o->n; at++) {
        o->vector->instances[o->indices[at]].is_busy = false;
        (void)error_because(&err, STATUS_UNAVAILABLE, REASON_WORKER_LOST, "indices",
                            "the environment is lost with its worker, reset it");
        err.retry_after_ms = HOST_RETRY_MS;
        if (o->request != NULL)
            vector_request_fail(o->request, o->rows[at], &err);
    }
}

void environment_host_close(struct environment_host *h)
{
    struct peer *p = &h->peer;
    struct peer_order *o;
    struct link *l;

    if (!peer_is_open(p))
        return;
    peer_close(p);
    while ((l = list_first(&h->instances)) != NULL)
        vector_instance_lose(container_of(l, struct vector_instance, on_host));
    while ((o = peer_oldest(p)) != NULL) {
        struct host_order *lost = host_order_of(o);

        peer_drop(p, o);
        host_lose(lost);
        vector_order_over(lost->vector, lost->request);
        free(lost);
    }
    while ((o = peer_next(p)) != NULL) {
        peer_drop(p, o);
        free(host_order_of(o));
    }
    free((char *)h->spaces.described);
    h->spaces.described = NULL;
}

void host_say_silent(const struct peer *p, struct error *err)
{
    (void)error_set(err, STATUS_DEADLINE,
                    "an order was not answered within %" PRIu64 " ms (--attach-timeout)",
                    p->all->silence_us / 1000);
}
