/* Happy path: the head is read (exchange_open), the body is read (more, whole), the route is
 * served, and a handler is notified and replies, or streams. The bytes go to libwebsockets; when
 * all are sent the connection waits for its next request.
 *
 * Libwebsockets' callbacks only note events; exchange_serve handles them outside the callbacks, so
 * our functions are never re-entered.
 *
 * Failures: an invalid head (refused before the body is read), a body that is too large, damaged or
 * too slow, or a route that refuses: each is answered in its API's format. If a part of the body
 * was not read, the connection cannot be used again: our side is shut, and further bytes are
 * discarded for a moment, since closing at once would lose the answer. A peer's disconnect ends its
 * request; a peer that reads nothing is disconnected. */
#include "server/http/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "base/log.h"
#include "base/name.h"
#include "server/http/exchange_parts.h"
#include "server/http/gzip.h"
#include "server/http/head.h"
#include "server/http/rate_limits.h"
#include "server/http/socket.h"
#include "server/http/status.h"
#include "server/http/websocket.h"

#define ARENA_MAX_BYTES ((size_t)64 << 20)
#define OUT_MAX_BYTES ((size_t)64 << 20)

enum {
    ERROR_MAX_BYTES = 4096,
    ROUTES_LIST_BYTES = ERROR_TEXT_MAX - 112, /* the path, and what stands around both */
    FILE_HEADERS_BYTES = 1024,
    PATH_LOGGED_BYTES = 272,
    LINGER_MS = 2000,
    /* A body below this rate is too slow: each such number of bytes allows a second more. */
    BODY_BYTES_PER_S = 16 << 10,
    /* Of answers that are compressed: a smaller one fits into a packet, a larger one would hold the
     * loop up. */
    GZIP_MIN_BYTES = 1 << 10,
    GZIP_MAX_BYTES = 1 << 20,
};

static const uint32_t exchange_moves[] = {
    [EXCHANGE_READING] = 1u << EXCHANGE_DUE | 1u << EXCHANGE_CLOSED,
    [EXCHANGE_DUE] = 1u << EXCHANGE_ANSWERING | 1u << EXCHANGE_CLOSED,
    [EXCHANGE_ANSWERING] = 1u << EXCHANGE_FLUSHING | 1u << EXCHANGE_CLOSED,
    [EXCHANGE_FLUSHING] = 1u << EXCHANGE_LINGERING | 1u << EXCHANGE_CLOSED,
    [EXCHANGE_LINGERING] = 1u << EXCHANGE_CLOSED,
    [EXCHANGE_CLOSED] = 0,
};

static void exchange_move(struct exchange *x, enum exchange_state to)
{
    assert((exchange_moves[x->state] & 1u << to) != 0);
    x->state = to;
}

static uint64_t exchange_now_ms(const struct exchange *x)
{
    return env_now_us(x->front->config.env) / 1000;
}

/* Allows timeout_ms without a byte. is_too_slow catches a slow trickle. */
static void wait_for_more(struct exchange *x)
{
    x->sink->set_timeout(x->sink, x->front->config.timeout_ms);
}

static const struct http_api *api_of(const struct exchange *x)
{
    return x->route != NULL ? x->route->api : x->front->config.routes.api;
}

/* HTTP's status of a failure, as the API has it. */
static int exchange_status_of(const struct exchange *x, enum status status)
{
    return api_of(x)->status_of != NULL ? api_of(x)->status_of(status) : http_status_of(status);
}

/* --- the head --- */

static void exchange_refuse(struct exchange *x, int http_status)
{
    x->refused_as = http_status;
}

static void due(struct exchange *x)
{
    exchange_move(x, EXCHANGE_DUE);
    x->front->n_answering++;
    exchange_notify(x);
}

struct exchange *exchange_open(struct http_front *f, struct exchange_sink *sink)
{
    struct exchange *x = try_alloc(1, sizeof(*x));

    if (x == NULL)
        return NULL;
    x->front = f;
    x->sink = sink;
    x->begun_ms = exchange_now_ms(x);
    arena_init(&x->arena, ARENA_MAX_BYTES);
    buf_init(&x->body, f->config.max_body_bytes);
    buf_init(&x->events, OUT_MAX_BYTES);
    buf_init(&x->out, OUT_MAX_BYTES);
    buf_init(&x->asked, ASKED_MAX_BYTES);
    buf_init(&x->last_event, LAST_EVENT_MAX_BYTES);
    buf_init(&x->authorization, PROOF_MAX_BYTES);
    buf_init(&x->api_key, PROOF_MAX_BYTES);
    list_push(&f->exchanges, &x->link);
    wait_for_more(x);
    return x;
}

