/* Happy path: the request goes in messages of PART_BYTES, of which most requests need one. The
 * answer's bytes are taken up to the empty line; then a body of known length is gathered and sent
 * as a whole, and a stream is sent as it comes, one message at a time.
 *
 * Failure: before the answer has begun, the failure is the answer, or the request is begun here.
 * Afterwards the stream breaks off: its client resumes it. */
#include "server/api/passed_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "parley/v1/cluster.pb-c.h"

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/cluster/cluster.h"
#include "server/http/exchange.h"
#include "server/server.h"

enum {
    PART_BYTES = 1 << 20,
    HEAD_MAX_BYTES = 64 << 10,
    LINES_MAX_BYTES = 8 << 10,
    TYPE_MAX_BYTES = 256
};
#define BODY_MAX_BYTES ((size_t)64 << 20)

/* In the exchange's arena. */
struct passed_exchange {
    struct exchange *x;
    struct cluster_call *out; /* NULL: it is over */
    size_t n_sent;            /* bytes of the body */
    struct buf in;            /* of the answer: up to the empty line the head, then the body */
    struct buf lines;         /* headers of the answer that are not made here */
    char type[TYPE_MAX_BYTES];
    int status;      /* of the answer; 0: its head has not come */
    bool is_whole;   /* the answer's length is known: it is sent once it is complete */
    bool is_waiting; /* for a message */
    bool is_over;    /* the other daemon has ended its answer */
    void (*here)(struct exchange *x, void *arg);
    void *arg;
};

/* --- the request --- */

static bool passed_exchange_is_repeatable(const struct exchange *x)
{
    return exchange_key(x) != NULL || strcmp(exchange_method(x), "POST") != 0;
}

/* The next part of the request, encoded; head only with the first. */
static uint8_t *passed_exchange_part(struct passed_exchange *p, const struct buf *head,
                                     struct call_piece *out)
{
    Parley__V1__ClusterHttpRequest message = PARLEY__V1__CLUSTER_HTTP_REQUEST__INIT;
    size_t len, size_bytes;
    const char *body = exchange_body(p->x, &len);
    uint8_t *bytes;

    if (head != NULL)
        message.head = (ProtobufCBinaryData){head->len, (uint8_t *)head->data};
    message.body.data = (uint8_t *)(uintptr_t)body + p->n_sent; /* it is only read */
    message.body.len = len - p->n_sent < PART_BYTES ? len - p->n_sent : PART_BYTES;
    size_bytes = codec_size(&message.base);
    bytes = try_alloc(1, size_bytes + 1);
    if (bytes == NULL)
        return NULL;
    (void)codec_encode(&message.base, bytes);
    p->n_sent += message.body.len;
    *out = (struct call_piece){.data = bytes, .size_bytes = size_bytes};
    return bytes;
}

static bool passed_exchange_has_sent(const struct passed_exchange *p)
{
    size_t len;

    (void)exchange_body(p->x, &len);
    return p->n_sent == len;
}

static void passed_exchange_fail(struct passed_exchange *p, const struct error *err);

static void on_part_sent(void *arg)
{
    struct passed_exchange *p = arg;
    struct call_piece piece;
    struct error err;
    uint8_t *bytes;

    if (passed_exchange_has_sent(p)) {
        cluster_call_half_close(p->out);
        return;
    }
    bytes = passed_exchange_part(p, NULL, &piece);
    if (bytes == NULL) {
        (void)error_no_memory(&err, PART_BYTES, "a request");
        cluster_call_cancel(p->out);
        p->out = NULL;
        passed_exchange_fail(p, &err);
        return;
    }
    cluster_call_send(p->out, &piece, 1);
    free(bytes);
}

/* --- the answer --- */

static void passed_exchange_fail(struct passed_exchange *p, const struct error *err)
{
    if (exchange_is_streaming(p->x)) {
        struct buf *events = exchange_stream(p->x);

        /* What a stream of this API says of a failure; without memory for it the stream just ends.
         */
        (void)!exchange_append_error(p->x, events, err);
        exchange_end(p->x);
        exchange_notify(p->x);
    } else {
        exchange_fail(p->x, err);
    }
}

