/* parley.v1.Conversations, Turn and Chat. Events are pulled: when the transport has room for a
 * message, the reader says what comes next; what has come together since is one piece.
 *
 * Chat is many turns on one stream: of each, what there is is written until it has nothing more, so
 * that events of a conversation come in order. */
#include "server/conversation.h"
#include "server/daemon.h"
#include "server/multiplex.h"
#include "server/services.h"
#include "server/turn.h"
#include "server/wire.h"

enum { CHAT_MAX_TURNS = 1024 };

/* What the memory of one event may be. */
#define EVENT_MAX_BYTES ((size_t)8 << 20)

static enum status begin_turn(struct daemon *d, const Parley__V1__TurnRequest *request,
                              uint64_t deadline_us, struct arena *arena, struct reader *reader,
                              struct error *err)
{
    struct turn_request r;
    struct conversation *c;
    enum status rc;

    if (request->conversation[0] == '\0')
        return error_field(err, "conversation", "is empty");
    rc = conversations_find(&c, &d->conversations, request->conversation, err);
    if (rc == STATUS_OK)
        rc = wire_turn(&r, request, arena, err);
    if (rc != STATUS_OK)
        return rc;
    r.deadline_us = deadline_us;
    return conversation_turn(c, &r, reader, err);
}

/* --- Turn --- */

struct turn_call {
    struct call *call;
    struct reader reader;
};

static void turn_wake(void *arg)
{
    struct turn_call *t = arg;

    call_wake(t->call);
}

static void turn_room(struct call *call, void *state)
{
    struct turn_call *t = state;
    Parley__V1__TurnEvent message = PARLEY__V1__TURN_EVENT__INIT;
    struct turn_event event;
    struct wire_event w;
    struct arena arena;
    struct error err;

    if (!reader_next(&t->reader, &event))
        return;
    arena_init(&arena, EVENT_MAX_BYTES);
    if (wire_event(&w, &event, &t->reader, &arena, &err) != STATUS_OK) {
        call_finish(call, &err);
        goto out;
    }
    switch (event.kind) {
    case EVENT_ACCEPTED:
        message.event_case = PARLEY__V1__TURN_EVENT__EVENT_ACCEPTED;
        message.accepted = &w.accepted;
        break;
    case EVENT_PROGRESS:
        message.event_case = PARLEY__V1__TURN_EVENT__EVENT_PROGRESS;
        message.progress = &w.progress;
        break;
    case EVENT_PIECE:
        message.event_case = PARLEY__V1__TURN_EVENT__EVENT_PIECE;
        message.piece = &w.piece;
        break;
    case EVENT_DONE:
        message.event_case = PARLEY__V1__TURN_EVENT__EVENT_DONE;
        message.done = &w.done;
        call_finish_with(call, &message.base);
        goto out;
    case EVENT_FAILED:
        call_finish(call, event.err);
        goto out;
    }
    call_write(call, &message.base, reader_has_more(&t->reader));
out:
    arena_deinit(&arena);
}

static void turn_gone(struct call *call, void *state, enum status why)
{
    struct turn_call *t = state;

    (void)call;
    reader_close(&t->reader, why);
}

static void start_turn(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {.room = turn_room, .gone = turn_gone};
    struct turn_call *t = arena_alloc(call_arena(call), 1, sizeof(*t));
    struct error err;
    enum status rc;

    if (t == NULL) {
        (void)error_no_memory(&err, sizeof(*t), "a turn");
        call_finish(call, &err);
        return;
    }
    t->call = call;
    reader_init(&t->reader, turn_wake, t);
    rc = begin_turn(d, (const Parley__V1__TurnRequest *)message, call_deadline_us(call),
                    call_arena(call), &t->reader, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, t);
    if (reader_has_more(&t->reader))
        call_wake(call);
}

/* --- Chat --- */

struct chat_item {
    struct multiplex_item base;
    uint64_t tag;
    struct reader reader;
    bool is_refused; /* never began: err says why, and there is no reader */
    struct error err;
};

static struct chat_item *chat_item_of(struct multiplex_item *base)
{
    return container_of(base, struct chat_item, base);
}

static void item_wake(void *arg)
{
    struct chat_item *item = arg;

    multiplex_wake(&item->base);
}

static void chat_begin(struct multiplex_item *base, const ProtobufCMessage *message,
                       struct arena *arena)
{
    const Parley__V1__ChatRequest *request = (const Parley__V1__ChatRequest *)message;
    struct chat_item *item = chat_item_of(base);
    struct call *call = multiplex_call(base);
    enum status rc;

    item->tag = request->tag;
    reader_init(&item->reader, item_wake, item);
    if (request->turn == NULL)
        rc = error_field(&item->err, "turn", "is missing");
    else
        rc = begin_turn(call_daemon(call), request->turn, call_deadline_us(call), arena,
                        &item->reader, &item->err);
    item->is_refused = rc != STATUS_OK;
    if (item->is_refused || reader_has_more(&item->reader))
        multiplex_wake(base);
}

static enum multiplex_written chat_write(struct multiplex_item *base)
{
    struct chat_item *item = chat_item_of(base);
    Parley__V1__ChatEvent message = PARLEY__V1__CHAT_EVENT__INIT;
    Parley__V1__ErrorDetail detail;
    struct turn_event event = {.kind = EVENT_FAILED, .err = &item->err};
    bool is_last = false;
    struct wire_event w;
    struct arena arena;

    if (!item->is_refused && !reader_next(&item->reader, &event))
        return WROTE_NOTHING;
    message.tag = item->tag;
    arena_init(&arena, EVENT_MAX_BYTES);
    if (wire_event(&w, &event, &item->reader, &arena, &item->err) != STATUS_OK)
        event = (struct turn_event){.kind = EVENT_FAILED, .err = &item->err};
    switch (event.kind) {
    case EVENT_ACCEPTED:
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ACCEPTED;
        message.accepted = &w.accepted;
        break;
    case EVENT_PROGRESS:
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PROGRESS;
        message.progress = &w.progress;
        break;
    case EVENT_PIECE:
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PIECE;
        message.piece = &w.piece;
        break;
    case EVENT_DONE:
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_DONE;
        message.done = &w.done;
        is_last = true;
        break;
    case EVENT_FAILED:
        wire_error(&detail, event.err);
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ERROR;
        message.error = &detail;
        is_last = true;
        break;
    }
    multiplex_write(base, &message.base, !is_last && reader_has_more(&item->reader));
    arena_deinit(&arena);
    return is_last ? WROTE_LAST : WROTE_ONE;
}

static void chat_end(struct multiplex_item *base, enum status why)
{
    struct chat_item *item = chat_item_of(base);

    if (!item->is_refused)
        reader_close(&item->reader, why == STATUS_OK ? STATUS_CANCELLED : why);
}

static void start_chat(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct chat_item),
        .max_items = CHAT_MAX_TURNS,
        .item_name = "a turn",
        .begin = chat_begin,
        .write = chat_write,
        .end = chat_end,
    };

    (void)message;
    multiplex_start(call, d, &type);
}

const struct rpc turn_rpcs[N_TURN_RPCS] = {
    {"/parley.v1.Conversations/Turn", RPC_SERVER_STREAM, &parley__v1__turn_request__descriptor,
     &parley__v1__turn_event__descriptor, start_turn},
    {"/parley.v1.Conversations/Chat", RPC_BIDI, &parley__v1__chat_request__descriptor,
     &parley__v1__chat_event__descriptor, start_chat},
};
