/* The happy path: frames come in (http2_read), a stream's headers become an exchange's head, its
 * data the body. The answer is the text of HTTP/1.1 up to the empty line, which is sent as HEADERS
 * (stream_write), then bytes without chunks, which libnghttp2 pulls as the peer's windows allow
 * (on_pull); once they are gone the exchange is notified, as by a socket that was choked.
 *
 * Exchanges only note what is to be sent: front_serve flushes behind them, so that no stream is
 * closed inside an exchange's call. A stream that the peer resets ends its exchange as a hang-up
 * does; an error of the connection ends all of them. */
#include "server/http/http2.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/head.h"
#include "server/http/socket.h"

enum {
    STREAMS_MAX = 100,
    WINDOW_BYTES = 1 << 20, /* of a stream's body on its way */
    WRITE_BYTES = 64 << 10, /* at most so many are handed to the socket at once */
    ANSWER_HEADERS_MAX = 40,
    STREAM_OUT_MAX_BYTES = 64 << 20,
    ACKNOWLEDGE_MS = 1000, /* of a drain's notice */
};

struct http2 {
    struct http_front *front;
    struct lws *wsi;
    nghttp2_session *session;
    struct list streams;
    struct link due; /* of the front's connections to be flushed */
    struct buf out;  /* for the socket; begins with SOCKET_ROOM_BYTES */
    void (*over)(void *arg);
    void *arg;
    uint64_t leaves_at_ms; /* when the notice of a drain no longer waits for its answer; 0: none */
    bool is_admin, has_goaway;
    bool is_broken; /* frames were lost: nothing is sent any more */
};

struct http2_stream {
    struct link link; /* of the connection's streams */
    struct http2 *of;
    struct exchange_sink sink;
    struct exchange *exchange; /* NULL: it has ended */
    int32_t id;
    uint64_t until_ms; /* 0: no time-out */
    size_t n_head;     /* bytes of its headers */
    struct buf out;    /* the body that was not pulled yet */
    bool has_answer;   /* its headers are submitted */
    bool is_ended;     /* no more comes behind out */
};

static struct http2_stream *stream_of(struct exchange_sink *sink)
{
    return container_of(sink, struct http2_stream, sink);
}

static void http2_be_due(struct http2 *h)
{
    if (!link_is_on(&h->due))
        list_push(&h->front->http2_due, &h->due);
}

/* --- what a stream's exchange calls --- */

static void stream_set_timeout(struct exchange_sink *sink, uint64_t timeout_ms)
{
    struct http2_stream *s = stream_of(sink);

    s->until_ms = timeout_ms == 0 ? 0 : front_now_ms(s->of->front) + timeout_ms;
}

static void stream_on_close(struct exchange_sink *sink)
{
    stream_of(sink)->exchange = NULL;
}

static void stream_reset(struct http2_stream *s, uint32_t why)
{
    /* Fails without memory alone: then the sweep closes the connection. */
    (void)nghttp2_submit_rst_stream(s->of->session, NGHTTP2_FLAG_NONE, s->id, why);
    http2_be_due(s->of);
}

static void stream_close(struct exchange_sink *sink)
{
    stream_reset(stream_of(sink), NGHTTP2_INTERNAL_ERROR);
}

static void stream_end(struct exchange_sink *sink)
{
    struct http2_stream *s = stream_of(sink);

    s->is_ended = true;
    s->until_ms = 0;
    (void)nghttp2_session_resume_data(s->of->session, s->id); /* it may not wait */
    http2_be_due(s->of);
}

/* The answer is whole though the request was not read: its rest is not wanted. */
static void stream_shut(struct exchange_sink *sink)
{
    stream_end(sink);
}

static bool stream_is_choked(const struct exchange_sink *sink)
{
    return container_of(sink, struct http2_stream, sink)->out.len > 0;
}

