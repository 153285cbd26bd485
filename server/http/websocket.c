/* wslay cuts bytes into messages, checks them, and answers pings and closes; what it writes is
 * collected, and written once per turn of the loop. Our own are limits, pings, time-outs, and the
 * sentence of each close frame, for which wslay has the code alone.
 *
 * Failures: a frame or message that is not allowed ends the WebSocket with a code and a sentence.
 * Then our side is shut, and what still comes is discarded for a moment, since closing at once
 * would lose the frame. A peer that is silent, or takes nothing, is cut off. */
#include "server/http/websocket.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/utf8.h"
#include "server/http/front.h"
#include "server/http/socket.h"

enum {
    SLICE_BYTES =
        4096, /* after so many bytes in, what they caused goes out: pongs do not pile up */
    OUT_MAX_BYTES = 1 << 20,
    WHY_MAX_BYTES = 123, /* of a close frame's sentence */
    CLOSE_BYTE = 0x80 | WSLAY_CONNECTION_CLOSE,
};

static const char broken[] = "a frame breaks the protocol of WebSocket (RFC 6455)";

struct websocket {
    struct link due; /* in the front's list of those to be flushed */
    struct http_front *front;
    struct lws *wsi; /* NULL until it begins */
    const struct websocket_handler *handler;
    void *state;
    wslay_event_context_ptr wslay;
    const uint8_t *in; /* [n_in] bytes of the peer, while they are read */
    size_t n_in;
    struct buf out;       /* begins with SOCKET_ROOM_BYTES */
    uint64_t begun_ms;    /* when it began; 0: a message has come since */
    uint64_t heard_ms;    /* when the peer's last byte came */
    uint64_t stuck_ms;    /* since when the socket takes nothing; 0: it does */
    uint64_t until_ms;    /* it is over then; 0: it does not end yet */
    unsigned n_pings;     /* since heard_ms */
    unsigned n_fragments; /* of the message that comes in */
    size_t n_wrong_close; /* of the peer's close frame whose sentence is not UTF-8; 0: none came */
    bool has_ended;       /* our close frame was queued by us, not by wslay */
    bool is_shut;         /* our side is shut: all is sent */
    bool is_over;         /* the next sweep closes the connection */
};

static uint64_t websocket_now_ms(const struct websocket *w)
{
    return front_now_ms(w->front);
}

/* --- wslay's callbacks --- */

