/* Parses server-sent events (the WHATWG's text/event-stream) that arrive in pieces; only their
 * data is kept. */
#ifndef CLIENT_CLI_BENCH_SSE_H
#define CLIENT_CLI_BENCH_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

struct sse {
    struct buf line, data; /* the current line and event */
    bool has_data;         /* the event has a data line; data may be empty all the same */
    bool was_cr;           /* a newline that follows ends the same line */
};

void sse_init(struct sse *s, size_t limit_bytes);
void sse_deinit(struct sse *s);
void sse_clear(struct sse *s); /* for another stream */

/* An event's data, its lines joined by newlines; ends in a NUL that is not counted. */
typedef void (*sse_event_fn)(void *arg, const char *data, size_t len);

/* Calls event for each event completed by these bytes. STATUS_EXHAUSTED: a line or an event is
 * longer than the limit. */
enum status sse_feed(struct sse *s, const char *bytes, size_t len, sse_event_fn event,
                     void *arg) MUST_CHECK;

#endif
