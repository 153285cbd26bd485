/* Requests as bytes, each whole and byte by byte: how they are answered, and whether the connection
 * is used again. RFC 9112 and 9110 decide for HTTP/1, RFC 9113 for HTTP/2. What a proxy in front
 * may have read otherwise is refused, and what follows it on the connection is not read. */
#include <check.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/exchange.h"
#include "server/http/front.h"
#include "server/http/http2.h"
#include "server/http/socket.h"
#include "tests/unit/base/suite.h"

static struct http_front f;

struct lws {
    struct connection *connection;
    char said[32 << 10];
    size_t n_said;
    bool is_shut, is_closed;
};

/* --- a socket that takes all bytes --- */

bool socket_write(struct lws *to, char *data, size_t len)
{
    ck_assert(!to->is_closed && !to->is_shut);
    ck_assert_uint_lt(len, sizeof(to->said) - to->n_said);
    memcpy(to->said + to->n_said, data, len);
    to->n_said += len;
    return true;
}

bool socket_is_choked(const struct lws *to)
{
    return false;
}

bool socket_has_unread(const struct lws *to)
{
    return false;
}

void socket_shut(struct lws *to)
{
    to->is_shut = true;
}

void socket_close(struct lws *to)
{
    to->is_closed = true;
    connection_close(to->connection);
}

void socket_pause(struct lws *to, bool on)
{
}

/* --- routes that say what they were asked --- */

static enum status append_text(struct buf *out, int http_status, const struct error *err)
{
    return buf_printf(out, "%d: %s", http_status, err->text);
}

static const struct http_api api = {"text/plain", append_text, NULL, NULL};

static void serve_asked(struct exchange *x)
{
    size_t len;
    const char *body = exchange_body(x, &len), *a;
    struct error err;
    struct buf out;

    buf_init(&out, 32 << 10);
    if (exchange_query(&a, x, "a", &err) != STATUS_OK ||
        buf_printf(&out, "%s path=%s a=%s conversation=%s key=%s body=%.*s.", exchange_method(x),
                   exchange_path(x), a == NULL ? "none" : a, exchange_conversation(x),
                   exchange_key(x) == NULL ? "none" : exchange_key(x), (int)len, body) != STATUS_OK)
        ck_abort();
    exchange_reply(x, 200, "text/plain", out.data, out.len);
    buf_deinit(&out);
}

static const struct route rows[] = {
    {"/health", .methods = METHOD_GET | METHOD_HEAD, .serve = serve_asked, .api = &api},
    {"/metrics", .methods = METHOD_GET | METHOD_HEAD, .serve = serve_asked, .api = &api},
    {"/chat", .methods = METHOD_POST, .serve = serve_asked, .api = &api},
    {"/models/", true, METHOD_GET, .serve = serve_asked, .api = &api, .has_slashes = true},
    {"/replies/", true, METHOD_GET, .serve = serve_asked, .api = &api},
};
static const struct route_table table = {rows, sizeof(rows) / sizeof(rows[0])};
static const struct route_table *const tables[] = {&table};

static void awake(struct http_front *front)
{
}

static void open_front(void)
{
    const struct http_config config = {
        .routes = {.tables = tables, .n_tables = 1, .api = &api},
        .max_body_bytes = 4096,
        .timeout_ms = 100000,
        .env = &env_real,
    };

    front_init(&f, &config, awake);
    f.is_serving = true;
}

static void close_front(void)
{
    ck_assert_uint_eq(f.n_answering, 0);
    ck_assert(list_is_empty(&f.connections) && list_is_empty(&f.exchanges));
    front_deinit(&f);
}

/* Sends bytes in pieces of n_piece; what was said stays in the socket, which is gone. */
static void converse(struct lws *s, const char *bytes, size_t len, size_t n_piece)
{
    *s = (struct lws){0};
    s->connection = connection_open(&f, s);
    ck_assert_ptr_nonnull(s->connection);
    for (size_t at = 0; at < len && !s->is_closed; at += n_piece) {
        connection_read(s->connection, bytes + at, n_piece < len - at ? n_piece : len - at);
        while (!list_is_empty(&f.notified) || !list_is_empty(&f.http2_due))
            front_serve(&f);
        if (!s->is_closed)
            front_sweep(&f);
    }
    s->said[s->n_said] = '\0';
}

static void hang_up(struct lws *s)
{
    if (!s->is_closed)
        connection_close(s->connection);
}

/* --- HTTP/1 --- */

struct request {
    const char *bytes;
    size_t len;
    const char *answer; /* the statuses, then "keep" or "close"; or "wait": more is to come */
    const char *says;   /* in what was said */
};

#define ASKED(bytes, answer, says)               \
    {                                            \
        (bytes), sizeof(bytes) - 1, answer, says \
    }
#define HOST "Host: a\r\n"
#define GET(headers) "GET /health HTTP/1.1\r\n" HOST headers "\r\n"
#define TARGET(target) "GET " target " HTTP/1.1\r\n" HOST "\r\n"
#define POST(headers) "POST /chat HTTP/1.1\r\n" HOST headers "\r\n"
#define CHUNKS(chunks) POST("Transfer-Encoding: chunked\r\n") chunks
#define NEXT "GET /metrics HTTP/1.1\r\n" HOST "\r\n"
#define INNER "GET /metrics HTTP/1.1\r\nHost: b\r\n\r\n"

