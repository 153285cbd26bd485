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

/* On the channel's thread, while the caller's waits. */
static enum parley_status on_event(void *arg, const void *data, size_t len,
                                   struct parley_error *err)
{
    const bool *is_json = arg;
    Parley__V1__ConversationEvent *event = parley__v1__conversation_event__unpack(NULL, len, data);

    if (event == NULL)
        return watch_fail(err, PARLEY_INTERNAL, "the server sent a message that is not an event");
    if (*is_json)
        (void)out_json(message_json(&event->base)); /* the flush reports a failure */
    else
        print_event(event);
    parley__v1__conversation_event__free_unpacked(event, NULL);
    return out_flush() ? PARLEY_OK
                       : watch_fail(err, PARLEY_CANCELLED, "the reader of stdout is gone");
}

enum parley_status watch_run(struct parley_channel *channel, const char *conversation, bool is_json,
                             struct parley_error *err)
{
    Parley__V1__ConversationsWatchRequest request = PARLEY__V1__CONVERSATIONS_WATCH_REQUEST__INIT;
    enum parley_status rc;
    uint8_t *bytes;
    size_t len;

    request.conversation = (char *)(conversation == NULL ? "" : conversation);
    bytes = xalloc(protobuf_c_message_get_packed_size(&request.base) + 1);
    len = protobuf_c_message_pack(&request.base, bytes);
    rc = parley_server_stream(channel, "/parley.v1.Conversations/Watch", bytes, len, on_event,
                              &is_json, err);
    free(bytes);
    return rc == PARLEY_CANCELLED ? PARLEY_OK : rc;
}