static void check_conversation(struct exchange *x)
{
    if (x->conversation_len == 0 ||
        name_is_valid(x->conversation, x->conversation_len, CONVERSATION_NAME_MAX, NAME_MARKS))
        return;
    x->conversation[0] = '\0';
    (void)error_field(&x->err, "X-Conversation-Id", "has 1 to %d letters, digits, '.', '_' and '-'",
                      CONVERSATION_NAME_MAX);
    exchange_refuse(x, 400);
}

static void exchange_check_length(struct exchange *x)
{
    size_t limit = x->front->config.max_body_bytes;

    x->is_unread = x->is_chunked || x->length > 0;
    if (x->method == METHOD_POST && !x->is_chunked && !x->has_length) {
        (void)error_set(&x->err, STATUS_INVALID, "Content-Length is missing");
        x->must_close = true; /* the next bytes may be a body */
        exchange_refuse(x, 411);
    } else if (x->length > limit) {
        (void)error_because(&x->err, STATUS_INVALID, REASON_REQUEST_TOO_LARGE, NULL,
                            "the body has %llu bytes, at most %zu are taken",
                            (unsigned long long)x->length, limit);
        exchange_refuse(x, 413);
    }
}

/* Which routes there are where x came in. */
static unsigned exchange_levels(const struct exchange *x)
{
    if (x->front->config.admin == NULL)
        return ROUTES_ALL;
    return x->sink->is_admin ? ROUTES_ADMIN : ROUTES_PUBLIC;
}

/* Whether an encoded slash of the path is one of the argument's own. */
static bool has_fitting_slashes(const struct exchange *x, const struct route *r)
{
    return x->coded_slash == SIZE_MAX || (r->has_slashes && x->coded_slash >= strlen(r->path));
}

/* The route of a path whose client's base URL lacks HTTP_BASE, or has it where the client adds it:
 * OpenAI's clients are given one with it, Anthropic's one without. */
static const struct route *find_at_base(struct exchange *x)
{
    const size_t len = strlen(HTTP_BASE);
    const bool is_twice = strncmp(x->path, HTTP_BASE HTTP_BASE "/", 2 * len + 1) == 0;
    char *path = is_twice ? x->path + len : memcpy(x->path - len, HTTP_BASE, len);
    const struct route *found =
        route_find(&x->made, &x->front->config.routes, exchange_levels(x), path);

    if (found == NULL)
        return NULL;
    if (x->coded_slash != SIZE_MAX)
        x->coded_slash = is_twice ? x->coded_slash - len : x->coded_slash + len;
    x->path = path;
    return found;
}

/* The route of the path without slashes at its end, which proxies and people add. */
static const struct route *find_path(struct exchange *x)
{
    const struct routes *routes = &x->front->config.routes;
    size_t len = strlen(x->path), kept = len;
    const struct route *found;
    char *given = x->path;

    while (kept > 1 && x->path[kept - 1] == '/')
        kept--;
    x->path[kept] = '\0';
    found = route_find(&x->made, routes, exchange_levels(x), x->path);
    if (found == NULL)
        found = find_at_base(x);
    if (found != NULL && has_fitting_slashes(x, found))
        return found;
    x->path = given; /* named whole in the error */
    if (kept < len)
        x->path[kept] = '/';
    return NULL;
}

/* A preflight: a page may do what a program may. Or OPTIONS of the whole server. */
static bool is_preflight(const struct exchange *x)
{
    return x->method == METHOD_OPTIONS && (x->origin[0] != '\0' || x->path[0] == '*');
}

static void find_route(struct exchange *x)
{
    const struct http_front *f = x->front;
    char list[ROUTES_LIST_BYTES];

    if (is_preflight(x))
        return;
    x->route = find_path(x);
    if (x->route == NULL) {
        route_list(list, sizeof(list), &f->config.routes, exchange_levels(x));
        (void)error_set(&x->err, STATUS_NOT_FOUND, "there is no '%.80s', there are: %s", x->path,
                        list);
        exchange_refuse(x, 404);
    } else if ((x->route->methods & x->method) == 0) {
        (void)error_set(&x->err, STATUS_INVALID, "%s answers %s only", x->route->path,
                        route_methods(x->route));
        exchange_refuse(x, 405);
    } else if (!x->route->always && (!f->is_serving || f->is_draining)) {
        (void)error_because(&x->err, STATUS_UNAVAILABLE,
                            f->is_draining ? REASON_SERVER_DRAINING : REASON_SERVER_LOADING, NULL,
                            "the server is %s", f->is_draining ? "draining" : "loading");
        exchange_refuse(x, 503);
    }
}

