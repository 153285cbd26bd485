/* parley.v1.Conversations, Turn and Chat. Events are pulled: when the transport is write-ready, the
 * reader returns the next event; text that has come since the last event is one piece.
 *
 * Chat is many turns on one stream. The events of a turn are written until it has no more, so the
 * events of a conversation come in order. A message that is no turn's beginning is answered by one
 * event or, as a cancel, by none. While CHAT_MAX_TURNS run nothing is read, cancels neither. */
#include "base/list.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/passed_turn.h"
#include "server/api/parley/turn_begin.h"
#include "server/api/parley/wire.h"
#include "server/call/error_details.h"
#include "server/call/multiplex.h"
#include "server/cluster/cluster.h"
#include "server/conversation/named_lookup.h"
#include "server/conversation/reader.h"
#include "server/server.h"

enum { CHAT_MAX_TURNS = 1024 };

/* Bound of one event's memory. */
#define EVENT_MAX_BYTES ((size_t)8 << 20)

/* --- Turn --- */

struct turn_call {
    struct call *call;
    struct turn_reader reader;
    struct turn_parts parts;
};

static void turn_notify(void *arg)
{
    struct turn_call *t = arg;

    call_notify(t->call);
}

static void turn_write_ready(struct call *call, void *state)
{
    struct turn_call *t = state;
    Parley__V1__TurnEvent message = PARLEY__V1__TURN_EVENT__INIT;
    struct turn_event event;
    struct wire_event w;
    struct arena arena;
    struct error err;

    if (!turn_parts_next(&t->parts, &t->reader, &event))
        return;
    arena_init(&arena, EVENT_MAX_BYTES);
    if (wire_event(&w, &event, &t->reader, &t->parts, &arena, &err) != STATUS_OK) {
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
    call_write(call, &message.base, turn_parts_has_more(&t->parts, &t->reader));
out:
    arena_deinit(&arena);
}

static void turn_on_close(struct call *call, void *state, enum status why)
{
    struct turn_call *t = state;

    turn_parts_close(&t->parts);
    reader_close(&t->reader, why);
}

static void turn_service_start_turn(struct call *call, const Parley__V1__TurnRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = turn_write_ready,
                                                .on_close = turn_on_close};
    struct turn_call *t = arena_alloc(call_arena(call), 1, sizeof(*t));
    struct conversation *c;
    struct error err;
    enum status rc;

    if (t == NULL) {
        (void)error_no_memory(&err, sizeof(*t), "a turn");
        call_finish(call, &err);
        return;
    }
    t->call = call;
    reader_init(&t->reader, turn_notify, t);
    rc = turn_begin(&c, call, request, call_arena(call), &t->reader, &t->parts, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, t);
    if (reader_has_more(&t->reader))
        call_notify(call);
}

/* --- Chat --- */

struct chat_item {
    struct multiplex_item base;
    uint64_t tag;
    struct turn_reader reader;
    struct turn_parts parts;
    /* While the conversation is read from the journal. */
    struct named_lookup lookup;
    struct arena arena; /* of request, once it is taken */
    const Parley__V1__ChatRequest *request;
    bool is_wanted, is_cancelled;
    bool has_begun;    /* else err is its one event, and there is no reader */
    bool is_passed_on; /* another daemon answers: passed has the events, and there is no reader */
    struct passed_turn passed;
    bool is_tag_taken; /* err refuses the message: another item has the tag */
    struct error err;
};

static struct chat_item *chat_item_of(struct multiplex_item *base)
{
    return container_of(base, struct chat_item, base);
}

static void item_notify(void *arg)
{
    struct chat_item *item = arg;

    multiplex_notify(&item->base);
}

static void chat_cancel(struct multiplex_item *of_tag)
{
    struct chat_item *item;

    if (of_tag == NULL)
        return; /* the turn may just have ended */
    item = chat_item_of(of_tag);
    item->is_cancelled = item->is_wanted;
    if (item->is_passed_on)
        passed_turn_cancel(&item->passed);
    else if (item->has_begun)
        reader_cancel(&item->reader);
}

static enum status chat_begin_turn(struct chat_item *item, const Parley__V1__ChatRequest *request,
                                   struct arena *arena)
{
    struct conversation *c;
    enum status rc;

