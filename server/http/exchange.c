/* Happy path: the head is read (exchange_open), the body comes (more, whole), the route is served,
 * a handler is woken and replies, or streams; the bytes go to libwebsockets, and when it has none
 * left the connection waits for its next request.
 *
 * Libwebsockets' callbacks only note what is due; all else happens in exchange_serve, outside of
 * them, so nothing of ours is ever called from inside a call of ours.
 *
 * What can go wrong: a head that says what cannot be (refused before the body is read), a body that
 * is too large, damaged or too slow, a route that refuses: each has its answer in OpenAI's shape.
 * Where a part of the body was not read the connection cannot go on: our side is shut, and what
 * still comes is thrown away for a moment, since closing at once would take the answer with it. A
 * peer that goes away ends what it asked for; one that takes nothing is cut off. */
#include "server/http/exchange_parts.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "server/daemon.h"
#include "server/http/refusal.h"

#define ARENA_MAX_BYTES ((size_t)64 << 20)
#define OUT_MAX_BYTES ((size_t)64 << 20)

enum {
    ERROR_MAX_BYTES = 4096,
    LINGER_MS = 2000,
    /* Below this a body is not slow but held back: a second more for so many bytes. */
    BODY_BYTES_PER_S = 16 << 10,
};

static const uint32_t exchange_moves[] = {
    [EXCHANGE_READING] = 1u << EXCHANGE_DUE | 1u << EXCHANGE_GONE,
    [EXCHANGE_DUE] = 1u << EXCHANGE_ANSWERING | 1u << EXCHANGE_GONE,
    [EXCHANGE_ANSWERING] = 1u << EXCHANGE_FLUSHING | 1u << EXCHANGE_GONE,
    [EXCHANGE_FLUSHING] = 1u << EXCHANGE_LINGERING | 1u << EXCHANGE_GONE,
    [EXCHANGE_LINGERING] = 1u << EXCHANGE_GONE,
    [EXCHANGE_GONE] = 0,
};

static void exchange_move(struct exchange *x, enum exchange_state to)
{
    assert((exchange_moves[x->state] & 1u << to) != 0);
    x->state = to;
}

static uint64_t now_ms(const struct exchange *x)
{
    return env_now_us(&x->front->config.daemon->env) / 1000;
}

/* For so long nothing may come. Whoever sends a byte now and then is too slow all the same. */
static void wait_for_more(struct exchange *x)
{
    connection_set_timeout(x->connection, x->front->config.timeout_ms);
}

/* --- the head --- */

static void refuse(struct exchange *x, int http_status)
{
    x->refused_as = http_status;
}

static void due(struct exchange *x)
{
    exchange_move(x, EXCHANGE_DUE);
    x->front->n_answering++;
    exchange_wake(x);
}

struct exchange *exchange_open(struct connection *c)
{
    struct http_front *f = c->front;
    struct exchange *x = try_alloc(1, sizeof(*x));

    if (x == NULL)
        return NULL;
    x->front = f;
    x->connection = c;
    x->wsi = c->wsi;
    x->begun_ms = now_ms(x);
    arena_init(&x->arena, ARENA_MAX_BYTES);
    buf_init(&x->body, f->config.max_body_bytes);
    buf_init(&x->events, OUT_MAX_BYTES);
    buf_init(&x->out, OUT_MAX_BYTES);
    list_push(&f->exchanges, &x->link);
    wait_for_more(x);
    return x;
}