static ssize_t on_wslay_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags,
                             void *arg)
{
    struct websocket *w = arg;
    size_t n = len < w->n_in ? len : w->n_in;

    if (n == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(buf, w->in, n);
    w->in += n;
    w->n_in -= n;
    return (ssize_t)n;
}

static ssize_t on_wslay_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len,
                             int flags, void *arg)
{
    static const char room[SOCKET_ROOM_BYTES];
    struct websocket *w = arg;

    if ((w->out.len == 0 && buf_append(&w->out, room, sizeof(room)) != STATUS_OK) ||
        buf_append(&w->out, data, len) != STATUS_OK) {
        wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    return (ssize_t)len;
}

static void on_wslay_frame(wslay_event_context_ptr ctx,
                           const struct wslay_event_on_frame_recv_start_arg *frame, void *arg)
{
    struct websocket *w = arg;

    if (frame->opcode == WSLAY_CONNECTION_CLOSE && frame->payload_length == 1)
        websocket_end(w, WEBSOCKET_PROTOCOL, broken); /* half a code, which wslay takes for none */
    if (wslay_is_ctrl_frame(frame->opcode))
        return;
    w->n_fragments = frame->opcode == WSLAY_CONTINUATION_FRAME ? w->n_fragments + 1 : 1;
    if (w->n_fragments > WEBSOCKET_MAX_FRAGMENTS)
        websocket_end(w, WEBSOCKET_POLICY, "a message has too many fragments");
}

static void on_wslay_message(wslay_event_context_ptr ctx,
                             const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
    struct websocket *w = arg;
    const bool is_text = m->opcode == WSLAY_TEXT_FRAME;

    if (m->opcode == WSLAY_CONNECTION_CLOSE && m->msg_length > 2 &&
        !utf8_is_valid((const char *)m->msg + 2, m->msg_length - 2))
        w->n_wrong_close = 2 + m->msg_length;
    if (wslay_is_ctrl_frame(m->opcode) || w->has_ended)
        return;
    w->begun_ms = 0;
    if (is_text || w->handler->takes_binary)
        w->handler->on_message(w, w->state, m->msg_length == 0 ? "" : (const char *)m->msg,
                               m->msg_length, is_text);
    else
        websocket_end(w, WEBSOCKET_UNSUPPORTED, "a binary message came: messages are text");
}

/* --- the end --- */

/* Cuts a sentence to what a close frame takes, between characters. */
static size_t why_len(const char *why)
{
    const size_t n = strnlen(why, WHY_MAX_BYTES + 1);

    return n <= WHY_MAX_BYTES ? n : utf8_complete_len(why, WHY_MAX_BYTES);
}

void websocket_end(struct websocket *w, unsigned code, const char *why)
{
    if (w->has_ended || w->is_over)
        return;
    w->has_ended = true;
    /* Fails also where wslay has ended already. Without memory for the frame it is over at once. */
    if (wslay_event_queue_close(w->wslay, (uint16_t)code, (const uint8_t *)why, why_len(why)) ==
        WSLAY_ERR_NOMEM)
        w->is_over = true;
    wslay_event_shutdown_read(w->wslay);
    websocket_notify(w);
}

static const char *why_of(const struct websocket *w, unsigned code, char *room, size_t size)
{
    switch (code) {
    case WEBSOCKET_TOO_BIG:
        (void)snprintf(room, size, "a message has at most %zu bytes",
                       w->handler->max_message_bytes);
        return room;
    case WEBSOCKET_NOT_UTF8:
        return "a text is not UTF-8";
    case WEBSOCKET_INTERNAL:
        return "the server has no memory for this";
    default:
        return broken;
    }
}

/* wslay has written a close frame of so many bytes, the last of out: ours, with a sentence, takes
 * its place. */
static void websocket_explain(struct websocket *w, unsigned code, size_t theirs)
{
    char room[WHY_MAX_BYTES + 1];
    const char *why = why_of(w, code, room, sizeof(room));
    const size_t n = why_len(why);
    unsigned char head[4] = {CLOSE_BYTE, (unsigned char)(2 + n), (unsigned char)(code >> 8),
                             (unsigned char)code};

    assert(w->out.len >= theirs && (unsigned char)w->out.data[w->out.len - theirs] == CLOSE_BYTE);
    w->out.len -= theirs;
    w->has_ended = true;
    if (buf_append(&w->out, head, sizeof(head)) != STATUS_OK ||
        buf_append(&w->out, why, n) != STATUS_OK)
        w->is_over = true;
}

/* Of a close frame that wslay has sent by itself: it has a code or none. */
static void websocket_check_close(struct websocket *w)
{
    const unsigned sent = wslay_event_get_status_code_sent(w->wslay);

    if (w->n_wrong_close > 0)
        websocket_explain(w, WEBSOCKET_NOT_UTF8, w->n_wrong_close);
    else if (wslay_event_get_close_received(w->wslay))
        return; /* it answers the peer's */
    else if (sent == 0 || sent == WEBSOCKET_NO_CODE)
        websocket_explain(w, WEBSOCKET_PROTOCOL, 2);
    else
        websocket_explain(w, sent, 4);
}

/* Collects what wslay has queued. */
static void websocket_pump(struct websocket *w)
{
    const bool may_end = !w->has_ended && !wslay_event_get_close_sent(w->wslay);

    if (w->is_over)
        return;
    if (wslay_event_send(w->wslay) != 0)
        w->is_over = true; /* without memory */
    else if (may_end && wslay_event_get_close_sent(w->wslay))
        websocket_check_close(w);
    if (w->until_ms == 0 && wslay_event_get_close_sent(w->wslay))
        w->until_ms = websocket_now_ms(w) + WEBSOCKET_LINGER_MS;
}

/* Writes what was collected, once the socket takes bytes. */
static void websocket_write(struct websocket *w)
{
    if (w->is_over || socket_is_choked(w->wsi))
        return;
    if (w->out.len > SOCKET_ROOM_BYTES &&
        !socket_write(w->wsi, w->out.data + SOCKET_ROOM_BYTES, w->out.len - SOCKET_ROOM_BYTES))
        w->is_over = true;
    buf_deinit(&w->out); /* an idle one holds no memory */
    if (socket_is_choked(w->wsi)) {
        if (w->stuck_ms == 0)
            w->stuck_ms = websocket_now_ms(w);
    } else if (w->until_ms != 0 && !w->is_shut && !w->is_over) {
        w->is_shut = true;
        socket_shut(w->wsi);
    }
}

/* --- sending --- */

void websocket_notify(struct websocket *w)
{
    struct http_front *f = w->front;

    if (w->wsi == NULL || link_is_on(&w->due))
        return;
    if (front_is_served(f))
        f->stay_awake(f);
    list_push(&f->websockets_due, &w->due);
}

static enum status websocket_queue(struct websocket *w, uint8_t opcode, const char *data,
                                   size_t len)
{
    const struct wslay_event_msg message = {opcode, (const uint8_t *)data, len};
    const int rc = wslay_event_queue_msg(w->wslay, &message);

    if (rc == 0)
        websocket_pump(w); /* at once: a close frame would overtake it */
    else if (rc == WSLAY_ERR_NOMEM)
        websocket_end(w, WEBSOCKET_INTERNAL, "the server has no memory for a message");
    return rc == WSLAY_ERR_NOMEM || w->is_over ? STATUS_EXHAUSTED : STATUS_OK;
}

enum status websocket_send(struct websocket *w, const char *data, size_t len, bool is_text)
{
    return websocket_queue(w, is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, data, len);
}

static void websocket_flush(struct websocket *w)
{
    if (w->is_over || socket_is_choked(w->wsi))
        return; /* the connection says when it takes bytes again */
    w->stuck_ms = 0;
    if (!w->has_ended && wslay_event_get_write_enabled(w->wslay))
        w->handler->on_write_ready(w, w->state);
    websocket_pump(w);
    websocket_write(w);
}

void websocket_flush_due(struct http_front *f)
{
    struct list due;
    struct link *at;

    list_init(&due);
    list_move(&f->websockets_due, &due);
    while ((at = list_pop(&due)) != NULL)
        websocket_flush(container_of(at, struct websocket, due));
}

/* --- reading --- */

void websocket_read(struct websocket *w, const char *data, size_t len)
{
    w->heard_ms = websocket_now_ms(w);
    w->n_pings = 0;
    while (len > 0 && !w->is_over && wslay_event_get_read_enabled(w->wslay)) {
        const size_t n = len < SLICE_BYTES ? len : SLICE_BYTES;

        w->in = (const uint8_t *)data;
        w->n_in = n;
        if (wslay_event_recv(w->wslay) == WSLAY_ERR_NOMEM)
            w->is_over = true; /* any other failure has queued a close frame */
        data += n;
        len -= n;
        websocket_pump(w);
    }
    w->in = NULL;
    w->n_in = 0;
    if (w->out.len > 0)
        websocket_notify(w);
}

bool websocket_sweep(struct websocket *w, uint64_t now_ms)
{
    const uint64_t silent_ms = now_ms - w->heard_ms;

    if (w->is_over || (w->until_ms != 0 && now_ms >= w->until_ms) ||
        (w->stuck_ms != 0 && now_ms - w->stuck_ms >= WEBSOCKET_TAKE_MS) ||
        silent_ms >= WEBSOCKET_DEAD_MS)
        return false;
    if (w->begun_ms != 0 && w->handler->first_ms != 0 &&
        now_ms - w->begun_ms >= w->handler->first_ms)
        websocket_end(w, w->handler->first_code, w->handler->first_why);
    if (w->until_ms == 0 && silent_ms >= (w->n_pings + 1) * (uint64_t)WEBSOCKET_PING_MS) {
        w->n_pings++;
        if (websocket_queue(w, WSLAY_PING, "", 0) == STATUS_OK)
            websocket_notify(w);
    }
    return true;
}

/* --- lifetime --- */

struct websocket *websocket_open(struct http_front *front, const struct websocket_handler *handler,
                                 void *state)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_wslay_recv,
        .send_callback = on_wslay_send,
        .on_frame_recv_start_callback = on_wslay_frame,
        .on_msg_recv_callback = on_wslay_message,
    };
    struct websocket *w = try_alloc(1, sizeof(*w));

    if (w == NULL)
        return NULL;
    link_init(&w->due);
    w->front = front;
    w->handler = handler;
    w->state = state;
    buf_init(&w->out, OUT_MAX_BYTES);
    if (wslay_event_context_server_init(&w->wslay, &callbacks, w) != 0) {
        free(w);
        return NULL;
    }
    wslay_event_config_set_max_recv_msg_length(w->wslay, handler->max_message_bytes);
    return w;
}

void websocket_begin(struct websocket *w, struct lws *wsi)
{
    w->wsi = wsi;
    w->heard_ms = w->begun_ms = websocket_now_ms(w);
    websocket_notify(w);
}

void websocket_close(struct websocket *w)
{
    if (w == NULL)
        return;
    w->is_over = true;
    if (w->handler->on_close != NULL)
        w->handler->on_close(w, w->state);
    if (link_is_on(&w->due))
        list_remove(&w->due);
    wslay_event_context_free(w->wslay);
    buf_deinit(&w->out);
    free(w);
}
