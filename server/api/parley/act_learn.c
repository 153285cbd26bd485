/* parley.v1.Act, Learn: the request's tensors are checked and copied, since the compute thread may
 * still read them when the call is gone. The lesson is freed when it and the call are over. */
#include <stdlib.h>
#include <string.h>

#include "parley/v1/act.pb-c.h"
#include "server/act/lesson.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire_tensor.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { LESSON_MAX_BYTES = 256 << 20 };

static const float lesson_rate_default = 0.001f, value_weight_default = 0.5f;

struct learn_call {
    struct call *call; /* NULL: closed */
    bool is_over;      /* the lesson */
    struct act_lesson lesson;
};

static void learn_call_free(struct learn_call *c)
{
    arena_deinit(&c->lesson.arena);
    free(c);
}

/* --- the request --- */

/* A tensor of the request that must have this type and shape, copied into the lesson's arena. A
 * field that may be missing gives NULL. */
static enum status lesson_take(const void **out, struct learn_call *c, Parley__V1__Tensor *m,
                               const char *field, enum tensor_type type, const int64_t *dims,
                               size_t n_dims, struct error *err)
{
    struct tensor_view view;
    unsigned char *copy;

    if (environment_wire_tensor(&view, m, field, call_arena(c->call), err) != STATUS_OK)
        return err->status;
    if (tensor_expect(&view, type, dims, n_dims, err) != STATUS_OK)
        return error_name_field(err, field);
    copy = arena_alloc(&c->lesson.arena, view.size_bytes + 1, 1);
    if (copy == NULL)
        return error_no_memory(err, view.size_bytes, "steps to learn from");
    if (view.size_bytes > 0)
        memcpy(copy, view.data, view.size_bytes);
    for (size_t i = 0; type == TENSOR_BOOL && i < view.size_bytes; i++)
        copy[i] = copy[i] != 0;
    *out = copy;
    return STATUS_OK;
}

/* [n] and [n_steps] from a tensor that has them. */
static enum status lesson_shape(const Parley__V1__Tensor *m, const char *field, size_t n_dims,
                                int64_t *ret_dims, struct error *err)
{
    if (m == NULL)
        return error_field(err, field, "is missing");
    if (m->n_shape != n_dims)
        return error_field(err, field, "has %zu dimensions, it must have %zu", m->n_shape, n_dims);
    for (size_t i = 0; i < n_dims; i++) {
        if (m->shape[i] < 1 || m->shape[i] > INT32_MAX)
            return error_field(err, field, "has the dimension %lld, it must be 1 or more",
                               (long long)m->shape[i]);
        ret_dims[i] = m->shape[i];
    }
    return STATUS_OK;
}

/* is_given: the case of the field's oneof, 0 if it is not set. */
static float lesson_or(int is_given, float given, float otherwise)
{
    return is_given != 0 ? given : otherwise;
}

static enum status take_trajectories(struct learn_call *c, const Parley__V1__ActTrajectories *m,
                                     struct error *err)
{
    const struct agent_info *info = &c->lesson.model->info;
    struct learn_trajectories *to = &c->lesson.trajectories;
    int64_t shape[3], seen[3], action[3];
    const void *observations, *actions, *rewards, *terminated, *resets = NULL, *logp = NULL;
    const void *states = NULL;
    size_t n_numbers = info->acting.n_action_numbers;
    enum status rc = lesson_shape(m->reward, "reward", 2, shape, err);

