/* The HTTP port, over libwebsockets, whose sockets are handles of the daemon's own loop. Loop. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "server/http/config.h"

struct http;

/* Listens from now on. STATUS_UNAVAILABLE: the address cannot be bound. */
enum status http_start(struct http **out, uv_loop_t *loop, const struct http_config *config,
                       struct error *err) MUST_CHECK;

/* NULL: there is none. */
const char *http_address(const struct http *h);
const char *http_admin_address(const struct http *h);

/* For requests from now on. The origins are kept until the next call; is_loopback stays. */
void http_configure(struct http *h, uint64_t timeout_ms, const char *const *origins,
                    size_t n_origins);

/* Requests that are being answered. */
size_t http_n_answering(const struct http *h);

/* From now on all routes are served; before, only those with always set. */
void http_serve(struct http *h);

/* Closes the connections whose answer is in flight to a revoked key. */
void http_check_keys(struct http *h);

/* New requests get 503 from now on; connections that wait for one are closed. */
void http_drain(struct http *h);

/* Accepts no further connection, and ends each request with 503, or its stream with an error; to be
 * called again until it returns true: all is sent, and no connection is left. */
bool http_end(struct http *h);

/* Closes all connections; answers in flight end as if their clients had hung up. NULL is fine. */
void http_stop(struct http *h);
/* After that, and when no descriptor is opened any more: h's last handles are closed in the loop's
 * next iterations. NULL is fine. */
void http_close(struct http *h);

/* After http_close, when the loop has nothing left to run. NULL is fine. */
void http_free(struct http *h);

#endif
