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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/env.h"
#include "server/daemon.h"
#include "server/http/refusal.h"

#define ARENA_MAX_BYTES ((size_t)64 << 20)
#define OUT_MAX_BYTES ((size_t)64 << 20)

enum {
    HEAD_MAX_BYTES = 1024,
    LINGER_S = 2,
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
    return env_now_us(&x->http->config.daemon->env) / 1000;
}

/* --- the head --- */

static bool copy_header(struct lws *wsi, enum lws_token_indexes token, char *out, int size)
{
    out[0] = '\0';
    return lws_hdr_total_length(wsi, token) > 0 && lws_hdr_copy(wsi, out, size, token) >= 0;
}

static unsigned method_of(struct lws *wsi)
{
    if (lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI) > 0)
        return METHOD_POST;
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) > 0)
        return METHOD_HEAD;
    return lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) > 0 ? METHOD_GET : METHOD_OTHER;
}

static void refuse(struct exchange *x, int http_status)
{
    x->refused_as = http_status;
}

/* How long the body is; a length that can be read in two ways is refused. */
static void read_length(struct exchange *x, struct lws *wsi, unsigned method)
{
    size_t limit = x->http->config.max_body_bytes;
    char text[64];
    char *end;

    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0) {
        x->is_chunked = x->is_unread = true;
        x->must_close = true; /* libwebsockets does not know where such a body ends */
        if (!copy_header(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING, text, sizeof(text)) ||
            strcasecmp(text, "chunked") != 0 ||
            lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0) {
            (void)error_set(&x->err, STATUS_INVALID,
                            "a body comes with Content-Length, or with Transfer-Encoding: chunked");
            refuse(x, 400);
        }
        return;
    }
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) == 0) {
        if (method != METHOD_POST)
            return;
        (void)error_set(&x->err, STATUS_INVALID, "Content-Length is missing");
        x->is_unread = true;
        refuse(x, 411);
        return;
    }
    if (copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof(text)) && text[0] != '\0' &&
        strspn(text, "0123456789") == strlen(text) && strlen(text) < 19) {
        x->content_length = strtoull(text, &end, 10);
        x->is_unread = x->content_length > 0;
        if (x->content_length <= limit)
            return;
        (void)error_set(&x->err, STATUS_EXHAUSTED, "the body has %llu bytes, at most %zu are taken",
                        (unsigned long long)x->content_length, limit);
        refuse(x, 413);
        return;
    }
    (void)error_set(&x->err, STATUS_INVALID, "Content-Length is no length");
    x->is_unread = true;
    refuse(x, 400);
}

