/* A machine over lines: request line, fields, then a body of a known length or in chunks. It holds
 * at most one line and hands all else on. */
#include "server/http/http1.h"

#include <string.h>
#include <strings.h>

#include "server/http/exchange_parts.h"
#include "server/http/head.h"
#include "server/http/status.h"

enum {
    REQUEST_LINE_MAX_BYTES = TARGET_MAX_BYTES + 192,
    CHUNK_LINE_MAX_BYTES = 256, /* its extensions mean nothing here */
};

void http1_init(struct http1 *h)
{
    *h = (struct http1){.state = HTTP1_REQUEST_LINE};
    buf_init(&h->line, HEAD_MAX_BYTES + 1); /* and its CR */
}

void http1_deinit(struct http1 *h)
{
    buf_deinit(&h->line);
}

static bool refuse_line(struct exchange *x, const char *why)
{
    (void)error_set(&x->err, STATUS_INVALID, "the request is malformed: %s", why);
    return head_refuse(x, 400);
}

/* --- lines --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* HTTP/1.0, or HTTP/1.1 and what is compatible with it. */
static bool take_http_version(struct exchange *x, const char *at, size_t len)
{
    static const char name[] = "HTTP/";
    const char *digits = at + sizeof(name) - 1;

    if (len != strlen("HTTP/1.1") || memcmp(at, name, sizeof(name) - 1) != 0 ||
        !is_digit(digits[0]) || digits[1] != '.' || !is_digit(digits[2]))
        return refuse_line(x, "its first line does not end in HTTP/1.1");
    x->is_http_1_0 = digits[2] == '0';
    if (digits[0] == '1')
        return true;
    (void)error_set(&x->err, STATUS_INVALID, "the version of HTTP is 1.0, 1.1 or 2");
    return head_refuse(x, 505);
}

/* Target: /PATH?QUERY, http://HOST/PATH?QUERY, or *. */
static bool take_target(struct exchange *x, const char *at, size_t len)
{
    const char *slashes = len > 0 && at[0] == '/' ? NULL : memmem(at, len, "://", 3);
    size_t n_scheme, n_host;

    if (slashes == NULL)
        return head_path(x, at, len);
    n_scheme = (size_t)(slashes - at);
    if (!(n_scheme == 4 && strncasecmp(at, "http", 4) == 0) &&
        !(n_scheme == 5 && strncasecmp(at, "https", 5) == 0))
        return refuse_line(x, "its target's scheme is neither http nor https");
    at += n_scheme + 3;
    len -= n_scheme + 3;
    for (n_host = 0; n_host < len && at[n_host] != '/' && at[n_host] != '?';)
        n_host++;
    if (!head_authority(x, at, n_host))
        return false;
    if (n_host == len)
        return head_path(x, "/", 1);
    return head_path(x, at + n_host, len - n_host);
}

/* METHOD TARGET VERSION */
static bool take_request_line(struct exchange *x, const char *line, size_t len)
{
    const char *target = memchr(line, ' ', len), *end = memrchr(line, ' ', len);

    if (target == NULL || !head_is_token(line, (size_t)(target - line)))
        return refuse_line(x, "its first line does not begin with a method");
    if (end == target)
        return refuse_line(x, "its first line has no version of HTTP");
    return take_http_version(x, end + 1, (size_t)(line + len - end) - 1) &&
           head_method(x, line, (size_t)(target - line)) &&
           take_target(x, target + 1, (size_t)(end - target) - 1);
}

static bool is_blank_at(const char *at, size_t i)
{
    return at[i] == ' ' || at[i] == '\t';
}

/* NAME: VALUE. One of a trailer is not kept. */
static bool take_field(struct exchange *x, const char *line, size_t len, bool is_kept)
{
    const char *colon = memchr(line, ':', len);
    size_t at, n_name = colon == NULL ? 0 : (size_t)(colon - line);

    if (is_blank_at(line, 0))
        return refuse_line(x, "a header is folded over two lines");
    if (!head_is_token(line, n_name))
        return refuse_line(x, "a line of its headers does not begin with a name and a colon");
    if (!is_kept)
        return true;
    for (at = n_name + 1; at < len && is_blank_at(line, at);)
        at++;
    while (len > at && is_blank_at(line, len - 1))
        len--;
    return head_field(x, line, n_name, line + at, len - at);
}

/* SIZE, in hexadecimal digits, and extensions behind a semicolon. */
static bool take_chunk_line(struct http1 *h, struct exchange *x, const char *line, size_t len)
{
    size_t n = 0, at;

    h->left = 0;
    for (int digit; n < len && (digit = head_hex_value(line[n])) >= 0; n++) {
        if (h->left > UINT64_MAX >> 4)
            return refuse_line(x, "a chunk's size is no number of bytes");
        h->left = h->left << 4 | (unsigned)digit;
    }
    for (at = n; at < len && is_blank_at(line, at);)
        at++;
    if (n == 0 || (at < len ? line[at] != ';' : at > n))
        return refuse_line(x, "a chunk's size is not a hexadecimal number");
    h->state = h->left == 0 ? HTTP1_TRAILERS : HTTP1_CHUNK;
    h->n_bytes = 0;
    (void)exchange_expect(x, h->left); /* what it refuses is due, and read no further */
    return true;
}

