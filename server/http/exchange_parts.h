/* What connection.c and exchange.c share. */
#ifndef SERVER_HTTP_EXCHANGE_PARTS_H
#define SERVER_HTTP_EXCHANGE_PARTS_H

#include <http_parser.h>

#include "base/list.h"
#include "server/http/exchange.h"
#include "server/http/front.h"
#include "server/http/routes.h"
#include "server/http/socket.h"

enum { URL_MAX_BYTES = 256, CONVERSATION_NAME_MAX = 64 };
enum { KEEP_ALIVE_MS = 120 * 1000, HEAD_MAX_BYTES = 16 << 10 };

/* A socket: the parser of what comes on it, and the request that is being read or answered. */
struct connection {
    struct link link;  /* of the front's connections */
    uint64_t until_ms; /* closed then, if nothing happens before; 0: never */
    struct http_front *front;
    struct lws *wsi;
    struct exchange *exchange; /* NULL: it waits for a request */
    http_parser parser;
    struct buf behind; /* what has come behind the request that is being answered */
    bool is_paused;    /* and there is so much of it that no more is read */
};

enum exchange_state {
    EXCHANGE_READING,   /* head and body come */
    EXCHANGE_DUE,       /* it is whole, or will not be read: to be served */
    EXCHANGE_ANSWERING, /* its handler has it */
    EXCHANGE_FLUSHING,  /* libwebsockets has the rest of the answer */
    EXCHANGE_LINGERING, /* answered; what the peer still sends is thrown away until it closes */
    EXCHANGE_GONE,
};

/* The headers that are looked at, beside those that the parser heeds. */
enum header { HEADER_OTHER, HEADER_CONVERSATION, HEADER_EXPECT };

struct exchange {
    struct link link;  /* of the exchanges */
    struct link woken; /* while is_woken */
    struct http_front *front;
    struct connection *connection;
    struct lws *wsi;
    enum exchange_state state;
    const struct route *route;
    bool is_woken, is_head, is_http_1_0, must_close, is_streaming, is_ended, is_cut;
    bool is_unread; /* the body, or a part of it */
    bool wants_continue;
    int refused_as; /* 0: not refused; else with err */
    struct error err;
    uint64_t begun_ms;
    struct arena arena;
    struct buf body, events, out; /* out begins with SOCKET_ROOM_BYTES */
    const struct exchange_handler *handler;
    void *handler_state;
    const char *conversation_id; /* to answer with */
    char url[URL_MAX_BYTES];     /* NUL-ended; the path once the head is read */
    char conversation[CONVERSATION_NAME_MAX + 2];
    size_t url_len, conversation_len;
    /* While the head is read. */
    enum header header;
    char name[24];
    size_t name_len; /* may be more than there is room for: then it is none of ours */
    bool is_in_value;
};

/* --- connection.c --- */

/* So long it may still be waited for; 0: for ever. The last word counts. */
void connection_set_timeout(struct connection *c, uint64_t timeout_ms);
/* Its exchange has gone, and the connection goes on. */
void connection_go_on(struct connection *c);

/* --- exchange.c --- */

/* A request begins. NULL: no memory. */
struct exchange *exchange_open(struct connection *c);
void exchange_head(struct exchange *x, const http_parser *parser);
/* So much more is announced. False: no more of it, please. */
bool exchange_expect(struct exchange *x, uint64_t n_bytes);
bool exchange_more(struct exchange *x, const char *data, size_t len);
void exchange_whole(struct exchange *x);
/* What came is no request. */
void exchange_damaged(struct exchange *x, const char *why);
/* The connection has gone. */
void exchange_gone(struct exchange *x);

#endif