static void read_connection(struct exchange *x, struct lws *wsi)
{
    char text[64];

    x->is_http_1_0 =
        !copy_header(wsi, WSI_TOKEN_HTTP, text, sizeof(text)) || strcmp(text, "HTTP/1.1") != 0;
    x->must_close = x->is_http_1_0;
    if (!copy_header(wsi, WSI_TOKEN_CONNECTION, text, sizeof(text)))
        return;
    if (strcasecmp(text, "close") == 0)
        x->must_close = true;
    else if (strcasecmp(text, "keep-alive") == 0)
        x->must_close = false;
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

static void read_conversation(struct exchange *x, struct lws *wsi)
{
    static const char name[] = "x-conversation-id:";
    int len = lws_hdr_custom_length(wsi, name, sizeof(name) - 1);

    if (len <= 0)
        return;
    if (len <= CONVERSATION_NAME_MAX &&
        lws_hdr_custom_copy(wsi, x->conversation, sizeof(x->conversation), name,
                            sizeof(name) - 1) >= 0 &&
        is_name(x->conversation))
        return;
    x->conversation[0] = '\0';
    (void)error_field(&x->err, "X-Conversation-Id", "has 1 to %d letters, digits, '.', '_' and '-'",
                      CONVERSATION_NAME_MAX);
    refuse(x, 400);
}

static void find_route(struct exchange *x, unsigned method)
{
    const struct daemon *d = x->http->config.daemon;

    x->route = routes_find(x->path);
    if (x->route == NULL) {
        (void)error_set(&x->err, STATUS_NOT_FOUND, "there is no '%.80s', there are: %s", x->path,
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
static void let_continue(struct exchange *x, struct lws *wsi)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    unsigned char line[LWS_PRE + sizeof(go_on)];

    if (x->refused_as != 0 || lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_EXPECT) == 0)
        return;
    memcpy(line + LWS_PRE, go_on, sizeof(go_on) - 1);
    /* If it fails the connection does, and says so itself. */
    (void)lws_write(wsi, line + LWS_PRE, sizeof(go_on) - 1, LWS_WRITE_HTTP);
}

static void due(struct exchange *x)
{
    exchange_move(x, EXCHANGE_DUE);
    exchange_wake(x);
}

bool exchange_open(struct http *h, struct lws *wsi, const char *path, size_t len)
{
    struct exchange *x = try_alloc(1, sizeof(*x));
    unsigned method = method_of(wsi);

    if (x == NULL)
        return false;
    x->http = h;
    x->wsi = wsi;
    x->is_head = method == METHOD_HEAD;
    x->begun_ms = now_ms(x);
    arena_init(&x->arena, ARENA_MAX_BYTES);
    buf_init(&x->body, h->config.max_body_bytes);
    buf_init(&x->events, OUT_MAX_BYTES);
    buf_init(&x->out, OUT_MAX_BYTES);
    list_push(&h->exchanges, &x->link);
    h->n_exchanges++;
    lws_set_opaque_user_data(wsi, x);
    if (len < sizeof(x->path)) {
        memcpy(x->path, path, len);
        find_route(x, method);
    } else {
        (void)error_set(&x->err, STATUS_NOT_FOUND, "the path is too long");
        refuse(x, 404);
    }
    read_connection(x, wsi);
    read_conversation(x, wsi);
    read_length(x, wsi, method);
    let_continue(x, wsi);
    if (x->refused_as != 0 || (!x->is_unread && method != METHOD_POST))
        due(x);
    return true;
}

/* --- the body --- */

/* Whoever sends a byte now and then is cut off as well. */
static bool is_too_slow(const struct exchange *x)
{
    uint64_t allowed_ms = x->http->config.timeout_ms + x->body.len / (BODY_BYTES_PER_S / 1000);

    return now_ms(x) - x->begun_ms > allowed_ms;
}

void exchange_more(struct exchange *x, const char *data, size_t len)
{
    size_t used = len;
    enum status rc = STATUS_OK;

    if (x->state != EXCHANGE_READING)
        return; /* refused, or behind the last chunk */
    if (x->is_chunked)
        rc = dechunk_feed(&x->chunks, data, len, &x->body, &used, &x->err);
    else if (len > 0)
        rc = buf_append(&x->body, data, len);
    if (rc == STATUS_EXHAUSTED)
        (void)error_set(&x->err, STATUS_EXHAUSTED,
                        "the body is too large: at most %zu bytes are taken",
                        x->http->config.max_body_bytes);
    if (rc == STATUS_OK && is_too_slow(x)) {
        rc = error_set(&x->err, STATUS_DEADLINE, "the body comes too slowly");
        refuse(x, 408);
    } else if (rc != STATUS_OK) {
        refuse(x, rc == STATUS_EXHAUSTED ? 413 : 400);
    }
    if (rc != STATUS_OK) {
        x->must_close = true;
        due(x);
    } else if (x->is_chunked && dechunk_is_done(&x->chunks)) {
        due(x);
    }
}

void exchange_whole(struct exchange *x)
{
    if (x->state == EXCHANGE_READING) {
        x->is_unread = false;
        due(x);
    } else if (x->refused_as == 0 && !x->is_paused) {
        /* The next request has come already: it waits in the kernel until this one is answered. */
        x->is_paused = true;
        (void)lws_rx_flow_control(x->wsi, 0); /* without it libwebsockets keeps a little more */
    } else {
        x->is_unread = false; /* the rest of a body that was refused */
    }
}

const char *exchange_body(const struct exchange *x, size_t *ret_len)
{
    *ret_len = x->body.len;
    return x->body.len == 0 ? "" : x->body.data;
}

/* --- waking --- */

void exchange_wake(struct exchange *x)
{
    struct http *h = x->http;

    if (x->is_woken || x->state == EXCHANGE_GONE)
        return;
    x->is_woken = true;
    if (list_is_empty(&h->woken))
        http_stay_awake(h);
    list_push(&h->woken, &x->woken);
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
    x->is_ended = true;
    buf_deinit(&x->out);
}

static enum status append_head(struct exchange *x, int http_status, const char *type,
                               const char *more, size_t len)
{
    static const char room[LWS_PRE];
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
    x->must_close = x->must_close || x->http->is_draining || x->is_unread;
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
    buf_init(&body, HEAD_MAX_BYTES);
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
        x->must_close = x->must_close || x->http->is_draining || x->is_http_1_0;
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
    static const char room[LWS_PRE];
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
    struct http *h = x->http;

    if (x->state != EXCHANGE_LINGERING)
        h->n_exchanges--;
    exchange_move(x, EXCHANGE_GONE);
    lws_set_opaque_user_data(x->wsi, NULL);
    release(x);
    if (x->is_woken)
        list_remove(&x->woken);
    list_remove(&x->link);
    free(x);
}

static void hang_up(struct lws *wsi)
{
    lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
}

/* The answer is with the kernel. */
static void complete(struct exchange *x)
{
    struct lws *wsi = x->wsi;
    bool was_paused = x->is_paused, must_close = x->must_close;

    if (must_close && x->is_unread && !x->http->is_stopping) {
        exchange_move(x, EXCHANGE_LINGERING);
        x->http->n_exchanges--;
        release(x);
        (void)shutdown(lws_get_socket_fd(wsi), SHUT_WR); /* else the peer has closed already */
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE, LINGER_S);
        return;
    }
    exchange_gone(x);
    if (must_close) {
        hang_up(wsi);
        return;
    }
    if (was_paused)
        (void)lws_rx_flow_control(wsi, 1); /* fails with the connection, which then goes */
    if (lws_http_transaction_completed(wsi) != 0)
        hang_up(wsi);
}

/* False: the connection has failed, x is no more. */
static bool flush(struct exchange *x)
{
    struct lws *wsi = x->wsi;

    if (x->out.len > LWS_PRE && lws_write(wsi, (unsigned char *)x->out.data + LWS_PRE,
                                          x->out.len - LWS_PRE, LWS_WRITE_HTTP) < 0) {
        hang_up(wsi);
        return false;
    }
    buf_clear(&x->out);
    if (lws_partial_buffered(wsi))
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE,
                        (int)(x->http->config.timeout_ms / 1000 + 1));
    else
        lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    return true;
}

