/* parley.v1.Conversations, Ask: a turn that is answered whole. The turn begins as Turn's does. Its
 * reader is not read while the turn runs: the answer is made from the completed turn. A turn that
 * fails ends the call with its error; a peer that goes away closes the reader. */
#include "server/api/parley/methods.h"
#include "server/api/parley/turn_begin.h"
#include "server/api/parley/wire.h"

/* Bound of one answer's memory. */
#define REPLY_MAX_BYTES ((size_t)256 << 20)

struct ask_call {
    struct call *call;
    struct turn_reader reader;
    struct turn_parts parts;
    uint32_t generation; /* of the conversation, while the turn runs */
};

static void ask_notify(void *arg)
{
    struct ask_call *a = arg;

    if (a->reader.turn == NULL) /* the turn has ended */
        call_notify(a->call);
}

static void ask_write_ready(struct call *call, void *state)
{
    struct ask_call *a = state;
    Parley__V1__TurnReply *reply;
    struct arena arena;
    struct error err;

    if (a->reader.turn != NULL)
        return;
    if (reader_failure(&a->reader) != NULL) {
        call_finish(call, reader_failure(&a->reader));
        return;
    }
    arena_init(&arena, REPLY_MAX_BYTES);
    if (wire_reply(&reply, &a->reader, &a->parts, a->generation, &arena, &err) == STATUS_OK)
        call_reply(call, &reply->base);
    else
        call_finish(call, &err);
    arena_deinit(&arena);
}

static void ask_on_close(struct call *call, void *state, enum status why)
{
    struct ask_call *a = state;

    reader_close(&a->reader, why);
}

static enum status ask_begin(struct ask_call *a, const Parley__V1__TurnRequest *request,
                             struct error *err)
{
    struct conversation *c;
    enum status rc;

    if (request->resume_from != NULL)
        return error_field(err, "resume_from", "is not supported: Ask returns the whole reply");
    reader_init(&a->reader, ask_notify, a);
    rc = turn_begin(&c, a->call, request, call_arena(a->call), &a->reader, &a->parts, err);
    if (rc == STATUS_OK)
        a->generation = c->host.generation;
    return rc;
}

static void start_ask(struct call *call, const Parley__V1__TurnRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = ask_write_ready,
                                                .on_close = ask_on_close};
    struct ask_call *a = arena_alloc(call_arena(call), 1, sizeof(*a));
    struct error err;

    if (a == NULL) {
        (void)error_no_memory(&err, sizeof(*a), "a turn");
        call_finish(call, &err);
        return;
    }
    a->call = call;
    if (ask_begin(a, request, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, a);
    ask_notify(a); /* a stored reply is there already */
}

#define ASK_SERVICE_METHODS(METHOD) \
    METHOD(FOUND_UNARY, KEY, "Conversations/Ask", turn_request, turn_reply, start_ask)

PARLEY_TABLE(ask_service_methods, ASK_SERVICE_METHODS)
