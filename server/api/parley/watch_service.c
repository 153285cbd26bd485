/* parley.v1.Conversations, Watch. */
#include <stdlib.h>

#include "base/alloc.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/conversation/conversation.h"
#include "server/conversation/watch.h"
#include "server/server.h"

struct watch_call {
    struct call *call;
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

static void watch_service_write_ready(struct call *call, void *state)
{
    struct watch_call *w = state;
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;
    char id[CONVERSATION_ID_CHARS], parent[CONVERSATION_ID_CHARS];
    struct watch_event event;
    uint64_t lost;

    if (!watcher_next(&w->watcher, &event, &lost))
        return;
    if (lost > 0) {
        message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_LOST;
        message.lost = lost > UINT32_MAX ? UINT32_MAX : (uint32_t)lost;
    } else {
        conversation_id_format(&event.id, id);
        message.conversation = id;
        message.kind = event_kinds[event.what];
        message.reason = (char *)event.reason;
        message.unix_ms = event.unix_ms;
        if (event.what == WATCH_FORKED) {
            conversation_id_format(&event.parent, parent);
            message.parent = parent;
        }
    }
    call_write(call, &message.base, false);
}

static void watch_service_on_close(struct call *call, void *state, enum status why)
{
    struct watch_call *w = state;

    (void)call;
    (void)why;
    watcher_close(&w->watcher);
    free(w);
}

static void watch_service_drain(struct call *call, void *state)
{
    struct error err;

    (void)state;
    (void)error_because(&err, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                        "the server is stopping");
    call_finish(call, &err);
}

static void watch_service_start_watch(struct call *call, const ProtobufCMessage *message,
                                      struct server *server)
{
    static const struct call_handler handler = {.on_write_ready = watch_service_write_ready,
                                                .drain = watch_service_drain,
                                                .on_close = watch_service_on_close};
    const Parley__V1__ConversationsWatchRequest *request =
        (const Parley__V1__ConversationsWatchRequest *)message;
    struct conversation *c = NULL;
    struct watch_call *w;
    struct error err;

    if (request->conversation[0] != '\0' &&
        conversations_find(&c, server->conversations, request->conversation, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    w = try_alloc(1, sizeof(*w));
    if (w == NULL) {
        (void)error_no_memory(&err, sizeof(*w), "a watcher");
        call_finish(call, &err);
        return;
    }
    w->call = call;
    watcher_open(&w->watcher, &server->conversations->watch, c == NULL ? NULL : &c->id,
                 watch_service_notify, w);
    call_set_handler(call, &handler, w);
}

static const struct rpc rows[] = {
    {"/parley.v1.Conversations/Watch", RPC_SERVER_STREAM,
     &parley__v1__conversations_watch_request__descriptor,
     &parley__v1__conversation_event__descriptor, watch_service_start_watch},
};

const struct rpc_table watch_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
