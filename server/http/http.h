/* The HTTP port, over libwebsockets, whose sockets are handles of the daemon's own loop. All
 * functions are called on the loop. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "server/http/config.h"

struct http;
struct http_front;

/* Makes the port, which listens from now on. STATUS_UNAVAILABLE if an address cannot be bound. */
enum status http_start(struct http **out, uv_loop_t *loop, const struct http_config *config,
                       struct error *err) MUST_CHECK;

/* Return the addresses that the port listens at; NULL if there is no such address. */
const char *http_address(const struct http *h);
const char *http_admin_address(const struct http *h);

/* Sets the time-out and the allowed origins of requests from now on. The origins must live until
 * the next call. is_loopback stays. */
void http_configure(struct http *h, uint64_t timeout_ms, const char *const *origins,
                    size_t n_origins);

/* Returns how many requests are being answered. */
size_t http_n_answering(const struct http *h);

/* Serves all routes from now on. Before, only routes with always set are served. */
void http_serve(struct http *h);

/* Closes the connections whose answer is in flight to a revoked key. */
void http_check_keys(struct http *h);

/* Answers new requests with 503 from now on, and closes connections that wait for a request. */
void http_drain(struct http *h);

/* Accepts no further connection, and ends each request with 503, or each stream with an error. The
 * caller calls http_end again until it returns true: then all is sent, and no connection is left.
 */
bool http_end(struct http *h);

/* The port's connections and requests. */
struct http_front *http_front(struct http *h);

/* Closes all connections; answers in flight end as if their clients had hung up. NULL is fine. */
void http_stop(struct http *h);
/* Closes h's last handles in the loop's next iterations. Comes after http_stop, when no descriptor
 * is opened any more. NULL is fine. */
void http_close(struct http *h);

/* Frees h, after http_close, when the loop has nothing left to run. NULL is fine. */
void http_free(struct http *h);

#endif
