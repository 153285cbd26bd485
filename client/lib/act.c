/* Steps, alone or on a stream, and observers that attach. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/lib/parts.h"
#include "parley/v1/act.pb-c.h"
#include "proto/codec.h"

/* Bound on a request or a response; its numbers are not counted, since they are not copied. */
#define REQUEST_MAX_BYTES ((size_t)16 << 20)

/* The request's texts and numbers are only read. */
static void *borrowed(const void *data)
{
    return (void *)(uintptr_t)data;
}

static char *act_text_of(const char *text)
{
    return borrowed(text == NULL ? "" : text);
}

/* Everything that the message points to is in the arena. NULL without memory. */
static const ProtobufCMessage *make_step(const struct parley_step *step, struct arena *arena)
{
    size_t n = step->n_observation;
    Parley__V1__ActStepRequest *request = arena_alloc(arena, 1, sizeof(*request));
    Parley__V1__Tensor *tensors = arena_alloc(arena, n, sizeof(*tensors));
    Parley__V1__Tensor **list = arena_alloc(arena, n, sizeof(*list));

    if (request == NULL || tensors == NULL || list == NULL)
        return NULL;
    parley__v1__act_step_request__init(request);
    for (size_t i = 0; i < n; i++) {
        const struct parley_tensor *from = &step->observation[i];

        parley__v1__tensor__init(&tensors[i]);
        tensors[i].name = act_text_of(from->name);
        tensors[i].dtype = (Parley__V1__DType)((int)from->dtype + 1);
        tensors[i].shape = borrowed(from->shape);
        tensors[i].n_shape = from->n_dims;
        tensors[i].data.data = borrowed(from->data);
        tensors[i].data.len = from->size_bytes;
        list[i] = &tensors[i];
    }
    request->model = act_text_of(step->model);
    request->env_id = act_text_of(step->env_id);
    request->run_id = step->run_id;
    request->seq = step->seq;
    request->observation = list;
    request->n_observation = n;
    request->reward = step->reward;
    request->done = step->done;
    request->tag = step->tag;
    request->row = step->row;
    return &request->base;
}

static enum status act_decode(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                              const void *data, size_t len, struct arena *arena, struct error *err)
{
    enum status rc = codec_decode(out, type, data, len, CODEC_ANY_FIELDS, arena, err);

    if (rc != STATUS_OK)
        (void)error_prefix(err, "the server's answer cannot be parsed");
    return rc;
}

static enum status take_action(struct parley_action *out, const Parley__V1__ActStepResponse *from,
                               struct arena *arena, struct error *err)
{
    struct parley_tensor *tensors = arena_alloc(arena, from->n_output, sizeof(*tensors));

    if (tensors == NULL)
        return error_no_memory(err, from->n_output * sizeof(*tensors), "an action");
    for (size_t i = 0; i < from->n_output; i++) {
        const Parley__V1__Tensor *t = from->output[i];

        tensors[i] = (struct parley_tensor){t->name,      (enum parley_dtype)((int)t->dtype - 1),
                                            t->shape,     t->n_shape,
                                            t->data.data, t->data.len};
    }
    *out = (struct parley_action){
        from->seq, tensors, from->n_output, from->params_version, from->batch_size, from->queue_us};
    return STATUS_OK;
}

/* --- a step alone --- */

struct client_step_call {
    struct parley_call base;
    parley_action_fn then;
    void *arg;
    bool is_told;
};

static void tell_step(struct client_step_call *s, const struct parley_action *action,
                      const struct parley_error *err)
{
    if (s->is_told)
        return;
    s->is_told = true;
    s->then(s->arg, action, err);
}

static enum status on_step(struct parley_call *call, const void *data, size_t len,
                           struct error *err)
{
    const struct parley_error ok = {0};
    struct parley_action action;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = act_decode(&m, &parley__v1__act_step_response__descriptor, data, len, &arena, err);
    if (rc == STATUS_OK)
        rc = take_action(&action, (const Parley__V1__ActStepResponse *)m, &arena, err);
    if (rc == STATUS_OK)
        tell_step((struct client_step_call *)call, &action, &ok);
    arena_deinit(&arena);
    return rc;
}

