/* Runs rollouts. rollout_start resets the environments that have no episode, and gives each
 * environment a clone of the policy. In a step every clone has a turn of the model's batcher, with
 * the environment's index as its row, so that batching does not change what is drawn; when the last
 * turn has ended, one request steps all environments, and the next step begins.
 *
 * An environment whose worker is lost costs its row the steps until another worker has it; only if
 * all are lost at once, the rollout fails. Any other failure of a turn or an environment is the
 * rollout's. The rollout then ends as soon as no turn is under way; a request to the environments
 * is left. The vector is looked up by its
 * handle in each step, since it may be closed meanwhile. */
#include "server/rollout/rollout.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "base/philox.h"
#include "server/model/model.h"

enum { TURN_MAX_BYTES = 1 << 20, SMALL_BYTES = 1 << 16 };

/* An environment and the clone that acts in it. */
struct rollout_row {
    struct vector_rollout *of;
    struct clone *clone;
    bool is_first; /* its next observation is an episode's first */
    bool is_over;  /* its next step is a reset */
    struct tensor_view observation;
    struct agent_turn turn;
    struct arena arena; /* of the turn */
};

void rollouts_init(struct rollouts *all)
{
    *all = (struct rollouts){0};
    list_init(&all->list);
}

bool rollouts_are_idle(const void *rollouts)
{
    const struct rollouts *all = rollouts;

    return list_is_empty(&all->list);
}

void rollouts_end(void *rollouts)
{
    struct rollouts *all = rollouts;
    struct link *next;

    for (struct link *l = list_first(&all->list); l != NULL; l = next) {
        next = list_next(&all->list, l);
        rollout_cancel(container_of(l, struct vector_rollout, link));
    }
}

static struct vector *rollout_vector(const struct vector_rollout *r, struct error *err)
{
    struct vector *v;

    if (vectors_get(&v, r->config.vectors, r->config.principal, r->config.handle, err) != STATUS_OK)
        return NULL;
    return v;
}

/* --- the end --- */

static void rollout_free(struct vector_rollout *r)
{
    for (size_t i = 0; r->rows != NULL && i < r->n; i++)
        clone_close(r->rows[i].clone);
    r->rows = NULL;
    arena_deinit(&r->step_arena);
    arena_deinit(&r->arena);
}

/* Of a failure, once nothing is under way; the results of a success stay until done returns. */
static void rollout_finish(struct vector_rollout *r)
{
    struct rollouts *all = r->config.all;
    struct error ignored, err = r->err;
    struct vector *v = rollout_vector(r, &ignored);
    struct vector_rollout kept;

    if (v != NULL)
        v->is_in_rollout = false;
    list_remove(&r->link);
    model_release(r->config.model);
    for (size_t i = 0; i < r->n; i++)
        clone_close(r->rows[i].clone);
    kept = *r;
    kept.rows = NULL;
    r->done(r, &err);
    rollout_free(&kept);
    if (rollouts_are_idle(all) && all->on_idle != NULL)
        all->on_idle(all->idle_arg);
}

/* The rollout has failed: cancels what is under way. */
static void rollout_fail(struct vector_rollout *r, const struct error *why)
{
    if (r->err.status == STATUS_OK)
        r->err = *why;
    vector_request_leave(&r->request);
    for (size_t i = 0; i < r->n; i++)
        if (agent_turn_is_asked(&r->rows[i].turn))
            agent_turn_cancel(&r->rows[i].turn);
    if (r->n_asked == 0 && !r->is_starting)
        rollout_finish(r);
}

void rollout_cancel(struct vector_rollout *r)
{
    struct error err;

    if (r->is_cancelled)
        return;
    r->is_cancelled = true;
    (void)error_set(&err, STATUS_CANCELLED, "cancelled");
    rollout_fail(r, &err);
}

/* --- the environments --- */

static void rollout_begin_step(struct vector_rollout *r);

