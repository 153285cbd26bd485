/* Parses a socket's bytes into requests, one at a time: bytes behind a request wait while it is
 * answered. Reading continues, since only a read shows that the peer has hung up. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/front.h"
#include "server/http/socket.h"

enum { BEHIND_BYTES = 64 << 10, BEHIND_MAX_BYTES = 1 << 20 };

/* A socket with its parser and its current request. */
struct connection {
    struct link link;  /* of the front's connections */
    uint64_t until_ms; /* it is closed then, if nothing happens before; 0: never */
    struct http_front *front;
    struct exchange_sink sink; /* of its exchange; holds the socket */
    struct exchange *exchange; /* NULL: waiting for a request */
    http_parser parser;
    struct buf behind; /* bytes behind the request that is being answered */
    bool is_paused;    /* behind is full, so reading has stopped */
};

static uint64_t connection_now_ms(const struct http_front *f)
{
    return env_now_us(f->config.env) / 1000;
}

static void connection_set_timeout(struct connection *c, uint64_t timeout_ms)
{
    c->until_ms = timeout_ms == 0 ? 0 : connection_now_ms(c->front) + timeout_ms;
}

/* The next sweep closes it: not inside the socket's call. */
static void close_soon(struct connection *c)
{
    c->until_ms = 1;
}

/* --- callbacks of the parser; a non-zero result stops it --- */

static struct exchange *exchange_of(http_parser *p)
{
    const struct connection *c = p->data;

    return c->exchange;
}

static int on_begin(http_parser *p)
{
    struct connection *c = p->data;

    c->exchange = exchange_open(c->front, &c->sink);
    return c->exchange == NULL;
}

/* Longer values are cut: then they match no path, name, conversation or origin. */
static void connection_append(char *out, size_t size, size_t *len, const char *at, size_t n)
{
    size_t room = *len < size - 1 ? size - 1 - *len : 0;

    memcpy(out + *len, at, n < room ? n : room);
    *len += n < room ? n : room;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    connection_append(x->url, sizeof(x->url), &x->url_len, at, len);
    return 0;
}

static int on_name(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    if (x->is_in_value)
        x->name_len = 0;
    x->is_in_value = false;
    connection_append(x->name, sizeof(x->name), &x->name_len, at, len);
    return 0;
}

static enum header header_of(const struct exchange *x)
{
#define NAMED(name) name, sizeof(name) - 1
    static const struct {
        const char *name;
        size_t len;
        enum header header;
    } ours[] = {
        {NAMED("x-conversation-id"), HEADER_CONVERSATION},
        {NAMED("expect"), HEADER_EXPECT},
        {NAMED("host"), HEADER_HOST},
        {NAMED("origin"), HEADER_ORIGIN},
        {NAMED("access-control-request-headers"), HEADER_ASKED},
        {NAMED("idempotency-key"), HEADER_KEY},
        {NAMED("last-event-id"), HEADER_LAST_EVENT},
        {NAMED("authorization"), HEADER_AUTHORIZATION},
        {NAMED("x-api-key"), HEADER_API_KEY},
        {NAMED("x-request-id"), HEADER_REQUEST_ID},
        {NAMED("content-encoding"), HEADER_CODING},
        {NAMED("accept-encoding"), HEADER_ACCEPTS},
    };
#undef NAMED

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (ours[i].len == x->name_len && strncasecmp(ours[i].name, x->name, x->name_len) == 0)
            return ours[i].header;
    }
    return HEADER_OTHER;
}

/* One that is too long is cut: it is no key then. */
static void connection_append_proof(const struct exchange *x, struct buf *out, const char *at,
                                    size_t len)
{
    size_t room = PROOF_MAX_BYTES - out->len;

    if (x->front->config.access != NULL) /* without memory the key is not admitted */
        (void)!buf_append(out, at, len < room ? len : room);
}

