/* The happy path: sessions_step finds the session or opens one, has its clone observe, and asks the
 * model's batcher; on_settled has the clone learn what it did, keeps the reply, and tells who
 * waits.
 *
 * Failure: a step that fails is dropped, the clone is as it was and the number free. One that
 * nobody waits for any more is cancelled; sent again before that is done, it is asked for again, or
 * is done all the same if compute has it. A session that ends while its step is in flight leaves
 * the table at once, and its memory when the step is back; who waits for it is told then. */
#include "server/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/act_mode.h"
#include "server/model.h"

enum { FIRST_BUCKETS = 64 };

struct session {
    struct session *in_bucket; /* next */
    struct link idle;          /* of sessions->idle; not while it is held or asks */
    struct sessions *all;
    struct model *model;
    struct clone *clone;
    struct session_hold *hold;
    uint64_t hash, run_id;
    uint64_t seq; /* of the last step that was done */
    uint64_t seed, idle_since_us;
    uint64_t accepted_us;     /* the step in flight */
    uint64_t deadline_us;     /* the latest of those who wait for it; 0: none */
    struct step_reply *reply; /* to seq; NULL for 0 */
    bool is_asking;           /* the step after seq is in flight */
    bool is_cancelled;        /* nobody waited for it any more */
    bool has_ended;           /* not in the table any more */
    struct list waits;
    struct agent_turn turn; /* while it asks */
    struct ask ask;
    struct arena arena;
    char env_id[];
};

/* --- all of them --- */

enum status sessions_init(struct sessions *all, const struct sessions_config *config,
                          struct error *err)
{
    struct sessions a = {.config = *config, .n_buckets = FIRST_BUCKETS};

    if (a.config.max_sessions == 0)
        a.config.max_sessions = 65536;
    if (a.config.ttl_ms == 0)
        a.config.ttl_ms = (uint64_t)10 * 60 * 1000;
    a.table = try_alloc(a.n_buckets, sizeof(a.table[0]));
    if (a.table == NULL)
        return error_no_memory(err, a.n_buckets * sizeof(a.table[0]), "sessions");
    config->env->random(config->env->self, &a.salt, sizeof(a.salt));
    *all = a;
    list_init(&all->idle); /* points to itself */
    return STATUS_OK;
}

void sessions_deinit(struct sessions *all)
{
    if (all->table == NULL)
        return;
    assert(all->n == 0 && all->n_asking == 0);
    free(all->table);
    all->table = NULL;
}