static size_t rollout_index(const struct vector_request *q, size_t row)
{
    return q->indices != NULL ? q->indices[row] : row;
}

/* The failure of the answer that ends the rollout, or NULL. */
static const struct error *rollout_failure(const struct vector_rollout *r, size_t *ret_row)
{
    const struct vector_request *q = &r->request;

    for (size_t row = 0; row < q->n; row++) {
        const struct error *e = q->failed[row];

        if (e == NULL || (e->reason == REASON_WORKER_LOST && q->n_failed < r->n))
            continue;
        *ret_row = rollout_index(q, row);
        return e;
    }
    return NULL;
}

/* The environments whose workers were lost are reset in the next step; their step was none. */
static enum status rollout_note_lost(struct vector_rollout *r, struct error *err)
{
    const struct vector_request *q = &r->request;

    for (size_t row = 0; q->n_failed > 0 && row < q->n; row++) {
        size_t i = rollout_index(q, row);
        struct error *kept;

        if (q->failed[row] == NULL)
            continue;
        r->rows[i].is_over = true;
        r->rows[i].is_first = false;
        if (r->lost[i] != NULL)
            continue;
        kept = arena_alloc(&r->arena, 1, sizeof(*kept));
        if (kept == NULL)
            return error_no_memory(err, sizeof(*kept), "the failures of environments");
        *kept = *q->failed[row];
        r->lost[i] = kept;
    }
    return STATUS_OK;
}

static void rollout_keep_step(struct vector_rollout *r)
{
    const struct vector_request *q = &r->request;
    size_t n_steps = r->config.n_steps;

    for (size_t i = 0; i < r->n; i++) {
        size_t at = i * n_steps + r->t;

        r->reward[at] = q->reward[i];
        r->terminated[at] = q->terminated[i];
        r->truncated[at] = q->truncated[i];
        r->reset[at] = r->rows[i].is_over || q->failed[i] != NULL;
        r->rows[i].is_first = r->rows[i].is_over;
        r->rows[i].is_over = q->terminated[i] || q->truncated[i];
    }
    r->t++;
}

/* The states of a recurrent policy that the next rollout begins with. */
static void rollout_keep_states(struct vector_rollout *r)
{
    const struct agent_learning *learning = r->config.model->agent->type->learning;

    for (size_t i = 0; r->n_state > 0 && i < r->n; i++)
        if (!r->rows[i].is_first && !r->rows[i].is_over)
            learning->get_state(r->rows[i].clone, r->last_state + i * r->n_state);
}

/* The observations that the next step begins with. */
static void rollout_keep_seen(struct vector_rollout *r, const struct vector *v)
{
    size_t width = r->spaces.n_observation;

    for (size_t i = 0; i < r->n; i++)
        memcpy(r->observation + (i * (r->config.n_steps + 1) + r->t) * width, v->seen + i * width,
               width * sizeof(r->observation[0]));
}

/* The environments have answered. */
static void rollout_take_answer(struct vector_rollout *r)
{
    struct error err;
    const struct vector *v = rollout_vector(r, &err);
    size_t row = 0;
    const struct error *failure = rollout_failure(r, &row);

    if (v == NULL) {
        rollout_fail(r, &err);
        return;
    }
    if (failure != NULL) {
        err = *failure;
        (void)error_prefix(&err, "environment %zu", row);
        rollout_fail(r, &err);
        return;
    }
    if (!r->request.is_reset)
        rollout_keep_step(r);
    if (rollout_note_lost(r, &err) != STATUS_OK) {
        rollout_fail(r, &err);
        return;
    }
    rollout_keep_seen(r, v);
    if (r->t == r->config.n_steps) {
        rollout_keep_states(r);
        rollout_finish(r);
    } else {
        rollout_begin_step(r);
    }
}

static void on_environments(struct vector_request *q)
{
    struct vector_rollout *r = container_of(q, struct vector_rollout, request);

    rollout_take_answer(r);
}

