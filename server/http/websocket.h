/* A WebSocket (RFC 6455) on a connection that upgrade.h has upgraded. Messages come in whole.
 * Messages out are pulled: whenever the socket takes bytes, on_write_ready sends the next ones, so
 * nothing is queued for a peer that does not read. There is no compression. All functions are
 * called on the loop. */
#ifndef SERVER_HTTP_WEBSOCKET_H
#define SERVER_HTTP_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct http_front;
struct lws;
struct websocket;

/* Codes of a close frame. */
enum {
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_PROTOCOL = 1002,
    WEBSOCKET_UNSUPPORTED = 1003, /* a binary message */
    WEBSOCKET_NO_CODE = 1005,     /* never on the wire: the peer's frame had no code */
    WEBSOCKET_NOT_UTF8 = 1007,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_TOO_BIG = 1009,
    WEBSOCKET_INTERNAL = 1011,
};

enum {
    WEBSOCKET_MAX_FRAGMENTS = 1024, /* of a message: each costs memory beside its bytes */
    WEBSOCKET_PING_MS = 20 * 1000,  /* after so long without a byte of the peer a ping is sent */
    WEBSOCKET_DEAD_MS = 60 * 1000,  /* after so long, two pings, the peer is gone */
    WEBSOCKET_TAKE_MS = 30 * 1000,  /* a peer that takes no bytes for so long is cut off */
    WEBSOCKET_LINGER_MS = 2000,     /* the peer's part of a close is awaited so long */
};

struct websocket_handler {
    size_t max_message_bytes;
    const char *protocol; /* the subprotocol, which a client that offers any must offer; NULL: none
                             is chosen */
    bool takes_binary;    /* false: a binary message ends the WebSocket with 1003 */
    /* The first message must come within first_ms, or the WebSocket ends with this code and
     * sentence. 0: it need not. */
    unsigned first_ms, first_code;
    const char *first_why;
    /* Takes a message, borrowed; text is UTF-8. May call any of the functions below; what it sends
     * is an answer, about as large as the message. */
    void (*on_message)(struct websocket *w, void *state, const char *data, size_t len,
                       bool is_text);
    /* Called after websocket_notify, when the socket takes bytes: sends messages, some 64 KiB at
     * most, and calls websocket_notify if there are more. */
    void (*on_write_ready)(struct websocket *w, void *state);
    /* Called when the WebSocket is over, for whatever reason. state is not used afterwards. May be
     * NULL. */
    void (*on_close)(struct websocket *w, void *state);
};

/* Has on_write_ready called later, not inside this call. The first call is made without it. */
void websocket_notify(struct websocket *w);
/* Sends a message, inside on_write_ready or on_message only. What is sent before the socket takes
 * it has 1 MiB together: more cuts the connection. Nothing is sent once the WebSocket ends.
 * EXHAUSTED: there is no memory, and the WebSocket ends with 1011. */
enum status websocket_send(struct websocket *w, const char *data, size_t len,
                           bool is_text) MUST_CHECK;
/* Ends the WebSocket with a code and a sentence, of which a frame takes 123 bytes. Messages that
 * were sent before arrive; nothing more is read. The first call counts. */
void websocket_end(struct websocket *w, unsigned code, const char *why);

/* --- for its connection --- */

/* Makes a WebSocket that begins later. The handler is static; state goes to on_close. NULL without
 * memory: then on_close is not called. */
struct websocket *websocket_open(struct http_front *front, const struct websocket_handler *handler,
                                 void *state);
/* Says that the upgrade was answered: frames go to the socket from now on. */
void websocket_begin(struct websocket *w, struct lws *wsi);
void websocket_read(struct websocket *w, const char *data, size_t len);
/* Called every now and then. Returns false if the connection is to be closed. */
bool websocket_sweep(struct websocket *w, uint64_t now_ms);
/* Calls on_close, and frees w. NULL is fine. */
void websocket_close(struct websocket *w);
/* Sends for the WebSockets that were notified before this call. */
void websocket_flush_due(struct http_front *f);

#endif
