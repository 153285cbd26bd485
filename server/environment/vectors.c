/* Vectors and their requests. vectors_ask checks a request whole; then instances that are built in
 * or plugged in are reset or stepped at once, and the others by orders to their hosts (host.c), at
 * most one of each kind for each host. vector_order_over counts the orders that have ended; the
 * last one calls done.
 *
 * An instance without a host, one that failed and those of a host that went away make their rows
 * fail. The orders of a request that is left go on at the hosts, and its instances are busy until
 * then. A vector that is closed meanwhile is freed with its last order. */
#include "server/environment/vectors.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/plugin/environment.h"
#include "base/alarm.h"
#include "base/alloc.h"
#include "server/environment/host.h"
#include "server/environment/plugged.h"

static const struct limit_kind kind_of_vectors = {"vectors of environments", NULL, NULL};
static const struct limit_kind kind_of_environments = {"environments", NULL, "count"};

void vectors_init(struct vectors *all, const struct vectors_config *config)
{
    *all = (struct vectors){.config = *config};
    shared_limit_init(&all->limit, &kind_of_vectors, VECTORS_MAX);
    shared_limit_init(&all->instances, &kind_of_environments, VECTORS_MAX_INSTANCES);
    hash_init(&all->by_id, NULL); /* handles are random */
    list_init(&all->idle);
    all->hosts = (struct peers){.env = config->env,
                                .silence_us = config->silence_us,
                                .max_orders = HOST_MAX_ORDERS,
                                .alarm = config->alarm,
                                .say_silent = host_say_silent};
    peers_init(&all->hosts);
    list_init(&all->plugged);
}

void vectors_close(struct vector *v)
{
    hash_remove(&v->all->by_id, &v->by_id);
    shared_limit_give(&v->all->limit, v->principal, 1);
    shared_limit_give(&v->all->instances, v->principal, v->n);
    v->has_ended = true;
    if (link_is_on(&v->idle))
        list_remove(&v->idle);
    vector_leave_hosts(v);
    if (v->n_orders == 0)
        vector_free(v);
}

void vectors_deinit(void *vectors)
{
    struct vectors *all = vectors;
    struct hash_node *node;

    assert(list_is_empty(&all->hosts.list));
    while ((node = hash_each(&all->by_id, NULL)) != NULL)
        vectors_close(container_of(node, struct vector, by_id));
    hash_deinit(&all->by_id);
    shared_limit_deinit(&all->limit);
    shared_limit_deinit(&all->instances);
    vectors_unplug(all);
}

void vectors_tick(void *vectors)
{
    struct vectors *all = vectors;
    uint64_t now_us = env_now_us(all->config.env), ttl_us = (uint64_t)VECTOR_TTL_MS * 1000;
    struct link *l;

    while ((l = list_first(&all->idle)) != NULL) {
        struct vector *v = container_of(l, struct vector, idle);

        if (v->idle_since_us + ttl_us > now_us) {
            alarm_by(all->config.alarm, v->idle_since_us + ttl_us);
            break;
        }
        vectors_close(v);
    }
    peers_tick(&all->hosts);
}

/* --- opening --- */

static enum status vectors_check_open(const struct vectors *all, uint32_t principal, size_t n,
                                      size_t n_seeds, struct error *err)
{
    if (n == 0 || n > VECTOR_MAX_INSTANCES)
        return error_field(err, "count", "is %zu, it is 1 to %d", n, VECTOR_MAX_INSTANCES);
    if (n_seeds > 1 && n_seeds != n)
        return error_field(err, "seeds", "has %zu, there are %zu environments", n_seeds, n);
    if (shared_limit_check(&all->limit, principal, 1, err) != STATUS_OK)
        return err->status;
    return shared_limit_check(&all->instances, principal, n, err);
}

/* What the vectors of a name are of: one of both, or NULL for hosts. */
struct vector_kind {
    const struct environment_type *type;
    const struct plugin_environment *plugged;
};

static enum status vectors_find_kind(struct vector_kind *out, struct environment_spaces *ret_spaces,
                                     const struct vectors *all, const char *name, struct error *err)
{
    const struct environment_type *type = environment_type_find(name);
    const struct plugin_environment *plugged =
        type != NULL ? NULL : vectors_find_plugged(all, name);

    *out = (struct vector_kind){type, plugged};
    if (type != NULL)
        *ret_spaces = (struct environment_spaces){type->n_observation, type->n_actions,
                                                  type->n_action_numbers, type->spaces};
    else if (plugged != NULL)
        *ret_spaces = plugged_spaces(plugged);
    else
        return hosts_find_spaces(ret_spaces, all, name, err);
    return STATUS_OK;
}

static uint64_t vectors_draw(const struct vectors *all)
{
    const struct env *env = all->config.env;
    uint64_t drawn = 0;

    env->random(env->self, &drawn, sizeof(drawn));
    return drawn;
}