static void rollout_ask(struct vector_rollout *r, const struct vector_request *q)
{
    struct error err;
    struct vector *v = rollout_vector(r, &err);

    arena_deinit(&r->step_arena);
    r->request = *q;
    r->request.is_of_rollout = true;
    r->request.done = on_environments;
    if (v == NULL || vectors_ask(v, &r->request, &r->step_arena, &err) != STATUS_OK)
        rollout_fail(r, &err);
    else if (r->request.is_done)
        rollout_take_answer(r);
}

static void rollout_step_environments(struct vector_rollout *r)
{
    const struct vector_request q = {
        .resets_ended = true,
        .choices = r->step_choices,
        .action_numbers = r->step_numbers,
    };

    rollout_ask(r, &q);
}

/* --- the policy --- */

static const struct tensor_view *reply_tensor(const struct reply *reply, const char *name)
{
    for (size_t i = 0; i < reply->n_tensors; i++)
        if (strcmp(reply->tensors[i].name, name) == 0)
            return &reply->tensors[i];
    return NULL;
}

/* A number that a policy may leave out; what it gives is finite. */
static enum status reply_number(const struct reply *reply, const char *name, float *out,
                                struct error *err)
{
    const struct tensor_view *t = reply_tensor(reply, name);

    *out = 0;
    if (t == NULL)
        return STATUS_OK;
    if (t->type != TENSOR_F32 || t->size_bytes != sizeof(*out))
        return error_set(err, STATUS_INTERNAL, "the policy's %s is not one f32", name);
    memcpy(out, t->data, sizeof(*out));
    if (!isfinite(*out))
        return error_set(err, STATUS_INTERNAL, "the policy's %s is %g", name, (double)*out);
    return STATUS_OK;
}

static enum status rollout_take_action(struct vector_rollout *r, size_t row,
                                       const struct reply *reply, struct error *err)
{
    const struct tensor_view *t = reply_tensor(reply, "action");
    size_t n_numbers = r->spaces.n_action_numbers, at = row * r->config.n_steps + r->t;
    size_t size = n_numbers > 0 ? n_numbers * sizeof(float) : sizeof(int64_t);

    if (t == NULL || t->type != (n_numbers > 0 ? TENSOR_F32 : TENSOR_I64) || t->size_bytes != size)
        return error_set(err, STATUS_INTERNAL,
                         "the policy's action is not one of the environment's");
    if (n_numbers > 0) {
        memcpy(r->step_numbers + row * n_numbers, t->data, size);
        memcpy(r->numbers + at * n_numbers, t->data, size);
    } else {
        memcpy(&r->step_choices[row], t->data, size);
        r->choices[at] = r->step_choices[row];
    }
    if (reply_number(reply, "logp", &r->logp[at], err) != STATUS_OK)
        return err->status;
    return reply_number(reply, "value", &r->value[at], err);
}

static void on_rollout_turn(struct agent_turn *turn, const struct error *ended)
{
    struct rollout_row *row = container_of(turn, struct rollout_row, turn);
    struct vector_rollout *r = row->of;
    struct error err = *ended;

    if (err.status == STATUS_OK) {
        (void)rollout_take_action(r, (size_t)(row - r->rows), &turn->reply, &err);
        if (turn->reply.params_version > r->last_version)
            r->last_version = turn->reply.params_version;
        if (r->first_version == 0)
            r->first_version = turn->reply.params_version;
        agent_turn_keep(turn);
    } else {
        agent_turn_drop(turn);
    }
    agent_turn_deinit(turn);
    arena_deinit(&row->arena);
    r->n_asked--;
    if (r->err.status == STATUS_OK && err.status != STATUS_OK)
        rollout_fail(r, &err);
    else if (r->n_asked == 0 && r->err.status != STATUS_OK)
        rollout_finish(r);
    else if (r->n_asked == 0)
        rollout_step_environments(r);
}