static void begin(struct exchange *x)
{
    exchange_move(x, EXCHANGE_ANSWERING);
    /* Libwebsockets waits for a body; that is over, and an answer may take its time. */
    lws_set_timeout(x->wsi, NO_PENDING_TIMEOUT, 0);
    if (x->refused_as != 0)
        exchange_fail_as(x, x->refused_as, &x->err);
    else
        x->route->serve(x);
}

void exchange_serve(struct exchange *x)
{
    list_remove(&x->woken);
    x->is_woken = false;
    if (x->state == EXCHANGE_DUE)
        begin(x);
    if (lws_partial_buffered(x->wsi))
        return; /* libwebsockets says when it has room */
    if (x->state == EXCHANGE_ANSWERING) {
        if (!x->is_ended && x->handler != NULL)
            x->handler->room(x, x->handler_state);
        if (x->is_streaming && append_events(x) != STATUS_OK)
            cut(x);
        if (!flush(x))
            return;
        if (x->is_ended)
            exchange_move(x, EXCHANGE_FLUSHING);
    }
    if (x->state == EXCHANGE_FLUSHING && !lws_partial_buffered(x->wsi))
        complete(x);
}

/* --- what routes ask --- */

struct daemon *exchange_daemon(const struct exchange *x)
{
    return x->http->config.daemon;
}

struct memory *exchange_memory(struct exchange *x)
{
    return &x->http->memory;
}

struct arena *exchange_arena(struct exchange *x)
{
    return &x->arena;
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

const char *exchange_conversation(const struct exchange *x)
{
    return x->conversation;
}

void exchange_set_conversation(struct exchange *x, const char *id)
{
    x->conversation_id = id;
}