/* FNV-1a, begun with chance, so that nobody can choose ids that meet in one bucket. */
static uint64_t hash_of(const struct sessions *all, const struct model *model, const char *env_id)
{
    uint64_t hash = all->salt ^ (uint64_t)(uintptr_t)model;

    for (const char *c = env_id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static struct session *find(const struct sessions *all, uint64_t hash, const struct model *model,
                            const char *env_id)
{
    struct session *s = all->table[hash & (all->n_buckets - 1)];

    while (s != NULL && (s->hash != hash || s->model != model || strcmp(s->env_id, env_id) != 0))
        s = s->in_bucket;
    return s;
}

/* Twice the buckets; without memory chains get longer, which does no harm. */
static void grow(struct sessions *all)
{
    struct session **table = try_alloc(2 * all->n_buckets, sizeof(table[0]));

    if (table == NULL)
        return;
    for (size_t i = 0; i < all->n_buckets; i++) {
        struct session *s, *next;

        for (s = all->table[i]; s != NULL; s = next) {
            struct session **bucket = &table[s->hash & (2 * all->n_buckets - 1)];

            next = s->in_bucket;
            s->in_bucket = *bucket;
            *bucket = s;
        }
    }
    free(all->table);
    all->table = table;
    all->n_buckets *= 2;
}

static void add(struct session *s)
{
    struct sessions *all = s->all;
    struct session **bucket;

    if (all->n == all->n_buckets)
        grow(all);
    bucket = &all->table[s->hash & (all->n_buckets - 1)];
    s->in_bucket = *bucket;
    *bucket = s;
    all->n++;
}

/* --- one --- */

static void free_session(struct session *s)
{
    assert(!s->is_asking && s->hold == NULL && !link_is_on(&s->idle));
    step_reply_unref(s->reply);
    clone_close(s->clone);
    free(s);
}

static enum status make_session(struct session **out, struct sessions *all, struct model *model,
                                const char *env_id, uint64_t hash, uint64_t run_id,
                                struct error *err)
{
    const struct clone_config config = {0};
    size_t id_size = strlen(env_id) + 1;
    struct session *s = try_alloc(1, sizeof(*s) + id_size);

    if (s == NULL)
        return error_no_memory(err, sizeof(*s) + id_size, "a session");
    s->all = all;
    s->model = model;
    s->hash = hash;
    s->run_id = run_id;
    s->seed = run_id;
    list_init(&s->waits);
    memcpy(s->env_id, env_id, id_size);
    if (clone_open(&s->clone, model->agent, &config, err) != STATUS_OK) {
        free(s);
        return err->status;
    }
    *out = s;
    return STATUS_OK;
}

static void begin_idle(struct session *s)
{
    struct sessions *all = s->all;
    bool is_first = list_is_empty(&all->idle);

    if (s->hold != NULL)
        return;
    s->idle_since_us = env_now_us(all->config.env);
    list_push(&all->idle, &s->idle);
    if (is_first)
        all->config.arm(all->config.arm_self, s->idle_since_us + all->config.ttl_ms * 1000);
}

static void end_idle(struct session *s)
{
    if (link_is_on(&s->idle))
        list_remove(&s->idle);
}

/* Of one that has ended: when nobody needs it any more. */
static void maybe_free(struct session *s)
{
    if (!s->is_asking && s->hold == NULL)
        free_session(s);
}

/* Nobody finds it any more; it is gone when its step is back, and whoever holds it has let go. */
static void end_session(struct session *s)
{
    struct session_hold *hold = s->hold;
    struct session **at = &s->all->table[s->hash & (s->all->n_buckets - 1)];

    while (*at != s)
        at = &(*at)->in_bucket;
    *at = s->in_bucket;
    s->all->n--;
    s->has_ended = true;
    end_idle(s);
    act_row_leave(s->model, s->turn.seen.row_key, s);
    if (s->is_asking) {
        if (!s->is_cancelled)
            batcher_cancel(s->model->batcher, &s->ask);
        s->is_cancelled = true;
    }
    if (hold != NULL)
        hold->lost(hold);
    else
        maybe_free(s);
}

/* --- a step --- */

/* The turn is over, one way or the other. */
static void end_turn(struct session *s)
{
    act_row_leave(s->model, s->turn.seen.row_key, s);
    agent_turn_deinit(&s->turn);
    arena_deinit(&s->arena);
    s->is_asking = s->is_cancelled = false;
}

static void keep(struct session *s, struct error *err)
{
    struct step_reply *reply;

    if (step_reply_make(&reply, &s->turn.reply, err) != STATUS_OK)
        return;
    reply->seq = s->seq + 1;
    reply->queue_us = (uint32_t)(s->ask.first_step_us - s->ask.arrival_us);
    s->clone->agent->type->self_observe(s->clone, &s->turn);
    step_reply_unref(s->reply);
    s->reply = reply;
    s->seq++;
}

static void count(struct session *s, uint64_t computed_us, enum status status)
{
    struct statistics *statistics = &s->model->statistics;
    uint64_t now_us = env_now_us(s->all->config.env);
    const struct request_times times = {
        .total_us = now_us - s->accepted_us,
        .queue_us = s->ask.first_step_us - s->ask.arrival_us,
        .input_us = s->ask.arrival_us - s->accepted_us,
        .infer_us = computed_us - s->ask.first_step_us,
        .output_us = now_us - computed_us,
    };

    if (status == STATUS_OK)
        statistics_succeed(statistics, &times, now_us);
    else
        statistics_fail(statistics, status, times.total_us);
}

static void on_settled(struct future *f, const struct error *settled, void *arg);

static enum status ask(struct session *s, int priority, struct error *err)
{
    enum status rc = act_row_take(s->model, s->turn.seen.row_key, s, s->env_id, err);

    if (rc != STATUS_OK)
        return rc;
    s->ask = (struct ask){
        .row = &s->turn.row,
        .asker = &s->clone->asker,
        .deadline_us = s->deadline_us,
        .priority = priority,
    };
    future_init(&s->ask.reply, on_settled, s);
    return batcher_ask(s->model->batcher, &s->ask, err);
}

/* Of a step that was cancelled before compute had it, and then sent again. */
static enum status ask_again(struct session *s, struct error *err)
{
    enum status rc = act_row_check(s->model, s->turn.seen.row_key, err); /* the mode may be new */

    assert(s->ask.n_steps == 0); /* no kind that acts takes two */
    s->is_cancelled = false;
    s->turn.row.err = (struct error){0};
    return rc == STATUS_OK ? ask(s, s->ask.priority, err) : rc;
}

static void on_settled(struct future *f, const struct error *settled, void *arg)
{
    struct session *s = arg;
    struct sessions *all = s->all;
    uint64_t computed_us = env_now_us(all->config.env);
    struct error err = *settled;
    struct step_reply *reply = NULL;
    struct list waits;
    struct link *l;

    (void)f;
    if (err.status == STATUS_CANCELLED && !s->has_ended && !list_is_empty(&s->waits) &&
        ask_again(s, &err) == STATUS_OK)
        return;
    if (err.status == STATUS_OK)
        keep(s, &err);
    count(s, computed_us, err.status);
    if (err.status != STATUS_OK)
        s->clone->agent->type->drop(s->clone, &s->turn);
    else
        reply = step_reply_ref(s->reply);
    if (s->has_ended && err.status == STATUS_CANCELLED)
        (void)error_set(&err, STATUS_ABORTED, "the session has ended: %s",
                        all->is_draining ? "the server is stopping" : "another run took its place");
    end_turn(s);
    list_init(&waits);
    list_move(&s->waits, &waits);
    if (s->has_ended)
        maybe_free(s);
    else
        begin_idle(s);
    while ((l = list_pop(&waits)) != NULL) {
        struct step_wait *w = container_of(l, struct step_wait, link);

        w->session = NULL;
        w->done(w, reply, &err);
    }
    step_reply_unref(reply);
    if (--all->n_asking == 0 && all->config.quiet != NULL)
        all->config.quiet(all->config.quiet_arg);
}

static enum status observe(struct session *s, const struct step_request *r, struct arena *arena,
                           struct error *err)
{
    struct observation *seen = &s->turn.seen;
    enum status rc;

    s->accepted_us = env_now_us(s->all->config.env);
    s->arena = *arena;
    agent_turn_init(&s->turn, &s->arena, 0);
    *seen = (struct observation){
        .tensors = r->observation,
        .n_tensors = r->n_observation,
        .reward = r->reward,
        .is_first = r->done || s->seq == 0,
        .row_key = r->row,
        .sampling = s->model->info.defaults,
        .turn = (uint32_t)(s->seq + 1),
    };
    seen->sampling.seed = s->seed;
    seen->sampling.has_seed = true;
    rc = s->clone->agent->type->observe(s->clone, &s->turn, err);
    if (rc != STATUS_OK) {
        agent_turn_deinit(&s->turn);
        *arena = s->arena;
        arena_init(&s->arena, 0);
        return rc;
    }
    arena_init(arena, s->arena.limit_bytes); /* taken */
    return STATUS_OK;
}

static enum status begin(struct session *s, const struct step_request *r, struct step_wait *w,
                         struct error *err)
{
    s->deadline_us = r->deadline_us;
    if (ask(s, r->priority, err) != STATUS_OK) {
        s->clone->agent->type->drop(s->clone, &s->turn);
        end_turn(s);
        return err->status;
    }
    end_idle(s);
    s->is_asking = true;
    s->all->n_asking++;
    statistics_begin(&s->model->statistics);
    w->session = s;
    list_push(&s->waits, &w->link);
    return STATUS_OK;
}

static enum status check_place(const struct sessions *all, const struct model *model,
                               const char *env_id, struct error *err)
{
    enum status rc = act_check(model, err);
    size_t len = strnlen(env_id, ENV_ID_MAX_BYTES + 1);

    if (rc != STATUS_OK)
        return rc;
    if (all->is_draining)
        return error_set(err, STATUS_UNAVAILABLE, "the server is stopping");
    if (len == 0)
        return error_field(err, "env_id", "is empty");
    if (len > ENV_ID_MAX_BYTES)
        return error_field(err, "env_id", "is longer than %d bytes", ENV_ID_MAX_BYTES);
    return STATUS_OK;
}

static enum status check_step(const struct sessions *all, const struct step_request *r,
                              struct error *err)
{
    enum status rc = check_place(all, r->model, r->env_id, err);

    if (rc != STATUS_OK)
        return rc;
    if (!r->is_next && r->seq == 0)
        return error_field(err, "seq", "is 0, steps count from 1");
    return act_row_check(r->model, r->row, err);
}

static enum status out_of_range(uint64_t seq, uint64_t have, struct error *err)
{
    (void)error_field(err, "seq", "is %llu, the session has %llu: the next is %llu",
                      (unsigned long long)seq, (unsigned long long)have,
                      (unsigned long long)have + 1);
    return err->status = STATUS_RANGE;
}

/* A new session, which is not among all yet. */
static enum status open_session(struct session **out, struct sessions *all, struct session *before,
                                struct model *model, const char *env_id, uint64_t hash,
                                uint64_t run_id, struct error *err)
{
    if (before == NULL && all->n >= all->config.max_sessions)
        return error_set(err, STATUS_EXHAUSTED, "there are %zu sessions already", all->n);
    return make_session(out, all, model, env_id, hash, run_id, err);
}

/* It takes the place of the run before, if there is one. */
static void take_place(struct session *s, struct session *before)
{
    if (before != NULL)
        end_session(before);
    add(s);
    begin_idle(s);
}

/* The first step of a run. */
static enum status step_afresh(struct sessions *all, struct session *before, uint64_t hash,
                               const struct step_request *r, struct arena *arena,
                               struct step_wait *w, struct error *err)
{
    struct session *s = NULL;
    enum status rc;

    if (r->is_next)
        return error_set(err, STATUS_ABORTED, "the session of env_id '%.64s' is gone", r->env_id);
    if (r->seq != 1)
        return out_of_range(r->seq, 0, err);
    rc = open_session(&s, all, before, r->model, r->env_id, hash, r->run_id, err);
    if (rc != STATUS_OK)
        return rc;
    rc = observe(s, r, arena, err);
    if (rc != STATUS_OK) {
        free_session(s);
        return rc;
    }
    take_place(s, before);
    return begin(s, r, w, err);
}

/* Who waits no longer than its own deadline leaves by itself: the step has until the last one's. */
static void join(struct session *s, const struct step_request *r, struct step_wait *w)
{
    if (list_is_empty(&s->waits) || r->deadline_us == 0)
        s->deadline_us = r->deadline_us;
    else if (s->deadline_us != 0 && s->deadline_us < r->deadline_us)
        s->deadline_us = r->deadline_us;
    batcher_postpone(s->model->batcher, &s->ask, s->deadline_us);
    w->session = s;
    list_push(&s->waits, &w->link);
}

static enum status take_step(struct sessions *all, const struct step_request *r,
                             struct arena *arena, struct step_wait *w,
                             struct step_reply **ret_stored, struct error *err)
{
    enum status rc = check_step(all, r, err);
    struct session *s;
    uint64_t hash;

    *ret_stored = NULL;
    if (rc != STATUS_OK)
        return rc;
    hash = hash_of(all, r->model, r->env_id);
    s = find(all, hash, r->model, r->env_id);
    if (s == NULL || s->run_id != r->run_id)
        return step_afresh(all, s, hash, r, arena, w, err);
    if (!r->is_next && r->seq == s->seq) {
        *ret_stored = s->reply;
        return STATUS_OK;
    }
    if (!r->is_next && r->seq != s->seq + 1)
        return out_of_range(r->seq, s->seq, err);
    if (s->is_asking) {
        join(s, r, w);
        return STATUS_OK;
    }
    if (s->hold != NULL && s->hold->is_frozen)
        return error_set(err, STATUS_PRECONDITION, "the episode of env_id '%.64s' is over",
                         s->env_id);
    rc = observe(s, r, arena, err);
    return rc == STATUS_OK ? begin(s, r, w, err) : rc;
}

enum status sessions_step(struct sessions *all, const struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct step_reply **ret_stored, struct error *err)
{
    enum status rc = take_step(all, r, arena, w, ret_stored, err);

    if (rc != STATUS_OK)
        statistics_refuse(&r->model->statistics, rc);
    return rc;
}

void step_wait_leave(struct step_wait *w)
{
    struct session *s = w->session;

    if (s == NULL)
        return;
    w->session = NULL;
    list_remove(&w->link);
    if (!list_is_empty(&s->waits) || s->is_cancelled)
        return;
    s->is_cancelled = true;
    batcher_cancel(s->model->batcher, &s->ask);
}

/* --- held --- */

enum status sessions_hold(struct sessions *all, struct model *model, const char *env_id,
                          uint64_t run_id, uint64_t seed, struct session_hold *h, struct error *err)
{
    enum status rc = check_place(all, model, env_id, err);
    struct session *s = NULL, *before;
    uint64_t hash;

    if (rc != STATUS_OK)
        return rc;
    hash = hash_of(all, model, env_id);
    before = find(all, hash, model, env_id);
    if (before != NULL && before->run_id == run_id) {
        s = before;
    } else {
        rc = open_session(&s, all, before, model, env_id, hash, run_id, err);
        if (rc != STATUS_OK)
            return rc;
        take_place(s, before);
    }
    if (s->is_asking || s->hold != NULL)
        return error_set(err, STATUS_PRECONDITION, "the session of env_id '%.64s' is %s", env_id,
                         s->is_asking ? "in the middle of a step" : "held already");
    end_idle(s);
    s->seed = seed;
    s->hold = h;
    h->session = s;
    return STATUS_OK;
}

void session_let_go(struct session_hold *h)
{
    struct session *s = h->session;

    if (s == NULL)
        return;
    h->session = NULL;
    s->hold = NULL;
    if (s->has_ended)
        maybe_free(s);
    else if (!s->is_asking)
        begin_idle(s);
}

struct clone *session_clone(struct session *s)
{
    return s->clone;
}

bool session_is_asking(const struct session *s)
{
    return s->is_asking;
}

/* --- the end --- */

void sessions_tick(struct sessions *all)
{
    uint64_t now_us = env_now_us(all->config.env);
    uint64_t ttl_us = all->config.ttl_ms * 1000;
    struct link *l;

    while ((l = list_first(&all->idle)) != NULL) {
        struct session *s = container_of(l, struct session, idle);

        if (s->idle_since_us + ttl_us > now_us) {
            all->config.arm(all->config.arm_self, s->idle_since_us + ttl_us);
            return;
        }
        end_session(s);
    }
}

void sessions_drain(struct sessions *all)
{
    all->is_draining = true;
}

void sessions_end(struct sessions *all, const struct model *model, const char *env_id)
{
    struct session *s = find(all, hash_of(all, model, env_id), model, env_id);

    if (s != NULL)
        end_session(s);
}

void sessions_close_all(struct sessions *all, const struct model *model)
{
    for (size_t i = 0; i < all->n_buckets; i++) {
        struct session *s, *next;

        for (s = all->table[i]; s != NULL; s = next) {
            next = s->in_bucket;
            if (model == NULL || s->model == model)
                end_session(s);
        }
    }
}