static float rollout_epsilon(const struct vector_rollout_config *c, size_t row)
{
    return c->n_epsilons == 0 ? 0 : c->epsilons[c->n_epsilons > 1 ? row : 0];
}

static enum status rollout_ask_row(struct vector_rollout *r, size_t i, struct error *err)
{
    const struct agent_turn_terms terms = {.deadline_us = r->config.deadline_us,
                                           .ended = on_rollout_turn};
    struct rollout_row *row = &r->rows[i];
    size_t width = r->spaces.n_observation;
    enum status rc = model_check_ready(r->config.model, err);

    if (rc != STATUS_OK)
        return rc;
    row->observation.data = r->observation + (i * (r->config.n_steps + 1) + r->t) * width;
    arena_init(&row->arena, TURN_MAX_BYTES);
    agent_turn_init(&row->turn, &row->arena, 0);
    row->turn.seen = (struct observation){
        .tensors = &row->observation,
        .n_tensors = 1,
        .reward = r->t > 0 ? r->reward[i * r->config.n_steps + r->t - 1] : 0,
        .is_first = row->is_first,
        .row_key = (uint32_t)i,
        .sampling = r->config.model->info.defaults,
        .epsilon = rollout_epsilon(&r->config, i),
        .turn = (uint32_t)(r->t + 1),
    };
    row->turn.seen.sampling.seed = r->draw_seed;
    row->turn.seen.sampling.has_seed = true;
    if (r->config.is_greedy)
        row->turn.seen.sampling.temperature = 0;
    rc = agent_turn_observe(&row->turn, row->clone, err);
    if (rc == STATUS_OK) {
        rc = agent_turn_ask(&row->turn, r->config.model->batcher, &terms, err);
        if (rc != STATUS_OK)
            agent_turn_drop(&row->turn);
    }
    if (rc != STATUS_OK) {
        agent_turn_deinit(&row->turn);
        arena_deinit(&row->arena);
        return rc;
    }
    r->n_asked++;
    return STATUS_OK;
}

static void rollout_begin_step(struct vector_rollout *r)
{
    struct error err;

    for (size_t i = 0; i < r->n; i++)
        if (rollout_ask_row(r, i, &err) != STATUS_OK) {
            rollout_fail(r, &err);
            return;
        }
}

/* --- the start --- */

static enum status rollout_check_model(const struct vector_rollout *r, const struct vector *v,
                                       struct error *err)
{
    const struct model *m = r->config.model;
    const struct environment_spaces *s = &v->spaces;

    if (model_check_ready(m, err) != STATUS_OK)
        return err->status;
    if (m->info.acting.n_observations != s->n_observation)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                             "model '%s' takes %zu numbers, an observation of %s has %zu", m->name,
                             m->info.acting.n_observations, v->name, s->n_observation);
    if (m->info.acting.n_actions != s->n_actions ||
        m->info.acting.n_action_numbers != s->n_action_numbers)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                             "model '%s' has %zu actions and %zu numbers of an action, %s has %zu "
                             "and %zu",
                             m->name, m->info.acting.n_actions, m->info.acting.n_action_numbers,
                             v->name, s->n_actions, s->n_action_numbers);
    if (r->config.row_multiple > 0 && v->n % r->config.row_multiple != 0)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                             "the batches of model '%s' have %u rows in lock-step, which do not "
                             "divide %zu environments",
                             m->name, r->config.row_multiple, v->n);
    return STATUS_OK;
}

static enum status rollout_check(const struct vector_rollout *r, const struct vector *v,
                                 struct error *err)
{
    const struct vector_rollout_config *c = &r->config;
    size_t row_bytes = (v->spaces.n_observation + v->spaces.n_action_numbers + 8) * sizeof(float);
    size_t n_state = c->model->info.acting.n_state;

