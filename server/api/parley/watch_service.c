/* parley.v1.Conversations, Watch. Each message is pulled when the one before is out: first the
 * conversations there are (snapshot.h), then SYNCED, then events. Events that come meanwhile wait
 * in the ring for SYNCED; where they fill half of it they go between, so that none is lost. */
#include <stdlib.h>

#include "base/arena.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/conversation.h"
#include "server/conversation/names.h"
#include "server/conversation/snapshot.h"
#include "server/conversation/watch.h"
#include "server/server.h"

enum { STATE_MAX_BYTES = 4 << 20 };

struct watch_call {
    struct call *call;
    struct conversations *all;
    struct watcher watcher;
};

static const Parley__V1__ConversationEventKind event_kinds[] = {
    [WATCH_OPENED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_OPENED,
    [WATCH_FORKED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_FORKED,
    [WATCH_EVICTED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_EVICTED,
    [WATCH_RECOMPUTED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_RECOMPUTED,
    [WATCH_EXPIRED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_EXPIRED,
    [WATCH_CLOSED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_CLOSED,
};

static void watch_service_notify(void *arg)
{
    struct watch_call *w = arg;

    call_notify(w->call);
}

/* more: another message follows in any case. */
static void watch_service_write(struct watch_call *w, Parley__V1__ConversationEvent *message,
                                bool more)
{
    char token[WATCH_TOKEN_CHARS];

    watch_token_format(token, w->watcher.ring, &w->watcher.place);
    message->resume_token = token;
    call_write(w->call, &message->base, more);
}

static void write_happened(struct watch_call *w, const struct watch_event *event)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;
    char id[CONVERSATION_ID_CHARS], parent[CONVERSATION_ID_CHARS];

    conversation_id_format(&event->id, id);
    message.conversation = id;
    message.kind = event_kinds[event->what];
    message.reason = (char *)event->reason;
    message.unix_ms = event->unix_ms;
    if (event->what == WATCH_FORKED) {
        conversation_id_format(&event->parent, parent);
        message.parent = parent;
    }
    watch_service_write(w, &message, !w->watcher.place.is_synced);
}

static void write_lost(struct watch_call *w, uint64_t lost)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;

    message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_LOST;
    message.lost = lost > UINT32_MAX ? UINT32_MAX : (uint32_t)lost;
    message.unix_ms = conversations_unix_ms(w->all);
    watch_service_write(w, &message, !w->watcher.place.is_synced);
}

static void write_state(struct watch_call *w, const struct conversation *c)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;
    struct arena arena;
    struct error err;

    arena_init(&arena, STATE_MAX_BYTES);
    if (wire_conversation(&message.state, c, call_principal(w->call), &arena, &err) == STATUS_OK) {
        message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SNAPSHOT;
        message.conversation = message.state->conversation;
        message.unix_ms = conversations_unix_ms(w->all);
        watch_service_write(w, &message, true);
    } else {
        call_finish(w->call, &err);
    }
    arena_deinit(&arena);
}

static void write_synced(struct watch_call *w)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;

    message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SYNCED;
    message.unix_ms = conversations_unix_ms(w->all);
    watch_service_write(w, &message, false);
}

static void write_snapshot(struct watch_call *w)
{
    const struct conversation *c = snapshot_next(&w->watcher);

    if (c != NULL)
        write_state(w, c);
    else
        write_synced(w);
}

static void watch_service_write_ready(struct call *call, void *state)
{
    struct watch_call *w = state;
    struct watcher *watcher = &w->watcher;
    struct watch_event event;
    uint64_t lost;

    if ((watcher->place.is_synced || watcher_is_pressed(watcher)) &&
        watcher_next(watcher, &event, &lost)) {
        if (lost > 0)
            write_lost(w, lost);
        else
            write_happened(w, &event);
    } else if (!watcher->place.is_synced) {
        write_snapshot(w);
    } else if (watcher->is_one &&
               conversations_get_of(w->all, watcher->principal, &watcher->id) == NULL) {
        call_finish(call, NULL); /* it is closed, and the watcher knows */
    }
}

static void watch_service_on_close(struct call *call, void *state, enum status why)
{
    struct watch_call *w = state;

    watcher_close(&w->watcher);
    free(w);
}

static void watch_service_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    call_finish(call, &err);
}

/* One conversation must be open, unless there are events of it to come: it was closed behind the
 * resume token. */
static enum status check_one(const struct watch_call *w, const char *id, struct error *err)
{
    struct watcher ahead = w->watcher;
    struct watch_event event;
    struct conversation *c;
    uint64_t lost;

    if (!w->watcher.is_one || watcher_next(&ahead, &event, &lost))
        return STATUS_OK;
    return conversation_call_find(&c, w->call, id, err);
}

static enum status open_watch(struct watch_call *w,
                              const Parley__V1__ConversationsWatchRequest *request,
                              struct error *err)
{
    const bool is_one = request->conversation[0] != '\0';
    const uint32_t principal = call_principal(w->call)->id;
    struct conversation_id id;
    struct conversation *c;
    struct watch_place place;
    enum status rc;

    rc = watch_token_parse(&place, &w->all->watch, request->resume_token, err);
    if (rc == STATUS_OK && is_one &&
        !conversation_names_resolve(&id, call_server(w->call)->names, principal,
                                    request->conversation))
        rc = conversations_find(&c, w->all, principal, request->conversation,
                                err); /* for its words */
    if (rc != STATUS_OK)
        return rc;
    watcher_open(&w->watcher, &w->all->watch, principal, is_one ? &id : NULL, &place,
                 watch_service_notify, w);
    rc = check_one(w, request->conversation, err);
    if (rc != STATUS_OK)
        watcher_close(&w->watcher);
    else
        snapshot_begin(w->all, &w->watcher);
    return rc;
}

static void watch_service_start_watch(struct call *call,
                                      const Parley__V1__ConversationsWatchRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = watch_service_write_ready,
                                                .drain = watch_service_drain,
                                                .on_close = watch_service_on_close};
    struct server *server = call_server(call);
    struct watch_call *w = call_state(call, sizeof(*w));
    struct error err;

    if (w == NULL)
        return;
    w->call = call;
    w->all = server->conversations;
    if (open_watch(w, request, &err) != STATUS_OK) {
        free(w);
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, w);
    call_notify(call);
}

#define WATCH_SERVICE_METHODS(METHOD)                                              \
    METHOD(SERVER_STREAM, KEY, "Conversations/Watch", conversations_watch_request, \
           conversation_event, watch_service_start_watch)

PARLEY_TABLE(watch_service_methods, WATCH_SERVICE_METHODS)
