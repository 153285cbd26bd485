/* The happy path: sessions_step finds the session or opens one, has its clone observe, and sends a
 * request to the model's batcher. on_ended has the clone self-observe, keeps the reply, and calls
 * done for the waiters.
 *
 * Failure: a failed step is dropped, the clone is restored, and the number is free again. A step
 * without waiters is cancelled; if it is sent again before the cancel is done it is requested
 * again, or completes if the compute thread has it already. A session that ends while its step is
 * in flight leaves the table at once, and is freed when the step is back; then done is called. */
#include "server/act/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/access/quota.h"
#include "server/model/model.h"

static const struct limit_kind kind_of_sessions = {"sessions of Act", "--max-sessions", NULL};

struct session {
    struct hash_node by_env; /* not for ended sessions */
    struct link idle;        /* of sessions->idle; not while leased or in a step */
    struct sessions *all;
    uint32_t principal; /* its owner; calls of other principals do not find it */
    struct model *model;
    struct clone *clone;
    struct session_lease *lease;
    struct access_quota *quota; /* of its principal; NULL: none */
    uint64_t run_id;
    uint64_t seq; /* of the last completed step */
    uint64_t seed, idle_since_us;
    uint64_t accepted_us;     /* the step in flight */
    uint64_t deadline_us;     /* the latest of its waiters; 0: none */
    struct step_reply *reply; /* to seq; NULL for 0 */
    struct digest answered;   /* what reply is to */
    struct digest asked;      /* the step in flight */
    bool has_ended;           /* removed from the table */
    struct list waits;
    struct agent_turn turn; /* asked: the step after seq is in flight */
    struct arena arena;
    char env_id[];
};

/* --- all sessions --- */

static void session_close_of_model(struct model_user *u, struct model *m)
{
    struct sessions *all = container_of(u, struct sessions, user);

    sessions_close_all(all, m);
    act_forget(&all->modes, m);
}

void sessions_configure(struct sessions *all, size_t max_sessions)
{
    all->limit.max = max_sessions != 0 ? max_sessions : 65536;
}

void sessions_init(struct sessions *all, const struct sessions_config *config)
{
    *all = (struct sessions){.config = *config, .user.close = session_close_of_model};
    shared_limit_init(&all->limit, &kind_of_sessions, 0);
    sessions_configure(all, config->max_sessions);
    if (all->config.ttl_ms == 0)
        all->config.ttl_ms = (uint64_t)10 * 60 * 1000;
    hash_init(&all->by_env, config->env);
    digest_key_init(&all->key, config->env);
    list_init(&all->idle);
    act_modes_init(&all->modes);
}

void sessions_deinit(void *sessions)
{
    struct sessions *all = sessions;

    assert(all->limit.held == 0 && all->n_asking == 0);
    shared_limit_deinit(&all->limit);
    act_modes_deinit(&all->modes);
    hash_deinit(&all->by_env);
}

static uint64_t session_hash_of(const struct sessions *all, uint32_t principal,
                                const struct model *model, const char *env_id)
{
    uint64_t place = (uint64_t)(uintptr_t)model ^ (uint64_t)principal << 48;

    return hash_text(&all->by_env, place, env_id);
}

static struct session *session_of_node(struct hash_node *node)
{
    return node == NULL ? NULL : container_of(node, struct session, by_env);
}

static struct session *session_find(const struct sessions *all, uint64_t hash, uint32_t principal,
                                    const struct model *model, const char *env_id)
{
    struct hash_node *node = hash_first(&all->by_env, hash);
    struct session *s;

    while ((s = session_of_node(node)) != NULL &&
           (s->principal != principal || s->model != model || strcmp(s->env_id, env_id) != 0))
        node = hash_next(node);
    return s;
}

/* --- one session --- */

static void free_session(struct session *s)
{
    assert(!agent_turn_is_asked(&s->turn) && s->lease == NULL && !link_is_on(&s->idle));
    step_reply_unref(s->reply);
    clone_close(s->clone);
    free(s);
}