static void vector_seed(struct vector *v, const uint64_t *seeds, size_t n_seeds)
{
    uint64_t first = n_seeds > 0 ? seeds[0] : vectors_draw(v->all);

    for (size_t i = 0; i < v->n; i++)
        v->instances[i].seed = n_seeds > 1 ? seeds[i] : first + i;
}

enum status vectors_open(struct vector **out, struct vectors *all, uint32_t principal,
                         const char *name, size_t n, const uint64_t *seeds, size_t n_seeds,
                         struct error *err)
{
    struct environment_spaces spaces;
    struct vector_kind kind;
    struct vector *v;
    size_t widest;
    uint64_t id;

    if (vectors_check_open(all, principal, n, n_seeds, err) != STATUS_OK ||
        vectors_find_kind(&kind, &spaces, all, name, err) != STATUS_OK)
        return err->status;
    widest = spaces.n_observation > spaces.n_action_numbers ? spaces.n_observation
                                                            : spaces.n_action_numbers;
    if (widest * n > VECTOR_MAX_NUMBERS)
        return error_field(err, "count", "is %zu, of this kind at most %zu are opened", n,
                           VECTOR_MAX_NUMBERS / widest);
    v = try_alloc(1, sizeof(*v) + n * sizeof(v->instances[0]));
    if (v != NULL)
        v->seen = try_alloc(n, spaces.n_observation * sizeof(v->seen[0]));
    if (v == NULL || v->seen == NULL) {
        free(v);
        return error_no_memory(err, n * sizeof(v->instances[0]), "environments");
    }
    if (environment_spaces_copy(&v->spaces, &spaces, err) != STATUS_OK) {
        vector_free(v);
        return err->status;
    }
    v->all = all;
    v->principal = principal;
    v->type = kind.type;
    v->plugged = kind.plugged;
    v->n = n;
    name = kind.type != NULL ? kind.type->name : name;
    memcpy(v->name, name, strlen(name) + 1);
    vector_seed(v, seeds, n_seeds);
    for (size_t i = 0; kind.type != NULL && i < n; i++)
        v->instances[i].built_in = environment_open_type(kind.type);
    if (kind.plugged != NULL && vector_make_plugged(v, err) != STATUS_OK) {
        vector_free(v);
        return err->status;
    }
    do
        id = vectors_draw(all);
    while (id == 0 || hash_first(&all->by_id, id) != NULL);
    hash_add(&all->by_id, &v->by_id, id);
    shared_limit_hold(&all->limit, principal, 1);
    shared_limit_hold(&all->instances, principal, n);
    vector_begin_idle(v);
    *out = v;
    return STATUS_OK;
}

enum status vectors_get(struct vector **out, struct vectors *all, uint32_t principal, uint64_t id,
                        struct error *err)
{
    struct hash_node *node = hash_first(&all->by_id, id);
    struct vector *v = node == NULL ? NULL : container_of(node, struct vector, by_id);

    if (v == NULL || v->principal != principal) {
        (void)error_field(err, "handle", "%016" PRIx64 " is of no environments that are open", id);
        return err->status = STATUS_NOT_FOUND;
    }
    *out = v;
    return STATUS_OK;
}

/* --- a request --- */

static enum status vector_check_instance(const struct vector *v, const struct vector_request *r,
                                         uint32_t index, struct error *err)
{
    const struct vector_instance *i = &v->instances[index];

    if (i->is_asked)
        return error_field(err, "indices", "has %u twice", index);
    if (i->is_busy)
        return error_because(err, STATUS_PRECONDITION, REASON_SESSION_BUSY, "indices",
                             "environment %u is in another request", index);
    if (!vector_request_resets(r, i) && (i->state == VECTOR_OVER || i->state == VECTOR_FRESH))
        return error_because(err, STATUS_PRECONDITION, REASON_EPISODE_OVER, "indices",
                             i->state == VECTOR_OVER ? "the episode of environment %u is over, "
                                                       "reset it"
                                                     : "environment %u was not reset yet",
                             index);
    return STATUS_OK;
}

static enum status vector_check_actions(const struct vector *v, const struct vector_request *r,
                                        struct error *err)
{
    size_t n_numbers = v->spaces.n_action_numbers;

    for (size_t row = 0; v->spaces.n_actions > 0 && row < r->n; row++)
        if (r->choices[row] < 0 || (uint64_t)r->choices[row] >= v->spaces.n_actions)
            return error_field(err, "action", "has %" PRId64 " at %zu, there are %zu actions",
                               r->choices[row], row, v->spaces.n_actions);
    for (size_t i = 0; i < n_numbers * r->n; i++)
        if (!isfinite(r->action_numbers[i]))
            return error_field(err, "action", "holds %g at %zu", (double)r->action_numbers[i], i);
    return STATUS_OK;
}