    if (rollout_check_model(r, v, err) != STATUS_OK)
        return err->status;
    if (c->n_steps == 0 || c->n_steps > ROLLOUT_MAX_STEPS)
        return error_field(err, "n_steps", "is %zu, it is 1 to %d", c->n_steps, ROLLOUT_MAX_STEPS);
    if ((c->n_steps + 1) * v->n > ROLLOUT_MAX_BYTES / row_bytes)
        return error_field(err, "n_steps", "is %zu, of these environments at most %zu are taken",
                           c->n_steps, ROLLOUT_MAX_BYTES / row_bytes / v->n - 1);
    if (n_state * v->n > ROLLOUT_MAX_BYTES / (2 * sizeof(float)))
        return error_field(err, "model",
                           "has a state of %zu numbers, which is too much for %zu "
                           "environments: open fewer",
                           n_state, v->n);
    if (c->states != NULL && c->n_states != n_state * v->n)
        return error_field(err, "state", "has %zu numbers, for %zu environments it must have %zu",
                           c->n_states, v->n, n_state * v->n);
    for (size_t i = 0; i < c->n_states; i++)
        if (!isfinite(c->states[i]))
            return error_field(err, "state", "holds %g at %zu", (double)c->states[i], i);
    if (c->n_epsilons > 1 && c->n_epsilons != v->n)
        return error_field(err, "epsilon", "has %zu, there are %zu environments", c->n_epsilons,
                           v->n);
    for (size_t i = 0; i < c->n_epsilons; i++)
        if (!(c->epsilons[i] >= 0 && c->epsilons[i] <= 1))
            return error_field(err, "epsilon", "has %g at %zu, it is 0 to 1",
                               (double)c->epsilons[i], i);
    if (v->is_in_rollout)
        return error_because(err, STATUS_PRECONDITION, REASON_SESSION_BUSY, "handle",
                             "the environments are in a rollout");
    return STATUS_OK;
}

static enum status rollout_lay_out(struct vector_rollout *r, struct error *err)
{
    size_t n = r->n, n_numbers = r->spaces.n_action_numbers, n_all = n * r->config.n_steps;
    size_t width = r->spaces.n_observation;
    struct arena *a = &r->arena;

    /* a row's alignment and the arena's own need a little more */
    arena_init(a, 2 * (size_t)ROLLOUT_MAX_BYTES +
                      n * (sizeof(r->rows[0]) + sizeof(struct error) + 128) + SMALL_BYTES);
    arena_init(&r->step_arena, 2 * (size_t)ROLLOUT_MAX_BYTES);
    r->rows = arena_alloc(a, n, sizeof(r->rows[0]));
    r->indices = arena_alloc(a, n, sizeof(r->indices[0]));
    r->lost = arena_alloc(a, n, sizeof(r->lost[0]));
    r->step_choices = arena_alloc(a, n, sizeof(r->step_choices[0]));
    r->step_numbers = arena_alloc(a, n * n_numbers + 1, sizeof(r->step_numbers[0]));
    r->observation = arena_alloc(a, n_all + n, width * sizeof(r->observation[0]));
    r->choices = arena_alloc(a, n_numbers > 0 ? 1 : n_all, sizeof(r->choices[0]));
    r->numbers = arena_alloc(a, n_all * n_numbers + 1, sizeof(r->numbers[0]));
    r->logp = arena_alloc(a, n_all, sizeof(r->logp[0]));
    r->value = arena_alloc(a, n_all, sizeof(r->value[0]));
    r->reward = arena_alloc(a, n_all, sizeof(r->reward[0]));
    r->terminated = arena_alloc(a, n_all, sizeof(r->terminated[0]));
    r->truncated = arena_alloc(a, n_all, sizeof(r->truncated[0]));
    r->reset = arena_alloc(a, n_all, sizeof(r->reset[0]));
    r->state = arena_alloc(a, n * r->n_state + 1, sizeof(r->state[0]));
    r->last_state = arena_alloc(a, n * r->n_state + 1, sizeof(r->last_state[0]));
    if (r->rows != NULL && r->indices != NULL && r->lost != NULL && r->step_choices != NULL &&
        r->step_numbers != NULL && r->observation != NULL && r->choices != NULL &&
        r->numbers != NULL && r->logp != NULL && r->value != NULL && r->reward != NULL &&
        r->terminated != NULL && r->truncated != NULL && r->reset != NULL && r->state != NULL &&
        r->last_state != NULL)
        return STATUS_OK;
    return error_no_memory(err, n_all * width * sizeof(r->observation[0]), "trajectories");
}