/* Asks for a key before anything is told of the server, but for what is open to all. */
static void exchange_check_key(struct exchange *x)
{
    const struct access_proof proof = {
        .authorization = x->authorization.data,
        .authorization_len = x->authorization.len,
        .api_key = x->api_key.data,
        .api_key_len = x->api_key.len,
    };
    enum access_level level = x->route == NULL ? ACCESS_KEY : x->route->access;

    if (x->passed_key != NULL) {
        x->access = x->passed_key;
        return;
    }
    if (is_preflight(x))
        level = ACCESS_OPEN; /* browsers send no key with a preflight */
    if (access_admit(&x->access, x->front->config.access, level, &proof, &x->err) != STATUS_OK)
        exchange_refuse(x, exchange_status_of(x, x->err.status));
    buf_deinit(&x->authorization);
    buf_deinit(&x->api_key);
}

static void check_origin(struct exchange *x)
{
    struct origin_rules rules = x->front->config.origins;

    if (x->passed_key != NULL)
        return; /* the daemon that got it has looked */
    if (x->sink->is_admin)
        rules.is_loopback = x->front->is_admin_loopback;
    if (origin_check(&rules, x->host, x->origin, &x->err) == STATUS_OK)
        x->is_of_page = x->origin[0] != '\0';
    else
        exchange_refuse(x, 403);
}

/* Content-Encoding: whether the body is to be inflated. */
static void check_coding(struct exchange *x)
{
    static const char *const ours[] = {"gzip", "x-gzip", "deflate"};

    if (x->coding[0] == '\0' || strcasecmp(x->coding, "identity") == 0)
        return;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcasecmp(x->coding, ours[i]) != 0)
            continue;
        if (gunzip_open(&x->gunzip, &x->err) != STATUS_OK)
            exchange_refuse(x, exchange_status_of(x, x->err.status));
        return;
    }
    (void)error_set(&x->err, STATUS_UNIMPLEMENTED,
                    "a body of Content-Encoding '%s' is not read: gzip, deflate and identity are",
                    x->coding);
    exchange_refuse(x, 415);
}

/* Answers "Expect: 100-continue" at once. */
static void let_continue(struct exchange *x)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char line[SOCKET_ROOM_BYTES + sizeof(go_on)];

    if (!x->wants_continue || !x->is_unread || x->is_http_1_0 || x->sink->is_http_2)
        return;
    memcpy(line + SOCKET_ROOM_BYTES, go_on, sizeof(go_on) - 1);
    /* A failed write fails the connection, which reports it. */
    (void)x->sink->write(x->sink, line + SOCKET_ROOM_BYTES, sizeof(go_on) - 1);
}

void exchange_head(struct exchange *x)
{
    if (x->refused_as != 0) { /* malformed */
        due(x);
        return;
    }
    x->must_close = x->says_close || (x->is_http_1_0 && !x->says_keep);
    find_route(x);
    check_conversation(x);
    check_coding(x);
    exchange_check_length(x);
    exchange_check_key(x);
    check_origin(x);
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

    return exchange_now_ms(x) - x->begun_ms > allowed_ms;
}

static bool stop_reading(struct exchange *x, int http_status)
{
    exchange_refuse(x, http_status);
    x->must_close = true;
    due(x);
    return false;
}

static bool is_too_large(struct exchange *x)
{
    (void)error_because(&x->err, STATUS_INVALID, REASON_REQUEST_TOO_LARGE, NULL,
                        "the body is too large: at most %zu bytes are taken",
                        x->front->config.max_body_bytes);
    return stop_reading(x, 413);
}

bool exchange_expect(struct exchange *x, uint64_t n_bytes)
{
    return n_bytes <= x->front->config.max_body_bytes - x->body.len || is_too_large(x);
}

static enum status exchange_take(struct exchange *x, const char *data, size_t len)
{
    return x->gunzip == NULL ? buf_append(&x->body, data, len)
                             : gunzip_more(x->gunzip, &x->body, data, len, &x->err);
}

