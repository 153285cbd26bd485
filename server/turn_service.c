/* parley.v1.Conversations, Turn and Chat. Events are pulled: when the transport has room for a
 * message, the reader says what comes next; what has come together since is one piece.
 *
 * Chat keeps an item for each turn under way. Those with something to say stand in ready, in the
 * order in which they were woken; the first is written until it has nothing more, so that events of
 * a conversation come in order. At CHAT_MAX_TURNS the stream is not read further until one ends. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/conversation.h"
#include "server/daemon.h"
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

struct chat {
    struct call *call;
    struct daemon *daemon;
    struct list items; /* all, in order of arrival */
    struct list ready; /* those with something to say */
    size_t n_items;
    struct endless endless;
    bool has_read;       /* the next message is asked for */
    bool is_half_closed; /* by the client */
    bool is_draining;
    bool is_finished;
};

struct chat_item {
    struct link link, in_ready;
    struct chat *chat;
    uint64_t tag;
    struct reader reader;
    bool is_refused; /* never began: err says why, and there is no reader */
    struct error err;
};

static void item_wake(void *arg)
{
    struct chat_item *item = arg;

    if (!link_is_on(&item->in_ready))
        list_push(&item->chat->ready, &item->in_ready);
    if (!item->chat->is_finished)
        call_wake(item->chat->call);
}

static void item_free(struct chat_item *item, enum status why)
{
    if (!item->is_refused)
        reader_close(&item->reader, why);
    if (link_is_on(&item->in_ready))
        list_remove(&item->in_ready);
    list_remove(&item->link);
    item->chat->n_items--;
    free(item);
}

/* Asks for a further message, or ends the stream, as things stand. */
static void chat_go_on(struct chat *chat)
{
    struct error err;

    if (chat->is_finished)
        return;
    if (chat->is_half_closed && chat->n_items == 0) {
        chat->is_finished = true;
        call_finish(chat->call, NULL);
    } else if (chat->is_draining && chat->n_items == 0) {
        chat->is_finished = true;
        (void)error_set(&err, STATUS_UNAVAILABLE, "the server is stopping");
        call_finish(chat->call, &err);
    } else if (!chat->is_half_closed && !chat->has_read && chat->n_items < CHAT_MAX_TURNS) {
        chat->has_read = true;
        call_read(chat->call);
    }
}

static void chat_drain(struct endless *l)
{
    struct chat *chat = container_of(l, struct chat, endless);

    chat->is_draining = true;
    chat_go_on(chat);
}

static void chat_message(struct call *call, void *state, const ProtobufCMessage *message,
                         struct arena *arena)
{
    const Parley__V1__ChatRequest *request = (const Parley__V1__ChatRequest *)message;
    struct chat *chat = state;
    struct chat_item *item;
    struct error err;
    enum status rc;

    chat->has_read = false;
    if (request == NULL) {
        chat->is_half_closed = true;
        chat_go_on(chat);
        return;
    }
    item = try_alloc(1, sizeof(*item));
    if (item == NULL) {
        (void)error_no_memory(&err, sizeof(*item), "a turn");
        chat->is_finished = true;
        call_finish(call, &err);
        return;
    }
    item->chat = chat;
    item->tag = request->tag;
    reader_init(&item->reader, item_wake, item);
    list_push(&chat->items, &item->link);
    chat->n_items++;
    if (request->turn == NULL)
        rc = error_field(&item->err, "turn", "is missing");
    else
        rc = begin_turn(chat->daemon, request->turn, call_deadline_us(call), arena, &item->reader,
                        &item->err);
    item->is_refused = rc != STATUS_OK;
    if (item->is_refused || reader_has_more(&item->reader))
        item_wake(item);
    chat_go_on(chat);
}

/* Writes the item's next event; false if it has none now. */
static bool item_write(struct chat_item *item)
{
    struct chat *chat = item->chat;
    Parley__V1__ChatEvent message = PARLEY__V1__CHAT_EVENT__INIT;
    Parley__V1__ErrorDetail detail;
    struct turn_event event = {.kind = EVENT_FAILED, .err = &item->err};
    bool is_last = false;
    struct wire_event w;
    struct arena arena;
    bool has_more;

    if (!item->is_refused && !reader_next(&item->reader, &event))
        return false;
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
    has_more = (!is_last && reader_has_more(&item->reader)) ||
               list_first(&chat->ready) != list_last(&chat->ready);
    call_write(chat->call, &message.base, has_more);
    arena_deinit(&arena);
    if (is_last) {
        item_free(item, STATUS_CANCELLED);
        chat_go_on(chat);
    }
    return true;
}

static void chat_room(struct call *call, void *state)
{
    struct chat *chat = state;
    struct link *first;

    (void)call;
    while (!chat->is_finished && (first = list_first(&chat->ready)) != NULL) {
        struct chat_item *item = container_of(first, struct chat_item, in_ready);

        if (item_write(item))
            return;
        list_remove(&item->in_ready);
    }
}

static void chat_gone(struct call *call, void *state, enum status why)
{
    struct chat *chat = state;
    struct link *first;

    (void)call;
    chat->is_finished = true;
    while ((first = list_first(&chat->items)) != NULL)
        item_free(container_of(first, struct chat_item, link), why);
    endless_end(&chat->endless);
    free(chat);
}

static void start_chat(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {
        .room = chat_room,
        .message = chat_message,
        .gone = chat_gone,
    };
    struct chat *chat = try_alloc(1, sizeof(*chat));
    struct error err;

    (void)message;
    if (chat == NULL) {
        (void)error_no_memory(&err, sizeof(*chat), "a stream");
        call_finish(call, &err);
        return;
    }
    chat->call = call;
    chat->daemon = d;
    list_init(&chat->items);
    list_init(&chat->ready);
    call_set_handler(call, &handler, chat);
    endless_begin(&chat->endless, d, chat_drain);
    chat_go_on(chat);
}

const struct rpc turn_rpcs[N_TURN_RPCS] = {
    {"/parley.v1.Conversations/Turn", RPC_SERVER_STREAM, &parley__v1__turn_request__descriptor,
     &parley__v1__turn_event__descriptor, start_turn},
    {"/parley.v1.Conversations/Chat", RPC_BIDI, &parley__v1__chat_request__descriptor,
     &parley__v1__chat_event__descriptor, start_chat},
};