static ssize_t on_pull(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *ret_flags, nghttp2_data_source *source, void *arg)
{
    struct http2_stream *s = source->ptr;
    const size_t n = room < s->out.len ? room : s->out.len;

    if (n > 0)
        memcpy(to, s->out.data, n);
    buf_consume(&s->out, n);
    if (s->out.len > 0)
        return (ssize_t)n;
    if (s->is_ended) {
        *ret_flags |= NGHTTP2_DATA_FLAG_EOF;
        return (ssize_t)n;
    }
    if (s->exchange != NULL)
        exchange_notify(s->exchange);
    return n > 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

/* Whether a header has no place in HTTP/2. */
static bool is_hop_by_hop(const char *name, size_t len)
{
    static const char *const names[] = {"connection", "transfer-encoding", "keep-alive"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && strncasecmp(names[i], name, len) == 0)
            return true;
    return false;
}

/* A line "Name: value" of [len]. */
static nghttp2_nv header_of_line(char *line, size_t len)
{
    char *colon = memchr(line, ':', len);
    const size_t n = colon == NULL ? len : (size_t)(colon - line);
    const size_t at = n + 2 < len ? n + 2 : len;

    for (size_t i = 0; i < n; i++)
        if (line[i] >= 'A' && line[i] <= 'Z')
            line[i] = (char)(line[i] | 0x20);
    return (nghttp2_nv){(uint8_t *)line, (uint8_t *)line + at, n, len - at, NGHTTP2_NV_FLAG_NONE};
}

/* head [len] is "HTTP/1.1 200 OK" and the lines behind it, without the empty one. */
static bool stream_submit(struct http2_stream *s, char *head, size_t len)
{
    static char status_name[] = ":status";
    nghttp2_nv headers[ANSWER_HEADERS_MAX];
    const nghttp2_data_provider body = {.source.ptr = s, .read_callback = on_pull};
    const char *end = head + len;
    size_t n = 1;

    headers[0] = (nghttp2_nv){(uint8_t *)status_name, (uint8_t *)head + strlen("HTTP/1.1 "),
                              sizeof(status_name) - 1, 3, NGHTTP2_NV_FLAG_NONE};
    for (char *at = memmem(head, len, "\r\n", 2); at != NULL && n < ANSWER_HEADERS_MAX;) {
        char *line = at + 2;

        at = memmem(line, (size_t)(end - line), "\r\n", 2);
        headers[n] = header_of_line(line, (size_t)((at == NULL ? end : at) - line));
        if (headers[n].namelen > 0 &&
            !is_hop_by_hop((const char *)headers[n].name, headers[n].namelen))
            n++;
    }
    s->has_answer = true;
    return nghttp2_submit_response(s->of->session, s->id, headers, n, &body) == 0;
}

static bool stream_write(struct exchange_sink *sink, char *data, size_t len)
{
    struct http2_stream *s = stream_of(sink);
    const char *end;
    size_t n_head = 0;

    if (!s->has_answer) {
        end = memmem(data, len, "\r\n\r\n", 4);
        if (end == NULL || !stream_submit(s, data, (size_t)(end - data)))
            return false;
        n_head = (size_t)(end - data) + 4;
    }
    if (len > n_head && buf_append(&s->out, data + n_head, len - n_head) != STATUS_OK)
        return false;
    (void)nghttp2_session_resume_data(s->of->session, s->id); /* it may not wait */
    http2_be_due(s->of);
    return true;
}

/* --- streams --- */

static struct http2_stream *stream_open(struct http2 *h, int32_t id)
{
    struct http2_stream *s = try_alloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->of = h;
    s->id = id;
    s->sink = (struct exchange_sink){.wsi = h->wsi,
                                     .is_admin = h->is_admin,
                                     .is_http_2 = true,
                                     .set_timeout = stream_set_timeout,
                                     .on_close = stream_on_close,
                                     .resume = stream_end,
                                     .write = stream_write,
                                     .is_choked = stream_is_choked,
                                     .shut = stream_shut,
                                     .close = stream_close};
    buf_init(&s->out, STREAM_OUT_MAX_BYTES);
    list_push(&h->streams, &s->link);
    s->exchange = exchange_open(h->front, &s->sink);
    if (s->exchange != NULL)
        return s;
    list_remove(&s->link);
    free(s);
    return NULL;
}

static void stream_free(struct http2_stream *s)
{
    if (s->exchange != NULL)
        exchange_close(s->exchange);
    list_remove(&s->link);
    buf_deinit(&s->out);
    free(s);
}

/* --- libnghttp2's callbacks --- */

static int on_stream(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_stream *s;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = stream_open(arg, frame->hd.stream_id);
    if (s == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
    return nghttp2_session_set_stream_user_data(session, s->id, s);
}

static bool is_header(const uint8_t *name, size_t len, const char *is)
{
    return len == strlen(is) && memcmp(name, is, len) == 0;
}

static bool stream_is_reading(const struct http2_stream *s)
{
    return s != NULL && s->exchange != NULL && s->exchange->state == EXCHANGE_READING;
}

/* libnghttp2 has checked which of them may come, how often, and in which order. False: malformed.
 */
static bool stream_take_field(struct http2_stream *s, const uint8_t *name, size_t name_len,
                              const char *value, size_t len)
{
    s->n_head += name_len + len;
    if (s->n_head > HEAD_MAX_BYTES) {
        (void)error_set(&s->exchange->err, STATUS_INVALID,
                        "the headers are too long: at most %d bytes are taken", HEAD_MAX_BYTES);
        return head_refuse(s->exchange, 431);
    }
    if (is_header(name, name_len, ":method"))
        return head_method(s->exchange, value, len);
    if (is_header(name, name_len, ":path"))
        return head_path(s->exchange, value, len);
    if (is_header(name, name_len, ":authority"))
        return head_authority(s->exchange, value, len);
    return name[0] == ':' || head_field(s->exchange, (const char *)name, name_len, value, len);
}

/* The head of a stream that is still read; NULL: a trailer, or its request is refused already. */
static struct http2_stream *stream_of_field(nghttp2_session *session, const nghttp2_frame *frame)
{
    struct http2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    return frame->headers.cat == NGHTTP2_HCAT_REQUEST && stream_is_reading(s) &&
                   s->exchange->refused_as == 0
               ? s
               : NULL;
}

static int on_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                    size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                    void *arg)
{
    struct http2_stream *s = stream_of_field(session, frame);

    if (s != NULL) /* what it refuses is answered once all headers have come */
        (void)stream_take_field(s, name, name_len, (const char *)value, value_len);
    return 0;
}

/* Without this it would be left out. */
static int on_invalid_field(nghttp2_session *session, const nghttp2_frame *frame,
                            const uint8_t *name, size_t name_len, const uint8_t *value,
                            size_t value_len, uint8_t flags, void *arg)
{
    struct http2_stream *s = stream_of_field(session, frame);

    if (s != NULL) {
        (void)error_set(&s->exchange->err, STATUS_INVALID,
                        "the request is malformed: a header's name or value has a byte that none "
                        "may have, or blanks around its value");
        (void)head_refuse(s->exchange, 400);
    }
    return 0;
}

/* The last stream that is answered. A failure is a lack of memory: then the peer sees the
 * connection end. */
static void http2_say_goaway(struct http2 *h)
{
    h->has_goaway = true;
    (void)nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(h->session),
                                NGHTTP2_NO_ERROR, NULL, 0);
    http2_be_due(h);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    const bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    struct http2 *h = arg;

    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 &&
        h->leaves_at_ms != 0 && !h->has_goaway)
        http2_say_goaway(h);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST &&
        stream_is_reading(s)) {
        if (is_last)
            s->exchange->has_length = true;
        s->exchange->is_chunked = !s->exchange->has_length; /* a body of unknown length */
        if (s->exchange->refused_as == 0)
            (void)head_end(s->exchange); /* what it refuses is due next */
        exchange_head(s->exchange);
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && is_last &&
        stream_is_reading(s))
        exchange_whole(s->exchange);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *arg)
{
    struct http2_stream *s = nghttp2_session_get_stream_user_data(session, id);

    /* False: it is refused, and what comes further is discarded. */
    if (stream_is_reading(s) && exchange_expect(s->exchange, len))
        (void)exchange_more(s->exchange, (const char *)data, len);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t why, void *arg)
{
    struct http2_stream *s = nghttp2_session_get_stream_user_data(session, id);

    if (s != NULL)
        stream_free(s);
    return 0;
}