/* -1: no digit. */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The path alone, with %XX made one byte. */
static void take_path(struct exchange *x)
{
    struct http_parser_url url;
    const char *at = x->url;
    size_t len = x->url_len, n = 0;

    http_parser_url_init(&url);
    if (http_parser_parse_url(x->url, x->url_len, 0, &url) == 0 &&
        (url.field_set & 1u << UF_PATH) != 0) {
        at += url.field_data[UF_PATH].off;
        len = url.field_data[UF_PATH].len;
    }
    for (size_t i = 0; i < len; i++) {
        int byte = -1;

        if (at[i] == '%' && i + 2 < len && hex_value(at[i + 1]) >= 0 && hex_value(at[i + 2]) >= 0)
            byte = hex_value(at[i + 1]) << 4 | hex_value(at[i + 2]);
        x->url[n] = at[i];
        if (byte >= 0) {
            x->url[n] = (char)byte;
            i += 2;
        }
        n++;
    }
    x->url[n] = '\0';
}

static unsigned method_of(const http_parser *p)
{
    switch (p->method) {
    case HTTP_GET:
        return METHOD_GET;
    case HTTP_POST:
        return METHOD_POST;
    case HTTP_HEAD:
        return METHOD_HEAD;
    default:
        return METHOD_OTHER;
    }
}

static bool is_name(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((*text < '0' || *text > '9') && (*text < 'a' || *text > 'z') &&
            (*text < 'A' || *text > 'Z') && strchr("._-", *text) == NULL)
            return false;
    }
    return true;
}

static void check_conversation(struct exchange *x)
{
    if (x->conversation_len <= CONVERSATION_NAME_MAX && is_name(x->conversation))
        return;
    x->conversation[0] = '\0';
    (void)error_field(&x->err, "X-Conversation-Id", "has 1 to %d letters, digits, '.', '_' and '-'",
                      CONVERSATION_NAME_MAX);
    refuse(x, 400);
}

static void check_length(struct exchange *x, const http_parser *p)
{
    bool is_chunked = (p->flags & F_CHUNKED) != 0;
    bool has_length = p->content_length != ULLONG_MAX;
    size_t limit = x->front->config.max_body_bytes;

    x->is_unread = is_chunked || (has_length && p->content_length > 0);
    if (p->method == HTTP_POST && !is_chunked && !has_length) {
        (void)error_set(&x->err, STATUS_INVALID, "Content-Length is missing");
        x->must_close = true; /* what follows may be a body */
        refuse(x, 411);
    } else if (!is_chunked && has_length && p->content_length > limit) {
        (void)error_set(&x->err, STATUS_EXHAUSTED, "the body has %llu bytes, at most %zu are taken",
                        (unsigned long long)p->content_length, limit);
        refuse(x, 413);
    }
}

static void find_route(struct exchange *x, unsigned method)
{
    const struct daemon *d = x->front->config.daemon;

    x->route = routes_find(x->url);
    if (x->route == NULL) {
        (void)error_set(&x->err, STATUS_NOT_FOUND, "there is no '%.80s', there are: %s", x->url,
                        routes_list);
        refuse(x, 404);
    } else if ((x->route->methods & method) == 0) {
        (void)error_set(&x->err, STATUS_INVALID, "%s answers %s only", x->route->path,
                        route_methods(x->route));
        refuse(x, 405);
    } else if (!x->route->always && d->state != DAEMON_SERVING) {
        (void)error_set(&x->err, STATUS_UNAVAILABLE, "the server is %s", daemon_state_name(d));
        refuse(x, 503);
    }
}

/* A client that asks before it sends much gets its answer at once. */
static void let_continue(struct exchange *x)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char line[SOCKET_ROOM_BYTES + sizeof(go_on)];

    if (!x->wants_continue || !x->is_unread || x->is_http_1_0)
        return;
    memcpy(line + SOCKET_ROOM_BYTES, go_on, sizeof(go_on) - 1);
    /* If it fails the connection does, and says so itself. */
    (void)socket_write(x->wsi, line + SOCKET_ROOM_BYTES, sizeof(go_on) - 1);
}

