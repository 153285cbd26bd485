/* Parses a socket's bytes into requests, one at a time: bytes behind a request wait while it is
 * answered. Reading continues, since only a read shows that the peer has hung up. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/front.h"
#include "server/http/http1.h"
#include "server/http/http2.h"
#include "server/http/socket.h"
#include "server/http/websocket.h"

enum { BEHIND_BYTES = 64 << 10, BEHIND_MAX_BYTES = 1 << 20 };

/* A socket with its parser and its current request. */
struct connection {
    struct link link;  /* of the front's connections */
    uint64_t until_ms; /* it is closed then, if nothing happens before; 0: never */
    struct http_front *front;
    struct exchange_sink sink; /* of its exchange; holds the socket */
    struct exchange *exchange; /* NULL: waiting for a request */
    struct http1 http1;
    struct buf behind;           /* bytes behind the request that is being answered */
    bool is_paused;              /* behind is full, so reading has stopped */
    bool has_begun;              /* it is known which HTTP it speaks */
    struct http2 *http2;         /* NULL: HTTP/1 */
    struct websocket *websocket; /* NULL: the connection was not upgraded */
};

static void connection_set_timeout(struct connection *c, uint64_t timeout_ms)
{
    c->until_ms = timeout_ms == 0 ? 0 : front_now_ms(c->front) + timeout_ms;
}

enum { UNTIL_NEXT_SWEEP = 1 };

/* The next sweep closes it: not inside the socket's call. */
static void close_soon(struct connection *c)
{
    c->until_ms = UNTIL_NEXT_SWEEP;
}

static void connection_sweep_http2(struct connection *c, bool is_draining)
{
    if (c->until_ms == UNTIL_NEXT_SWEEP)
        return;
    if (is_draining)
        http2_drain(c->http2);
    if (!http2_sweep(c->http2, front_now_ms(c->front)))
        close_soon(c);
    else if (!http2_is_idle(c->http2))
        c->until_ms = 0; /* its streams have their own */
    else if (c->until_ms == 0)
        connection_set_timeout(c, KEEP_ALIVE_MS);
}

/* A request that is on its way to us is answered: closing would reset it. */
static bool connection_is_idle(const struct connection *c)
{
    return c->exchange == NULL && c->websocket == NULL && c->behind.len == 0 &&
           !socket_has_unread(c->sink.wsi);
}

static void connection_sweep_websocket(struct connection *c, bool is_draining)
{
    if (is_draining)
        websocket_end(c->websocket, WEBSOCKET_GOING_AWAY, "the server is stopping");
    if (!websocket_sweep(c->websocket, front_now_ms(c->front)))
        socket_close(c->sink.wsi);
}

static void close_where(struct http_front *f, uint64_t now, bool idle)
{
    struct link *at = list_first(&f->connections), *next;

    for (; at != NULL; at = next) {
        struct connection *c = container_of(at, struct connection, link);

        next = list_next(&f->connections, at);
        if (c->websocket != NULL) {
            connection_sweep_websocket(c, idle);
            continue;
        }
        if (c->http2 != NULL) {
            connection_sweep_http2(c, idle);
            if (idle)
                continue; /* it is closed once its streams have ended */
        }
        if (idle ? connection_is_idle(c) : c->until_ms != 0 && c->until_ms <= now)
            socket_close(c->sink.wsi);
    }
}

void front_sweep(struct http_front *f)
{
    close_where(f, front_now_ms(f), false);
}

void front_close_idle(struct http_front *f)
{
    close_where(f, 0, true);
}

void front_abandon(struct http_front *f)
{
    struct link *at = list_first(&f->connections), *next;

    for (; at != NULL; at = next) {
        next = list_next(&f->connections, at);
        socket_close(container_of(at, struct connection, link)->sink.wsi);
    }
}

