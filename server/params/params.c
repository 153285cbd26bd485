/* The life of a set: params_make starts a model, whose thread checks the first values while they
 * come (upload.c). params_fill has that thread make the first snapshot of them, and then the set
 * serves. params_close notifies the subscribers, and closes the model, which settles waiting
 * updates; when its thread is joined nothing uses the set, and it is freed. Snapshots that are
 * being sent keep their memory until they are sent. A set that closes while it loads is stopped
 * after the load. */
#include "server/params/params.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/access/quota.h"
#include "server/params/checkpoint.h"
#include "server/params/round.h"

static const struct limit_kind kind_of_params_sets = {"parameter sets", NULL, NULL};

/* Bound of a set's description. */
#define SPEC_MAX_BYTES ((size_t)64 << 20)

static const uint32_t params_moves[] = {
    [PARAMS_LOADING] = 1u << PARAMS_FILLING | 1u << PARAMS_CLOSING,
    [PARAMS_FILLING] = 1u << PARAMS_KEEPING | 1u << PARAMS_SERVING | 1u << PARAMS_CLOSING,
    [PARAMS_KEEPING] = 1u << PARAMS_SERVING | 1u << PARAMS_CLOSING,
    [PARAMS_SERVING] = 1u << PARAMS_CLOSING,
    [PARAMS_CLOSING] = 0,
};

static void params_move(struct params_set *set, enum params_state to)
{
    assert((params_moves[set->state] & 1u << to) != 0);
    set->state = to;
    log_debug("params", "name=%s state=%d", set->spec.name, (int)to);
}

void params_sets_init(struct params_sets *s, const struct keeper_type *keeping, uv_loop_t *loop,
                      const struct env *env, size_t max_bytes)
{
    *s = (struct params_sets){.loop = loop, .env = env};
    list_init(&s->shares);
    params_budget_init(&s->budget, max_bytes, NULL);
    shared_names_init(&s->names, "name", &kind_of_params_sets, PARAMS_MAX_SETS, env);
    keeper_init(&s->keeper, keeping, s, env);
}

/* The budget of a principal: half of all. */
struct params_share {
    struct link link;
    uint32_t principal;
    struct params_budget budget;
    size_t restored_bytes; /* what the sets that were there before a restart may take */
};

void params_sets_deinit(struct params_sets *s)
{
    struct link *l;

    while ((l = list_pop(&s->shares)) != NULL)
        free(container_of(l, struct params_share, link));
    shared_names_deinit(&s->names);
}

static struct params_share *params_share_of(struct params_sets *s, uint32_t principal)
{
    struct params_share *share;

    for (struct link *l = list_first(&s->shares); l != NULL; l = list_next(&s->shares, l)) {
        share = container_of(l, struct params_share, link);
        if (share->principal == principal)
            return share;
    }
    share = xalloc(sizeof(*share));
    share->principal = principal;
    params_budget_init(&share->budget, s->budget.max_bytes / 2, &s->budget);
    list_push(&s->shares, &share->link);
    return share;
}

/* Sets that were there before stay, also above the half; until a restart it is larger then. */
static struct params_budget *params_budget_of(struct params_sets *s, uint32_t principal,
                                              const struct params_spec *spec, bool is_new)
{
    struct params_share *share;

    if (principal == 0)
        return &s->budget;
    share = params_share_of(s, principal);
    if (!is_new)
        share->restored_bytes +=
            (spec->round_size + 1 + params_spec_moments(spec)) * spec->n * sizeof(float);
    if (share->restored_bytes > share->budget.max_bytes)
        share->budget.max_bytes = share->restored_bytes;
    return &share->budget;
}

void params_sets_leave(void *sets, const struct error *why)
{
    struct params_sets *s = sets;
    struct link *l;

    while ((l = list_first(&s->names.all)) != NULL)
        params_close(params_at(l), why);
}

void params_sets_stop(struct params_sets *s)
{
    struct error err;

    s->is_stopping = true;
    (void)keeper_is_idle(&s->keeper); /* what is being read is given up */
    (void)error_draining(&err);
    params_sets_leave(s, &err);
}