void exchange_head(struct exchange *x, const http_parser *parser)
{
    unsigned method = method_of(parser);

    take_path(x);
    x->is_head = method == METHOD_HEAD;
    x->is_http_1_0 = parser->http_major == 1 && parser->http_minor == 0;
    x->must_close = !http_should_keep_alive(parser);
    find_route(x, method);
    check_conversation(x);
    check_length(x, parser);
    if (x->refused_as != 0 && (x->is_unread || x->must_close)) {
        x->must_close = true;
        due(x);
        return;
    }
    let_continue(x);
    wait_for_more(x);
}

/* --- the body --- */

static bool is_too_slow(const struct exchange *x)
{
    uint64_t allowed_ms = x->front->config.timeout_ms + x->body.len / (BODY_BYTES_PER_S / 1000);

    return now_ms(x) - x->begun_ms > allowed_ms;
}

static bool stop_reading(struct exchange *x, int http_status)
{
    refuse(x, http_status);
    x->must_close = true;
    due(x);
    return false;
}

static bool is_too_large(struct exchange *x)
{
    (void)error_set(&x->err, STATUS_EXHAUSTED, "the body is too large: at most %zu bytes are taken",
                    x->front->config.max_body_bytes);
    return stop_reading(x, 413);
}

bool exchange_expect(struct exchange *x, uint64_t n_bytes)
{
    return n_bytes <= x->front->config.max_body_bytes - x->body.len || is_too_large(x);
}

bool exchange_more(struct exchange *x, const char *data, size_t len)
{
    if (buf_append(&x->body, data, len) != STATUS_OK)
        return is_too_large(x);
    if (is_too_slow(x)) {
        (void)error_set(&x->err, STATUS_DEADLINE, "the body comes too slowly");
        return stop_reading(x, 408);
    }
    wait_for_more(x);
    return true;
}

void exchange_whole(struct exchange *x)
{
    x->is_unread = false;
    if (x->state == EXCHANGE_READING)
        due(x);
}

void exchange_damaged(struct exchange *x, const char *why)
{
    (void)error_set(&x->err, STATUS_INVALID, "the request is damaged: %.120s", why);
    x->must_close = x->is_unread = true;
    refuse(x, 400);
    due(x);
}

const char *exchange_body(const struct exchange *x, size_t *ret_len)
{
    *ret_len = x->body.len;
    return x->body.len == 0 ? "" : x->body.data;
}

/* --- waking --- */

void exchange_wake(struct exchange *x)
{
    struct http_front *f = x->front;

    if (x->is_woken || x->state == EXCHANGE_GONE)
        return;
    x->is_woken = true;
    if (list_is_empty(&f->woken))
        f->stay_awake(f);
    list_push(&f->woken, &x->woken);
}

void exchange_set_handler(struct exchange *x, const struct exchange_handler *handler, void *state)
{
    assert(x->handler == NULL);
    x->handler = handler;
    x->handler_state = state;
}

/* --- the answer --- */

/* What cannot be answered for want of memory is cut off. */
static void cut(struct exchange *x)
{
    x->must_close = true;
    x->is_ended = x->is_cut = true;
    buf_deinit(&x->out);
}