static enum status make_session(struct session **out, struct sessions *all, uint32_t principal,
                                struct model *model, const char *env_id, uint64_t hash,
                                uint64_t run_id, struct error *err)
{
    const struct clone_config config = {.salt = principal,
                                        .tenant = tenants_get(&model->tenants, principal)};
    size_t id_size = strlen(env_id) + 1;
    struct session *s = try_alloc(1, sizeof(*s) + id_size);

    if (s == NULL)
        return error_no_memory(err, sizeof(*s) + id_size, "a session");
    s->all = all;
    s->principal = principal;
    if (all->config.quota_of != NULL)
        s->quota = all->config.quota_of(all->config.quota_arg, principal);
    s->model = model;
    s->by_env.hash = hash; /* for its later insertion */
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

static void session_begin_idle(struct session *s)
{
    struct sessions *all = s->all;
    bool is_first = list_is_empty(&all->idle);

    if (s->lease != NULL)
        return;
    s->idle_since_us = env_now_us(all->config.env);
    list_push(&all->idle, &s->idle);
    if (is_first)
        alarm_set(all->config.alarm, s->idle_since_us + all->config.ttl_ms * 1000);
}

static void end_idle(struct session *s)
{
    if (link_is_on(&s->idle))
        list_remove(&s->idle);
}

/* Frees an ended session, unless its step runs or it is leased. */
static void maybe_free(struct session *s)
{
    if (!agent_turn_is_asked(&s->turn) && s->lease == NULL)
        free_session(s);
}

/* Removes the session from the tables; it is freed when its step is done and its lease released. */
static void end_session(struct session *s)
{
    struct session_lease *lease = s->lease;

    hash_remove(&s->all->by_env, &s->by_env);
    shared_limit_give(&s->all->limit, s->principal, 1);
    s->has_ended = true;
    end_idle(s);
    act_row_leave(&s->all->modes, s->model, s->turn.seen.row_key, s);
    if (agent_turn_is_asked(&s->turn))
        agent_turn_cancel(&s->turn);
    if (lease != NULL)
        lease->lost(lease);
    else
        maybe_free(s);
}

/* --- what a step says --- */

static void digest_tensor(struct digest_writer *w, const struct tensor_view *t)
{
    digest_text(w, t->name);
    digest_number(w, (uint64_t)t->type << 32 | t->n_dims);
    for (size_t i = 0; i < t->n_dims; i++)
        digest_number(w, (uint64_t)t->dims[i]);
    digest_bytes(w, t->data, t->size_bytes);
}

static struct digest step_digest(const struct sessions *all, const struct step_request *r)
{
    struct digest_writer w;
    uint32_t reward;

    memcpy(&reward, &r->reward, sizeof(reward));
    digest_start(&w, &all->key);
    digest_number(&w, (uint64_t)r->done << 32 | reward);
    digest_number(&w, r->n_observation);
    for (size_t i = 0; i < r->n_observation; i++)
        digest_tensor(&w, &r->observation[i]);
    return digest_end(&w);
}

/* Whether a number that is in use came with the request that had it. */
static enum status check_again(const struct sessions *all, const struct step_request *r,
                               const struct digest *before, struct error *err)
{
    struct digest again = step_digest(all, r);

    if (digest_is_equal(&again, before))
        return STATUS_OK;
    (void)error_field(err, "seq", "%llu was sent before with another observation",
                      (unsigned long long)r->seq);
    return err->status = STATUS_EXISTS;
}

/* --- a step --- */

/* The turn has ended, with success or not. */
static void end_turn(struct session *s)
{
    act_row_leave(&s->all->modes, s->model, s->turn.seen.row_key, s);
    agent_turn_deinit(&s->turn);
    arena_deinit(&s->arena);
}

static void session_keep(struct session *s, struct error *err)
{
    struct step_reply *reply;

    if (step_reply_make(&reply, &s->turn.reply, err) != STATUS_OK)
        return;
    reply->seq = s->seq + 1;
    reply->queue_us = (uint32_t)(s->turn.request.first_step_us - s->turn.request.arrival_us);
    agent_turn_keep(&s->turn);
    step_reply_unref(s->reply);
    s->reply = reply;
    s->answered = s->asked;
    s->seq++;
}

static void session_count(struct session *s, uint64_t computed_us, enum status status)
{
    struct statistics *statistics = &s->model->statistics;
    const struct batch_request *a = &s->turn.request;
    uint64_t now_us = env_now_us(s->all->config.env);
    const struct request_times times = {
        .total_us = now_us - s->accepted_us,
        .queue_us = a->first_step_us - a->arrival_us,
        .input_us = a->arrival_us - s->accepted_us,
        .infer_us = computed_us - a->first_step_us,
        .output_us = now_us - computed_us,
    };

    if (status == STATUS_OK)
        statistics_succeed(statistics, &times, now_us);
    else
        statistics_fail(statistics, status, times.total_us);
}

static void on_ended(struct agent_turn *turn, const struct error *ended);

static enum status session_ask(struct session *s, int priority, struct error *err)
{
    const struct agent_turn_terms terms = {
        .deadline_us = s->deadline_us, .priority = priority, .ended = on_ended};
    enum status rc =
        act_row_take(&s->all->modes, s->model, s->turn.seen.row_key, s, s->env_id, err);

    if (rc != STATUS_OK)
        return rc;
    return agent_turn_ask(&s->turn, s->model->batcher, &terms, err);
}

/* For a step that was cancelled before the compute thread had it, and then sent again. */
static enum status ask_again(struct session *s, struct error *err)
{
    enum status rc = act_row_check(&s->all->modes, s->model, s->turn.seen.row_key,
                                   err); /* the mode may have changed */

    assert(s->turn.n_steps == 0); /* an agent that acts takes one step */
    return rc == STATUS_OK ? session_ask(s, s->turn.terms.priority, err) : rc;
}

static void on_ended(struct agent_turn *turn, const struct error *ended)
{
    struct session *s = container_of(turn, struct session, turn);
    struct sessions *all = s->all;
    uint64_t computed_us = env_now_us(all->config.env);
    struct error err = *ended;
    struct step_reply *reply = NULL;
    struct list waits;
    struct link *l;

    if (err.status == STATUS_CANCELLED && !s->has_ended && !list_is_empty(&s->waits) &&
        ask_again(s, &err) == STATUS_OK)
        return;
    if (err.status == STATUS_OK)
        session_keep(s, &err);
    session_count(s, computed_us, err.status);
    if (err.status != STATUS_OK)
        agent_turn_drop(&s->turn);
    else
        reply = step_reply_ref(s->reply);
    if (s->has_ended && err.status == STATUS_CANCELLED)
        (void)error_because(&err, STATUS_ABORTED,
                            all->is_draining ? REASON_SERVER_DRAINING : REASON_SESSION_REPLACED,
                            NULL, "the session has ended: %s",
                            all->is_draining ? "the server is shutting down"
                                             : "another run has replaced it");
    end_turn(s);
    list_init(&waits);
    list_move(&s->waits, &waits);
    if (s->has_ended)
        maybe_free(s);
    else
        session_begin_idle(s);
    while ((l = list_pop(&waits)) != NULL) {
        struct step_wait *w = container_of(l, struct step_wait, link);

        w->session = NULL;
        w->done(w, reply, &err);
    }
    step_reply_unref(reply);
    if (--all->n_asking == 0 && all->config.on_idle != NULL)
        all->config.on_idle(all->config.idle_arg);
}

static enum status session_observe(struct session *s, const struct step_request *r,
                                   struct arena *arena, struct error *err)
{
    struct observation *seen = &s->turn.seen;
    enum status rc;

    s->accepted_us = env_now_us(s->all->config.env);
    if (quota_take_request(s->quota, s->accepted_us, err) != STATUS_OK)
        return err->status;
    s->asked = step_digest(s->all, r);
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
    rc = agent_turn_observe(&s->turn, s->clone, err);
    if (rc != STATUS_OK) {
        agent_turn_deinit(&s->turn);
        *arena = s->arena;
        arena_init(&s->arena, 0);
        quota_give_back_request(s->quota, s->accepted_us);
        return rc;
    }
    arena_init(arena, s->arena.limit_bytes); /* taken */
    return STATUS_OK;
}

static enum status session_begin_step(struct session *s, const struct step_request *r,
                                      struct step_wait *w, struct error *err)
{
    s->deadline_us = r->deadline_us;
    if (session_ask(s, r->priority, err) != STATUS_OK) {
        agent_turn_drop(&s->turn);
        end_turn(s);
        quota_give_back_request(s->quota, s->accepted_us);
        return err->status;
    }
    end_idle(s);
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
        return error_draining(err);
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
    return act_row_check(&all->modes, r->model, r->row, err);
}

static enum status out_of_range(uint64_t seq, uint64_t have, struct error *err)
{
    return error_because(err, STATUS_RANGE, REASON_SEQ_GAP, "seq",
                         "seq is %llu, the session has %llu: the next is %llu",
                         (unsigned long long)seq, (unsigned long long)have,
                         (unsigned long long)have + 1);
}

/* Makes a session that is not in the table yet. */
static enum status open_session(struct session **out, struct sessions *all, struct session *before,
                                uint32_t principal, struct model *model, const char *env_id,
                                uint64_t hash, uint64_t run_id, struct error *err)
{
    if (before == NULL && shared_limit_check(&all->limit, principal, 1, err) != STATUS_OK)
        return err->status;
    return make_session(out, all, principal, model, env_id, hash, run_id, err);
}

/* Adds the session in place of the earlier run, if there is one. */
static void session_take_place(struct session *s, struct session *before)
{
    if (before != NULL)
        end_session(before);
    hash_add(&s->all->by_env, &s->by_env, s->by_env.hash);
    shared_limit_hold(&s->all->limit, s->principal, 1);
    session_begin_idle(s);
}

/* Begins a run with its first step. */
static enum status step_afresh(struct sessions *all, struct session *before, uint64_t hash,
                               const struct step_request *r, struct arena *arena,
                               struct step_wait *w, struct error *err)
{
    struct session *s = NULL;
    enum status rc;

    if (r->is_next)
        return error_because(err, STATUS_ABORTED, REASON_SESSION_NOT_FOUND, "env_id",
                             "the session of env_id '%.64s' is gone", r->env_id);
    if (r->seq != 1)
        return out_of_range(r->seq, 0, err);
    rc = open_session(&s, all, before, r->principal, r->model, r->env_id, hash, r->run_id, err);
    if (rc != STATUS_OK)
        return rc;
    rc = session_observe(s, r, arena, err);
    if (rc != STATUS_OK) {
        free_session(s);
        return rc;
    }
    session_take_place(s, before);
    return session_begin_step(s, r, w, err);
}

/* A waiter leaves at its own deadline; the step has the latest deadline of its waiters. */
static void session_join(struct session *s, const struct step_request *r, struct step_wait *w)
{
    if (list_is_empty(&s->waits) || r->deadline_us == 0)
        s->deadline_us = r->deadline_us;
    else if (s->deadline_us != 0 && s->deadline_us < r->deadline_us)
        s->deadline_us = r->deadline_us;
    agent_turn_postpone(&s->turn, s->deadline_us);
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
    hash = session_hash_of(all, r->principal, r->model, r->env_id);
    s = session_find(all, hash, r->principal, r->model, r->env_id);
    if (s == NULL || s->run_id != r->run_id)
        return step_afresh(all, s, hash, r, arena, w, err);
    if (!r->is_next && r->seq == s->seq) {
        rc = check_again(all, r, &s->answered, err);
        if (rc == STATUS_OK)
            *ret_stored = s->reply;
        return rc;
    }
    if (!r->is_next && r->seq != s->seq + 1)
        return out_of_range(r->seq, s->seq, err);
    if (agent_turn_is_asked(&s->turn)) {
        rc = r->is_next ? STATUS_OK : check_again(all, r, &s->asked, err);
        if (rc == STATUS_OK)
            session_join(s, r, w);
        return rc;
    }
    if (s->lease != NULL && s->lease->is_frozen)
        return error_because(err, STATUS_PRECONDITION, REASON_EPISODE_OVER, "env_id",
                             "the episode of env_id '%.64s' is over", s->env_id);
    rc = session_observe(s, r, arena, err);
    return rc == STATUS_OK ? session_begin_step(s, r, w, err) : rc;
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
    if (list_is_empty(&s->waits))
        agent_turn_cancel(&s->turn);
}

/* --- leases --- */

enum status sessions_lease(struct sessions *all, uint32_t principal, struct model *model,
                           const char *env_id, uint64_t run_id, uint64_t seed,
                           struct session_lease *h, struct error *err)
{
    enum status rc = check_place(all, model, env_id, err);
    struct session *s = NULL, *before;
    uint64_t hash;

    if (rc != STATUS_OK)
        return rc;
    hash = session_hash_of(all, principal, model, env_id);
    before = session_find(all, hash, principal, model, env_id);
    if (before != NULL && before->run_id == run_id) {
        s = before;
    } else {
        rc = open_session(&s, all, before, principal, model, env_id, hash, run_id, err);
        if (rc != STATUS_OK)
            return rc;
        session_take_place(s, before);
    }
    if (agent_turn_is_asked(&s->turn) || s->lease != NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_SESSION_BUSY, "env_id",
                             "the session of env_id '%.64s' is %s", env_id,
                             agent_turn_is_asked(&s->turn) ? "in the middle of a step"
                                                           : "held already");
    end_idle(s);
    if (s->seed != seed)
        s->clone->agent->type->reset(s->clone);
    s->seed = seed;
    s->lease = h;
    h->session = s;
    return STATUS_OK;
}

void session_release(struct session_lease *h)
{
    struct session *s = h->session;

    if (s == NULL)
        return;
    h->session = NULL;
    s->lease = NULL;
    if (s->has_ended)
        maybe_free(s);
    else if (!agent_turn_is_asked(&s->turn))
        session_begin_idle(s);
}

struct clone *session_clone(struct session *s)
{
    return s->clone;
}

bool session_is_asking(const struct session *s)
{
    return agent_turn_is_asked(&s->turn);
}

/* --- the end --- */

void sessions_tick(void *sessions)
{
    struct sessions *all = sessions;
    uint64_t now_us = env_now_us(all->config.env);
    uint64_t ttl_us = all->config.ttl_ms * 1000;
    struct link *l;

    while ((l = list_first(&all->idle)) != NULL) {
        struct session *s = container_of(l, struct session, idle);

        if (s->idle_since_us + ttl_us > now_us) {
            alarm_set(all->config.alarm, s->idle_since_us + ttl_us);
            return;
        }
        end_session(s);
    }
}

void sessions_drain(void *sessions)
{
    struct sessions *all = sessions;

    all->is_draining = true;
}

void sessions_end(struct sessions *all, uint32_t principal, const struct model *model,
                  const char *env_id)
{
    uint64_t hash = session_hash_of(all, principal, model, env_id);
    struct session *s = session_find(all, hash, principal, model, env_id);

    if (s != NULL)
        end_session(s);
}

void sessions_close_all(struct sessions *all, const struct model *model)
{
    struct hash_node *node, *next;

    for (node = hash_each(&all->by_env, NULL); node != NULL; node = next) {
        struct session *s = session_of_node(node);

        next = hash_each(&all->by_env, node);
        if (model == NULL || s->model == model)
            end_session(s);
    }
}