static struct params_set *name_set(struct shared_name *n)
{
    return container_of(n, struct params_set, name);
}

struct params_set *params_at(const struct link *l)
{
    return name_set(container_of(l, struct shared_name, link));
}

bool params_is_listed(const struct params_set *set, const struct principal *who)
{
    return set->state == PARAMS_SERVING && shared_name_is_listed(&set->name, who);
}

/* While stored sets are being restored, it is unknown which ones exist. */
static enum status params_check_restored(const struct params_sets *s, struct error *err)
{
    if (s->keeper.restore == NULL)
        return STATUS_OK;
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_PARAMS_NOT_READY, NULL,
                        "sets of parameters are being read from the journal");
    err->retry_after_ms = 200;
    return err->status;
}

static enum status not_found(const struct params_sets *s, const struct principal *who,
                             const char *name, struct error *err)
{
    char names[160] = "", one[SHARED_NAME_PATH_SIZE];
    size_t len = 0;

    for (struct link *l = list_first(&s->names.all); l != NULL; l = list_next(&s->names.all, l)) {
        shared_name_path(one, &params_at(l)->name, who);
        if (params_is_listed(params_at(l), who) && len + strlen(one) + 3 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len > 0 ? ", " : "",
                                    one);
    }
    if (len == 0)
        return error_because(err, STATUS_NOT_FOUND, REASON_PARAMS_NOT_FOUND, "name",
                             "there are no parameters '%.64s', nor any others", name);
    return error_because(err, STATUS_NOT_FOUND, REASON_PARAMS_NOT_FOUND, "name",
                         "there are no parameters '%.64s', there are: %s", name, names);
}

enum status params_find(struct params_set **out, const struct params_sets *s,
                        const struct principal *who, enum access_right right, const char *name,
                        struct error *err)
{
    struct shared_name *n = shared_names_look(&s->names, who, name);
    struct params_set *set;

    if (n == NULL && params_check_restored(s, err) != STATUS_OK)
        return err->status;
    if (n == NULL)
        return not_found(s, who, name, err);
    set = name_set(n);
    if (!shared_name_allows(n, who, right))
        return error_because(err, STATUS_DENIED, REASON_NONE, "name",
                             "the parameters '%.64s' are shared with you, but not for this", name);
    if (set->state != PARAMS_SERVING) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_PARAMS_NOT_READY, NULL,
                            "the first values of '%s' are not there yet", name);
        err->retry_after_ms = 200;
        return err->status;
    }
    *out = set;
    return STATUS_OK;
}

static void set_free(struct params_set *set)
{
    assert(list_is_empty(&set->subscribers) && list_is_empty(&set->updates));
    params_forget(set);
    if (set->memory != NULL) {
        params_memory_give(set->memory, set->first);
        params_memory_give(set->memory, set->first_moments.m);
        params_memory_give(set->memory, set->first_moments.v);
        free(set->first_moments.steps);
        params_memory_close(set->memory);
    }
    arena_deinit(&set->arena);
    free(set);
}

static void on_model_stopped(void *arg)
{
    struct params_set *set = arg;
    struct params_sets *sets = set->sets;

    shared_limit_give(&sets->names.limit, set->name.owner->id, 1);
    set_free(set);
    sets->on_idle(sets->idle_arg);
}

/* --- creation --- */

static void tell_made(struct params_set *set, const struct error *err)
{
    void (*made)(void *arg, const struct error *err) = set->made;

    set->made = NULL;
    if (made != NULL)
        made(set->made_arg, err);
}

/* Compute thread. */
static void run_begin(struct job *job)
{
    struct params_set *set = container_of(job, struct params_set, begin);

    const struct params_moments *from = set->goes_on ? &set->first_moments : NULL;

    if (params_begin(set->model->agent, set->first, from, &set->begin_err) == STATUS_OK)
        set->first = NULL; /* the snapshot owns it now */
}