static enum status append_head(struct exchange *x, int http_status, const char *type,
                               const char *more, size_t len)
{
    static const char room[SOCKET_ROOM_BYTES];
    struct buf *out = &x->out;

    if (buf_append(out, room, sizeof(room)) != STATUS_OK ||
        buf_printf(out, "HTTP/1.1 %d %s\r\n%s", http_status, refusal_reason(http_status), more) !=
            STATUS_OK)
        return STATUS_EXHAUSTED;
    if (type != NULL && buf_printf(out, "Content-Type: %s\r\n", type) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->conversation_id != NULL &&
        buf_printf(out, "X-Conversation-Id: %s\r\n", x->conversation_id) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (len != SIZE_MAX && buf_printf(out, "Content-Length: %zu\r\n", len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (len == SIZE_MAX &&
        buf_append_text(out, x->is_http_1_0 ? "Cache-Control: no-cache\r\n"
                                            : "Cache-Control: no-cache\r\n"
                                              "Transfer-Encoding: chunked\r\n") != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->must_close)
        return buf_append_text(out, "Connection: close\r\n\r\n");
    return buf_append_text(out, x->is_http_1_0 ? "Connection: keep-alive\r\n\r\n" : "\r\n");
}

static void reply(struct exchange *x, int http_status, const char *type, const char *more,
                  const char *body, size_t len)
{
    assert(!x->is_ended && !x->is_streaming);
    x->must_close = x->must_close || x->front->is_draining || x->is_unread;
    if (append_head(x, http_status, type, more, len) != STATUS_OK ||
        (!x->is_head && buf_append(&x->out, body, len) != STATUS_OK))
        cut(x);
    x->is_ended = true;
    exchange_wake(x);
}

void exchange_reply(struct exchange *x, int http_status, const char *type, const char *body,
                    size_t len)
{
    reply(x, http_status, type, "", body, len);
}

void exchange_fail_as(struct exchange *x, int http_status, const struct error *err)
{
    unsigned retry_after_s = refusal_retry_after_s(http_status, err);
    char more[64] = "";
    struct buf body;

    if (retry_after_s > 0)
        (void)snprintf(more, sizeof(more), "Retry-After: %u\r\n", retry_after_s);
    if (http_status == 405)
        (void)snprintf(more, sizeof(more), "Allow: %s\r\n", route_methods(x->route));
    buf_init(&body, ERROR_MAX_BYTES);
    if (refusal_body(&body, http_status, err) == STATUS_OK)
        reply(x, http_status, "application/json", more, body.data, body.len);
    else
        reply(x, http_status, NULL, more, "", 0);
    buf_deinit(&body);
}

void exchange_fail(struct exchange *x, const struct error *err)
{
    exchange_fail_as(x, refusal_http_status(err->status), err);
}

struct buf *exchange_stream(struct exchange *x)
{
    if (!x->is_streaming && !x->is_ended) {
        x->is_streaming = true;
        x->must_close = x->must_close || x->front->is_draining || x->is_http_1_0;
        if (append_head(x, 200, "text/event-stream", "", SIZE_MAX) != STATUS_OK)
            cut(x);
    }
    return &x->events;
}

bool exchange_is_streaming(const struct exchange *x)
{
    return x->is_streaming;
}

void exchange_end(struct exchange *x)
{
    assert(x->is_streaming);
    x->is_ended = true;
}

/* The events that have come together, as one chunk. */
static enum status append_events(struct exchange *x)
{
    static const char room[SOCKET_ROOM_BYTES];
    struct buf *out = &x->out;
    bool is_framed = !x->is_http_1_0;

    if (out->len == 0 && buf_append(out, room, sizeof(room)) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->events.len > 0 &&
        ((is_framed && buf_printf(out, "%zx\r\n", x->events.len) != STATUS_OK) ||
         buf_append(out, x->events.data, x->events.len) != STATUS_OK ||
         (is_framed && buf_append(out, "\r\n", 2) != STATUS_OK)))
        return STATUS_EXHAUSTED;
    buf_clear(&x->events);
    return x->is_ended && is_framed ? buf_append(out, "0\r\n\r\n", 5) : STATUS_OK;
}

/* --- the end --- */

static void release(struct exchange *x)
{
    const struct exchange_handler *handler = x->handler;

    x->handler = NULL;
    if (handler != NULL)
        handler->gone(x, x->handler_state);
    arena_deinit(&x->arena);
    buf_deinit(&x->body);
    buf_deinit(&x->events);
    buf_deinit(&x->out);
}

void exchange_gone(struct exchange *x)
{
    struct http_front *f = x->front;

    if (x->state != EXCHANGE_READING && x->state != EXCHANGE_LINGERING)
        f->n_answering--;
    exchange_move(x, EXCHANGE_GONE);
    x->connection->exchange = NULL;
    release(x);
    if (x->is_woken)
        list_remove(&x->woken);
    list_remove(&x->link);
    free(x);
}

/* The answer is with the kernel. */
static void complete(struct exchange *x)
{
    struct connection *c = x->connection;
    struct lws *wsi = x->wsi;
    bool must_close = x->must_close;

    if (must_close && x->is_unread && !x->front->is_stopping) {
        exchange_move(x, EXCHANGE_LINGERING);
        x->front->n_answering--;
        release(x);
        socket_shut(wsi);
        connection_set_timeout(x->connection, LINGER_MS);
        return;
    }
    exchange_gone(x);
    if (must_close)
        socket_close(wsi);
    else
        connection_go_on(c);
}

/* False: the connection has failed, x is no more. */
static bool flush(struct exchange *x)
{
    struct lws *wsi = x->wsi;

    if (x->out.len > SOCKET_ROOM_BYTES &&
        !socket_write(wsi, x->out.data + SOCKET_ROOM_BYTES, x->out.len - SOCKET_ROOM_BYTES)) {
        socket_close(wsi);
        return false;
    }
    buf_clear(&x->out);
    connection_set_timeout(x->connection, socket_is_choked(wsi) ? x->front->config.timeout_ms : 0);
    return true;
}

static void begin(struct exchange *x)
{
    exchange_move(x, EXCHANGE_ANSWERING);
    /* An answer may take its time. */
    connection_set_timeout(x->connection, 0);
    if (x->refused_as != 0)
        exchange_fail_as(x, x->refused_as, &x->err);
    else
        x->route->serve(x);
}

static void serve(struct exchange *x)
{
    list_remove(&x->woken);
    x->is_woken = false;
    if (x->state == EXCHANGE_DUE)
        begin(x);
    if (socket_is_choked(x->wsi))
        return; /* libwebsockets says when it has room */
    if (x->state == EXCHANGE_ANSWERING) {
        if (!x->is_ended && x->handler != NULL)
            x->handler->room(x, x->handler_state);
        if (x->is_streaming && !x->is_cut && append_events(x) != STATUS_OK)
            cut(x);
        if (!flush(x))
            return;
        if (x->is_ended)
            exchange_move(x, EXCHANGE_FLUSHING);
    }
    if (x->state == EXCHANGE_FLUSHING && !socket_is_choked(x->wsi))
        complete(x);
}

/* --- all of them --- */

void front_init(struct http_front *f, const struct http_config *config,
                void (*stay_awake)(struct http_front *f))
{
    *f = (struct http_front){.config = *config, .stay_awake = stay_awake};
    list_init(&f->connections);
    list_init(&f->exchanges);
    list_init(&f->woken);
    memory_init(&f->memory, &config->daemon->conversations);
    http_parser_set_max_header_size(HEAD_MAX_BYTES);
}

void front_deinit(struct http_front *f)
{
    assert(list_is_empty(&f->exchanges));
    memory_deinit(&f->memory);
}

void front_serve(struct http_front *f)
{
    struct list woken;

    list_init(&woken);
    list_move(&f->woken, &woken);
    while (!list_is_empty(&woken))
        serve(container_of(list_first(&woken), struct exchange, woken));
}

void front_abandon(struct http_front *f)
{
    while (!list_is_empty(&f->exchanges))
        exchange_gone(container_of(list_first(&f->exchanges), struct exchange, link));
}

/* --- what routes ask --- */

struct daemon *exchange_daemon(const struct exchange *x)
{
    return x->front->config.daemon;
}

struct memory *exchange_memory(struct exchange *x)
{
    return &x->front->memory;
}

struct arena *exchange_arena(struct exchange *x)
{
    return &x->arena;
}

const char *exchange_path(const struct exchange *x)
{
    return x->url;
}

const char *exchange_conversation(const struct exchange *x)
{
    return x->conversation;
}

void exchange_set_conversation(struct exchange *x, const char *id)
{
    x->conversation_id = id;
}
