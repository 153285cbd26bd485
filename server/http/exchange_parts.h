/* An exchange as its connection sees it: how the connection gives it a request's parts, and where
 * its answer goes. Loop. */
#ifndef SERVER_HTTP_EXCHANGE_PARTS_H
#define SERVER_HTTP_EXCHANGE_PARTS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/status.h"
#include "server/http/front.h"
#include "server/http/kept_header.h"
#include "server/http/request_id.h"
#include "server/http/route.h"
#include "server/http/upgrade_head.h"

struct access_key;
struct gunzip;
struct websocket;
struct exchange_handler;

enum { PROOF_MAX_BYTES = 512 }; /* the most bytes of Authorization and of X-Api-Key */
#define HTTP_BASE "/v1"         /* the end of clients' base URLs */
enum { TARGET_MAX_BYTES = 8000, CONVERSATION_NAME_MAX = 64 };
enum { KEEP_ALIVE_MS = 120 * 1000, HEAD_MAX_BYTES = 16 << 10, ASKED_MAX_BYTES = 1024 };
enum { CODING_MAX_BYTES = 15, ACCEPTS_MAX_BYTES = 255, KNOWN_MAX_BYTES = 255 };
enum { KEY_MAX_BYTES = 255, LAST_EVENT_MAX_BYTES = 4096 };

/* The part of a connection that an exchange needs for its answer. */
struct exchange_sink {
    struct lws *wsi;
    bool is_admin; /* the connection came to the address of administration */
    /* The connection has many streams: an answer has no chunks, and its end is not the
     * connection's.
     */
    bool is_http_2;
    /* Closes the connection unless something happens within timeout_ms; 0: never. Each call
     * replaces the previous time-out. */
    void (*set_timeout)(struct exchange_sink *sink, uint64_t timeout_ms);
    /* Says that the connection is closed. The exchange is freed afterwards. */
    void (*on_close)(struct exchange_sink *sink);
    /* Says that the exchange is freed and the next request may come. */
    void (*resume)(struct exchange_sink *sink);
    /* Says that the exchange is freed, and that the connection is the WebSocket's, which the
     * connection takes. NULL with HTTP/2. */
    void (*upgrade)(struct exchange_sink *sink, struct websocket *w);
    /* The functions of a socket (socket.h). With HTTP/1 they are the socket's own. */
    bool (*write)(struct exchange_sink *sink, char *data, size_t len);
    bool (*is_choked)(const struct exchange_sink *sink);
    void (*shut)(struct exchange_sink *sink);
    void (*close)(struct exchange_sink *sink);
};

enum exchange_state {
    EXCHANGE_READING,   /* head and body are being read */
    EXCHANGE_DUE,       /* complete, or not to be read further: ready to be served */
    EXCHANGE_ANSWERING, /* its handler has it */
    EXCHANGE_FLUSHING,  /* libwebsockets has the rest of the answer */
    EXCHANGE_LINGERING, /* answered; the peer's further bytes are discarded until it closes */
    EXCHANGE_CLOSED,
};

/* The headers that are read. */
enum header {
    HEADER_CONVERSATION,
    HEADER_EXPECT,
    HEADER_HOST,
    HEADER_ORIGIN,
    HEADER_ASKED, /* Access-Control-Request-Headers */
    HEADER_KEY,   /* Idempotency-Key */
    HEADER_LAST_EVENT,
    HEADER_AUTHORIZATION,
    HEADER_API_KEY,
    HEADER_REQUEST_ID,
    HEADER_CODING,         /* Content-Encoding */
    HEADER_ACCEPTS,        /* Accept-Encoding */
    HEADER_WANTED,         /* Accept */
    HEADER_KNOWN,          /* If-None-Match */
    HEADER_TYPE,           /* Content-Type */
    HEADER_TIMEOUT,        /* Connect-Timeout-Ms */
    HEADER_PROTOCOL,       /* Connect-Protocol-Version */
    HEADER_MESSAGE_CODING, /* Connect-Content-Encoding */
    HEADER_LENGTH,         /* Content-Length */
    HEADER_TRANSFER,       /* Transfer-Encoding */
    HEADER_CONNECTION,
    HEADER_UPGRADE,
    HEADER_WEBSOCKET_KEY,      /* Sec-WebSocket-Key */
    HEADER_WEBSOCKET_VERSION,  /* Sec-WebSocket-Version */
    HEADER_WEBSOCKET_PROTOCOL, /* Sec-WebSocket-Protocol */
};