    reader_init(&item->reader, item_notify, item);
    rc = turn_begin(&c, multiplex_call(&item->base), request->turn, arena, &item->reader,
                    &item->parts, &item->err);
    item->has_begun = rc == STATUS_OK;
    if (item->has_begun && item->is_cancelled)
        reader_cancel(&item->reader);
    return rc;
}

static void on_chat_lookup(struct named_lookup *l, const struct error *err);

/* False: the conversation is in memory, or not stored. */
static bool chat_look_up(struct chat_item *item, const Parley__V1__ChatRequest *request,
                         enum lookup_how how)
{
    struct call *call = multiplex_call(&item->base);

    return named_lookup_begin(&item->lookup, call_server(call)->names, how,
                              call_principal(call)->id, request->turn->conversation,
                              on_chat_lookup);
}

/* Has the daemon answer that has the conversation; if it cannot, waits for the conversation. */
static void chat_pass_on(struct chat_item *item, const struct journal_peer *owner)
{
    struct call *call = multiplex_call(&item->base);
    const struct error nothing = {0};

    item->is_passed_on =
        passed_turn_begin(&item->passed, call_server(call)->cluster, owner,
                          call_principal(call)->name, item->request->turn, item_notify, item);
    if (item->is_passed_on) {
        item->is_wanted = false;
        if (item->is_cancelled)
            passed_turn_cancel(&item->passed);
    } else if (!chat_look_up(item, item->request, LOOKUP_HERE)) {
        on_chat_lookup(&item->lookup, &nothing);
    }
}

static void on_chat_lookup(struct named_lookup *l, const struct error *err)
{
    struct chat_item *item = container_of(l, struct chat_item, lookup);

    if (err->status == STATUS_UNAVAILABLE && l->lookup.owner.id[0] != '\0') {
        chat_pass_on(item, &l->lookup.owner);
        return;
    }
    item->is_wanted = false;
    item->err = *err;
    if (err->status != STATUS_OK ||
        chat_begin_turn(item, item->request, &item->arena) != STATUS_OK ||
        reader_has_more(&item->reader))
        multiplex_notify(&item->base);
}

/* True: the turn begins later. */
static bool chat_want(struct chat_item *item, const Parley__V1__ChatRequest *request,
                      struct arena *arena)
{
    const struct call *call = multiplex_call(&item->base);
    const bool may_pass_on =
        cluster_can_pass_on(call_server(call)->cluster) && !call_is_passed_on(call);

    if (!chat_look_up(item, request, may_pass_on ? LOOKUP_ANYWHERE : LOOKUP_HERE))
        return false;
    item->is_wanted = true;
    item->request = request;
    item->arena = *arena; /* taken */
    arena_init(arena, item->arena.limit_bytes);
    return true;
}

/* *ret_later: the turn begins later. */
static enum status chat_take(struct chat_item *item, const Parley__V1__ChatRequest *request,
                             struct arena *arena, bool *ret_later)
{
    *ret_later = false;
    if (multiplex_find(&item->base, item->tag) != NULL) {
        item->is_tag_taken = true;
        (void)error_field(&item->err, "tag", "is in use by a turn that has not ended");
        return item->err.status = STATUS_EXISTS;
    }
    multiplex_tag(&item->base, item->tag);
    if (request->request_case != PARLEY__V1__CHAT_REQUEST__REQUEST_TURN)
        return error_field(&item->err, "request", "is missing: a turn, or a cancel");
    *ret_later = chat_want(item, request, arena);
    return *ret_later ? STATUS_OK : chat_begin_turn(item, request, arena);
}

static void turn_service_begin_chat(struct multiplex_item *base, const ProtobufCMessage *message,
                                    struct arena *arena)
{
    const Parley__V1__ChatRequest *request = (const Parley__V1__ChatRequest *)message;
    struct chat_item *item = chat_item_of(base);
    bool is_later;

    item->tag = request->tag;
    if (request->request_case == PARLEY__V1__CHAT_REQUEST__REQUEST_CANCEL) {
        chat_cancel(multiplex_find(base, request->tag));
        multiplex_leave(base);
    } else if (chat_take(item, request, arena, &is_later) != STATUS_OK ||
               (!is_later && reader_has_more(&item->reader))) {
        multiplex_notify(base);
    }
}