void front_spare(struct http_front *f, bool is_admin)
{
    for (struct link *at = list_first(&f->connections); at != NULL;
         at = list_next(&f->connections, at)) {
        struct connection *c = container_of(at, struct connection, link);

        if (c->sink.is_admin != is_admin ||
            !(c->http2 != NULL ? http2_is_idle(c->http2) : connection_is_idle(c)))
            continue;
        socket_close(c->sink.wsi);
        return;
    }
}

void connection_write_ready(struct connection *c)
{
    if (c->http2 != NULL && !http2_flush(c->http2))
        close_soon(c);
    if (c->websocket != NULL)
        websocket_notify(c->websocket);
    if (c->exchange != NULL)
        exchange_notify(c->exchange);
}

void connection_close(struct connection *c)
{
    if (c->exchange != NULL)
        exchange_close(c->exchange);
    http2_close(c->http2);
    websocket_close(c->websocket);
    list_remove(&c->link);
    c->front->n_connections--;
    http1_deinit(&c->http1);
    buf_deinit(&c->behind);
    free(c);
}

/* Keeps bytes until the current request is answered. */
static void keep_behind(struct connection *c, const char *data, size_t len)
{
    if (len > 0 && buf_append(&c->behind, data, len) != STATUS_OK) {
        close_soon(c);
        return;
    }
    if (c->behind.len >= BEHIND_BYTES && !c->is_paused) {
        c->is_paused = true;
        socket_pause(c->sink.wsi, true);
    }
}

/* Reads a request, or its part; returns the number of bytes behind it. */
static size_t parse(struct connection *c, const char *data, size_t len)
{
    size_t used = 0;

    if (c->exchange == NULL) {
        while (used + 1 < len && data[used] == '\r' && data[used + 1] == '\n')
            used += 2; /* some clients end a body so */
        if (used == len)
            return 0;
        c->exchange = exchange_open(c->front, &c->sink);
    }
    if (c->exchange == NULL) {
        close_soon(c); /* no memory for an error */
        return 0;
    }
    used += http1_read(&c->http1, c->exchange, data + used, len - used);
    return c->exchange->must_close ? 0 : len - used; /* what comes behind is not read */
}

static void on_over(void *arg)
{
    close_soon(arg);
}

static void connection_read_http2(struct connection *c, const char *data, size_t len)
{
    if (c->until_ms == UNTIL_NEXT_SWEEP)
        return;                               /* it is over */
    connection_set_timeout(c, KEEP_ALIVE_MS); /* the sweep lifts it while there are streams */
    if (!http2_read(c->http2, data, len))
        close_soon(c);
}

/* Whether the first bytes may still become the preface of HTTP/2, or are: those are kept until all
 * of it is there, and then taken. False: it is HTTP/1, and all that came is behind. */
static bool connection_takes_preface(struct connection *c, const char *data, size_t len)
{
    struct buf first;

    if (buf_append(&c->behind, data, len) != STATUS_OK) {
        close_soon(c);
        return true;
    }
    if (memcmp(c->behind.data, HTTP2_PREFACE,
               c->behind.len < HTTP2_PREFACE_BYTES ? c->behind.len : HTTP2_PREFACE_BYTES) != 0)
        return false;
    if (c->behind.len < HTTP2_PREFACE_BYTES)
        return true;
    c->http2 = http2_open(c->front, c->sink.wsi, c->sink.is_admin, on_over, c);
    first = c->behind;
    buf_init(&c->behind, BEHIND_MAX_BYTES);
    if (c->http2 == NULL)
        close_soon(c);
    else
        connection_read_http2(c, first.data, first.len);
    buf_deinit(&first);
    return true;
}

static void connection_read_http1(struct connection *c, const char *data, size_t len);