static enum status rollout_open_rows(struct vector_rollout *r, struct error *err)
{
    struct model *m = r->config.model;
    const struct clone_config config = {.salt = r->config.principal,
                                        .tenant = tenants_get(&m->tenants, r->config.principal)};
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < r->n && rc == STATUS_OK; i++) {
        r->rows[i] = (struct rollout_row){
            .of = r,
            .observation = {.name = "observation",
                            .type = TENSOR_F32,
                            .n_dims = 1,
                            .dims = {(int64_t)r->spaces.n_observation},
                            .size_bytes = r->spaces.n_observation * sizeof(float)},
        };
        rc = clone_open(&r->rows[i].clone, m->agent, &config, err);
    }
    return rc;
}

/* A seed of this rollout's own, so that a vector's next rollout by the same seed draws anew. */
static uint64_t rollout_draw_seed(uint64_t seed, uint64_t n_before)
{
    const uint32_t counter[4] = {(uint32_t)n_before, (uint32_t)(n_before >> 32), 0, UINT32_MAX};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];

    philox_block(counter, key, words);
    return (uint64_t)words[1] << 32 | words[0];
}

/* Gives the policy the states that the caller has, of the episodes that go on. */
static void rollout_set_states(struct vector_rollout *r)
{
    const struct agent_learning *learning = r->config.model->agent->type->learning;

    for (size_t i = 0; r->config.states != NULL && r->n_state > 0 && i < r->n; i++) {
        float *state = r->state + i * r->n_state;

        if (r->rows[i].is_first)
            continue;
        memcpy(state, r->config.states + i * r->n_state, r->n_state * sizeof(state[0]));
        learning->set_state(r->rows[i].clone, state);
    }
}

/* Resets those without an episode, or all. */
static void rollout_reset(struct vector_rollout *r, struct vector *v)
{
    struct vector_request q = {.is_reset = true, .indices = r->indices};

    for (size_t i = 0; i < r->n; i++) {
        if (!r->config.resets && v->instances[i].state == VECTOR_RUNNING)
            continue;
        r->indices[q.n++] = (uint32_t)i;
        r->rows[i].is_first = true;
    }
    rollout_set_states(r);
    if (q.n > 0) {
        rollout_ask(r, &q);
        return;
    }
    rollout_keep_seen(r, v);
    rollout_begin_step(r);
}

enum status rollout_start(struct vector_rollout *r, struct error *err)
{
    struct vector *v = rollout_vector(r, err);

    if (v == NULL || rollout_check(r, v, err) != STATUS_OK)
        return err->status;
    r->spaces = v->spaces;
    r->n = v->n;
    r->n_state = r->config.model->info.acting.n_state;
    if (rollout_lay_out(r, err) != STATUS_OK || rollout_open_rows(r, err) != STATUS_OK) {
        rollout_free(r);
        return err->status;
    }
    r->draw_seed = rollout_draw_seed(r->config.seed, v->n_rollouts++);
    v->is_in_rollout = true;
    list_push(&r->config.all->list, &r->link);
    model_hold(r->config.model);
    r->is_starting = true;
    rollout_reset(r, v);
    r->is_starting = false;
    if (r->err.status == STATUS_OK || r->n_asked > 0)
        return STATUS_OK;
    *err = r->err; /* nothing is under way */
    v = rollout_vector(r, &r->err);
    if (v != NULL)
        v->is_in_rollout = false;
    list_remove(&r->link);
    model_release(r->config.model);
    rollout_free(r);
    return err->status;
}