bool exchange_more(struct exchange *x, const char *data, size_t len)
{
    enum status rc = exchange_take(x, data, len);

    if (rc == STATUS_INVALID)
        return stop_reading(x, 400);
    if (rc != STATUS_OK)
        return is_too_large(x);
    if (is_too_slow(x)) {
        (void)error_set(&x->err, STATUS_DEADLINE, "the body arrives too slowly");
        return stop_reading(x, 408);
    }
    wait_for_more(x);
    return true;
}

void exchange_whole(struct exchange *x)
{
    if (x->is_unread && x->gunzip != NULL && x->refused_as == 0 && !gunzip_is_done(x->gunzip)) {
        (void)error_set(&x->err, STATUS_INVALID, "the compressed body is cut off");
        exchange_refuse(x, 400);
    }
    x->is_unread = false;
    if (x->state == EXCHANGE_READING)
        due(x);
}

void exchange_stop(struct exchange *x)
{
    due(x);
}

const char *exchange_body(const struct exchange *x, size_t *ret_len)
{
    *ret_len = x->body.len;
    return x->body.len == 0 ? "" : x->body.data;
}

/* --- notifications --- */

void exchange_notify(struct exchange *x)
{
    struct http_front *f = x->front;

    if (x->is_notified || x->state == EXCHANGE_CLOSED)
        return;
    x->is_notified = true;
    if (list_is_empty(&f->notified))
        f->stay_awake(f);
    list_push(&f->notified, &x->notified);
}

void exchange_set_handler(struct exchange *x, const struct exchange_handler *handler, void *state)
{
    assert(x->handler == NULL);
    x->handler = handler;
    x->handler_state = state;
}

void exchange_drop_handler(struct exchange *x)
{
    assert(x->handler != NULL && !x->is_ended);
    x->handler = NULL;
    x->handler_state = NULL;
}

/* --- the answer --- */

/* Without memory for the answer the connection is cut. */
static void exchange_cut(struct exchange *x)
{
    x->must_close = true;
    x->is_ended = x->is_cut = true;
    buf_deinit(&x->out);
}