static void http1_whole(struct http1 *h, struct exchange *x)
{
    h->state = HTTP1_REQUEST_LINE;
    h->n_bytes = 0;
    exchange_whole(x);
}

/* The head is read: what follows it? */
static bool http1_head(struct http1 *h, struct exchange *x)
{
    if (!head_end(x))
        return false;
    h->n_bytes = 0;
    exchange_head(x);
    if (x->state != EXCHANGE_READING)
        return true; /* refused before its body */
    h->left = x->length;
    h->state = x->is_chunked ? HTTP1_CHUNK_LINE : HTTP1_BODY;
    if (!x->is_chunked && x->length == 0)
        http1_whole(h, x);
    return true;
}

/* False: the request is refused. */
static bool http1_take_line(struct http1 *h, struct exchange *x, const char *line, size_t len)
{
    switch (h->state) {
    case HTTP1_REQUEST_LINE:
        if (len == 0)
            return true; /* some clients end a body so */
        h->state = HTTP1_FIELDS;
        return take_request_line(x, line, len);
    case HTTP1_FIELDS:
        return len == 0 ? http1_head(h, x) : take_field(x, line, len, true);
    case HTTP1_CHUNK_LINE:
        return take_chunk_line(h, x, line, len);
    case HTTP1_TRAILERS:
        if (len > 0)
            return take_field(x, line, len, false);
        http1_whole(h, x);
        return true;
    case HTTP1_CHUNK_END:
        h->state = HTTP1_CHUNK_LINE;
        return true;
    case HTTP1_BODY:
    case HTTP1_CHUNK:
        break;
    }
    return true;
}

/* --- bytes --- */

/* Bytes before the first control character; a tab is none. */
static size_t text_span(const char *at, size_t len)
{
    size_t n = 0;

    while (n < len && ((unsigned char)at[n] >= ' ' || at[n] == '\t') && at[n] != 0x7f)
        n++;
    return n;
}

/* Whether a line may have so many bytes. */
static bool has_room_for_line(const struct http1 *h, struct exchange *x, size_t len)
{
    switch (h->state) {
    case HTTP1_CHUNK_LINE:
        return len <= CHUNK_LINE_MAX_BYTES ? true : refuse_line(x, "a chunk's extensions are long");
    case HTTP1_CHUNK_END:
        return len == 0 ? true : refuse_line(x, "a chunk is longer than its size");
    case HTTP1_REQUEST_LINE:
        if (len <= REQUEST_LINE_MAX_BYTES)
            break;
        (void)error_set(&x->err, STATUS_INVALID,
                        "the first line is too long: at most %d bytes are taken",
                        REQUEST_LINE_MAX_BYTES);
        return head_refuse(x, 414);
    default:
        break;
    }
    if (h->n_bytes + len <= HEAD_MAX_BYTES)
        return true;
    (void)error_set(&x->err, STATUS_INVALID, "the headers are too long: at most %d bytes are taken",
                    HEAD_MAX_BYTES);
    return head_refuse(x, 431);
}

static bool keep_line(struct http1 *h, struct exchange *x, const char *data, size_t len)
{
    if (buf_append(&h->line, data, len) == STATUS_OK)
        return true;
    (void)error_no_memory(&x->err, len, "a line of the request");
    return head_refuse(x, http_status_of(x->err.status));
}

/* Reads to the end of a line, or keeps what came of it. False: the request is refused. */
static bool http1_read_line(struct http1 *h, struct exchange *x, const char *data, size_t len,
                            size_t *ret_used)
{
    const bool has_cr = h->line.len > 0 && h->line.data[h->line.len - 1] == '\r';
    const size_t n = has_cr ? 0 : text_span(data, len), n_used = n + (has_cr ? 1 : 2);
    bool is_taken;

    *ret_used = n_used < len ? n_used : len;
    if (!has_room_for_line(h, x, h->line.len - has_cr + n))
        return false;
    if (n < len &&
        (has_cr ? data[0] != '\n' : data[n] != '\r' || (n + 1 < len && data[n + 1] != '\n')))
        return refuse_line(x, "a line has a control character, or does not end in CR and LF");
    if (n_used > len)
        return keep_line(h, x, data, len);
    h->n_bytes += h->line.len + n_used;
    if (h->line.len == 0)
        return http1_take_line(h, x, data, n);
    if (n > 0 && !keep_line(h, x, data, n))
        return false;
    is_taken = http1_take_line(h, x, h->line.data, h->line.len - has_cr);
    buf_deinit(&h->line);
    return is_taken;
}

/* Of a body or chunk. What it refuses is due. */
static size_t http1_read_body(struct http1 *h, struct exchange *x, const char *data, size_t len)
{
    const size_t n = len < h->left ? len : (size_t)h->left;

    h->left -= n;
    if (!exchange_more(x, data, n) || h->left > 0)
        return n;
    if (h->state == HTTP1_CHUNK)
        h->state = HTTP1_CHUNK_END;
    else
        http1_whole(h, x);
    return n;
}

size_t http1_read(struct http1 *h, struct exchange *x, const char *data, size_t len)
{
    size_t at = 0, used;

    while (x->state == EXCHANGE_READING && at < len) {
        if (h->state == HTTP1_BODY || h->state == HTTP1_CHUNK)
            used = http1_read_body(h, x, data + at, len - at);
        else if (!http1_read_line(h, x, data + at, len - at, &used))
            exchange_stop(x);
        at += used;
    }
    return at;
}
