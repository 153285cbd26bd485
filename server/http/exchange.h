/* One request and its answer. It lives from the end of the request's head until the answer is with
 * the kernel or the peer is gone. What answers it is a route, which is served once the body is
 * whole; an answer is one reply, or a stream of events that are pulled: when the connection has
 * room, the handler says what comes next. Loop. */
#ifndef SERVER_HTTP_EXCHANGE_H
#define SERVER_HTTP_EXCHANGE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

struct daemon;
struct exchange;
struct memory;

struct exchange_handler {
    /* There is room: reply, or append events to out and wake again if there are more. */
    void (*room)(struct exchange *x, void *state);
    /* It is over, for whatever reason; state is forgotten after. */
    void (*gone)(struct exchange *x, void *state);
};

/* Of its handler: what wakes it from then on calls room. At most once. */
void exchange_set_handler(struct exchange *x, const struct exchange_handler *handler, void *state);

/* room will be called, not inside this call. From anywhere on the loop. */
void exchange_wake(struct exchange *x);

/* The whole answer. type may be NULL without a body. */
void exchange_reply(struct exchange *x, int http_status, const char *type, const char *body,
                    size_t len);
void exchange_fail(struct exchange *x, const struct error *err);
void exchange_fail_as(struct exchange *x, int http_status, const struct error *err);

/* A stream of server-sent events begins; what room appends to the buffer is sent when it returns,
 * until exchange_end. */
struct buf *exchange_stream(struct exchange *x);
void exchange_end(struct exchange *x);
bool exchange_is_streaming(const struct exchange *x);

struct daemon *exchange_daemon(const struct exchange *x);
struct memory *exchange_memory(struct exchange *x);
struct arena *exchange_arena(struct exchange *x); /* as long as the exchange */
const char *exchange_path(const struct exchange *x);
/* Of X-Conversation-Id; "" where there is none. */
const char *exchange_conversation(const struct exchange *x);
/* Sent as X-Conversation-Id with the answer; id lives as long as the exchange. */
void exchange_set_conversation(struct exchange *x, const char *id);
const char *exchange_body(const struct exchange *x, size_t *ret_len);

#endif
