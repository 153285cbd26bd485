/* The connections of the HTTP port and the requests on them, above the sockets: what comes on a
 * socket goes in here, what is answered goes out by socket.h. Loop. */
#ifndef SERVER_HTTP_FRONT_H
#define SERVER_HTTP_FRONT_H

#include "base/list.h"
#include "server/http/http.h"
#include "server/http/memory.h"

struct connection;
struct lws;

struct http_front {
    struct http_config config;
    struct list connections, exchanges, woken;
    size_t n_answering; /* requests that are whole and not answered */
    bool is_draining, is_stopping;
    struct memory memory;
    /* Somebody was woken: front_serve, please, before the loop sleeps, and not inside. */
    void (*stay_awake)(struct http_front *f);
};

void front_init(struct http_front *f, const struct http_config *config,
                void (*stay_awake)(struct http_front *f));
void front_deinit(struct http_front *f);
/* Serves whoever was woken before. */
void front_serve(struct http_front *f);
/* Ends all exchanges as if their clients had hung up. */
void front_abandon(struct http_front *f);

/* Closes connections that have been waited for too long, now and then. */
void front_sweep(struct http_front *f);
/* Closes those that wait for a request. */
void front_close_idle(struct http_front *f);

/* A socket is there. NULL: no memory, hang up. */
struct connection *connection_open(struct http_front *f, struct lws *wsi);
/* It has gone. */
void connection_close(struct connection *c);
void connection_read(struct connection *c, const char *data, size_t len);
/* What was written has left, after socket_is_choked. */
void connection_has_room(struct connection *c);

#endif
