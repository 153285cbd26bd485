/* What exchange.c and http.c share. */
#ifndef SERVER_HTTP_EXCHANGE_PARTS_H
#define SERVER_HTTP_EXCHANGE_PARTS_H

#include <libwebsockets.h>
#include <uv.h>

#include "base/list.h"
#include "server/http/dechunk.h"
#include "server/http/exchange.h"
#include "server/http/http.h"
#include "server/http/memory.h"
#include "server/http/routes.h"

enum { PATH_MAX_BYTES = 256, CONVERSATION_NAME_MAX = 64 };

struct http {
    struct http_config config;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct list exchanges, woken;
    size_t n_exchanges;
    bool is_draining, is_stopping;
    int listen_fd;
    uv_poll_t listening;
    /* The woken are served right after the loop has polled; the idle handle keeps it from
     * sleeping when something was woken at another time. */
    uv_check_t check;
    uv_idle_t no_sleep;
    uv_timer_t again; /* accepts again when descriptors were short */
    struct memory memory;
    char address[80];
};

enum exchange_state {
    EXCHANGE_READING,   /* the body comes */
    EXCHANGE_DUE,       /* it is whole, or will not be read: to be served */
    EXCHANGE_ANSWERING, /* its handler has it */
    EXCHANGE_FLUSHING,  /* libwebsockets has the rest of the answer */
    EXCHANGE_LINGERING, /* answered; what the peer still sends is thrown away until it closes */
    EXCHANGE_GONE,
};

struct exchange {
    struct link link;  /* of the exchanges */
    struct link woken; /* while is_woken */
    struct http *http;
    struct lws *wsi;
    enum exchange_state state;
    const struct route *route;
    bool is_woken, is_head, is_http_1_0, is_chunked, must_close, is_streaming, is_ended, is_paused;
    bool is_unread; /* the body, or a part of it */
    int refused_as; /* 0: not yet refused; else with err */
    struct error err;
    uint64_t begun_ms;
    uint64_t content_length;
    struct dechunk chunks;
    struct arena arena;
    struct buf body, events, out; /* out begins with LWS_PRE bytes for libwebsockets */
    const struct exchange_handler *handler;
    void *handler_state;
    const char *conversation_id; /* to answer with */
    char path[PATH_MAX_BYTES];
    char conversation[CONVERSATION_NAME_MAX + 1];
};

/* Somebody was woken: the loop does not sleep before they are served. */
void http_stay_awake(struct http *h);

/* The request's head is there. False: no memory, hang up. */
bool exchange_open(struct http *h, struct lws *wsi, const char *path, size_t len);
void exchange_more(struct exchange *x, const char *data, size_t len);
void exchange_whole(struct exchange *x);
/* The connection has gone. */
void exchange_gone(struct exchange *x);
/* From the check: whatever is due. x may be no more after. */
void exchange_serve(struct exchange *x);

#endif
