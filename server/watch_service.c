/* parley.v1.Conversations, Watch. */
#include <stdlib.h>

#include "base/alloc.h"
#include "server/daemon.h"
#include "server/services.h"
#include "server/watch.h"
#include "server/wire.h"

struct watch_call {
    struct call *call;
    struct watcher watcher;
    struct endless endless;
};

static void wake(void *arg)
{
    struct watch_call *w = arg;

    call_wake(w->call);
}

static void room(struct call *call, void *state)
{
    struct watch_call *w = state;
    Parley__V1__WatchEvent message = PARLEY__V1__WATCH_EVENT__INIT;
    char id[CONVERSATION_ID_CHARS], parent[CONVERSATION_ID_CHARS];
    struct watch_event event;
    uint64_t lost;

    if (!watcher_next(&w->watcher, &event, &lost))
        return;
    if (lost > 0) {
        message.what = (char *)"lost";
        message.lost = lost > UINT32_MAX ? UINT32_MAX : (uint32_t)lost;
    } else {
        conversation_id_format(&event.id, id);
        message.conversation = id;
        message.what = (char *)watch_what_name(event.what);
        message.reason = (char *)event.reason;
        message.unix_ms = event.unix_ms;
        if (event.what == WATCH_FORKED) {
            conversation_id_format(&event.parent, parent);
            message.parent = parent;
        }
    }
    call_write(call, &message.base, false);
}

static void gone(struct call *call, void *state, enum status why)
{
    struct watch_call *w = state;

    (void)call;
    (void)why;
    watcher_close(&w->watcher);
    endless_end(&w->endless);
    free(w);
}

static void drain(struct endless *l)
{
    struct watch_call *w = container_of(l, struct watch_call, endless);
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "the server is stopping");
    call_finish(w->call, &err);
}

static void start_watch(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {.room = room, .gone = gone};
    const Parley__V1__WatchRequest *request = (const Parley__V1__WatchRequest *)message;
    struct conversation *c = NULL;
    struct watch_call *w;
    struct error err;

    if (request->conversation[0] != '\0' &&
        conversations_find(&c, &d->conversations, request->conversation, &err) != STATUS_OK) {
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
    watcher_open(&w->watcher, &d->conversations.watch, c == NULL ? NULL : &c->id, wake, w);
    call_set_handler(call, &handler, w);
    endless_begin(&w->endless, d, drain);
}

const struct rpc watch_rpcs[N_WATCH_RPCS] = {
    {"/parley.v1.Conversations/Watch", RPC_SERVER_STREAM, &parley__v1__watch_request__descriptor,
     &parley__v1__watch_event__descriptor, start_watch},
};