void connection_read(struct connection *c, const char *data, size_t len)
{
    struct buf first;

    if (c->websocket != NULL) {
        websocket_read(c->websocket, data, len);
    } else if (c->http2 != NULL) {
        connection_read_http2(c, data, len);
    } else if (c->has_begun || len == 0) {
        connection_read_http1(c, data, len);
    } else if (c->behind.len == 0 && data[0] != HTTP2_PREFACE[0]) {
        c->has_begun = true;
        connection_read_http1(c, data, len);
    } else if (!connection_takes_preface(c, data, len)) {
        c->has_begun = true;
        first = c->behind;
        buf_init(&c->behind, BEHIND_MAX_BYTES);
        connection_read_http1(c, first.data, first.len);
        buf_deinit(&first);
    }
}

static void connection_read_http1(struct connection *c, const char *data, size_t len)
{
    size_t left;

    if (c->exchange != NULL && c->exchange->state != EXCHANGE_READING) {
        if (c->exchange->state != EXCHANGE_LINGERING && !c->exchange->must_close)
            keep_behind(c, data, len);
        return;
    }
    left = parse(c, data, len);
    if (left > 0)
        keep_behind(c, data + len - left, left);
}

/* --- calls of its exchange --- */

static void on_timeout(struct exchange_sink *sink, uint64_t timeout_ms)
{
    connection_set_timeout(container_of(sink, struct connection, sink), timeout_ms);
}

static void on_exchange_close(struct exchange_sink *sink)
{
    container_of(sink, struct connection, sink)->exchange = NULL;
}

static bool on_write(struct exchange_sink *sink, char *data, size_t len)
{
    return socket_write(sink->wsi, data, len);
}

static bool connection_is_choked(const struct exchange_sink *sink)
{
    return socket_is_choked(sink->wsi);
}

static void on_shut(struct exchange_sink *sink)
{
    socket_shut(sink->wsi);
}

static void on_abort(struct exchange_sink *sink)
{
    socket_close(sink->wsi);
}

static void connection_resume(struct exchange_sink *sink)
{
    struct connection *c = container_of(sink, struct connection, sink);
    struct buf behind = c->behind;
    size_t left;

    connection_set_timeout(c, KEEP_ALIVE_MS);
    if (behind.len > 0) {
        left = parse(c, behind.data, behind.len);
        buf_consume(&c->behind, c->behind.len - left);
    }
    if (c->behind.len == 0)
        buf_deinit(&c->behind); /* an idle connection holds no memory */
    if (c->is_paused && c->behind.len < BEHIND_BYTES) {
        c->is_paused = false;
        socket_pause(c->sink.wsi, false);
    }
}

static void connection_upgrade(struct exchange_sink *sink, struct websocket *w)
{
    struct connection *c = container_of(sink, struct connection, sink);

    c->websocket = w;
    connection_set_timeout(c, 0); /* the WebSocket has its own */
    http1_deinit(&c->http1);
    websocket_begin(w, sink->wsi);
    if (c->behind.len > 0)
        websocket_read(w, c->behind.data, c->behind.len);
    buf_deinit(&c->behind);
    if (c->is_paused) {
        c->is_paused = false;
        socket_pause(c->sink.wsi, false);
    }
}

/* --- lifetime --- */

struct connection *connection_open(struct http_front *f, struct lws *wsi)
{
    struct connection *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->front = f;
    c->sink = (struct exchange_sink){.wsi = wsi,
                                     .set_timeout = on_timeout,
                                     .on_close = on_exchange_close,
                                     .resume = connection_resume,
                                     .upgrade = connection_upgrade,
                                     .write = on_write,
                                     .is_choked = connection_is_choked,
                                     .shut = on_shut,
                                     .close = on_abort};
    http1_init(&c->http1);
    buf_init(&c->behind, BEHIND_MAX_BYTES);
    list_push(&f->connections, &c->link);
    f->n_connections++;
    connection_set_timeout(c, f->config.timeout_ms); /* for its first request to begin */
    return c;
}

void connection_set_admin(struct connection *c)
{
    c->sink.is_admin = true;
}