static int on_value(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    if (!x->is_in_value)
        x->header = header_of(x);
    x->is_in_value = true;
    switch (x->header) {
    case HEADER_CONVERSATION:
        connection_append(x->conversation, sizeof(x->conversation), &x->conversation_len, at, len);
        break;
    case HEADER_EXPECT:
        x->wants_continue = true;
        break;
    case HEADER_HOST:
        connection_append(x->host, sizeof(x->host), &x->host_len, at, len);
        break;
    case HEADER_ORIGIN:
        connection_append(x->origin, sizeof(x->origin), &x->origin_len, at, len);
        break;
    case HEADER_ASKED:
        (void)!buf_append(&x->asked, at, len); /* too long: the page sees fewer allowed headers */
        break;
    case HEADER_KEY:
        x->has_key = true;
        connection_append(x->key, sizeof(x->key), &x->key_len, at, len);
        break;
    case HEADER_LAST_EVENT:
        x->has_last_event = true;
        return buf_append(&x->last_event, at, len) != STATUS_OK; /* half of a place is another */
    case HEADER_AUTHORIZATION:
        connection_append_proof(x, &x->authorization, at, len);
        break;
    case HEADER_API_KEY:
        connection_append_proof(x, &x->api_key, at, len);
        break;
    case HEADER_REQUEST_ID:
        connection_append(x->request_id.text, sizeof(x->request_id.text), &x->request_id.len, at,
                          len);
        break;
    case HEADER_CODING:
        connection_append(x->coding, sizeof(x->coding), &x->coding_len, at, len);
        break;
    case HEADER_ACCEPTS:
        connection_append(x->accepts, sizeof(x->accepts), &x->accepts_len, at, len);
        break;
    case HEADER_OTHER:
        break;
    }
    return 0;
}

static int on_head(http_parser *p)
{
    p->upgrade = 0; /* an Upgrade is an offer that may be ignored */
    exchange_head(exchange_of(p), p);
    return exchange_of(p)->state == EXCHANGE_READING ? 0 : -1;
}

static int on_body(http_parser *p, const char *at, size_t len)
{
    return !exchange_more(exchange_of(p), at, len);
}

static int on_chunk(http_parser *p)
{
    return !exchange_expect(exchange_of(p), p->content_length);
}

static int on_whole(http_parser *p)
{
    exchange_whole(exchange_of(p));
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_whole,
    .on_chunk_header = on_chunk,
};

/* --- */

static void close_where(struct http_front *f, uint64_t now, bool idle)
{
    struct link *at = list_first(&f->connections), *next;

    for (; at != NULL; at = next) {
        struct connection *c = container_of(at, struct connection, link);

        next = list_next(&f->connections, at);
        if (idle ? c->exchange == NULL : c->until_ms != 0 && c->until_ms <= now)
            socket_close(c->sink.wsi);
    }
}

void front_sweep(struct http_front *f)
{
    close_where(f, connection_now_ms(f), false);
}

void front_close_idle(struct http_front *f)
{
    close_where(f, 0, true);
}

void connection_write_ready(struct connection *c)
{
    if (c->exchange != NULL)
        exchange_notify(c->exchange);
}

void connection_close(struct connection *c)
{
    if (c->exchange != NULL)
        exchange_close(c->exchange);
    list_remove(&c->link);
    c->front->n_connections--;
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

/* Feeds the parser; returns the number of unused bytes. */
static size_t parse(struct connection *c, const char *data, size_t len)
{
    size_t used = http_parser_execute(&c->parser, &settings, data, len);
    enum http_errno why = HTTP_PARSER_ERRNO(&c->parser);

    if (why == HPE_PAUSED) /* the request is complete; the byte it stopped at is used */
        return len - used;
    if (c->exchange != NULL && c->exchange->state != EXCHANGE_READING)
        return 0; /* refused: the rest is discarded */
    if (why == HPE_OK)
        return 0;
    if (c->exchange == NULL && why != HPE_CB_message_begin)
        c->exchange = exchange_open(c->front, &c->sink);
    if (c->exchange == NULL)
        close_soon(c); /* no memory for an error */
    else
        exchange_damaged(c->exchange, http_errno_description(why));
    return 0;
}

void connection_read(struct connection *c, const char *data, size_t len)
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

static void connection_resume(struct exchange_sink *sink)
{
    struct connection *c = container_of(sink, struct connection, sink);
    struct buf behind = c->behind;
    size_t left;

    connection_set_timeout(c, KEEP_ALIVE_MS);
    http_parser_pause(&c->parser, 0);
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
                                     .resume = connection_resume};
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
    buf_init(&c->behind, BEHIND_MAX_BYTES);
    list_push(&f->connections, &c->link);
    f->n_connections++;
    connection_set_timeout(c, KEEP_ALIVE_MS);
    return c;
}

void connection_set_admin(struct connection *c)
{
    c->sink.is_admin = true;
}