static void on_step_end(struct parley_call *call, const struct parley_error *err)
{
    struct parley_error outcome = *err;
    struct error missing = {0};

    if (((struct client_step_call *)call)->is_told)
        return;
    if (outcome.status == PARLEY_OK) {
        (void)error_set(&missing, STATUS_INTERNAL, "the server answered without an action");
        outcome_of_failure(&outcome, &missing);
    }
    tell_step((struct client_step_call *)call, NULL, &outcome);
}

struct parley_call *parley_step_start(struct parley_channel *channel,
                                      const struct parley_step *step, parley_action_fn then,
                                      void *arg)
{
    static const struct call_kind kind = {false, on_step, on_step_end, NULL};
    struct call_start how = {.method = "/parley.v1.Act/Step", .deadline_ms = step->deadline_ms};
    struct parley_call *call;
    struct arena arena;

    arena_init(&arena, REQUEST_MAX_BYTES);
    call = parley_call_make(sizeof(struct client_step_call), &kind);
    how.request = make_step(step, &arena);
    if (call != NULL && how.request == NULL) {
        parley_call_unref(call);
        call = NULL;
    }
    if (call != NULL) {
        ((struct client_step_call *)call)->then = then;
        ((struct client_step_call *)call)->arg = arg;
        parley_call_start(channel, call, &how);
    }
    arena_deinit(&arena);
    return call;
}

struct step_waiter {
    struct waiter waiter;
    parley_action_fn then;
    void *arg;
};

static void tell_waiter(void *arg, const struct parley_action *action,
                        const struct parley_error *err)
{
    struct step_waiter *w = arg;

    if (w->then != NULL)
        w->then(w->arg, action, err);
    waiter_tell(&w->waiter, err);
}

enum parley_status parley_step(struct parley_channel *channel, const struct parley_step *step,
                               parley_action_fn then, void *arg, struct parley_error *ret_err)
{
    struct step_waiter w = {.then = then, .arg = arg};
    struct parley_error outcome;
    struct error err = {0};
    struct parley_call *call;

    assert(channel_may_wait(channel));
    waiter_init(&w.waiter);
    call = parley_step_start(channel, step, tell_waiter, &w);
    if (call == NULL) {
        (void)error_no_memory(&err, sizeof(struct client_step_call), "a step");
        outcome_of_failure(&outcome, &err);
        tell_waiter(&w, NULL, &outcome);
    }
    parley_call_unref(call);
    return waiter_wait(&w.waiter, channel, ret_err);
}

/* --- steps on a stream --- */

struct act_call {
    struct parley_call base;
    struct parley_act_events events;
};

static enum status on_answer(struct parley_call *call, const void *data, size_t len,
                             struct error *err)
{
    const struct parley_act_events *e = &((struct act_call *)call)->events;
    const Parley__V1__ActStepResponse *response;
    struct parley_error outcome = {0};
    struct parley_action action;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = act_decode(&m, &parley__v1__act_step_response__descriptor, data, len, &arena, err);
    if (rc != STATUS_OK)
        goto out;
    response = (const Parley__V1__ActStepResponse *)m;
    if (response->error != NULL) {
        outcome_of_detail(&outcome, response->error);
        e->action(e->arg, response->tag, NULL, &outcome);
        goto out;
    }
    rc = take_action(&action, response, &arena, err);
    if (rc == STATUS_OK)
        e->action(e->arg, response->tag, &action, &outcome);
out:
    arena_deinit(&arena);
    return rc;
}

static void on_act_end(struct parley_call *call, const struct parley_error *err)
{
    const struct parley_act_events *e = &((struct act_call *)call)->events;

    e->end(e->arg, err);
}

