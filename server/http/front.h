/* The HTTP port's connections and their requests, above the sockets. Bytes of a socket come in by
 * connection_read, and answers leave by socket.h. All functions are called on the loop. */
#ifndef SERVER_HTTP_FRONT_H
#define SERVER_HTTP_FRONT_H

#include "base/list.h"
#include "server/http/config.h"

struct connection;
struct lws;

struct http_front {
    struct http_config config;
    struct list connections, exchanges, notified;
    struct list http2_due;      /* connections of HTTP/2 that have something to send */
    struct list websockets_due; /* the same of WebSockets */
    size_t n_connections;
    size_t n_answering;     /* how many complete requests have no answer yet */
    bool is_admin_loopback; /* the address of administration is a loopback address */
    bool is_serving, is_draining, is_stopping;
    /* Called when an exchange or a WebSocket was notified. front_serve must be called before the
     * loop sleeps, but not inside this call. */
    void (*stay_awake)(struct http_front *f);
};

static inline uint64_t front_now_ms(const struct http_front *f)
{
    return env_now_us(f->config.env) / 1000;
}

void front_init(struct http_front *f, const struct http_config *config,
                void (*stay_awake)(struct http_front *f));
void front_deinit(struct http_front *f);
/* Returns whether nothing waits for front_serve. */
static inline bool front_is_served(const struct http_front *f)
{
    return list_is_empty(&f->notified) && list_is_empty(&f->websockets_due);
}
/* Serves the exchanges and the WebSockets that were notified before this call. */
void front_serve(struct http_front *f);
/* Begins to drain: answers in flight continue, and the handlers of long-lived answers are told.
 * Connections that wait for the first byte of a request are closed. */
void front_drain(struct http_front *f);
/* Ends requests that are being answered or read with UNAVAILABLE, and closes idle connections.
 * Returns whether all connections are closed. If not, the caller calls front_end again. */
bool front_end(struct http_front *f);
/* Closes the connections whose answer is in flight to a revoked key. */
void front_check_keys(struct http_front *f);
/* Closes all connections, and ends exchanges as if their clients had hung up. */
void front_abandon(struct http_front *f);

/* Closes connections whose time-out has passed; called periodically. */
void front_sweep(struct http_front *f);
/* Closes connections that wait for a request. */
void front_close_idle(struct http_front *f);
/* Closes the oldest connection that waits for a request, at the address of administration or at the
 * other address. */
void front_spare(struct http_front *f, bool is_admin);

/* Makes the connection of a new socket. NULL if memory is short; then the caller closes the socket.
 */
struct connection *connection_open(struct http_front *f, struct lws *wsi);
/* Says that the connection came to the address of administration. */
void connection_set_admin(struct connection *c);
/* Says that the socket is closed. Frees the connection. */
void connection_close(struct connection *c);
void connection_read(struct connection *c, const char *data, size_t len);
/* Says that the pending bytes were sent, after socket_is_choked was true. */
void connection_write_ready(struct connection *c);

#endif
