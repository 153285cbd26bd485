/* An exchange is one request and its answer. It lives from the end of the request's head until the
 * kernel has the answer or the peer has hung up. A route serves the exchange once the body is
 * complete. The answer is one reply or a stream of events. Events are pulled: whenever the
 * connection is write-ready, the handler appends the next events. All functions are called on the
 * loop. */
#ifndef SERVER_HTTP_EXCHANGE_H
#define SERVER_HTTP_EXCHANGE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "server/http/kept_header.h"

struct exchange;
struct principal;
struct server;
struct websocket;

struct exchange_handler {
    /* Called when the connection is write-ready. The handler replies, or appends events and calls
     * exchange_notify again if there are more. */
    void (*on_write_ready)(struct exchange *x, void *state);
    /* Called at most once, when the server drains: a long-lived answer ends as soon as it can. If
     * the server drains already, the call comes after the route has been served. May be NULL. */
    void (*drain)(struct exchange *x, void *state);
    /* Called when the server ends: the answer ends with err, which a stream says in its API's form.
     * on_close follows. NULL: exchange_fail is called instead, and a stream breaks off. */
    void (*cut)(struct exchange *x, void *state, const struct error *err);
    /* Called when the exchange is over, for whatever reason. state is not used afterwards. */
    void (*on_close)(struct exchange *x, void *state);
};

/* Sets the handler, whose on_write_ready notifications call from now on. At most one call. */
void exchange_set_handler(struct exchange *x, const struct exchange_handler *handler, void *state);

/* Undoes exchange_set_handler, so that another handler may be set. This serves a request that
 * waited for something before it began. on_close of the dropped handler is not called. */
void exchange_drop_handler(struct exchange *x);

/* Has on_write_ready called later, not inside this call. May be called from anywhere on the loop.
 */
void exchange_notify(struct exchange *x);

/* A file that the program brings: static, compressed when it was built. */
struct exchange_file {
    const char *type;
    const char *tag;           /* of its content, quoted: the ETag */
    const unsigned char *gzip; /* [gzip_bytes] */
    size_t gzip_bytes, bytes;  /* compressed, and not */
};
/* Answers with the file, or with 304 where the client has it. more: further headers, each with its
 * line end. */
void exchange_reply_file(struct exchange *x, const struct exchange_file *file, const char *more);

/* Gives the whole answer. type is the Content-Type, and may be NULL without a body. exchange_fail
 * answers with err in the form of the route's API, with the HTTP status of err's status;
 * exchange_fail_as takes another HTTP status. */
void exchange_reply(struct exchange *x, int http_status, const char *type, const char *body,
                    size_t len);
void exchange_fail(struct exchange *x, const struct error *err);
void exchange_fail_as(struct exchange *x, int http_status, const struct error *err);
/* Appends the error body of the route's API, for a stream that ends with one. */
enum status exchange_append_error(const struct exchange *x, struct buf *out,
                                  const struct error *err) MUST_CHECK;

/* Sets the Content-Type of a stream that is no stream of server-sent events, before the stream
 * begins. type is static. */
void exchange_set_stream_type(struct exchange *x, const char *type);
/* Begins a stream of server-sent events, which exchange_end ends. What on_write_ready appends to
 * the returned buffer is sent when on_write_ready returns. */
struct buf *exchange_stream(struct exchange *x);
void exchange_end(struct exchange *x);
/* exchange_stream, and the whole answer, with another status, type and further headers, each with
 * its line end: those of an answer that another daemon has given. */
struct buf *exchange_stream_with(struct exchange *x, int http_status, const char *type,
                                 const char *more);
void exchange_reply_with(struct exchange *x, int http_status, const char *type, const char *more,
                         const char *body, size_t len);
/* Answers with 101 and further headers; then the connection is the WebSocket's, which the exchange
 * takes. Called by upgrade.h. */
void exchange_upgrade(struct exchange *x, struct websocket *w, const char *more);
/* Appends the request's method, target and headers as inner.h takes them. EXHAUSTED. */
enum status exchange_write_head(struct exchange *x, struct buf *out, struct error *err) MUST_CHECK;
/* Whether another daemon passed the request on: it is not passed on again. */
bool exchange_is_passed_on(const struct exchange *x);
bool exchange_is_streaming(const struct exchange *x);

/* Returns the value of a header, valid as long as the exchange; NULL if the request has none. */
const char *exchange_header(const struct exchange *x, enum kept_header which);

/* Returns the principal whose request it is, valid as long as the daemon. */
const struct principal *exchange_principal(const struct exchange *x);
struct server *exchange_server(const struct exchange *x);
struct arena *exchange_arena(struct exchange *x); /* lives as long as the exchange */
/* Whether the request came to the address of administration, where there is one of its own. */
bool exchange_is_admin(const struct exchange *x);
/* Whether the client is one that shows pages: its Accept names text/html. */
bool exchange_wants_html(const struct exchange *x);
const char *exchange_path(const struct exchange *x);
const char *exchange_method(const struct exchange *x); /* "GET" */
/* Finds the first value of the query's parameter. *out is the decoded value, in the arena; NULL if
 * the query has no such parameter. */
enum status exchange_query(const char **out, struct exchange *x, const char *name,
                           struct error *err) MUST_CHECK;
/* Returns the value of X-Conversation-Id; "" if the request has none. */
const char *exchange_conversation(const struct exchange *x);
/* Sends id as X-Conversation-Id with the answer. id lives as long as the exchange. */
void exchange_set_conversation(struct exchange *x, const char *id);
/* Sends keywords as X-Parley-Unenforced with the answer. keywords is printable ASCII, and lives as
 * long as the exchange. */
void exchange_set_unenforced(struct exchange *x, const char *keywords);
/* Returns the first 256 bytes of the value of Idempotency-Key; NULL if the request has none. */
const char *exchange_key(const struct exchange *x);
/* Returns the value of Last-Event-ID, [*ret_len]; NULL if the request has none. */
const char *exchange_last_event(const struct exchange *x, size_t *ret_len);
const char *exchange_body(const struct exchange *x, size_t *ret_len);
/* Returns how many bytes a body may have. */
size_t exchange_max_body_bytes(const struct exchange *x);

#endif