struct parley_call *parley_act_start(struct parley_channel *channel,
                                     const struct parley_act_events *events)
{
    static const struct call_kind kind = {true, on_answer, on_act_end, NULL};
    const struct call_start how = {.method = "/parley.v1.Act/Stream", .is_bidi = true};
    struct parley_call *call = parley_call_make(sizeof(struct act_call), &kind);

    assert(events->action != NULL && events->end != NULL);
    if (call == NULL)
        return NULL;
    ((struct act_call *)call)->events = *events;
    parley_call_start(channel, call, &how);
    return call;
}

bool parley_act_send(struct parley_call *stream, const struct parley_step *step)
{
    const ProtobufCMessage *request;
    struct arena arena;
    bool is_sent;

    arena_init(&arena, REQUEST_MAX_BYTES);
    request = make_step(step, &arena);
    is_sent = request != NULL && parley_call_send(stream, request);
    arena_deinit(&arena);
    return is_sent;
}

/* --- observers --- */

struct attach_call {
    struct parley_call base;
    struct parley_attach_events events;
};

static enum status on_order(struct parley_call *call, const void *data, size_t len,
                            struct error *err)
{
    const struct parley_attach_events *e = &((struct attach_call *)call)->events;
    const Parley__V1__ActAttachResponse *response;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = act_decode(&m, &parley__v1__act_attach_response__descriptor, data, len, &arena, err);
    response = (const Parley__V1__ActAttachResponse *)m;
    if (rc == STATUS_OK && e->accepted != NULL &&
        response->what_case == PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_ACCEPTED)
        e->accepted(e->arg, response->accepted->row);
    if (rc == STATUS_OK && response->what_case == PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_RUN) {
        const struct parley_run_episode run = {response->run->episode, response->run->n_steps,
                                               response->run->gamma, response->run->seed};

        e->run(e->arg, &run);
    }
    arena_deinit(&arena);
    return rc;
}

static void on_attach_end(struct parley_call *call, const struct parley_error *err)
{
    const struct parley_attach_events *e = &((struct attach_call *)call)->events;

    e->end(e->arg, err);
}

struct parley_call *parley_attach_start(struct parley_channel *channel,
                                        const struct parley_attach *offer,
                                        const struct parley_attach_events *events)
{
    static const struct call_kind kind = {true, on_order, on_attach_end, NULL};
    const struct call_start how = {.method = "/parley.v1.Act/Attach", .is_bidi = true};
    Parley__V1__ActAttachRequest request = PARLEY__V1__ACT_ATTACH_REQUEST__INIT;
    Parley__V1__ActOffer first = PARLEY__V1__ACT_OFFER__INIT;
    struct parley_call *call = parley_call_make(sizeof(struct attach_call), &kind);

    assert(events->run != NULL && events->end != NULL);
    if (call == NULL)
        return NULL;
    first.model = act_text_of(offer->model);
    first.env_id = act_text_of(offer->env_id);
    first.run_id = offer->run_id;
    first.environment = act_text_of(offer->environment);
    request.what_case = PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_OFFER;
    request.offer = &first;
    ((struct attach_call *)call)->events = *events;
    parley_call_start(channel, call, &how);
    if (!parley_call_send(call, &request.base))
        parley_call_cancel(call); /* the call's end reports it */
    return call;
}

bool parley_attach_send(struct parley_call *attached, const struct parley_episode_result *result)
{
    Parley__V1__ActAttachRequest request = PARLEY__V1__ACT_ATTACH_REQUEST__INIT;
    Parley__V1__ActEpisodeResult what = PARLEY__V1__ACT_EPISODE_RESULT__INIT;
    Parley__V1__ErrorDetail error = PARLEY__V1__ERROR_DETAIL__INIT;

    what.episode = result->episode;
    what.returns = borrowed(result->returns);
    what.n_returns = result->n_returns;
    what.reward = result->reward;
    if (result->error != NULL) {
        error.code = (uint32_t)result->error->status;
        error.message = act_text_of(result->error->text);
        error.field = act_text_of(result->error->field);
        error.retry_after_ms = result->error->retry_after_ms;
        error.reason = act_text_of(result->error->reason);
        what.error = &error;
    }
    request.what_case = PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_RESULT;
    request.result = &what;
    return parley_call_send(attached, &request.base);
}
