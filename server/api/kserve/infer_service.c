/* inference.GRPCInferenceService, ModelInfer and ModelStreamInfer. On a stream the error of one
 * request is its own message, and the stream goes on. */
#include "base/list.h"
#include "server/api/kserve/inference.h"
#include "server/api/kserve/methods.h"
#include "server/call/multiplex.h"

enum { STREAM_MAX_REQUESTS = 1024 };

/* Bound of one response's memory. */
#define RESPONSE_MAX_BYTES ((size_t)8 << 20)

/* --- ModelInfer --- */

struct unary {
    struct inference in;
    struct call *call;
};

static void unary_notify(struct inference *in)
{
    struct unary *u = container_of(in, struct unary, in);

    call_notify(u->call);
}

static void unary_write_ready(struct call *call, void *state)
{
    struct unary *u = state;
    struct inference_response response;
    struct arena arena;

    arena_init(&arena, RESPONSE_MAX_BYTES);
    switch (inference_next(&u->in, false, &response, &arena)) {
    case INFERENCE_NOTHING:
        break;
    case INFERENCE_PART:
    case INFERENCE_LAST:
        call_reply(call, &response.message.base);
        break;
    case INFERENCE_FAILED:
        call_finish(call, &u->in.err);
        break;
    }
    arena_deinit(&arena);
}

static void unary_on_close(struct call *call, void *state, enum status why)
{
    struct unary *u = state;

    inference_end(&u->in, why);
}

static void infer(struct call *call, const Inference__ModelInferRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = unary_write_ready,
                                                .on_close = unary_on_close};
    struct server *server = call_server(call);
    struct unary *u = arena_alloc(call_arena(call), 1, sizeof(*u));
    struct error err;

    if (u == NULL) {
        (void)error_no_memory(&err, sizeof(*u), "a request");
        call_finish(call, &err);
        return;
    }
    u->call = call;
    if (inference_begin(&u->in, server, call_principal(call)->id, request, call_deadline_us(call),
                        call_arena(call), unary_notify, &err) != STATUS_OK) {
        inference_end(&u->in, err.status);
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, u);
    if (inference_has_more(&u->in))
        call_notify(call);
}

/* --- ModelStreamInfer --- */

struct infer_item {
    struct multiplex_item base;
    struct inference in;
    struct arena arena; /* of the message */
};

static struct infer_item *infer_service_stream_item_of(struct multiplex_item *base)
{
    return container_of(base, struct infer_item, base);
}

static void stream_notify(struct inference *in)
{
    multiplex_notify(&container_of(in, struct infer_item, in)->base);
}

static void infer_service_stream_begin(struct multiplex_item *base, const ProtobufCMessage *message,
                                       struct arena *arena)
{
    struct infer_item *item = infer_service_stream_item_of(base);
    struct call *call = multiplex_call(base);

    item->arena = *arena;
    arena_init(arena, item->arena.limit_bytes); /* taken */
    if (inference_begin(&item->in, call_server(call), call_principal(call)->id,
                        (const Inference__ModelInferRequest *)message, call_deadline_us(call),
                        &item->arena, stream_notify, &item->in.err) != STATUS_OK)
        item->in.is_over = true;
    if (inference_has_more(&item->in))
        multiplex_notify(base);
}

static enum multiplex_written infer_service_stream_write(struct multiplex_item *base)
{
    struct infer_item *item = infer_service_stream_item_of(base);
    Inference__ModelStreamInferResponse message = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    struct inference_response response;
    enum inference_said said;
    struct arena arena;

    arena_init(&arena, RESPONSE_MAX_BYTES);
    said = inference_next(&item->in, true, &response, &arena);
    if (said != INFERENCE_NOTHING) {
        message.infer_response = &response.message;
        if (said == INFERENCE_FAILED)
            message.error_message = item->in.err.text;
        multiplex_write(base, &message.base,
                        said == INFERENCE_PART && inference_has_more(&item->in));
    }
    arena_deinit(&arena);
    if (said == INFERENCE_NOTHING)
        return WROTE_NOTHING;
    return said == INFERENCE_PART ? WROTE_ONE : WROTE_LAST;
}

static void infer_service_stream_end(struct multiplex_item *base, enum status why)
{
    struct infer_item *item = infer_service_stream_item_of(base);

    inference_end(&item->in, why == STATUS_OK ? STATUS_CANCELLED : why);
    arena_deinit(&item->arena);
}

static void stream_infer(struct call *call)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct infer_item),
        .max_items = STREAM_MAX_REQUESTS,
        .item_name = "a request",
        .begin = infer_service_stream_begin,
        .write = infer_service_stream_write,
        .end = infer_service_stream_end,
    };

    multiplex_start(call, &type);
}

#define INFER_SERVICE_METHODS(METHOD)                                                       \
    METHOD(UNARY, KEY, "ModelInfer", model_infer_request, model_infer_response, infer)      \
    METHOD(BIDI, KEY, "ModelStreamInfer", model_infer_request, model_stream_infer_response, \
           stream_infer)

INFERENCE_TABLE(infer_service_methods, INFER_SERVICE_METHODS)
