/* The HTTP front: OpenAI's API over libwebsockets, whose sockets are handles of the daemon's own
 * loop. It is a second front to what gRPC reaches: models, conversations and their turns. Loop. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

struct daemon;
struct http;

struct http_config {
    const char *listen; /* HOST:PORT or [IPV6]:PORT; port 0 picks one */
    size_t max_body_bytes;
    uint64_t timeout_ms; /* for a request to come, and for its answer to be taken */
    struct daemon *daemon;
};

/* Listens from now on. STATUS_UNAVAILABLE: the address cannot be had. */
enum status http_start(struct http **out, uv_loop_t *loop, const struct http_config *config,
                       struct error *err) MUST_CHECK;

const char *http_address(const struct http *h);

/* Requests that are being answered. */
size_t http_n_answering(const struct http *h);

/* New requests have 503 from now on, connections that wait for one are closed. */
void http_drain(struct http *h);

/* Closes all; what is being answered ends as if its client had hung up. h and its handles go with
 * the loop's last turns. NULL is fine. */
void http_stop(struct http *h);

/* After http_stop, when the loop has nothing left to run. NULL is fine. */
void http_free(struct http *h);

#endif