static enum status vector_check(struct vector *v, const struct vector_request *r, struct error *err)
{
    enum status rc = STATUS_OK;
    size_t n_asked;

    if (v->is_in_rollout && !r->is_of_rollout)
        return error_because(err, STATUS_PRECONDITION, REASON_SESSION_BUSY, "handle",
                             "the environments are in a rollout");
    if (r->n > v->n) /* before any of them is looked at */
        return error_field(err, "indices", "has %zu, there are %zu environments", r->n, v->n);
    for (n_asked = 0; n_asked < r->n && rc == STATUS_OK; n_asked++) {
        uint32_t index = vector_request_index(r, n_asked);

        if (index >= v->n) {
            (void)error_field(err, "indices", "has %u, there are %zu environments", index, v->n);
            rc = err->status = STATUS_RANGE;
            break;
        }
        rc = vector_check_instance(v, r, index, err);
        v->instances[index].is_asked = true;
    }
    while (n_asked-- > 0)
        v->instances[vector_request_index(r, n_asked)].is_asked = false;
    return rc == STATUS_OK && !r->is_reset ? vector_check_actions(v, r, err) : rc;
}

static enum status request_lay_out(struct vector_request *r, const struct vector *v,
                                   struct arena *arena, struct error *err)
{
    size_t n_numbers = r->n * v->spaces.n_observation;

    r->arena = arena;
    r->observation = arena_alloc(arena, n_numbers, sizeof(r->observation[0]));
    r->reward = arena_alloc(arena, r->n, sizeof(r->reward[0]));
    r->terminated = arena_alloc(arena, r->n, sizeof(r->terminated[0]));
    r->truncated = arena_alloc(arena, r->n, sizeof(r->truncated[0]));
    r->failed = arena_alloc(arena, r->n, sizeof(r->failed[0]));
    r->infos = arena_alloc(arena, r->n, sizeof(r->infos[0]));
    if (r->observation != NULL && r->reward != NULL && r->terminated != NULL &&
        r->truncated != NULL && r->failed != NULL && r->infos != NULL)
        return STATUS_OK;
    return error_no_memory(err, n_numbers * sizeof(r->observation[0]), "environments' steps");
}

static void vector_step_built_in(struct vector *v, struct vector_request *r, size_t row,
                                 struct vector_instance *i)
{
    size_t n_observation = v->spaces.n_observation;
    float *observation = r->observation + row * n_observation;
    struct environment_step step;

    if (vector_request_resets(r, i)) {
        environment_reset(i->built_in, i->seed, i->n_episodes++, observation);
        i->state = VECTOR_RUNNING;
        vector_note_seen(v, i, observation);
        return;
    }
    if (v->spaces.n_actions > 0)
        environment_step(i->built_in, (size_t)r->choices[row], &step);
    else
        environment_step_numbers(i->built_in, r->action_numbers + row * v->spaces.n_action_numbers,
                                 &step);
    memcpy(observation, step.observation, n_observation * sizeof(observation[0]));
    vector_note_seen(v, i, observation);
    r->reward[row] = step.reward;
    r->terminated[row] = step.terminated;
    r->truncated[row] = step.truncated;
    if (i->built_in->is_over)
        i->state = VECTOR_OVER;
}

enum status vectors_ask(struct vector *v, struct vector_request *r, struct arena *arena,
                        struct error *err)
{
    if (r->n == 0 && r->indices == NULL)
        r->n = v->n;
    r->is_done = false;
    r->n_pending = r->n_failed = 0;
    if (vector_check(v, r, err) != STATUS_OK || request_lay_out(r, v, arena, err) != STATUS_OK)
        return err->status;
    for (size_t row = 0; r->is_reset && r->seeds != NULL && row < r->n; row++) {
        v->instances[vector_request_index(r, row)].seed = r->seeds[row];
        v->instances[vector_request_index(r, row)].n_episodes = 0;
    }
    if (v->plugged != NULL && vector_step_plugged(v, r, err) != STATUS_OK)
        return err->status;
    if (v->type == NULL && v->plugged == NULL && vector_order(v, r, err) != STATUS_OK)
        return err->status;
    for (size_t row = 0; v->type != NULL && row < r->n; row++)
        vector_step_built_in(v, r, row, &v->instances[vector_request_index(r, row)]);
    if (link_is_on(&v->idle))
        list_remove(&v->idle);
    if (v->n_orders == 0)
        vector_begin_idle(v);
    r->is_done = r->n_pending == 0;
    r->vector = r->is_done ? NULL : v;
    return STATUS_OK;
}

void vector_request_leave(struct vector_request *r)
{
    if (r->vector != NULL)
        hosts_forget(r->vector->all, r);
    r->vector = NULL;
}

void vectors_end(void *vectors)
{
    struct vectors *all = vectors;

    peers_end(&all->hosts);
    all->config.is_allowed = false;
}
