/* The connection's interface to an exchange. */
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

struct access_key;
struct gunzip;
struct exchange_handler;

enum { PROOF_MAX_BYTES = 512 }; /* of Authorization and of X-Api-Key */
enum { TARGET_MAX_BYTES = 8000, CONVERSATION_NAME_MAX = 64 };
enum { KEEP_ALIVE_MS = 120 * 1000, HEAD_MAX_BYTES = 16 << 10, ASKED_MAX_BYTES = 1024 };
enum { CODING_MAX_BYTES = 15, ACCEPTS_MAX_BYTES = 255, KNOWN_MAX_BYTES = 255 };
enum { KEY_MAX_BYTES = 255, LAST_EVENT_MAX_BYTES = 4096 };

/* Where an exchange's answer goes: the part of its connection that it needs. */
struct exchange_sink {
    struct lws *wsi;
    bool is_admin;  /* its connection came to the address of administration */
    bool is_http_2; /* of many streams: an answer's end is not the connection's, nor in chunks */
    /* Closes the connection unless something happens within timeout_ms; 0: never. Each call
     * replaces the previous time-out. */
    void (*set_timeout)(struct exchange_sink *sink, uint64_t timeout_ms);
    /* The exchange is freed after this call. */
    void (*on_close)(struct exchange_sink *sink);
    /* The exchange is freed, and the next request may come. */
    void (*resume)(struct exchange_sink *sink);
    /* As of a socket (socket.h), which it is for HTTP/1. */
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
};

struct exchange {
    struct link link;     /* of the exchanges */
    struct link notified; /* while is_notified */
    struct http_front *front;
    struct exchange_sink *sink;
    enum exchange_state state;
    const struct route *route;
    struct route made; /* what route points to, where no table has it */
    bool is_notified, is_http_1_0, must_close, is_streaming, is_ended, is_cut;
    bool is_unread; /* the body or a part of it was not read */
    bool wants_continue;
    bool is_of_page; /* of an allowed page, so the answer has CORS headers */
    int refused_as;  /* 0: not refused; else with err */
    struct error err;
    uint64_t begun_ms;
    struct arena arena;
    struct buf body, events, out; /* out begins with SOCKET_ROOM_BYTES */
    const struct exchange_handler *handler;
    void *handler_state;
    const char *conversation_id; /* to answer with */
    const char *unenforced;      /* likewise; NULL: none */
    const char *stream_type;     /* NULL: text/event-stream */
    enum method method;          /* 0: none was read */
    const char *method_name;     /* static; NULL likewise */
    char *path;                  /* decoded; in the arena. NULL: none was read */
    const char *query;           /* as it came; NULL: none */
    size_t coded_slash; /* where path has the first slash that came as %2F; SIZE_MAX: none */
    char conversation[CONVERSATION_NAME_MAX + 2];
    size_t conversation_len;
    char host[ORIGIN_MAX_BYTES + 1], origin[ORIGIN_MAX_BYTES + 2]; /* "": none */
    size_t origin_len;
    bool is_chunked, has_length; /* the body: in chunks (in HTTP/2: of unknown length), or of */
    uint64_t length;             /* so many bytes */
    bool says_close, says_keep;  /* Connection */
    struct buf asked;            /* headers that a page wants to send */
    int status;                  /* of the answer; 0: none yet */
    struct request_id request_id;
    char coding[CODING_MAX_BYTES + 2], accepts[ACCEPTS_MAX_BYTES + 1];
    size_t coding_len, accepts_len;
    bool wants_html;                 /* Accept names text/html */
    char known[KNOWN_MAX_BYTES + 1]; /* If-None-Match */
    size_t known_len;
    struct gunzip *gunzip; /* reads the body; NULL: it is plain */
    bool has_key, has_last_event;
    char key[KEY_MAX_BYTES + 2]; /* Idempotency-Key; one that is too long is cut a byte later */
    size_t key_len;
    struct buf last_event;             /* Last-Event-ID */
    const char *kept[N_KEPT_HEADERS];  /* in the arena; NULL: has not come */
    struct buf authorization, api_key; /* while the head is read, and where keys are configured */
    const struct access_key *access; /* NULL until the head is read, and while it is not admitted */
    uint32_t seen;                   /* headers that have come: bits 1 << enum header */
};

/* A request begins. NULL: no memory. */
struct exchange *exchange_open(struct http_front *f, struct exchange_sink *sink);
/* The head is read, or malformed. */
void exchange_head(struct exchange *x);
/* The peer announces n_bytes more. False: too many, stop reading. */
bool exchange_expect(struct exchange *x, uint64_t n_bytes);
bool exchange_more(struct exchange *x, const char *data, size_t len);
void exchange_whole(struct exchange *x);
/* The body is malformed: the request was refused (head_refuse). */
void exchange_stop(struct exchange *x);
/* The connection is closed. */
void exchange_close(struct exchange *x);

/* For exchanges.c. Serves an exchange of the front's list of notified ones, which it leaves; x may
 * be freed. */
void exchange_serve(struct exchange *x);
/* The server drains: tells the handler, if there is one and the answer has not ended. */
void exchange_tell_drain(struct exchange *x);
/* Ends the exchange with err, which is copied. A request that is not whole yet is not waited for:
 * what comes of it is discarded. */
void exchange_end_with(struct exchange *x, const struct error *err);

#endif