/* An event of another daemon, which is the same here. */
static enum multiplex_written chat_write_passed(struct chat_item *item)
{
    Parley__V1__ChatEvent message = PARLEY__V1__CHAT_EVENT__INIT;
    Parley__V1__TurnEvent *event = NULL;
    Parley__V1__ErrorDetail detail;
    struct passed_turn *t = &item->passed;
    struct arena arena;
    bool is_last = false, has_event;

    if (t->is_over && t->is_refused) {
        item->is_passed_on = false;
        item->is_wanted = true;
        if (!chat_look_up(item, item->request, LOOKUP_HERE))
            on_chat_lookup(&item->lookup, &(struct error){0});
        return WROTE_NOTHING;
    }
    message.tag = item->tag;
    arena_init(&arena, EVENT_MAX_BYTES);
    has_event = passed_turn_next(t, &event, &arena);
    if (has_event && event->event_case == PARLEY__V1__TURN_EVENT__EVENT_ACCEPTED) {
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ACCEPTED;
        message.accepted = event->accepted;
    } else if (has_event && event->event_case == PARLEY__V1__TURN_EVENT__EVENT_PROGRESS) {
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PROGRESS;
        message.progress = event->progress;
    } else if (has_event && event->event_case == PARLEY__V1__TURN_EVENT__EVENT_PIECE) {
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PIECE;
        message.piece = event->piece;
    } else if (has_event && event->event_case == PARLEY__V1__TURN_EVENT__EVENT_DONE) {
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_DONE;
        message.done = event->done;
        is_last = true;
    } else if (t->is_over) { /* without a last event */
        error_details_fill(&detail, &t->err);
        message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ERROR;
        message.error = &detail;
        is_last = true;
    }
    if (message.event_case != PARLEY__V1__CHAT_EVENT__EVENT__NOT_SET)
        multiplex_write(&item->base, &message.base, false);
    arena_deinit(&arena);
    return is_last                                                        ? WROTE_LAST
           : message.event_case != PARLEY__V1__CHAT_EVENT__EVENT__NOT_SET ? WROTE_ONE
                                                                          : WROTE_NOTHING;
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

    if (item->is_wanted)
        return WROTE_NOTHING;
    if (item->is_passed_on)
        return chat_write_passed(item);
    if (item->has_begun && !turn_parts_next(&item->parts, &item->reader, &event))
        return WROTE_NOTHING;
    message.tag = item->tag;
    arena_init(&arena, EVENT_MAX_BYTES);
    if (wire_event(&w, &event, &item->reader, &item->parts, &arena, &item->err) != STATUS_OK)
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
        error_details_fill(&detail, event.err);
        if (item->is_tag_taken) {
            message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_REFUSED;
            message.refused = &detail;
        } else {
            message.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ERROR;
            message.error = &detail;
        }
        is_last = true;
        break;
    }
    multiplex_write(base, &message.base,
                    !is_last && turn_parts_has_more(&item->parts, &item->reader));
    arena_deinit(&arena);
    return is_last ? WROTE_LAST : WROTE_ONE;
}

static void turn_service_chat_end(struct multiplex_item *base, enum status why)
{
    struct chat_item *item = chat_item_of(base);

    named_lookup_leave(&item->lookup);
    passed_turn_leave(&item->passed);
    turn_parts_close(&item->parts);
    if (item->has_begun)
        reader_close(&item->reader, why == STATUS_OK ? STATUS_CANCELLED : why);
    if (item->request != NULL)
        arena_deinit(&item->arena);
}

static void start_chat(struct call *call)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct chat_item),
        .max_items = CHAT_MAX_TURNS,
        .item_name = "a turn",
        .begin = turn_service_begin_chat,
        .write = chat_write,
        .end = turn_service_chat_end,
    };

    multiplex_start(call, &type);
}

#define TURN_SERVICE_METHODS(METHOD)                                                 \
    METHOD(FOUND_SERVER_STREAM, KEY, "Conversations/Turn", turn_request, turn_event, \
           turn_service_start_turn)                                                  \
    METHOD(BIDI, KEY, "Conversations/Chat", chat_request, chat_event, start_chat)

PARLEY_TABLE(turn_service_methods, TURN_SERVICE_METHODS)
