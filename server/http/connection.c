/* Bytes of a socket become requests, one at a time: while one is answered, what comes behind it
 * waits. Reading goes on meanwhile, for it is how we learn that the peer has hung up. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "server/daemon.h"
#include "server/http/exchange_parts.h"

enum { BEHIND_BYTES = 64 << 10, BEHIND_MAX_BYTES = 1 << 20 };

static uint64_t now_ms(const struct http_front *f)
{
    return env_now_us(&f->config.daemon->env) / 1000;
}

void connection_set_timeout(struct connection *c, uint64_t timeout_ms)
{
    c->until_ms = timeout_ms == 0 ? 0 : now_ms(c->front) + timeout_ms;
}

/* Not from inside its socket's call: by the next sweep. */
static void close_soon(struct connection *c)
{
    c->until_ms = 1;
}

/* --- the parser calls; anything but 0 stops it --- */

static struct exchange *exchange_of(http_parser *p)
{
    const struct connection *c = p->data;

    return c->exchange;
}

static int on_begin(http_parser *p)
{
    struct connection *c = p->data;

    c->exchange = exchange_open(c);
    return c->exchange == NULL;
}

/* Longer ones are cut: then there is no such path, name or conversation. */
static void append(char *out, size_t size, size_t *len, const char *at, size_t n)
{
    size_t room = *len < size - 1 ? size - 1 - *len : 0;

    memcpy(out + *len, at, n < room ? n : room);
    *len += n < room ? n : room;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    append(x->url, sizeof(x->url), &x->url_len, at, len);
    return 0;
}

static int on_name(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    if (x->is_in_value)
        x->name_len = 0;
    x->is_in_value = false;
    append(x->name, sizeof(x->name), &x->name_len, at, len);
    return 0;
}

static enum header header_of(const struct exchange *x)
{
    static const struct {
        const char *name;
        enum header header;
    } ours[] = {{"x-conversation-id", HEADER_CONVERSATION}, {"expect", HEADER_EXPECT}};

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strlen(ours[i].name) == x->name_len &&
            strncasecmp(ours[i].name, x->name, x->name_len) == 0)
            return ours[i].header;
    }
    return HEADER_OTHER;
}

static int on_value(http_parser *p, const char *at, size_t len)
{
    struct exchange *x = exchange_of(p);

    if (!x->is_in_value)
        x->header = header_of(x);
    x->is_in_value = true;
    if (x->header == HEADER_CONVERSATION)
        append(x->conversation, sizeof(x->conversation), &x->conversation_len, at, len);
    x->wants_continue = x->wants_continue || x->header == HEADER_EXPECT;
    return 0;
}

static int on_head(http_parser *p)
{
    p->upgrade = 0; /* an offer, which need not be taken */
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
            socket_close(c->wsi);
    }
}

void front_sweep(struct http_front *f)
{
    close_where(f, now_ms(f), false);
}

void front_close_idle(struct http_front *f)
{
    close_where(f, 0, true);
}

void connection_has_room(struct connection *c)
{
    if (c->exchange != NULL)
        exchange_wake(c->exchange);
}

struct connection *connection_open(struct http_front *f, struct lws *wsi)
{
    struct connection *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->front = f;
    c->wsi = wsi;
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
    buf_init(&c->behind, BEHIND_MAX_BYTES);
    list_push(&f->connections, &c->link);
    connection_set_timeout(c, KEEP_ALIVE_MS);
    return c;
}

void connection_close(struct connection *c)
{
    if (c->exchange != NULL)
        exchange_gone(c->exchange);
    list_remove(&c->link);
    buf_deinit(&c->behind);
    free(c);
}

/* Kept until the request before is answered. */
static void keep_behind(struct connection *c, const char *data, size_t len)
{
    if (len > 0 && buf_append(&c->behind, data, len) != STATUS_OK) {
        close_soon(c);
        return;
    }
    if (c->behind.len >= BEHIND_BYTES && !c->is_paused) {
        c->is_paused = true;
        socket_pause(c->wsi, true);
    }
}

/* Feeds the parser; returns what it has not used. */
static size_t parse(struct connection *c, const char *data, size_t len)
{
    size_t used = http_parser_execute(&c->parser, &settings, data, len);
    enum http_errno why = HTTP_PARSER_ERRNO(&c->parser);

    if (why == HPE_PAUSED) /* it is whole; a byte that it stopped at has been used */
        return len - used;
    if (c->exchange != NULL && c->exchange->state != EXCHANGE_READING)
        return 0; /* refused: the rest goes nowhere */
    if (why == HPE_OK)
        return 0;
    if (c->exchange == NULL && why != HPE_CB_message_begin)
        c->exchange = exchange_open(c);
    if (c->exchange == NULL)
        close_soon(c); /* no memory to say it */
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

void connection_go_on(struct connection *c)
{
    struct buf behind = c->behind;
    size_t left;

    connection_set_timeout(c, KEEP_ALIVE_MS);
    http_parser_pause(&c->parser, 0);
    if (behind.len > 0) {
        left = parse(c, behind.data, behind.len);
        buf_consume(&c->behind, c->behind.len - left);
    }
    if (c->behind.len == 0)
        buf_deinit(&c->behind); /* an idle connection holds nothing */
    if (c->is_paused && c->behind.len < BEHIND_BYTES) {
        c->is_paused = false;
        socket_pause(c->wsi, false);
    }
}