struct exchange {
    struct link link;     /* in the front's list of exchanges */
    struct link notified; /* in the front's list of notified ones, while is_notified */
    struct http_front *front;
    struct exchange_sink *sink;
    enum exchange_state state;
    const struct route *route;
    struct route made; /* the route itself where no table has it: route points here */
    bool is_notified, is_http_1_0, must_close, is_streaming, is_ended, is_cut;
    bool is_unread; /* the body or a part of it was not read */
    bool wants_continue;
    bool is_of_page; /* an allowed web page asks, so the answer has CORS headers */
    int refused_as;  /* the HTTP status of a refusal, whose reason is err; 0: not refused */
    struct error err;
    uint64_t begun_ms;
    struct arena arena;
    struct buf body, events, out; /* out begins with SOCKET_ROOM_BYTES */
    const struct exchange_handler *handler;
    void *handler_state;
    struct upgrade_head upgrade;
    struct websocket *websocket; /* the answer is 101, and the connection is its own then */
    const char *conversation_id; /* the answer's X-Conversation-Id */
    const char *unenforced;      /* the answer's X-Parley-Unenforced; NULL: no such header */
    const char *stream_type;     /* NULL: text/event-stream */
    enum method method;          /* 0: no method was read */
    const char *method_name;     /* static; NULL: no method was read */
    char *path; /* decoded, in the arena, with room for HTTP_BASE before it; NULL: not read */
    const char *query;  /* as it came; NULL: the target has none */
    size_t coded_slash; /* where path has the first slash that came as %2F; SIZE_MAX: none */
    char conversation[CONVERSATION_NAME_MAX + 2];
    size_t conversation_len;
    char host[ORIGIN_MAX_BYTES + 1], origin[ORIGIN_MAX_BYTES + 2]; /* "": none */
    size_t origin_len;
    bool is_chunked;            /* the body is in chunks or, in HTTP/2, of unknown length */
    bool has_length;            /* the body has length bytes */
    uint64_t length;            /* of the body */
    bool says_close, says_keep; /* Connection names close, or keep-alive */
    struct buf asked;           /* the headers that a web page wants to send */
    int status;                 /* the answer's status; 0: there is none yet */
    struct request_id request_id;
    char coding[CODING_MAX_BYTES + 2], accepts[ACCEPTS_MAX_BYTES + 1];
    size_t coding_len, accepts_len;
    bool wants_html;                 /* Accept names text/html */
    char known[KNOWN_MAX_BYTES + 1]; /* If-None-Match */
    size_t known_len;
    struct gunzip *gunzip; /* inflates the body; NULL: the body is not compressed */
    bool has_key, has_last_event;
    char key[KEY_MAX_BYTES + 2]; /* Idempotency-Key; a byte more than the most is kept, to refuse */
    size_t key_len;
    struct buf last_event;             /* Last-Event-ID */
    const char *kept[N_KEPT_HEADERS];  /* in the arena; NULL: the header has not come */
    struct buf authorization, api_key; /* while the head is read, and where keys are configured */
    const struct access_key *access;   /* NULL until the head is read and the caller admitted */
    /* Of a request that another daemon passed on, which has admitted its client; else NULL. */
    const struct access_key *passed_key;
    uint32_t seen; /* the headers that have come: bits 1 << enum header */
};

/* Opens the exchange of a request that begins. NULL without memory. */
struct exchange *exchange_open(struct http_front *f, struct exchange_sink *sink);
/* Says that the head is read, or is malformed. */
void exchange_head(struct exchange *x);
/* Says that the peer announces n_bytes more of the body. Returns false where these are too many:
 * the connection then reads no further. */
bool exchange_expect(struct exchange *x, uint64_t n_bytes);
/* Takes len bytes of the body. Returns false where the connection reads no further. */
bool exchange_more(struct exchange *x, const char *data, size_t len);
/* Says that the body is whole. */
void exchange_whole(struct exchange *x);
/* Says that the body is malformed; head_refuse has refused the request. */
void exchange_stop(struct exchange *x);
/* Says that the connection is closed. */
void exchange_close(struct exchange *x);

/* Serves an exchange of the front's list of notified ones, which the exchange leaves. x may be
 * freed inside. Called by exchanges.c. */
void exchange_serve(struct exchange *x);
/* Tells the exchange's handler that the server drains, if there is a handler and the answer has not
 * ended. */
void exchange_tell_drain(struct exchange *x);
/* Ends the exchange with err, which is copied. Where the request is not whole yet, the rest of it
 * is discarded as it comes. */
void exchange_end_with(struct exchange *x, const struct error *err);

#endif