static const struct request requests[] = {
    /* The first line. */
    ASKED(GET(""), "200 keep", "GET path=/health a=none conversation= key=none body=."),
    ASKED("\r\n" GET("") "\r\n\r\n" NEXT, "200 200 keep", NULL),
    ASKED("\n" GET(""), "400 close", "CR and LF"),
    ASKED("GET /health\r\n", "400 close", "no version"),
    ASKED("GET /health HTTP/0.9\r\n" HOST "\r\n", "505 close", NULL),
    ASKED("GET /health HTTP/1.0\r\n\r\n", "200 close", NULL),
    ASKED("GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "200 keep", NULL),
    ASKED("GET /health HTTP/1.2\r\n" HOST "\r\n", "200 keep", NULL),
    ASKED("GET /health HTTP/2.0\r\n" HOST "\r\n", "505 close", NULL),
    ASKED("GET /health HTTP/9.9\r\n" HOST "\r\n", "505 close", NULL),
    ASKED("GET /health HTTP/1.10\r\n" HOST "\r\n", "400 close", NULL),
    ASKED("GET /health HTTP/1\r\n" HOST "\r\n", "400 close", NULL),
    ASKED("GET /health http/1.1\r\n" HOST "\r\n", "400 close", NULL),
    ASKED("GET /health HTTP/1.1 \r\n" HOST "\r\n", "400 close", NULL),
    ASKED("GET  /health HTTP/1.1\r\n" HOST "\r\n", "400 close", NULL),
    ASKED("GET\t/health\tHTTP/1.1\r\n" HOST "\r\n", "400 close", NULL),
    ASKED(" GET /health HTTP/1.1\r\n" HOST "\r\n", "400 close", "method"),
    ASKED("G\"T /health HTTP/1.1\r\n" HOST "\r\n", "400 close", "method"),
    ASKED("GET /health HTTP/1.1\n" HOST "\r\n", "400 close", "CR and LF"),
    ASKED("GET /health HTTP/1.1\r" HOST "\r\n", "400 close", "CR and LF"),
    ASKED("GET /health HTTP/1.1\r\r\n" HOST "\r\n", "400 close", "CR and LF"),
    ASKED("\x16\x03\x01\x02\x00\x01", "400 close", "control character"), /* TLS */
    ASKED("GET /health HTTP/1.1\r\n" HOST, "wait", NULL),
    /* Methods. */
    ASKED("HEAD /health HTTP/1.1\r\n" HOST "\r\n", "200 keep", NULL),
    ASKED("PUT /health HTTP/1.1\r\n" HOST "\r\n", "405 keep", "Allow: GET, HEAD\r\n"),
    ASKED("TRACE /health HTTP/1.1\r\n" HOST "\r\n", "405 keep", "Allow: GET, HEAD\r\n"),
    ASKED("DELETE /chat HTTP/1.1\r\n" HOST "\r\n", "405 keep", "Allow: POST\r\n"),
    ASKED("PUT /health HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" NEXT, "405 close", NULL),
    ASKED("get /health HTTP/1.1\r\n" HOST "\r\n", "501 close", "'get'"),
    ASKED("BREW /health HTTP/1.1\r\n" HOST "\r\n" NEXT, "501 close", "'BREW'"),
    ASKED("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n" INNER, "501 close", NULL),
    ASKED("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "505 close", NULL),
    ASKED("OPTIONS * HTTP/1.1\r\n" HOST "\r\n" NEXT, "204 200 keep", "Allow: GET, HEAD, POST"),
    ASKED("OPTIONS /health HTTP/1.1\r\n" HOST "\r\n", "405 keep", NULL),
    ASKED("OPTIONS /chat HTTP/1.1\r\n" HOST "Origin: http://a\r\n\r\n", "204 keep",
          "Access-Control-Allow-Methods: "),
    ASKED("GET * HTTP/1.1\r\n" HOST "\r\n", "400 close", "OPTIONS"),
    /* Targets. */
    ASKED(TARGET("/health/"), "200 keep", "path=/health "),
    ASKED(TARGET("/h%65alth?a=%41"), "200 keep", "path=/health a=A "),
    ASKED(TARGET("/health?a=/../b"), "200 keep", "a=/../b "),
    ASKED(TARGET("/health?b&a=1&a=2"), "200 keep", "a=1 "),
    ASKED(TARGET("/health%00/x"), "400 close", "NUL"),
    ASKED(TARGET("/health?a=1%00"), "400 close", "NUL"),
    ASKED(TARGET("/health%0a"), "400 close", "control character"),
    ASKED(TARGET("/health%"), "400 close", "hexadecimal"),
    ASKED(TARGET("/health%4"), "400 close", "hexadecimal"),
    ASKED(TARGET("/health%zz"), "400 close", "hexadecimal"),
    ASKED(TARGET("/health/../metrics"), "400 close", "'..'"),
    ASKED(TARGET("/./metrics"), "400 close", "'.'"),
    ASKED(TARGET("/models/.."), "400 close", "'..'"),
    ASKED(TARGET("/models/%2e%2E/metrics"), "400 close", "'..'"),
    ASKED(TARGET("/models/..%2fmetrics"), "400 close", "'..'"),
    ASKED(TARGET("/models/..b/.c"), "200 keep", "path=/models/..b/.c "),
    ASKED(TARGET("/models/a%2Fb"), "200 keep", "path=/models/a/b "),
    ASKED(TARGET("/models%2Fa"), "404 keep", NULL),
    ASKED(TARGET("/%2Fhealth"), "404 keep", NULL),
    ASKED(TARGET("/health%2F"), "404 keep", NULL),
    ASKED(TARGET("/replies/1%2Fcancel"), "404 keep", NULL),
    ASKED(TARGET("//health"), "404 keep", NULL),
    ASKED(TARGET("/\\health"), "400 close", NULL),
    ASKED(TARGET("/health#a"), "400 close", NULL),
    ASKED(TARGET("/health b"), "400 close", NULL),
    ASKED(TARGET("/health\xc3\xa9"), "400 close", "%XX"),
    ASKED(TARGET("health"), "400 close", "begin with '/'"),
    ASKED(TARGET("a:80"), "400 close", "begin with '/'"),
    ASKED(TARGET(""), "400 close", NULL),
    ASKED(TARGET("http://a/health?a=b"), "200 keep", "path=/health a=b "),
    ASKED(TARGET("HTTPS://A/health"), "200 keep", NULL),
    ASKED(TARGET("http://a"), "404 keep", "there is no '/'"),
    ASKED(TARGET("http://b/health"), "400 close", "Host differs"),
    ASKED(TARGET("http://u:p@a/health"), "400 close", "Host"),
    ASKED(TARGET("http:///health"), "400 close", "Host"),
    ASKED(TARGET("ftp://a/health"), "400 close", "scheme"),
    /* Host. */
    ASKED("GET /health HTTP/1.1\r\n\r\n", "400 close", "Host is missing"),
    ASKED("GET http://a/health HTTP/1.1\r\n\r\n", "400 close", "Host is missing"),
    ASKED(GET("Host: a\r\n"), "400 close", "Host is given twice"),
    ASKED(GET("hOST: b\r\n"), "400 close", "Host is given twice"),
    ASKED("GET /health HTTP/1.0\r\n" HOST HOST "\r\n", "400 close", "Host is given twice"),
    ASKED("GET /health HTTP/1.1\r\nHost:\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: a, b\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: u@a\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: a:8x\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: :80\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: []\r\n\r\n", "400 close", "Host is HOST"),
    ASKED("GET /health HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "200 keep", NULL),
    ASKED("GET /health HTTP/1.1\r\nHost: \t 127.0.0.1:80 \t\r\n\r\n", "200 keep", NULL),
    /* Headers. */
    ASKED(GET("A : b\r\n"), "400 close", "name and a colon"),
    ASKED(GET("A b: c\r\n"), "400 close", "name and a colon"),
    ASKED(GET("A\r\n"), "400 close", "name and a colon"),
    ASKED(GET(": a\r\n"), "400 close", "name and a colon"),
    ASKED(GET("A\xc3\xa9: b\r\n"), "400 close", "name and a colon"),
    ASKED(GET("A(: b\r\n"), "400 close", "name and a colon"),
    ASKED(GET("A: b\r\n c\r\n"), "400 close", "folded"),
    ASKED("GET /health HTTP/1.1\r\n " HOST "\r\n", "400 close", "folded"),
    ASKED(GET("A: b\n"), "400 close", "CR and LF"),
    ASKED(GET("A: b\rc\r\n"), "400 close", "CR and LF"),
    ASKED(GET("A: b\0c\r\n"), "400 close", "control character"),
    ASKED(GET("A: b\x01\r\n"), "400 close", "control character"),
    ASKED(GET("A: b\x7f\r\n"), "400 close", "control character"),
    ASKED("GET /health HTTP/1.1\r\n" HOST "\n", "400 close", "CR and LF"),
    ASKED(GET("A: \tb\t\xc3\xa9 \r\nA:\r\nA:b\r\n"), "200 keep", NULL),
    ASKED(GET("X-Conversation-Id: \t a.b \t \r\nIdempotency-Key:c d\t\r\n"), "200 keep",
          "conversation=a.b key=c d "),
    ASKED(GET("X-Conversation-Id: a\r\nx-conversation-id: a\r\n"), "400 close", "given twice"),
    ASKED(GET("X-Conversation-Id: a b\r\n"), "400 keep", "X-Conversation-Id"),
    ASKED(GET("Idempotency-Key: a\r\nIdempotency-Key: b\r\n"), "400 close", "given twice"),
    ASKED(GET("Authorization: a\r\nAuthorization: b\r\n"), "400 close", "given twice"),
    ASKED(GET("X-Api-Key: a\r\nX-Api-Key: b\r\n"), "400 close", "given twice"),
    ASKED(GET("Content-Type: a\r\nContent-Type: b\r\n"), "400 close", "given twice"),
    ASKED(GET("Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n"), "400 close", "given twice"),
    ASKED(GET("Origin: http://a\r\nOrigin: http://a\r\n"), "400 close", "given twice"),
    ASKED(GET("X-Request-Id: mine\r\nX-Request-Id: proxy\r\n"), "200 keep",
          "X-Request-Id: mine\r\n"),
    ASKED(GET("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n"), "200 keep", NULL),
    ASKED(POST("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n") "a",
          "415 close", "'gzip, gzip'"),
    ASKED(GET("Content-Encoding: identity\r\n"), "200 keep", NULL),
    /* Lengths. */
    ASKED(POST("Content-Length: 5\r\n") "hello" NEXT, "200 200 keep", "body=hello."),
    ASKED(POST("Content-Length: 0\r\n") NEXT, "200 200 keep", "body=."),
    ASKED(POST("Content-Length:\t0005 \r\n") "hello" NEXT, "200 200 keep", "body=hello."),
    ASKED(POST("Content-Length: 5\r\n") "hell", "wait", NULL),
    ASKED(POST("") NEXT, "411 close", NULL),
    ASKED(POST("Content-Length: 5\r\nContent-Length: 5\r\n") "hello", "400 close", "given twice"),
    ASKED(POST("Content-Length: 5\r\nContent-Length: 0\r\n") INNER, "400 close", "given twice"),
    ASKED(POST("Content-Length: 5, 5\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length: +5\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length: -5\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length: 0x5\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length: 5 5\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length: 5;a\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length:\r\n") "hello", "400 close", "Content-Length"),
    ASKED(POST("Content-Length : 5\r\n") "hello", "400 close", "name and a colon"),
    ASKED(POST("Content-Length: 4097\r\n"), "413 close", "4097"),
    ASKED(POST("Content-Length: 18446744073709551615\r\n") "hello", "413 close", NULL),
    ASKED(POST("Content-Length: 18446744073709551621\r\n") "hello", "400 close", NULL),
    ASKED("GET /health HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" NEXT, "200 200 keep",
          "body=hello."),
    ASKED("GET /nowhere HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" NEXT, "404 close",
          NULL),
    ASKED(TARGET("/nowhere") NEXT, "404 200 keep", NULL),
    /* Transfer codings. */
    ASKED(CHUNKS("5\r\nhello\r\n0\r\n\r\n") NEXT, "200 200 keep", "body=hello."),
    ASKED(CHUNKS("3\r\nhel\r\n02;a=b;c=\"d e\"\r\nlo\r\n00\r\n\r\n") NEXT, "200 200 keep",
          "body=hello."),
    ASKED(CHUNKS("5 \t;a\r\nhello\r\n0\r\nA: b\r\nHost: c\r\nContent-Length: 9\r\n\r\n") NEXT,
          "200 200 keep", "body=hello."),
    ASKED(POST("Transfer-Encoding:\tChunked \r\n") "5\r\nhello\r\n0\r\n\r\n", "200 keep", NULL),
    ASKED(CHUNKS("5\r\nhello\r\n0\r\n"), "wait", NULL),
    ASKED(POST("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") "0\r\n\r\n" INNER,
          "400 close", "contradict"),
    ASKED(POST("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n") "0\r\n\r\n" INNER,
          "400 close", "contradict"),
    ASKED(POST("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n") "0\r\n\r\n" INNER,
          "400 close", NULL),
    ASKED(POST("Transfer-Encoding: \x0b"
               "chunked\r\nContent-Length: 5\r\n") INNER,
          "400 close", NULL),
    ASKED("POST /chat HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 close",
          "HTTP/1.0"),
    ASKED(POST("Transfer-Encoding: gzip\r\n") "a", "501 close", "chunked alone"),
    ASKED(POST("Transfer-Encoding: gzip, chunked\r\n") "0\r\n\r\n", "501 close", NULL),
    ASKED(POST("Transfer-Encoding: identity\r\nContent-Length: 5\r\n") "hello", "501 close", NULL),
    ASKED(POST("Transfer-Encoding: xchunked\r\n") "0\r\n\r\n", "501 close", NULL),
    ASKED(POST("Transfer-Encoding: chunked;a=b\r\n") "0\r\n\r\n", "501 close", NULL),
    ASKED(POST("Transfer-Encoding: \"chunked\"\r\n") "0\r\n\r\n", "501 close", NULL),
    ASKED(POST("Transfer-Encoding: chunked, gzip\r\n") "0\r\n\r\n", "400 close", "behind chunked"),
    ASKED(POST("Transfer-Encoding: chunked, chunked\r\n") "0\r\n\r\n", "400 close", NULL),
    ASKED(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n") "0\r\n\r\n",
          "400 close", "behind chunked"),
    ASKED(POST("Transfer-Encoding:\r\nContent-Length: 5\r\n") "hello", "400 close", NULL),
    ASKED(POST("Transfer-Encoding: ,\r\n") "hello", "400 close", "is empty"),
    /* Chunks. */
    ASKED(CHUNKS("\r\n"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("+5\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("-1\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("0x5\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS(" 5\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("5 \r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("5 5\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("5,a\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS(";a\r\nhello"), "400 close", "hexadecimal"),
    ASKED(CHUNKS("5\nhello\n0\n\n"), "400 close", "CR and LF"),
    ASKED(CHUNKS("5;a\nb\r\nhello\r\n0\r\n\r\n"), "400 close", "CR and LF"),
    ASKED(CHUNKS("5\r\nhello0\r\n\r\n"), "400 close", "longer"),
    ASKED(CHUNKS("5\r\nhello\n0\r\n\r\n"), "400 close", "CR and LF"),
    ASKED(CHUNKS("5\r\nhello\r0\r\n\r\n"), "400 close", "CR and LF"),
    ASKED(CHUNKS("1001\r\n"), "413 close", NULL),
    ASKED(CHUNKS("ffffffffffffffff\r\n"), "413 close", NULL),
    ASKED(CHUNKS("10000000000000005\r\nhello\r\n0\r\n\r\n"), "400 close", NULL),
    ASKED(CHUNKS("0\r\nA : b\r\n\r\n"), "400 close", "name and a colon"),
    ASKED(CHUNKS("0\r\nA: b\r\n c\r\n\r\n"), "400 close", "folded"),
    ASKED(CHUNKS("0\r\nA: b\n\r\n"), "400 close", "CR and LF"),
    /* Expect, Connection, Upgrade, pipelines. */
    ASKED(POST("Expect: 100-Continue\r\nContent-Length: 5\r\n"), "100 wait", NULL),
    ASKED(POST("Expect: 100-continue\r\nContent-Length: 5\r\n") "hello" NEXT, "100 200 200 keep",
          "body=hello."),
    ASKED(POST("Expect: 100-continue\r\nContent-Length: 5000\r\n"), "413 close", NULL),
    ASKED("POST /chat HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
          "200 close", NULL),
    ASKED(POST("Expect: more\r\nContent-Length: 5\r\n") "hello", "417 close", "Expect"),
    ASKED(GET("Expect: 100-continue, more\r\n"), "417 close", NULL),
    ASKED(GET("Connection: close\r\n") NEXT, "200 close", "Connection: close"),
    ASKED(GET("Connection: a, CLOSE ,b\r\n") NEXT, "200 close", NULL),
    ASKED(GET("Connection: closed\r\n") NEXT, "200 200 keep", NULL),
    ASKED(GET("Connection: keep-alive\r\nConnection: close\r\n") NEXT, "200 close", NULL),
    ASKED(GET("Connection: Upgrade\r\nUpgrade: websocket\r\n") NEXT, "200 200 keep", NULL),
    ASKED(GET("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n")
              NEXT,
          "200 200 keep", NULL),
    ASKED(GET("") POST("Content-Length: 2\r\n") "ab" TARGET("/nowhere")
              CHUNKS("1\r\na\r\n0\r\n\r\n") NEXT,
          "200 200 404 200 200 keep", NULL),
    ASKED(GET("") "GET /health HTTP/1.1\r\n\r\n" NEXT, "200 400 close", NULL),
};

/* Its statuses, and what became of the connection. */
static void describe(char *out, size_t size, const struct lws *s)
{
    static const char line[] = "HTTP/1.1 ";
    size_t len = 0;

    out[0] = '\0';
    for (const char *at = s->said; (at = strstr(at, line)) != NULL; at++)
        len += (size_t)snprintf(out + len, size - len, "%.3s ", at + sizeof(line) - 1);
    if (s->is_shut || s->is_closed)
        (void)snprintf(out + len, size - len, "close");
    else
        (void)snprintf(out + len, size - len, list_is_empty(&f.exchanges) ? "keep" : "wait");
}

static void expect(const char *bytes, size_t len, const char *answer, const char *says)
{
    static struct lws s;
    char got[64];

    for (size_t n_piece = len; n_piece > 0; n_piece = n_piece > 7 ? 7 : n_piece > 1 ? 1 : 0) {
        converse(&s, bytes, len, n_piece);
        describe(got, sizeof(got), &s);
        ck_assert_msg(strcmp(got, answer) == 0, "%.200s\nin pieces of %zu: %s, not %s: %s", bytes,
                      n_piece, got, answer, s.said);
        ck_assert_msg(says == NULL || strstr(s.said, says) != NULL, "%.200s\n%s", bytes, s.said);
        hang_up(&s);
    }
}

START_TEST(requests_of_http1)
{
    ck_assert_uint_ge(sizeof(requests) / sizeof(requests[0]), 60);
    open_front();
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        expect(requests[i].bytes, requests[i].len, requests[i].answer, requests[i].says);
    close_front();
}
END_TEST

/* Every byte in the place of one byte: in a method, a target, a version, a name, a value. Only what
 * RFC 9110 allows there is taken. */
START_TEST(every_byte)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static struct lws s;
    char bytes[128], got[64];

    open_front();
    for (int c = 0; c < 256; c++) {
        const bool is_token = c != 0 && strchr(token, c) != NULL;
        const bool is_text = c == '\t' || (c >= ' ' && c != 0x7f);
        const struct {
            const char *format, *answer;
        } cases[] = {
            {"GET%c /health HTTP/1.1\r\nHost: a\r\n\r\n",
             is_token || c == ' ' ? NULL : "400 close"},
            {"GET /health HTTP/1.1\r\nHost: a\r\nA%c: b\r\n\r\n",
             is_token || c == ':' ? "200 keep" : "400 close"},
            {"GET /health HTTP/1.1\r\nHost: a\r\nA: b%cc\r\n\r\n",
             is_text ? "200 keep" : "400 close"},
            {"GET /health HTTP/1.%c\r\nHost: a\r\n\r\n", c == '0'               ? "200 close"
                                                         : c >= '1' && c <= '9' ? "200 keep"
                                                                                : "400 close"},
            {"GET /health?%c HTTP/1.1\r\nHost: a\r\n\r\n",
             c > ' ' && c < 0x7f && strchr("\"#<>", c) == NULL ? "200 keep" : "400 close"},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            const size_t len = (size_t)snprintf(bytes, sizeof(bytes), cases[i].format, c);

            converse(&s, bytes, len, len);
            describe(got, sizeof(got), &s);
            ck_assert_msg(strcmp(got, cases[i].answer == NULL ? "200 keep" : cases[i].answer) ==
                                  0 ||
                              (cases[i].answer == NULL && strstr(got, " close") != NULL),
                          "byte %d of case %zu: %s", c, i, got);
            hang_up(&s);
        }
    }
    close_front();
}
END_TEST

/* --- bounds --- */

static void expect_long(const char *before, size_t n, const char *after, const char *answer)
{
    static char bytes[64 << 10];
    size_t len = strlen(before);

    memcpy(bytes, before, len);
    memset(bytes + len, 'a', n);
    len += n;
    memcpy(bytes + len, after, strlen(after) + 1);
    expect(bytes, len + strlen(after), answer, NULL);
}

START_TEST(long_heads)
{
    static const char end[] = " HTTP/1.1\r\n" HOST "\r\n";

    open_front();
    expect_long("GET /models/", 8000 - 8, end, "200 keep");
    expect_long("GET /models/", 8001 - 8, end, "414 close");
    expect_long("GET /health?", 8000 - 8, end, "200 keep");
    expect_long("GET /", 9000, "", "414 close"); /* before its end has come */
    expect_long("GET /health HTTP/1.1\r\n" HOST "A: ", 16000, "\r\n\r\n", "200 keep");
    expect_long("GET /health HTTP/1.1\r\n" HOST "A: ", 16 << 10, "\r\n\r\n", "431 close");
    expect_long("GET /health HTTP/1.1\r\n" HOST "A: ", 17000, "", "431 close");
    expect_long("GET /health HTTP/1.1\r\n" HOST, 17000, "", "431 close");
    expect_long("GET /health HTTP/1.1\r\nHost: ", 255, "\r\n\r\n", "200 keep");
    expect_long("GET /health HTTP/1.1\r\nHost: ", 256, "\r\n\r\n", "400 close");
    expect_long(CHUNKS("5;"), 254, "\r\nhello\r\n0\r\n\r\n", "200 keep");
    expect_long(CHUNKS("5;"), 255, "\r\nhello\r\n0\r\n\r\n", "400 close");
    expect_long(CHUNKS("0\r\nA: "), 16000, "\r\n\r\n", "200 keep");
    expect_long(CHUNKS("0\r\nA: "), 17000, "", "431 close");
    close_front();
}
END_TEST

/* No answer to HEAD has a body, also to one that is malformed. */
START_TEST(answers_to_head)
{
    static const struct request heads[] = {
        ASKED("HEAD /health HTTP/1.1\r\n" HOST "\r\n", NULL, NULL),
        ASKED("HEAD /nowhere HTTP/1.1\r\n" HOST "\r\n", NULL, NULL),
        ASKED("HEAD /chat HTTP/1.1\r\n" HOST "\r\n", NULL, NULL),
        ASKED("HEAD /health HTTP/1.1\r\n" HOST HOST "\r\n", NULL, NULL),
        ASKED("HEAD /.. HTTP/1.1\r\n", NULL, NULL),
    };
    static struct lws s;

    open_front();
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        converse(&s, heads[i].bytes, heads[i].len, heads[i].len);
        ck_assert_msg(s.n_said > 4 && strstr(s.said, "\r\n\r\n") == s.said + s.n_said - 4 &&
                          strstr(s.said, "Content-Length: ") != NULL,
                      "%s", s.said);
        hang_up(&s);
    }
    close_front();
}
END_TEST

/* So many chunks that the lines of their sizes are longer than a head may be. */
START_TEST(many_chunks)
{
    static char bytes[64 << 10];
    size_t len = sizeof(CHUNKS("")) - 1;

    memcpy(bytes, CHUNKS(""), len);
    for (int i = 0; i < 4000; i++, len += 6)
        memcpy(bytes + len, "1\r\na\r\n", 6);
    memcpy(bytes + len, "0\r\nA: b\r\n\r\n" NEXT, sizeof("0\r\nA: b\r\n\r\n" NEXT));
    open_front();
    expect(bytes, strlen(bytes), "200 200 keep", "aaaa.");
    close_front();
}
END_TEST

/* --- HTTP/2 --- */

struct stream {
    const char *head; /* "NAME=VALUE" lines, in their order; a line that is "=NAME=VALUE" has a NUL
                         in the place of each '~' */
    const char *body; /* NULL: the headers end the stream */
    const char *answer; /* a status, or "reset", or "goaway"; then the connection stays, unless */
    const char *says;
};

#define PSEUDO ":method=GET\n:path=/health\n:scheme=http\n:authority=a\n"
#define PATH(path) ":method=GET\n:path=" path "\n:scheme=http\n:authority=a\n"
#define POSTED ":method=POST\n:path=/chat\n:scheme=http\n:authority=a\n"

static const struct stream streams[] = {
    {PSEUDO, NULL, "200", "path=/health"},
    {":authority=a\n:scheme=https\n:path=/health\n:method=GET\n", NULL, "200", NULL},
    {":method=GET\n:path=/health\n:scheme=http\nhost=a\n", NULL, "200", NULL},
    {":method=GET\n:path=/health\n:scheme=http\n", NULL, "reset", NULL},
    /* Pseudo-headers. */
    {PSEUDO ":method=GET\n", NULL, "reset", NULL},
    {PSEUDO ":path=/metrics\n", NULL, "reset", NULL},
    {PSEUDO ":scheme=http\n", NULL, "reset", NULL},
    {PSEUDO ":authority=b\n", NULL, "reset", NULL},
    {PSEUDO ":status=200\n", NULL, "reset", NULL},
    {PSEUDO ":other=a\n", NULL, "reset", NULL},
    {"a=b\n" PSEUDO, NULL, "reset", NULL},
    {":path=/health\n:scheme=http\n:authority=a\n", NULL, "reset", NULL},
    {":method=GET\n:scheme=http\n:authority=a\n", NULL, "reset", NULL},
    {":method=GET\n:path=/health\n:authority=a\n", NULL, "reset", NULL},
    {":method=CONNECT\n:authority=a\n", NULL, "501", NULL},
    {":method=get\n:path=/health\n:scheme=http\n:authority=a\n", NULL, "501", NULL},
    {":method=BREW\n:path=/health\n:scheme=http\n:authority=a\n", NULL, "501", NULL},
    {":method=PUT\n:path=/health\n:scheme=http\n:authority=a\n", NULL, "405", "allow: GET, HEAD"},
    {":method=OPTIONS\n:path=*\n:scheme=http\n:authority=a\n", NULL, "204", "allow: GET"},
    /* Paths. */
    {PATH(""), NULL, "reset", NULL},
    {PATH("health"), NULL, "reset", NULL},
    {PATH("http://a/health"), NULL, "reset", NULL},
    {":method=GET\n:path=http://a/health\n:scheme=ftp\n:authority=a\n", NULL, "400", NULL},
    {PATH("*"), NULL, "reset", NULL},
    {PATH("/health%00"), NULL, "400", NULL},
    {PATH("/health/../metrics"), NULL, "400", NULL},
    {PATH("/models%2fa"), NULL, "404", NULL},
    {PATH("/health#a"), NULL, "400", NULL},
    {PATH("/heal th"), NULL, "reset", NULL},
    /* Host and :authority. */
    {PSEUDO "host=a\n", NULL, "200", NULL},
    {PSEUDO "host=b\n", NULL, "400", "host differs"},
    {PSEUDO "host=a\nhost=a\n", NULL, "reset", NULL},
    {":method=GET\n:path=/health\n:scheme=http\n:authority=\n", NULL, "reset", NULL},
    {":method=GET\n:path=/health\n:scheme=http\n:authority=u@a\n", NULL, "400", NULL},
    /* Names and values. */
    {PSEUDO "A=b\n", NULL, "reset", NULL},
    {PSEUDO "a b=c\n", NULL, "400", "malformed"},
    {PSEUDO "=a=b~c\n", NULL, "400", "malformed"},
    {PSEUDO "a= b\n", NULL, "400", "malformed"},
    {PSEUDO "a=b \n", NULL, "400", "malformed"},
    {PSEUDO "a=b\rc\n", NULL, "400", "malformed"},
    {PSEUDO "connection=close\n", NULL, "reset", NULL},
    {PSEUDO "keep-alive=5\n", NULL, "reset", NULL},
    {PSEUDO "proxy-connection=close\n", NULL, "reset", NULL},
    {PSEUDO "upgrade=h2c\n", NULL, "reset", NULL},
    {PSEUDO "transfer-encoding=chunked\n", NULL, "reset", NULL},
    {PSEUDO "te=gzip\n", NULL, "reset", NULL},
    {PSEUDO "te=trailers\n", NULL, "200", NULL},
    {PSEUDO "idempotency-key=a\nidempotency-key=b\n", NULL, "400", "given twice"},
    {PSEUDO "authorization=a\nauthorization=b\n", NULL, "400", "given twice"},
    {PSEUDO "content-type=a\ncontent-type=b\n", NULL, "400", "given twice"},
    {PSEUDO "x-conversation-id=a\nx-conversation-id=a\n", NULL, "400", "given twice"},
    {PSEUDO "cookie=a\ncookie=b\n", NULL, "200", NULL},
    {PSEUDO "expect=more\n", NULL, "417", NULL},
    /* Bodies. */
    {POSTED, "hello", "200", "body=hello."},
    {POSTED "content-length=5\n", "hello", "200", "body=hello."},
    {POSTED "content-length=4\n", "hello", "reset", NULL},
    {POSTED "content-length=6\n", "hello", "reset", NULL},
    {POSTED "content-length=5\n", NULL, "reset", NULL},
    {POSTED "content-length=5\ncontent-length=5\n", "hello", "reset", NULL},
    {POSTED "content-length=+5\n", "hello", "reset", NULL},
    {POSTED "content-length=0x5\n", "hello", "reset", NULL},
    {POSTED "content-encoding=gzip\ncontent-encoding=gzip\n", "hello", "415", "'gzip, gzip'"},
    {POSTED, NULL, "200", "body=."},
};

static size_t put_frame(char *out, char kind, char flags, char stream, const char *bytes,
                        size_t len)
{
    const char head[9] = {
        (char)(len >> 16), (char)(len >> 8), (char)len, kind, flags, 0, 0, 0, stream};

    memcpy(out, head, sizeof(head));
    memcpy(out + sizeof(head), bytes, len);
    return sizeof(head) + len;
}

static size_t put_text(char *out, const char *text, size_t len)
{
    ck_assert_uint_lt(len, 127);
    out[0] = (char)len;
    memcpy(out + 1, text, len);
    return 1 + len;
}

/* Lines NAME=VALUE as HPACK's literals without an index. */
static size_t put_headers(char *out, const char *lines)
{
    size_t n = 0;

    for (const char *at = lines, *end; *at != '\0'; at = end + 1) {
        const bool has_nul = *at == '=';
        const char *equals;

        at += has_nul;
        end = strchr(at, '\n');
        equals = memchr(at, '=', (size_t)(end - at));
        out[n++] = 0;
        n += put_text(out + n, at, (size_t)(equals - at));
        n += put_text(out + n, equals + 1, (size_t)(end - equals) - 1);
        for (char *tilde = out; has_nul && (tilde = memchr(tilde, '~', n)) != NULL;)
            *tilde = '\0';
    }
    return n;
}

/* What came of stream 1: the headers as lines and its body. "reset" or "goaway" without an answer.
 */
static void read_answer(struct buf *out, const struct lws *s)
{
    nghttp2_hd_inflater *inflater;
    const char *end = s->said + s->n_said;

    ck_assert_int_eq(nghttp2_hd_inflate_new(&inflater), 0);
    for (const char *at = s->said; end - at >= 9;) {
        const unsigned char *head = (const unsigned char *)at;
        const size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        const uint8_t *block = head + 9;
        size_t left = len;
        int flags = 0;

        at += 9 + len;
        if (head[3] == 0 && head[8] == 1)
            ck_assert_int_eq(buf_append(out, block, len), STATUS_OK);
        if (head[3] == 3 && head[8] == 1 && out->len == 0)
            ck_assert_int_eq(buf_append_text(out, "reset"), STATUS_OK);
        if (head[3] == 7 && out->len == 0)
            ck_assert_int_eq(buf_append_text(out, "goaway"), STATUS_OK);
        while (head[3] == 1 && left > 0) {
            nghttp2_nv nv;
            const ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, block, left, 1);

            ck_assert_int_ge(n, 0);
            block += n;
            left -= (size_t)n;
            if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 && head[8] == 1)
                ck_assert_int_eq(
                    buf_printf(out, "%s: %s\n", (const char *)nv.name, (const char *)nv.value),
                    STATUS_OK);
            if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0)
                ck_assert_int_eq(nghttp2_hd_inflate_end_headers(inflater), 0);
        }
    }
    nghttp2_hd_inflate_del(inflater);
}

START_TEST(requests_of_http2)
{
    static struct lws s;

    open_front();
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        const struct stream *of = &streams[i];
        char sent[2048] = HTTP2_PREFACE, head[1024];
        size_t len = HTTP2_PREFACE_BYTES;

        len += put_frame(sent + len, 4, 0, 0, "", 0);
        len += put_frame(sent + len, 1, of->body == NULL ? 5 : 4, 1, head,
                         put_headers(head, of->head));
        if (of->body != NULL)
            len += put_frame(sent + len, 0, 1, 1, of->body, strlen(of->body));
        /* The connection goes on, whatever became of the stream. */
        len += put_frame(sent + len, 1, 5, 3, head, put_headers(head, PSEUDO));
        for (size_t n_piece = len; n_piece > 0; n_piece = n_piece > 1 ? 1 : 0) {
            char status[32] = "";
            struct buf got;

            converse(&s, sent, len, n_piece);
            buf_init(&got, 4096);
            read_answer(&got, &s);
            ck_assert_msg(got.len > 0, "%s: nothing came", of->head);
            (void)snprintf(status, sizeof(status), "%.5s", got.data);
            if (strncmp(got.data, ":status: ", 9) == 0)
                (void)snprintf(status, sizeof(status), "%.3s", got.data + 9);
            ck_assert_msg(strcmp(status, of->answer) == 0, "%s%s, not %s", of->head, got.data,
                          of->answer);
            ck_assert_msg(of->says == NULL || strcasestr(got.data, of->says) != NULL, "%s%s",
                          of->head, got.data);
            ck_assert_msg(!s.is_closed && memmem(s.said, s.n_said, "path=/health", 12) != NULL,
                          "%s: the next stream was not answered", of->head);
            buf_deinit(&got);
            hang_up(&s);
        }
    }
    close_front();
}
END_TEST

SUITE_MAIN("server/http/requests", requests_of_http1, every_byte, long_heads, answers_to_head,
           many_chunks, requests_of_http2)