/* Whether a header of the answer comes from there; the others are made here. */
static bool passed_exchange_keeps(const char *line, size_t name_len)
{
    static const char *const names[] = {
        "Content-Encoding",    "Retry-After", "retry-after-ms", "X-Conversation-Id",
        "X-Parley-Unenforced", "Allow",       "ETag",           "Location",
        "WWW-Authenticate"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == name_len && strncasecmp(names[i], line, name_len) == 0)
            return true;
    return false;
}

static bool passed_exchange_is_named(const char *line, size_t len, const char *name)
{
    return len > strlen(name) && strncasecmp(line, name, strlen(name)) == 0;
}

/* Reads the head, if all of it is there. */
static enum status passed_exchange_read_head(struct passed_exchange *p, struct error *err)
{
    static const char protocol[] = "HTTP/1.1 ";
    const char *at = p->in.data, *line_end;
    const char *end = at == NULL ? NULL : memmem(at, p->in.len, "\r\n\r\n", 4);
    enum status rc = STATUS_OK;

    if (end == NULL)
        return p->in.len > HEAD_MAX_BYTES
                   ? error_set(err, STATUS_INTERNAL, "the answer of another parleyd has no head")
                   : STATUS_OK;
    if (strncmp(at, protocol, sizeof(protocol) - 1) != 0)
        return error_set(err, STATUS_INTERNAL, "the answer of another parleyd is not HTTP");
    p->status = (int)strtol(at + sizeof(protocol) - 1, NULL, 10);
    for (at = memmem(at, (size_t)(end - at), "\r\n", 2); at != NULL && at < end && rc == STATUS_OK;
         at = line_end) {
        const char *line = at + 2;
        size_t len;

        line_end = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
        len = (size_t)((line_end == NULL ? end : line_end) - line);
        if (passed_exchange_is_named(line, len, "Content-Type: "))
            (void)snprintf(p->type, sizeof(p->type), "%.*s", (int)(len - 14), line + 14);
        else if (passed_exchange_is_named(line, len, "Content-Length: "))
            p->is_whole = true;
        else if (passed_exchange_keeps(line, strcspn(line, ":")))
            rc = buf_printf(&p->lines, "%.*s\r\n", (int)len, line);
    }
    p->is_whole = p->is_whole || p->status == 204 || p->status == 304;
    buf_consume(&p->in, (size_t)(end - p->in.data) + 4);
    return rc == STATUS_OK ? STATUS_OK : error_no_memory(err, p->lines.len, "an answer's head");
}

static const char *passed_exchange_lines(const struct passed_exchange *p)
{
    return p->lines.len == 0 ? "" : p->lines.data;
}

static void passed_exchange_wait(struct passed_exchange *p)
{
    if (p->is_waiting || p->out == NULL)
        return;
    p->is_waiting = true;
    cluster_call_read(p->out);
}

/* Gives on what has come. */
static void passed_exchange_go_on(struct passed_exchange *p)
{
    struct error err = {0};
    const char *type;

    if (p->status == 0 && p->in.len > 0 && passed_exchange_read_head(p, &err) != STATUS_OK) {
        if (p->out != NULL)
            cluster_call_cancel(p->out);
        p->out = NULL;
        passed_exchange_fail(p, &err);
        return;
    }
    type = p->type[0] == '\0' ? NULL : p->type;
    if (p->status != 0 && !p->is_whole) {
        struct buf *events = exchange_stream_with(p->x, p->status, type, passed_exchange_lines(p));

        if (p->in.len > 0 && buf_append(events, p->in.data, p->in.len) != STATUS_OK)
            (void)error_no_memory(&err, p->in.len, "an answer");
        buf_clear(&p->in);
        if (p->is_over || err.status != STATUS_OK)
            exchange_end(p->x);
    } else if (p->is_over && p->status != 0) {
        exchange_reply_with(p->x, p->status, type, passed_exchange_lines(p),
                            p->in.len == 0 ? "" : p->in.data, p->in.len);
    } else if (p->is_over) {
        (void)error_set(&err, STATUS_UNAVAILABLE, "another parleyd has not answered");
        passed_exchange_fail(p, &err);
    }
    if (!p->is_over)
        passed_exchange_wait(p);
}

static void on_passed_write_ready(struct exchange *x, void *state)
{
    struct passed_exchange *p = state;

    if (p->is_over || (!p->is_waiting && p->out != NULL))
        passed_exchange_go_on(p);
}