static enum status append_head(struct exchange *x, int http_status, const char *type,
                               const char *more, size_t len)
{
    static const char room[SOCKET_ROOM_BYTES];
    const char *id_header = api_of(x)->id_header;
    const struct access_quota *quota;
    struct buf *out = &x->out;

    x->status = http_status;
    request_id_settle(&x->request_id, x->front->config.env);
    if (buf_append(out, room, sizeof(room)) != STATUS_OK ||
        buf_printf(out, "HTTP/1.1 %d %s\r\n%s", http_status, http_reason(http_status), more) !=
            STATUS_OK)
        return STATUS_EXHAUSTED;
    if (buf_printf(out, "X-Request-Id: %s\r\n", x->request_id.text) != STATUS_OK ||
        (id_header != NULL &&
         buf_printf(out, "%s: %s\r\n", id_header, x->request_id.text) != STATUS_OK))
        return STATUS_EXHAUSTED;
    if (type != NULL && buf_printf(out, "Content-Type: %s\r\n", type) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->conversation_id != NULL &&
        buf_printf(out, "X-Conversation-Id: %s\r\n", x->conversation_id) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->unenforced != NULL &&
        buf_printf(out, "X-Parley-Unenforced: %s\r\n", x->unenforced) != STATUS_OK)
        return STATUS_EXHAUSTED;
    quota = x->access == NULL ? NULL : access_key_quota(x->access);
    if (quota != NULL &&
        rate_limits_append(out, quota, env_now_us(x->front->config.env)) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (x->is_of_page && buf_printf(out,
                                    "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                                    "Access-Control-Expose-Headers: X-Conversation-Id, "
                                    "X-Parley-Unenforced, X-Request-Id, Retry-After"
                                    ", " RATE_LIMITS_EXPOSED "\r\n",
                                    x->origin) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (len != SIZE_MAX && http_status != 101 && http_status != 204 && http_status != 304 &&
        buf_printf(out, "Content-Length: %zu\r\n", len) != STATUS_OK)
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

static void reply_plain(struct exchange *x, int http_status, const char *type, const char *more,
                        const char *body, size_t len)
{
    assert(!x->is_ended && !x->is_streaming);
    x->must_close = x->must_close || (x->front->is_draining && !x->sink->is_http_2) || x->is_unread;
    if (append_head(x, http_status, type, more, len) != STATUS_OK ||
        (x->method != METHOD_HEAD && buf_append(&x->out, body, len) != STATUS_OK))
        exchange_cut(x);
    x->is_ended = true;
    exchange_notify(x);
}

/* Compresses the body for who takes it so. Streams go as they are: each event would have to be
 * flushed, and a few bytes grow by that. */
static void reply(struct exchange *x, int http_status, const char *type, const char *more,
                  const char *body, size_t len)
{
    static const char coded[] = "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n";
    char all[ASKED_MAX_BYTES + 512];
    struct buf packed;

    buf_init(&packed, len);
    if (len >= GZIP_MIN_BYTES && len <= GZIP_MAX_BYTES && gzip_is_accepted(x->accepts) &&
        gzip_append(&packed, body, len) == STATUS_OK) {
        (void)snprintf(all, sizeof(all), "%s%s", more, coded);
        reply_plain(x, http_status, type, all, packed.data, packed.len);
    } else { /* one that would grow is sent as it is, too */
        reply_plain(x, http_status, type, more, body, len);
    }
    buf_deinit(&packed);
}

void exchange_upgrade(struct exchange *x, struct websocket *w, const char *more)
{
    x->must_close = false;
    x->websocket = w;
    if (append_head(x, 101, NULL, more, 0) != STATUS_OK)
        exchange_cut(x);
    x->is_ended = true;
    exchange_notify(x);
}

void exchange_reply_with(struct exchange *x, int http_status, const char *type, const char *more,
                         const char *body, size_t len)
{
    reply_plain(x, http_status, type, more, body, len);
}

void exchange_reply(struct exchange *x, int http_status, const char *type, const char *body,
                    size_t len)
{
    reply(x, http_status, type, "", body, len);
}

/* Appends the file as it was before it was compressed, for who takes it only so. */
static enum status exchange_unpack(struct buf *out, const struct exchange_file *file)
{
    struct gunzip *z = NULL;
    struct error err;
    enum status rc = gunzip_open(&z, &err);

    if (rc == STATUS_OK)
        rc = gunzip_more(z, out, (const char *)file->gzip, file->gzip_bytes, &err);
    gunzip_close(z);
    return rc;
}

/* A list of tags names this one, weak or not; * names all. */
static bool exchange_knows(const struct exchange *x, const char *tag)
{
    return strcmp(x->known, "*") == 0 || strstr(x->known, tag) != NULL;
}

void exchange_reply_file(struct exchange *x, const struct exchange_file *file, const char *more)
{
    const bool is_packed = gzip_is_accepted(x->accepts);
    char all[FILE_HEADERS_BYTES];
    struct buf plain;

    /* Weak: the tag is of the content, however it is coded. */
    (void)snprintf(all, sizeof(all),
                   "ETag: W/%s\r\nCache-Control: no-cache\r\nVary: Accept, Accept-Encoding\r\n"
                   "X-Content-Type-Options: nosniff\r\n%s%s",
                   file->tag, is_packed ? "Content-Encoding: gzip\r\n" : "", more);
    buf_init(&plain, file->bytes);
    if (exchange_knows(x, file->tag))
        reply_plain(x, 304, NULL, all, "", 0);
    else if (is_packed)
        reply_plain(x, 200, file->type, all, (const char *)file->gzip, file->gzip_bytes);
    else if (exchange_unpack(&plain, file) == STATUS_OK)
        reply_plain(x, 200, file->type, all, plain.data, plain.len);
    else
        exchange_cut(x);
    buf_deinit(&plain);
}

/* Answers a browser's preflight request; the browser caches the answer for a while. */
static void reply_preflight(struct exchange *x)
{
    char more[ASKED_MAX_BYTES + 256];

    (void)snprintf(more, sizeof(more),
                   "Allow: GET, HEAD, POST, DELETE, OPTIONS\r\n"
                   "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE, OPTIONS\r\n"
                   "Access-Control-Allow-Headers: %.*s\r\n"
                   "Access-Control-Allow-Private-Network: true\r\n"
                   "Access-Control-Max-Age: 600\r\n",
                   (int)x->asked.len, x->asked.len == 0 ? "" : x->asked.data);
    reply(x, 204, NULL, more, "", 0);
}

enum status exchange_append_error(const struct exchange *x, struct buf *out,
                                  const struct error *err)
{
    return api_of(x)->append_error(out, exchange_status_of(x, err->status), err);
}

void exchange_fail_as(struct exchange *x, int http_status, const struct error *err)
{
    unsigned retry_after_s = http_retry_after_s(http_status, err);
    char more[96] = "";
    struct buf body;

    if (retry_after_s > 0 && err->retry_after_ms > 0) /* OpenAI's SDKs prefer the finer one */
        (void)snprintf(more, sizeof(more), "Retry-After: %u\r\nretry-after-ms: %u\r\n",
                       retry_after_s, err->retry_after_ms);
    else if (retry_after_s > 0)
        (void)snprintf(more, sizeof(more), "Retry-After: %u\r\n", retry_after_s);
    if (http_status == 401)
        (void)snprintf(more, sizeof(more), "WWW-Authenticate: Bearer realm=\"parley\"\r\n");
    if (http_status == 426)
        (void)snprintf(
            more, sizeof(more),
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
    if (http_status == 405)
        (void)snprintf(more, sizeof(more), "Allow: %s\r\n", route_methods(x->route));
    buf_init(&body, ERROR_MAX_BYTES);
    if (api_of(x)->append_error(&body, http_status, err) == STATUS_OK)
        reply(x, http_status, api_of(x)->error_type, more, body.data, body.len);
    else
        reply(x, http_status, NULL, more, "", 0);
    buf_deinit(&body);
}

void exchange_fail(struct exchange *x, const struct error *err)
{
    exchange_fail_as(x, exchange_status_of(x, err->status), err);
}

struct buf *exchange_stream_with(struct exchange *x, int http_status, const char *type,
                                 const char *more)
{
    if (!x->is_streaming && !x->is_ended) {
        x->is_streaming = true;
        x->must_close =
            x->must_close || x->is_http_1_0 || (x->front->is_draining && !x->sink->is_http_2);
        if (append_head(x, http_status, type, more, SIZE_MAX) != STATUS_OK)
            exchange_cut(x);
    }
    return &x->events;
}

struct buf *exchange_stream(struct exchange *x)
{
    return exchange_stream_with(x, 200,
                                x->stream_type != NULL ? x->stream_type : "text/event-stream", "");
}

/* A path's bytes, but for those that may stand in one. */
static enum status append_path(struct buf *out, const struct exchange *x)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~!$&'()*+,;=:@/";
    enum status rc = STATUS_OK;

    for (size_t i = 0; x->path[i] != '\0' && rc == STATUS_OK; i++)
        rc = strchr(plain, x->path[i]) != NULL && i != x->coded_slash
                 ? buf_append(out, &x->path[i], 1)
                 : buf_printf(out, "%%%02X", (unsigned char)x->path[i]);
    return rc;
}

static enum status append_header(struct buf *out, const char *name, const char *value, size_t len)
{
    return value == NULL || len == 0 ? STATUS_OK
                                     : buf_printf(out, "\n%s: %.*s", name, (int)len, value);
}

enum status exchange_write_head(struct exchange *x, struct buf *out, struct error *err)
{
    static const char *const kept[] = {[KEPT_CONTENT_TYPE] = "Content-Type",
                                       [KEPT_TIMEOUT_MS] = "Connect-Timeout-Ms",
                                       [KEPT_PROTOCOL] = "Connect-Protocol-Version",
                                       [KEPT_MESSAGE_CODING] = "Connect-Content-Encoding"};
    const struct {
        const char *name, *value;
        size_t len;
    } rows[] = {
        {"X-Request-Id", x->request_id.text, x->request_id.len},
        {"X-Conversation-Id", x->conversation, strlen(x->conversation)},
        {"Idempotency-Key", x->has_key ? x->key : NULL, x->key_len},
        {"Last-Event-ID", x->has_last_event ? x->last_event.data : NULL, x->last_event.len},
        {"Accept-Encoding", x->accepts, strlen(x->accepts)},
        {"If-None-Match", x->known, strlen(x->known)},
    };
    enum status rc = buf_printf(out, "%s ", x->method_name);

    if (rc == STATUS_OK)
        rc = append_path(out, x);
    if (rc == STATUS_OK && x->query != NULL)
        rc = buf_printf(out, "?%s", x->query);
    request_id_settle(&x->request_id, x->front->config.env);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == STATUS_OK; i++)
        rc = append_header(out, rows[i].name, rows[i].value,
                           i == 0 ? strlen(x->request_id.text) : rows[i].len);
    for (size_t i = 0; i < N_KEPT_HEADERS && rc == STATUS_OK; i++)
        rc = append_header(out, kept[i], x->kept[i], x->kept[i] == NULL ? 0 : strlen(x->kept[i]));
    return rc == STATUS_OK ? STATUS_OK : error_no_memory(err, out->len, "a request's head");
}

bool exchange_is_passed_on(const struct exchange *x)
{
    return x->passed_key != NULL;
}

void exchange_set_stream_type(struct exchange *x, const char *type)
{
    x->stream_type = type;
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

/* Appends the pending events as one chunk. */
static enum status append_events(struct exchange *x)
{
    static const char room[SOCKET_ROOM_BYTES];
    struct buf *out = &x->out;
    bool is_framed = !x->is_http_1_0 && !x->sink->is_http_2;

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

static void log_answer(const struct exchange *x)
{
    enum log_level level = x->status == 500 ? LOG_WARN : LOG_DEBUG;
    char path[PATH_LOGGED_BYTES];

    if (x->status != 0 && log_is_on(level))
        log_write(level, "http", "method=%s path=%s status=%d request_id=%s ms=%llu",
                  x->method_name == NULL ? "none" : x->method_name,
                  log_quote(path, sizeof(path), x->path == NULL ? "" : x->path), x->status,
                  x->request_id.text, (unsigned long long)(exchange_now_ms(x) - x->begun_ms));
}

/* Takes leave of the handler. */
static void exchange_dismiss(struct exchange *x)
{
    const struct exchange_handler *handler = x->handler;

    x->handler = NULL;
    if (handler != NULL)
        handler->on_close(x, x->handler_state);
}

static void exchange_release(struct exchange *x)
{
    exchange_dismiss(x);
    log_answer(x);
    x->status = 0;                 /* one that lingers is released again */
    websocket_close(x->websocket); /* it has not begun */
    x->websocket = NULL;
    gunzip_close(x->gunzip);
    x->gunzip = NULL;
    x->path = NULL;
    x->query = NULL;
    arena_deinit(&x->arena);
    buf_deinit(&x->body);
    buf_deinit(&x->events);
    buf_deinit(&x->out);
    buf_deinit(&x->asked);
    buf_deinit(&x->last_event);
    buf_deinit(&x->authorization);
    buf_deinit(&x->api_key);
}

void exchange_close(struct exchange *x)
{
    struct http_front *f = x->front;

    if (x->state != EXCHANGE_READING && x->state != EXCHANGE_LINGERING)
        f->n_answering--;
    exchange_move(x, EXCHANGE_CLOSED);
    x->sink->on_close(x->sink);
    exchange_release(x);
    if (x->is_notified)
        list_remove(&x->notified);
    list_remove(&x->link);
    free(x);
}

/* The kernel has the answer. */
static void complete(struct exchange *x)
{
    struct exchange_sink *sink = x->sink;
    bool must_close = x->must_close;
    struct websocket *w = must_close ? NULL : x->websocket;

    if (w != NULL)
        x->websocket = NULL; /* given away */
    if (must_close && x->is_unread && !x->front->is_stopping) {
        exchange_move(x, EXCHANGE_LINGERING);
        x->front->n_answering--;
        exchange_release(x);
        sink->shut(sink);
        sink->set_timeout(sink, LINGER_MS);
        return;
    }
    exchange_close(x);
    if (must_close)
        sink->close(sink);
    else if (w != NULL)
        sink->upgrade(sink, w);
    else
        sink->resume(sink);
}

/* False: the connection has failed, and x is freed. */
static bool exchange_flush(struct exchange *x)
{
    struct exchange_sink *sink = x->sink;

    if (x->out.len > SOCKET_ROOM_BYTES &&
        !sink->write(sink, x->out.data + SOCKET_ROOM_BYTES, x->out.len - SOCKET_ROOM_BYTES)) {
        sink->close(sink);
        return false;
    }
    buf_clear(&x->out);
    sink->set_timeout(sink, sink->is_choked(sink) ? x->front->config.timeout_ms : 0);
    return true;
}

void exchange_tell_drain(struct exchange *x)
{
    if (x->handler != NULL && x->handler->drain != NULL && !x->is_ended)
        x->handler->drain(x, x->handler_state);
}

static void exchange_begin(struct exchange *x)
{
    exchange_move(x, EXCHANGE_ANSWERING);
    /* The answer has no time limit. */
    x->sink->set_timeout(x->sink, 0);
    if (x->refused_as != 0)
        exchange_fail_as(x, x->refused_as, &x->err);
    else if (x->route == NULL)
        reply_preflight(x);
    else
        x->route->serve(x);
    if (x->front->is_draining)
        exchange_tell_drain(x);
}

void exchange_serve(struct exchange *x)
{
    list_remove(&x->notified);
    x->is_notified = false;
    if (x->state == EXCHANGE_DUE)
        exchange_begin(x);
    if (x->sink->is_choked(x->sink))
        return; /* libwebsockets reports write-ready */
    if (x->state == EXCHANGE_ANSWERING) {
        if (!x->is_ended && x->handler != NULL)
            x->handler->on_write_ready(x, x->handler_state);
        if (x->is_streaming && !x->is_cut && append_events(x) != STATUS_OK)
            exchange_cut(x);
        if (!exchange_flush(x))
            return;
        if (x->is_ended)
            exchange_move(x, EXCHANGE_FLUSHING);
    }
    if (x->state == EXCHANGE_FLUSHING && !x->sink->is_choked(x->sink))
        complete(x);
}

static void exchange_fail_now(struct exchange *x, const struct error *err)
{
    if (x->handler != NULL && x->handler->cut != NULL)
        x->handler->cut(x, x->handler_state, err);
    else if (!x->is_streaming)
        exchange_fail(x, err);
    else
        exchange_cut(x);
    exchange_dismiss(x);
    exchange_notify(x);
}

void exchange_end_with(struct exchange *x, const struct error *err)
{
    if (x->state == EXCHANGE_READING) {
        x->err = *err;
        x->must_close = x->is_unread = true;
        exchange_refuse(x, exchange_status_of(x, err->status));
        due(x);
    } else if (x->state == EXCHANGE_DUE && x->refused_as == 0) {
        x->err = *err;
        exchange_refuse(x, exchange_status_of(x, err->status));
    } else if (x->state == EXCHANGE_ANSWERING && !x->is_ended) {
        exchange_fail_now(x, err);
    }
}

/* --- for routes --- */

const struct principal *exchange_principal(const struct exchange *x)
{
    return access_key_principal(x->access);
}

struct server *exchange_server(const struct exchange *x)
{
    return x->front->config.server;
}

struct arena *exchange_arena(struct exchange *x)
{
    return &x->arena;
}

bool exchange_is_admin(const struct exchange *x)
{
    return x->sink->is_admin;
}

bool exchange_wants_html(const struct exchange *x)
{
    return x->wants_html;
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

const char *exchange_method(const struct exchange *x)
{
    return x->method_name;
}

enum status exchange_query(const char **out, struct exchange *x, const char *name,
                           struct error *err)
{
    size_t name_len = strlen(name);
    const char *at = x->query == NULL ? "" : x->query;
    size_t len = 0, n = 0;
    char *value;

    *out = NULL;
    for (; *at != '\0'; at += len + (at[len] == '&')) {
        len = strcspn(at, "&");
        if (len > name_len && at[name_len] == '=' && strncmp(at, name, name_len) == 0)
            break;
    }
    if (*at == '\0')
        return STATUS_OK;
    at += name_len + 1;
    len -= name_len + 1;
    value = arena_alloc(&x->arena, len + 1, 1);
    if (value == NULL)
        return error_no_memory(err, len + 1, "a query");
    for (size_t i = 0; i < len; i++) {
        int byte = at[i] == '+' ? ' ' : head_decode(at + i, len - i); /* as of forms */

        value[n++] = byte < 0 ? at[i] : (char)byte;
        i += byte < 0 || at[i] == '+' ? 0 : 2;
    }
    value[n] = '\0';
    *out = value;
    return STATUS_OK;
}

const char *exchange_header(const struct exchange *x, enum kept_header which)
{
    return x->kept[which];
}

size_t exchange_max_body_bytes(const struct exchange *x)
{
    return x->front->config.max_body_bytes;
}

const char *exchange_conversation(const struct exchange *x)
{
    return x->conversation;
}

const char *exchange_key(const struct exchange *x)
{
    return x->has_key ? x->key : NULL;
}

const char *exchange_last_event(const struct exchange *x, size_t *ret_len)
{
    *ret_len = x->last_event.len;
    if (!x->has_last_event)
        return NULL;
    return x->last_event.len == 0 ? "" : x->last_event.data;
}

void exchange_set_conversation(struct exchange *x, const char *id)
{
    x->conversation_id = id;
}

void exchange_set_unenforced(struct exchange *x, const char *keywords)
{
    x->unenforced = keywords;
}
