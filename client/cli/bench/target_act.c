/* A policy of parleyd over gRPC: a conversation is an environment's session, each turn one Step
 * with an observation as the model's metadata describe it, its numbers drawn once. The action is
 * the reply's one chunk; it has no tokens. Leaving cancels a call in flight. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "cli/output/console.h"
#include "client/cli/bench/kserve_inputs.h"
#include "client/cli/bench/target.h"
#include "client/cli/connection.h"
#include "client/lib/parley.h"

enum { STEP_TIMEOUT_MS = 10 * 60 * 1000 };

struct act_target {
    struct target base;
    struct parley_channel *channel;
    const char *model;
    struct kserve_inputs inputs;
    struct parley_tensor observation[KSERVE_MAX_INPUTS];
    uint64_t run; /* part of each env_id, so that other loads have other sessions */
    pthread_mutex_t lock;
    uint32_t n_sessions; /* guarded by lock, as are the sessions' calls */
};

struct act_session {
    struct target_session base;
    struct act_target *target;
    char env_id[40];
    uint64_t run_id;          /* each conversation is another run of the same environment */
    struct parley_call *call; /* in flight; NULL: none */
};

static struct act_target *act_target_of(struct target *t)
{
    return container_of(t, struct act_target, base);
}

static struct act_session *act_session_of(struct target_session *s)
{
    return container_of(s, struct act_session, base);
}

/* --- a turn --- */

static void on_acted(void *arg, const struct parley_action *action, const struct parley_error *how)
{
    struct act_session *s = arg;
    struct error err = {0};

    (void)pthread_mutex_lock(&s->target->lock);
    parley_call_unref(s->call);
    s->call = NULL;
    (void)pthread_mutex_unlock(&s->target->lock);
    if (action != NULL)
        session_chunk(&s->base);
    else
        (void)error_set(&err, (enum status)how->status, "%s", how->text);
    s->base.events->end(&s->base, &err);
}

static enum status act_send(struct target *base, struct target_session *session, struct error *err)
{
    struct act_target *t = act_target_of(base);
    struct act_session *s = act_session_of(session);
    struct parley_step step = {.model = t->model,
                               .observation = t->observation,
                               .n_observation = t->inputs.n,
                               .seq = session->turn,
                               .deadline_ms = STEP_TIMEOUT_MS};
    bool is_sent;

    session_begin(session);
    /* The callback waits for the lock, so it finds the call stored here. */
    (void)pthread_mutex_lock(&t->lock);
    if (s->target == NULL)
        (void)snprintf(s->env_id, sizeof(s->env_id), "bench-%016" PRIx64 "-%" PRIu32, t->run,
                       ++t->n_sessions);
    s->target = t;
    s->run_id += session->turn == 1;
    step.env_id = s->env_id;
    step.run_id = s->run_id;
    s->call = parley_step_start(t->channel, &step, on_acted, s);
    is_sent = s->call != NULL;
    (void)pthread_mutex_unlock(&t->lock);
    return is_sent ? STATUS_OK : error_no_memory(err, sizeof(step), "a step");
}

static void act_leave(struct target *base, struct target_session *session)
{
    struct act_target *t = act_target_of(base);
    struct act_session *s = act_session_of(session);

    (void)pthread_mutex_lock(&t->lock);
    if (s->call != NULL)
        parley_call_cancel(s->call);
    (void)pthread_mutex_unlock(&t->lock);
}

static void act_session_deinit(struct target_session *s)
{
}

/* --- the policy --- */

/* The inputs as tensors; a dimension for the batch, which leads, is left out. */
static enum status take_observation(struct act_target *t, struct error *err)
{
    static const struct {
        const char *datatype;
        enum parley_dtype dtype;
    } types[] = {{"FP32", PARLEY_F32},  {"FP64", PARLEY_F64}, {"INT32", PARLEY_I32},
                 {"INT64", PARLEY_I64}, {"UINT8", PARLEY_U8}, {"BOOL", PARLEY_BOOL}};

    for (size_t i = 0; i < t->inputs.n; i++) {
        const struct kserve_input *in = &t->inputs.items[i];
        bool has_batch = in->n_dims > 1;
        size_t k = 0;

        while (k < sizeof(types) / sizeof(types[0]) && strcmp(types[k].datatype, in->datatype) != 0)
            k++;
        if (k == sizeof(types) / sizeof(types[0]))
            return error_set(err, STATUS_PRECONDITION,
                             "its input '%s' is of type %s, so it is not a policy", in->name,
                             in->datatype);
        t->observation[i] = (struct parley_tensor){.name = in->name,
                                                   .dtype = types[k].dtype,
                                                   .shape = in->shape + has_batch,
                                                   .n_dims = in->n_dims - has_batch,
                                                   .data = in->values.data,
                                                   .size_bytes = in->values.len};
    }
    return STATUS_OK;
}

static void act_target_close(struct target *base)
{
    struct act_target *t = act_target_of(base);

    parley_channel_close(t->channel);
    kserve_inputs_deinit(&t->inputs);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct target *act_target_open(const char *address, const struct target_config *config,
                                      enum exit_code *ret_code)
{
    struct connection_options where = config->connection;
    struct error err = {0};
    struct act_target *t;

    if (config->model == NULL) {
        console_error("act:// needs a --model");
        *ret_code = EXIT_MISUSE;
        return NULL;
    }
    where.server = address;
    t = xalloc(sizeof(*t));
    t->base.type = &act_target;
    t->model = config->model;
    t->channel = connection_open(&where, ret_code);
    if (t->channel == NULL) {
        free(t);
        return NULL;
    }
    t->run = env_now_us(&env_real);
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    if (kserve_inputs_read(&t->inputs, t->channel, t->model, &err) == STATUS_OK &&
        take_observation(t, &err) == STATUS_OK)
        return &t->base;
    console_error("model '%s' at %s: %s [%s]", t->model, address, err.text,
                  status_name(err.status));
    act_target_close(&t->base);
    return NULL;
}

const struct target_type act_target = {
    .scheme = "act://",
    .counts_no_tokens = true,
    .session_size = sizeof(struct act_session),
    .open = act_target_open,
    .close = act_target_close,
    .send = act_send,
    .leave = act_leave,
    .session_deinit = act_session_deinit,
};