static void on_answer_part(void *arg, struct call_bytes *bytes)
{
    Parley__V1__ClusterHttpResponse *message;
    struct passed_exchange *p = arg;
    size_t at = 0;
    uint8_t *whole = try_alloc(1, bytes->size_bytes + 1);
    struct error err = {0};

    p->is_waiting = false;
    for (size_t i = 0; whole != NULL && i < bytes->n_pieces; i++) {
        memcpy(whole + at, bytes->pieces[i].iov_base, bytes->pieces[i].iov_len);
        at += bytes->pieces[i].iov_len;
    }
    call_bytes_free(bytes);
    message = whole == NULL ? NULL : parley__v1__cluster_http_response__unpack(NULL, at, whole);
    if (message == NULL ||
        buf_append(&p->in, (const char *)message->data.data, message->data.len) != STATUS_OK)
        (void)error_no_memory(&err, at, "an answer of another parleyd");
    if (message != NULL)
        parley__v1__cluster_http_response__free_unpacked(message, NULL);
    free(whole);
    if (err.status != STATUS_OK) {
        cluster_call_cancel(p->out);
        p->out = NULL;
        passed_exchange_fail(p, &err);
        return;
    }
    exchange_notify(p->x); /* it is written once the client takes it */
}

static void on_answer_end(void *arg, const struct error *err, bool is_unsent)
{
    struct passed_exchange *p = arg;
    struct exchange *x = p->x;
    const bool may_begin_here =
        p->status == 0 && p->in.len == 0 &&
        (cluster_has_refused(err, is_unsent) || err->status == STATUS_UNIMPLEMENTED ||
         (cluster_has_lost(err) && passed_exchange_is_repeatable(x)));

    p->out = NULL;
    if (err->status == STATUS_OK) {
        p->is_over = true;
        exchange_notify(x);
    } else if (may_begin_here) {
        exchange_drop_handler(x);
        buf_deinit(&p->in);
        buf_deinit(&p->lines);
        p->here(x, p->arg);
    } else {
        passed_exchange_fail(p, err);
    }
}

static void on_passed_closed(struct exchange *x, void *state)
{
    struct passed_exchange *p = state;

    if (p->out != NULL)
        cluster_call_cancel(p->out);
    p->out = NULL;
    buf_deinit(&p->in);
    buf_deinit(&p->lines);
}

/* --- the beginning --- */

static struct cluster_call *passed_exchange_send(struct passed_exchange *p,
                                                 const struct journal_peer *to)
{
    static const struct outgoing_handler handler = {
        .message = on_answer_part, .sent = on_part_sent, .end = on_answer_end};
    struct call_piece piece;
    struct cluster_call_start start = {
        .to = to, .principal = exchange_principal(p->x)->name, .method = "/parley.v1.Cluster/Http"};
    struct cluster_call *out = NULL;
    uint8_t *bytes = NULL;
    struct error ignored; /* without memory nothing is passed on */
    struct buf head;

    buf_init(&head, HEAD_MAX_BYTES);
    if (exchange_write_head(p->x, &head, &ignored) == STATUS_OK)
        bytes = passed_exchange_part(p, &head, &piece);
    if (bytes != NULL) {
        if (passed_exchange_has_sent(p)) {
            start.pieces = &piece;
            start.n_pieces = 1;
        }
        out = cluster_pass_on(exchange_server(p->x)->cluster, &start, &handler, p);
        if (out != NULL && start.pieces == NULL)
            cluster_call_send(out, &piece, 1);
    }
    free(bytes);
    buf_deinit(&head);
    return out;
}

bool passed_exchange_begin(struct exchange *x, const struct journal_peer *to,
                           void (*here)(struct exchange *x, void *arg), void *arg)
{
    static const struct exchange_handler handler = {.on_write_ready = on_passed_write_ready,
                                                    .on_close = on_passed_closed};
    struct passed_exchange *p = arena_alloc(exchange_arena(x), 1, sizeof(*p));

    if (p == NULL)
        return false;
    *p = (struct passed_exchange){.x = x, .here = here, .arg = arg};
    buf_init(&p->in, BODY_MAX_BYTES);
    buf_init(&p->lines, LINES_MAX_BYTES);
    p->out = passed_exchange_send(p, to);
    if (p->out == NULL)
        return false;
    exchange_set_handler(x, &handler, p);
    passed_exchange_wait(p);
    return true;
}