static void begin_done(struct job *job)
{
    struct params_set *set = container_of(job, struct params_set, begin);

    if (set->state == PARAMS_CLOSING)
        return;
    if (set->begin_err.status != STATUS_OK) {
        params_close(set, &set->begin_err);
        return;
    }
    params_publish(set->model->agent);
    params_memory_give(set->memory, set->first_moments.m);
    params_memory_give(set->memory, set->first_moments.v);
    free(set->first_moments.steps);
    set->first_moments = (struct params_moments){0};
    if (set->sets->keeper.keeping.journal != NULL && set->config != NULL && !set->goes_on) {
        params_move(set, PARAMS_KEEPING);
        checkpoint_begin(set);
        return;
    }
    params_move(set, PARAMS_SERVING);
    tell_made(set, &set->begin_err);
}

static void params_checkpointed(struct params_set *set, const struct error *err)
{
    if (set->state == PARAMS_KEEPING && err->status != STATUS_OK) {
        params_close(set, err);
    } else if (set->state == PARAMS_KEEPING) {
        params_move(set, PARAMS_SERVING);
        tell_made(set, err);
    } else if (err->status == STATUS_OK) {
        checkpoint_after_round(set); /* others came meanwhile */
    }
}

static void on_checkpoint_end(struct kept_wait *w, const struct error *err)
{
    struct params_set *set = container_of(w, struct params_set, checkpoint_wait);
    struct error why = *err;
    struct list over;

    set->has_failed_to_keep = why.status != STATUS_OK;
    if (why.status == STATUS_OK)
        set->kept_version = set->checkpoint_version;
    list_init(&over);
    list_move(&set->keeping, &over);
    params_checkpointed(set, &why);
    if (!list_is_empty(&set->asked) && set->checkpoint == NULL && set->state == PARAMS_SERVING)
        checkpoint_begin(set);
    checkpoint_tell(&over, &why);
}

enum status params_describe(struct params_set *set, const void *config, size_t size_bytes,
                            struct error *err)
{
    char *copy = arena_strndup(&set->arena, config, size_bytes);

    if (copy == NULL)
        return error_no_memory(err, size_bytes, "what describes a set of parameters");
    set->config = copy;
    set->config_size = size_bytes;
    return STATUS_OK;
}

static void maybe_begin(struct params_set *set)
{
    if (set->state != PARAMS_FILLING || set->first == NULL)
        return;
    set->begin = (struct job){.run = run_begin, .done = begin_done};
    model_run(set->model, &set->begin);
}

void params_fill(struct params_set *set, float *values,
                 void (*made)(void *arg, const struct error *err), void *arg)
{
    assert(set->first == NULL && set->made == NULL && set->state <= PARAMS_FILLING);
    set->first = values;
    set->made = made;
    set->made_arg = arg;
    maybe_begin(set);
}

static void on_loaded(struct model *m, void *arg)
{
    struct params_set *set = arg;

    if (set->state == PARAMS_CLOSING) {
        model_stop(m, on_model_stopped, set);
    } else if (m->state == MODEL_FAILED) {
        params_move(set, PARAMS_FILLING);
        params_close(set, &m->err);
    } else {
        params_move(set, PARAMS_FILLING);
        maybe_begin(set);
    }
}

static enum status params_start(struct params_set *set, const struct params_spec *spec,
                                const struct principal *owner, bool is_new, struct error *err)
{
    struct model_config config = {
        .type = &params_agent,
        .spec = &set->open,
        .options = {.backend = ""},
        .env = set->sets->env,
    };
    enum status rc = params_spec_copy(&set->spec, spec, &set->arena, err);

    struct params_budget *budget;

    if (rc != STATUS_OK)
        return rc;
    budget = params_budget_of(set->sets, owner->id, spec, is_new);
    /* later rounds reuse a round's memory */
    if (params_memory_open(&set->memory, budget, spec->n, spec->round_size + 1, err) != STATUS_OK)
        return err->status;
    set->open = (struct params_open){&set->spec, set->memory, budget};
    config.name = set->spec.name;
    return model_start(&set->model, set->sets->loop, &config, on_loaded, set, err);
}

