/* The HTTP port's connections and their requests, above the sockets: bytes from a socket enter
 * here, answers leave by socket.h. Loop. */
#ifndef SERVER_HTTP_FRONT_H
#define SERVER_HTTP_FRONT_H

#include "base/list.h"
#include "server/http/config.h"

struct connection;
struct lws;

struct http_front {
    struct http_config config;
    struct list connections, exchanges, notified;
    struct list http2_due; /* connections of HTTP/2 that have something to send */
    size_t n_connections;
    size_t n_answering;     /* complete requests without an answer */
    bool is_admin_loopback; /* the address of administration */
    bool is_serving, is_draining, is_stopping;
    /* An exchange was notified: call front_serve before the loop sleeps, but not inside. */
    void (*stay_awake)(struct http_front *f);
};

void front_init(struct http_front *f, const struct http_config *config,
                void (*stay_awake)(struct http_front *f));
uint64_t front_now_ms(const struct http_front *f);
void front_deinit(struct http_front *f);
/* Serves the exchanges that were notified before this call. */
void front_serve(struct http_front *f);
/* Answers in flight continue; long-lived ones are notified. Connections that wait for a request, of
 * which no byte is there, are closed. */
void front_drain(struct http_front *f);
/* Ends what is being answered or read with an error, as UNAVAILABLE, and closes what is idle. True:
 * all connections are closed; else it is called again, for what came meanwhile. */
bool front_end(struct http_front *f);
/* Closes the connections whose answer is in flight to a revoked key. */
void front_check_keys(struct http_front *f);
/* Closes all connections, and ends exchanges as if their clients had hung up. */
void front_abandon(struct http_front *f);

/* Closes connections whose time-out has passed; called periodically. */
void front_sweep(struct http_front *f);
/* Closes connections that wait for a request. */
void front_close_idle(struct http_front *f);
/* Closes the oldest of those, of the address of administration or of the other. */
void front_spare(struct http_front *f, bool is_admin);

/* A new socket. NULL: no memory, close it. */
struct connection *connection_open(struct http_front *f, struct lws *wsi);
/* It came to the address of administration. */
void connection_set_admin(struct connection *c);
/* The socket is closed. */
void connection_close(struct connection *c);
void connection_read(struct connection *c, const char *data, size_t len);
/* The pending bytes are sent, after socket_is_choked. */
void connection_write_ready(struct connection *c);

#endif
