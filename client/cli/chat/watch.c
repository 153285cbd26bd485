#include "client/cli/chat/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "cli/output/out.h"
#include "client/cli/output/message_json.h"
#include "parley/v1/conversations.pb-c.h"
#include "proto/words.h"

static void print_event(const Parley__V1__ConversationEvent *event)
{
    const bool is_snapshot =
        event->kind == PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SNAPSHOT ||
        event->kind == PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SYNCED;
    time_t seconds = (time_t)(event->unix_ms / 1000);
    struct tm local;
    char when[32] = "", kind[WORD_CHARS];

    if (is_snapshot) /* people want to see changes; 'conversations list' shows the present state */
        return;
    if (localtime_r(&seconds, &local) != NULL)
        (void)strftime(when, sizeof(when), "%H:%M:%S ", &local); /* 0: when stays empty */
    (void)enum_word(kind, &parley__v1__conversation_event_kind__descriptor, (int)event->kind);
    if (event->lost > 0)
        printf("%s%s %" PRIu32 " events\n", when, kind, event->lost);
    else
        printf("%s%s %s%s%s%s%s\n", when, kind, event->conversation,
               *event->parent == '\0' ? "" : " of ", event->parent,
               *event->reason == '\0' ? "" : ": ", event->reason);
}

static enum parley_status watch_fail(struct parley_error *err, enum parley_status status,
                                     const char *text)
{
    *err = (struct parley_error){.status = status};
    (void)snprintf(err->text, sizeof(err->text), "%s", text);
    return status;
}

/* A daemon that restarts ends a watch, and so do others that share its data if they come or go. */
enum { WATCH_TRIES = 50, WATCH_REST_NS = 200000000 };

struct watching {
    bool is_json;
    unsigned n_tries; /* since the last event */
    char *token;      /* of the last event; "": none has come */
};

/* On the channel's thread, while the caller's waits. */
static enum parley_status on_event(void *arg, const void *data, size_t len,
                                   struct parley_error *err)
{
    struct watching *w = arg;
    Parley__V1__ConversationEvent *event = parley__v1__conversation_event__unpack(NULL, len, data);

    if (event == NULL)
        return watch_fail(err, PARLEY_INTERNAL, "the server sent a message that is not an event");
    w->n_tries = 0;
    free(w->token);
    w->token = xstrdup(event->resume_token);
    if (w->is_json)
        (void)out_json(message_json(&event->base)); /* the flush reports a failure */
    else
        print_event(event);
    parley__v1__conversation_event__free_unpacked(event, NULL);
    return out_flush() ? PARLEY_OK
                       : watch_fail(err, PARLEY_CANCELLED, "the reader of stdout is gone");
}

static enum parley_status watch_once(struct watching *w, struct parley_channel *channel,
                                     const char *conversation, struct parley_error *err)
{
    Parley__V1__ConversationsWatchRequest request = PARLEY__V1__CONVERSATIONS_WATCH_REQUEST__INIT;
    enum parley_status rc;
    uint8_t *bytes;
    size_t len;

    request.conversation = (char *)(conversation == NULL ? "" : conversation);
    request.resume_token = w->token;
    bytes = xalloc(protobuf_c_message_get_packed_size(&request.base) + 1);
    len = protobuf_c_message_pack(&request.base, bytes);
    rc = parley_server_stream(channel, "/parley.v1.Conversations/Watch", bytes, len, on_event, w,
                              err);
    free(bytes);
    return rc;
}

static bool watch_goes_on(struct watching *w, enum parley_status rc)
{
    const struct timespec rest = {.tv_nsec = WATCH_REST_NS};

    if (rc != PARLEY_UNAVAILABLE || w->token[0] == '\0' || ++w->n_tries > WATCH_TRIES)
        return false;
    (void)nanosleep(&rest, NULL); /* a signal may cut it short: then it asks earlier */
    return true;
}

enum parley_status watch_run(struct parley_channel *channel, const char *conversation, bool is_json,
                             struct parley_error *err)
{
    struct watching w = {.is_json = is_json, .token = xstrdup("")};
    enum parley_status rc;

    do {
        rc = watch_once(&w, channel, conversation, err);
    } while (watch_goes_on(&w, rc));
    free(w.token);
    return rc == PARLEY_CANCELLED ? PARLEY_OK : rc;
}