enum status params_make(struct params_set **out, struct params_sets *s,
                        const struct principal *owner, const struct params_spec *spec,
                        const struct access_sharing *sharing, bool is_new, struct error *err)
{
    struct params_spec checked = *spec;
    enum status rc = params_spec_check(&checked, err);
    struct params_set *set;

    if (rc != STATUS_OK)
        return rc;
    if (s->is_stopping)
        return error_draining(err);
    if (is_new && params_check_restored(s, err) != STATUS_OK)
        return err->status;
    if (shared_names_own(&s->names, owner->id, spec->name) != NULL)
        return error_because(err, STATUS_EXISTS, REASON_PARAMS_EXIST, "name",
                             "there are parameters '%s' already", spec->name);
    set = try_alloc(1, sizeof(*set));
    if (set == NULL)
        return error_no_memory(err, sizeof(*set), "parameters");
    if (shared_names_add(&s->names, &set->name, owner, spec->name, is_new, err) != STATUS_OK) {
        free(set);
        return err->status;
    }
    set->sets = s;
    kept_init(&set->kept);
    arena_init(&set->arena, SPEC_MAX_BYTES);
    list_init(&set->contributors);
    list_init(&set->subscribers);
    list_init(&set->updates);
    list_init(&set->queue);
    list_init(&set->asked);
    list_init(&set->keeping);
    set->checkpoint_wait.done = on_checkpoint_end;
    rc = shared_name_share(&set->name, sharing, err);
    if (rc == STATUS_OK)
        rc = params_start(set, &checked, owner, is_new, err);
    if (rc != STATUS_OK) {
        shared_names_remove(&s->names, &set->name);
        set_free(set);
        return rc;
    }
    *out = set;
    return STATUS_OK;
}

void params_close(struct params_set *set, const struct error *why)
{
    struct error err = *why; /* may lie in the set, or in its model */
    bool is_loading = set->state == PARAMS_LOADING;
    struct error ignored;
    struct link *l;

    /* Who created it was not told that it is there, so it must not come again. Without room for
     * that it does, and can be deleted then. */
    if (set->state == PARAMS_KEEPING && !set->sets->is_stopping)
        (void)!params_unkeep(set, &ignored);
    params_move(set, PARAMS_CLOSING);
    shared_names_remove(&set->sets->names, &set->name);
    shared_limit_hold(&set->sets->names.limit, set->name.owner->id, 1); /* until it is freed */
    if (set->restored != NULL)
        set->made = NULL;
    params_restored_free(set);
    checkpoint_abandon(set, &err);
    while ((l = list_pop(&set->subscribers)) != NULL) {
        struct params_subscriber *u = container_of(l, struct params_subscriber, link);

        if (u->closing != NULL)
            u->closing(u, &err);
    }
    tell_made(set, &err);
    if (!is_loading)
        model_stop(set->model, on_model_stopped, set);
}

bool params_sets_are_kept(struct params_sets *s)
{
    struct link *l;

    for (l = list_first(&s->names.all); l != NULL; l = list_next(&s->names.all, l)) {
        struct params_set *set = params_at(l);

        if (set->state == PARAMS_SERVING && checkpoint_is_possible(set) &&
            set->checkpoint == NULL && !(s->keeper.is_ending && set->has_failed_to_keep) &&
            params_current(set->model->agent)->version != set->kept_version)
            checkpoint_begin(set);
    }
    return keeper_is_idle(&s->keeper);
}

void params_subscribe(struct params_set *set, struct params_subscriber *subscriber)
{
    list_push(&set->subscribers, &subscriber->link);
}

void params_unsubscribe(struct params_subscriber *subscriber)
{
    if (link_is_on(&subscriber->link))
        list_remove(&subscriber->link);
}

size_t params_held(const struct params_set *set)
{
    return params_memory_held(set->memory) +
           params_spec_moments(&set->spec) * set->spec.n * sizeof(float);
}

size_t params_n_waiting(const struct params_set *set)
{
    struct batcher_stats stats = {0};

    if (set->model->batcher != NULL)
        batcher_stats(set->model->batcher, &stats);
    return stats.n_waiting + stats.n_running + stats.n_flow_queued;
}

enum status params_count_request(const struct params_sets *s, const struct principal *who,
                                 struct error *err)
{
    struct access_quota *quota = s->quota_of == NULL ? NULL : s->quota_of(s->quota_arg, who->id);

    return quota_take_request(quota, env_now_us(s->env), err);
}