/* Once the answer is out, a request that is still being sent is in vain. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    if (frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                         NGHTTP2_NO_ERROR);
    return 0;
}

/* --- the connection --- */

static int http2_begin(struct http2 *h)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEAD_MAX_BYTES},
    };
    nghttp2_session_callbacks *callbacks;
    int rc = nghttp2_session_callbacks_new(&callbacks);

    if (rc != 0)
        return rc;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_stream);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_field);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_field);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    rc = nghttp2_session_server_new(&h->session, callbacks, h);
    nghttp2_session_callbacks_del(callbacks);
    if (rc != 0)
        return rc;
    rc = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                 sizeof(settings) / sizeof(settings[0]));
    return rc != 0 ? rc
                   : nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                           4 * WINDOW_BYTES);
}

struct http2 *http2_open(struct http_front *f, struct lws *wsi, bool is_admin,
                         void (*over)(void *arg), void *arg)
{
    struct http2 *h = try_alloc(1, sizeof(*h));

    if (h == NULL)
        return NULL;
    h->front = f;
    h->wsi = wsi;
    h->is_admin = is_admin;
    h->over = over;
    h->arg = arg;
    list_init(&h->streams);
    buf_init(&h->out, SOCKET_ROOM_BYTES + 2 * WRITE_BYTES);
    if (http2_begin(h) == 0)
        return h;
    http2_close(h);
    return NULL;
}