    if (rc != STATUS_OK)
        return rc;
    memcpy(seen, (int64_t[]){shape[0], shape[1] + 1, (int64_t)info->acting.n_observations},
           sizeof(seen));
    memcpy(action, (int64_t[]){shape[0], shape[1], (int64_t)n_numbers}, sizeof(action));
    rc = lesson_take(&rewards, c, m->reward, "reward", TENSOR_F32, shape, 2, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&observations, c, m->observation, "observation", TENSOR_F32, seen, 3, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&actions, c, m->action, "action", n_numbers > 0 ? TENSOR_F32 : TENSOR_I64,
                         action, n_numbers > 0 ? 3 : 2, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&terminated, c, m->terminated, "terminated", TENSOR_BOOL, shape, 2, err);
    if (rc == STATUS_OK && m->reset != NULL)
        rc = lesson_take(&resets, c, m->reset, "reset", TENSOR_BOOL, shape, 2, err);
    if (rc == STATUS_OK && m->logp != NULL)
        rc = lesson_take(&logp, c, m->logp, "logp", TENSOR_F32, shape, 2, err);
    if (rc == STATUS_OK && m->state != NULL)
        rc = lesson_take(&states, c, m->state, "state", TENSOR_F32,
                         (int64_t[]){shape[0], (int64_t)info->acting.n_state}, 2, err);
    if (rc == STATUS_OK && resets == NULL) {
        resets = arena_alloc(&c->lesson.arena, (size_t)(shape[0] * shape[1]), sizeof(bool));
        if (resets == NULL)
            rc = error_no_memory(err, (size_t)(shape[0] * shape[1]), "steps to learn from");
    }
    if (rc != STATUS_OK)
        return rc;
    *to = (struct learn_trajectories){
        .n = (size_t)shape[0],
        .n_steps = (size_t)shape[1],
        .observations = observations,
        .states = states,
        .choices = n_numbers > 0 ? NULL : actions,
        .numbers = n_numbers > 0 ? actions : NULL,
        .logp = logp,
        .rewards = rewards,
        .terminated = terminated,
        .resets = resets,
        .gamma = lesson_or((int)m->gamma_given_case, m->gamma, 1),
        .lambda = lesson_or((int)m->lambda_given_case, m->lambda, 1),
        .rho_max = lesson_or((int)m->rho_max_given_case, m->rho_max, 1),
        .c_max = lesson_or((int)m->c_max_given_case, m->c_max, 1),
        .clip = m->clip,
    };
    c->lesson.config.value_weight =
        lesson_or((int)m->value_weight_given_case, m->value_weight, value_weight_default);
    c->lesson.config.entropy_weight = m->entropy_weight;
    c->lesson.config.normalise = m->normalise != 0;
    return STATUS_OK;
}

static enum status take_transitions(struct learn_call *c, const Parley__V1__ActTransitions *m,
                                    struct error *err)
{
    struct learn_transitions *to = &c->lesson.transitions;
    int64_t shape[2] = {0, (int64_t)c->lesson.model->info.acting.n_observations};
    const void *seen, *next, *actions, *rewards, *discounts, *weights = NULL;
    float *errors;
    enum status rc = lesson_shape(m->reward, "reward", 1, shape, err);

    if (rc == STATUS_OK)
        rc = lesson_take(&rewards, c, m->reward, "reward", TENSOR_F32, shape, 1, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&seen, c, m->observation, "observation", TENSOR_F32, shape, 2, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&next, c, m->next_observation, "next_observation", TENSOR_F32, shape, 2,
                         err);
    if (rc == STATUS_OK)
        rc = lesson_take(&actions, c, m->action, "action", TENSOR_I64, shape, 1, err);
    if (rc == STATUS_OK)
        rc = lesson_take(&discounts, c, m->discount, "discount", TENSOR_F32, shape, 1, err);
    if (rc == STATUS_OK && m->weight != NULL)
        rc = lesson_take(&weights, c, m->weight, "weight", TENSOR_F32, shape, 1, err);
    if (rc != STATUS_OK)
        return rc;
    errors = arena_alloc(&c->lesson.arena, (size_t)shape[0], sizeof(errors[0]));
    if (errors == NULL)
        return error_no_memory(err, (size_t)shape[0] * sizeof(errors[0]), "errors");
    *to = (struct learn_transitions){
        .n = (size_t)shape[0],
        .observations = seen,
        .next = next,
        .choices = actions,
        .rewards = rewards,
        .discounts = discounts,
        .weights = weights,
        .moves_target = m->move_target != 0,
        .errors = errors,
    };
    c->lesson.is_of_transitions = true;
    return STATUS_OK;
}

