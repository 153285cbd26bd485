/* One request and its answer. It lives from the end of the request's head until the kernel has the
 * answer or the peer has hung up. A route serves it once the body is complete. The answer is one
 * reply, or a stream of events that are pulled: when the connection is write-ready, the handler
 * appends the next ones. Loop. */
#ifndef SERVER_HTTP_EXCHANGE_H
#define SERVER_HTTP_EXCHANGE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

struct exchange;
struct principal;
struct server;

struct exchange_handler {
    /* The connection is write-ready: reply, or append events and notify again if there are more. */
    void (*on_write_ready)(struct exchange *x, void *state);
    /* The server drains: a long-lived answer ends as soon as it can. Called at most once; if the
     * server drains already, after the route has been served. May be NULL. */
    void (*drain)(struct exchange *x, void *state);
    /* The server ends: the answer ends with err, which a stream says in its API's way; on_close
     * follows. NULL: exchange_fail does, and a stream breaks off. */
    void (*cut)(struct exchange *x, void *state, const struct error *err);
    /* The exchange is over, for whatever reason; state is not used afterwards. */
    void (*on_close)(struct exchange *x, void *state);
};

/* Sets the handler: notifications now call on_write_ready. At most once. */
void exchange_set_handler(struct exchange *x, const struct exchange_handler *handler, void *state);

/* As before exchange_set_handler: another one may be set, for a request that waited for something
 * before it began. on_close of the first is not called. */
void exchange_drop_handler(struct exchange *x);

/* on_write_ready will be called, not inside this call. From anywhere on the loop. */
void exchange_notify(struct exchange *x);

/* The whole answer. type may be NULL without a body. */
void exchange_reply(struct exchange *x, int http_status, const char *type, const char *body,
                    size_t len);
void exchange_fail(struct exchange *x, const struct error *err);
void exchange_fail_as(struct exchange *x, int http_status, const struct error *err);
/* Appends the error body of the route's API, for a stream that ends with one. */
enum status exchange_append_error(const struct exchange *x, struct buf *out,
                                  const struct error *err) MUST_CHECK;

/* The stream's Content-Type, where it is not server-sent events; static. Before it begins. */
void exchange_set_stream_type(struct exchange *x, const char *type);
/* Begins a stream of server-sent events. What on_write_ready appends to the buffer is sent when it
 * returns, until exchange_end. */
struct buf *exchange_stream(struct exchange *x);
void exchange_end(struct exchange *x);
bool exchange_is_streaming(const struct exchange *x);

/* Whose request it is; valid as long as the daemon. */
const struct principal *exchange_principal(const struct exchange *x);
struct server *exchange_server(const struct exchange *x);
struct arena *exchange_arena(struct exchange *x); /* as long as the exchange */
const char *exchange_path(const struct exchange *x);
const char *exchange_method(const struct exchange *x); /* "GET" */
/* The parameter's first value in the query, decoded, in the arena; *out is NULL where there is
 * none. */
enum status exchange_query(const char **out, struct exchange *x, const char *name,
                           struct error *err) MUST_CHECK;
/* Value of X-Conversation-Id; "" where there is none. */
const char *exchange_conversation(const struct exchange *x);
/* Sent as X-Conversation-Id with the answer; id lives as long as the exchange. */
void exchange_set_conversation(struct exchange *x, const char *id);
/* Sent as X-Parley-Unenforced with the answer; printable ASCII that lives as long as the exchange.
 */
void exchange_set_unenforced(struct exchange *x, const char *keywords);
/* Value of Idempotency-Key, at most 256 bytes of it; NULL where there is none. */
const char *exchange_key(const struct exchange *x);
/* Value of Last-Event-ID, [*ret_len]; NULL where there is none. */
const char *exchange_last_event(const struct exchange *x, size_t *ret_len);
const char *exchange_body(const struct exchange *x, size_t *ret_len);

#endif
