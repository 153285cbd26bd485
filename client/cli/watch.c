#include "client/cli/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "client/cli/message_json.h"
#include "client/cli/out.h"
#include "client/lib/parts.h"
#include "parley/v1/conversations.pb-c.h"

static void print_event(const Parley__V1__WatchEvent *event)
{
    time_t seconds = (time_t)(event->unix_ms / 1000);
    struct tm local;
    char when[32] = "";

    if (localtime_r(&seconds, &local) != NULL)
        (void)strftime(when, sizeof when, "%H:%M:%S ", &local); /* 0: when stays empty */
    if (event->lost > 0)
        printf("%s%s %" PRIu32 " events\n", when, event->what, event->lost);
    else
        printf("%s%s %s%s%s%s%s\n", when, event->what, event->conversation,
               *event->parent == '\0' ? "" : " of ", event->parent,
               *event->reason == '\0' ? "" : ": ", event->reason);
}

/* On the channel's thread, while the caller's waits. */
static enum status on_event(void *arg, const void *data, size_t len, struct error *err)
{
    const bool *is_json = arg;
    Parley__V1__WatchEvent *event = parley__v1__watch_event__unpack(NULL, len, data);

    if (event == NULL)
        return error_set(err, STATUS_INTERNAL, "the server sent what is no event");
    if (*is_json)
        (void)out_json(message_json(&event->base)); /* the flush tells */
    else
        print_event(event);
    parley__v1__watch_event__free_unpacked(event, NULL);
    return out_flush() ? STATUS_OK : error_set(err, STATUS_CANCELLED, "nobody reads any more");
}

enum parley_status watch_run(struct parley_channel *channel, const char *conversation, bool is_json,
                             struct parley_error *err)
{
    Parley__V1__WatchRequest request = PARLEY__V1__WATCH_REQUEST__INIT;
    const struct call_start how = {.method = "/parley.v1.Conversations/Watch",
                                   .request = &request.base};
    enum parley_status rc;

    request.conversation = (char *)(conversation == NULL ? "" : conversation);
    rc = request_wait(channel, &how, true, on_event, &is_json, err);
    return rc == PARLEY_CANCELLED ? PARLEY_OK : rc;
}