static enum status take_lesson(struct learn_call *c, const Parley__V1__ActLearnRequest *m,
                               struct error *err)
{
    arena_init(&c->lesson.arena, LESSON_MAX_BYTES);
    if (model_check_ready(c->lesson.model, err) != STATUS_OK)
        return err->status;
    c->lesson.config.learning_rate =
        lesson_or((int)m->learning_rate_given_case, m->learning_rate, lesson_rate_default);
    c->lesson.config.max_gradient_norm = m->max_gradient_norm;
    c->lesson.save_path = arena_strndup(&c->lesson.arena, m->save_path, strlen(m->save_path));
    if (c->lesson.save_path == NULL)
        return error_no_memory(err, strlen(m->save_path), "a path");
    if (m->steps_case == PARLEY__V1__ACT_LEARN_REQUEST__STEPS_TRAJECTORIES)
        return take_trajectories(c, m->trajectories, err);
    if (m->steps_case == PARLEY__V1__ACT_LEARN_REQUEST__STEPS_TRANSITIONS)
        return take_transitions(c, m->transitions, err);
    return error_field(err, "trajectories", "and transitions are missing: give one of them");
}

/* --- the answer --- */

static void learn_reply(struct learn_call *c)
{
    Parley__V1__ActLearnResponse response = PARLEY__V1__ACT_LEARN_RESPONSE__INIT;
    const struct learn_report *report = &c->lesson.report;
    const struct learn_transitions *from = &c->lesson.transitions;
    const struct tensor_view errors = {.name = "error",
                                       .type = TENSOR_F32,
                                       .n_dims = 1,
                                       .dims = {(int64_t)from->n},
                                       .data = from->errors,
                                       .size_bytes = from->n * sizeof(float)};
    Parley__V1__Tensor error;

    response.params_version = report->params_version;
    response.loss = (float)report->loss;
    response.gradient_norm = (float)report->gradient_norm;
    response.entropy = (float)report->entropy;
    if (c->lesson.is_of_transitions) {
        wire_tensor(&error, &errors);
        response.error = &error;
    }
    call_reply(c->call, &response.base);
}

static void on_learned(struct act_lesson *l, const struct error *err)
{
    struct learn_call *c = container_of(l, struct learn_call, lesson);

    if (c->call == NULL) {
        learn_call_free(c);
        return;
    }
    c->is_over = true;
    if (err->status == STATUS_OK)
        learn_reply(c);
    else
        call_finish(c->call, err);
}

static void on_learn_close(struct call *call, void *state, enum status why)
{
    struct learn_call *c = state;

    c->call = NULL;
    if (c->is_over)
        learn_call_free(c);
}

static void start_learn(struct call *call, const Parley__V1__ActLearnRequest *m)
{
    static const struct call_handler handler = {.on_close = on_learn_close};
    struct server *server = call_server(call);
    struct learn_call *c = call_state(call, sizeof(*c));
    struct error err;
    enum status rc;

    if (c == NULL)
        return;
    c->call = call;
    c->lesson.done = on_learned;
    rc = models_get(&c->lesson.model, server->models, m->model, &err);
    if (rc == STATUS_OK)
        rc = take_lesson(c, m, &err);
    if (rc == STATUS_OK)
        rc = act_lesson_start(&c->lesson, server->trainers, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        learn_call_free(c);
        return;
    }
    call_set_handler(call, &handler, c);
}

#define ACT_LEARN_METHODS(METHOD) \
    METHOD(UNARY, ADMIN, "Act/Learn", act_learn_request, act_learn_response, start_learn)

PARLEY_TABLE(act_learn_methods, ACT_LEARN_METHODS)