void http2_close(struct http2 *h)
{
    struct link *at;

    if (h == NULL)
        return;
    while ((at = list_first(&h->streams)) != NULL)
        stream_free(container_of(at, struct http2_stream, link));
    if (link_is_on(&h->due))
        list_remove(&h->due);
    nghttp2_session_del(h->session);
    buf_deinit(&h->out);
    free(h);
}

bool http2_read(struct http2 *h, const char *data, size_t len)
{
    return !h->is_broken &&
           nghttp2_session_mem_recv(h->session, (const uint8_t *)data, len) == (ssize_t)len &&
           http2_flush(h);
}

/* Frames of about WRITE_BYTES into out. False: the session has failed. */
static bool http2_gather(struct http2 *h)
{
    static const char room[SOCKET_ROOM_BYTES];
    const uint8_t *data;
    ssize_t n = 0;

    buf_clear(&h->out);
    if (buf_append(&h->out, room, sizeof(room)) != STATUS_OK)
        return false;
    while (h->out.len < WRITE_BYTES && (n = nghttp2_session_mem_send(h->session, &data)) > 0)
        if (buf_append(&h->out, (const char *)data, (size_t)n) != STATUS_OK)
            return false;
    return n >= 0;
}

bool http2_flush(struct http2 *h)
{
    while (!h->is_broken && !socket_is_choked(h->wsi)) {
        h->is_broken = !http2_gather(h);
        if (h->is_broken || h->out.len == SOCKET_ROOM_BYTES)
            break;
        h->is_broken =
            !socket_write(h->wsi, h->out.data + SOCKET_ROOM_BYTES, h->out.len - SOCKET_ROOM_BYTES);
    }
    buf_deinit(&h->out); /* an idle connection holds no memory */
    if (h->is_broken)
        return false;
    return (nghttp2_session_want_read(h->session) != 0 ||
            nghttp2_session_want_write(h->session) != 0 || socket_is_choked(h->wsi)) &&
           !(h->has_goaway && http2_is_idle(h));
}

void http2_flush_due(struct http_front *f)
{
    struct link *at;

    while ((at = list_pop(&f->http2_due)) != NULL) {
        struct http2 *h = container_of(at, struct http2, due);

        if (!http2_flush(h))
            h->over(h->arg);
    }
}

/* RFC 9113, 6.8: a notice first, since the peer may have begun streams meanwhile, which are
 * answered too; the ping's answer says that the peer has come so far. libnghttp2 sends the ping in
 * front of the notice, which suits peers that read nothing behind a GOAWAY (Python's h2). */
void http2_drain(struct http2 *h)
{
    if (h->leaves_at_ms != 0)
        return;
    h->leaves_at_ms = front_now_ms(h->front) + ACKNOWLEDGE_MS;
    (void)nghttp2_submit_shutdown_notice(h->session); /* as above */
    (void)nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    http2_be_due(h);
}

bool http2_sweep(struct http2 *h, uint64_t now_ms)
{
    struct link *at = list_first(&h->streams), *next;

    if (h->leaves_at_ms != 0 && h->leaves_at_ms <= now_ms && !h->has_goaway)
        http2_say_goaway(h);
    for (; at != NULL; at = next) {
        struct http2_stream *s = container_of(at, struct http2_stream, link);

        next = list_next(&h->streams, at);
        if (s->until_ms == 0 || s->until_ms > now_ms)
            continue;
        if (socket_is_choked(h->wsi))
            return false;
        s->until_ms = 0;
        stream_reset(s, NGHTTP2_CANCEL);
    }
    return http2_flush(h);
}

bool http2_is_idle(const struct http2 *h)
{
    return list_is_empty(&h->streams);
}
