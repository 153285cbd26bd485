/* WebSockets as bytes: an echo program on our WebSocket gets each handshake and the cases of
 * Autobahn's test suite that do not compress, whole, byte by byte and in odd pieces. Time-outs are
 * tried with a clock that the test turns. */
#include "server/http/websocket.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "server/http/exchange.h"
#include "server/http/front.h"
#include "server/http/socket.h"
#include "server/http/upgrade.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

enum { MESSAGE_MAX_BYTES = 64 << 10, SAID_MAX_BYTES = 4 << 20 };

static struct http_front f;
static uint64_t now_us;
static unsigned n_over, n_messages;

struct lws {
    struct connection *connection;
    struct buf said;
    bool is_shut, is_closed, is_choked;
    bool is_slow; /* chokes on each write */
};

/* --- a clock, and a socket that takes all bytes --- */

static uint64_t clock_now_us(void *self)
{
    return now_us;
}

static void clock_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 7, n_bytes);
}

static const struct env fake_env = {clock_now_us, clock_random, NULL};

/* The test's own memory does not fail. */
static void own_memory(bool begins)
{
    static long left;

    if (begins) {
        left = fault_after;
        fault_after = -1;
    } else {
        fault_after = left;
    }
}

bool socket_write(struct lws *to, char *data, size_t len)
{
    ck_assert(!to->is_closed && !to->is_shut && !to->is_choked);
    own_memory(true);
    ck_assert_int_eq(buf_append(&to->said, data, len), STATUS_OK);
    own_memory(false);
    to->is_choked = to->is_slow;
    return true;
}

bool socket_is_choked(const struct lws *to)
{
    return to->is_choked;
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

/* --- the echo program: it says each message again --- */

struct echo {
    bool is_pulled;
};

static void echo_message(struct websocket *w, void *state, const char *data, size_t len,
                         bool is_text)
{
    struct echo *e = state;

    n_messages++;
    if (len == 3 && memcmp(data, "end", 3) == 0) {
        websocket_end(w, 4001, "as was asked");
        websocket_end(w, 4002, "the first call counts");
    } else if (len == 4 && memcmp(data, "pull", 4) == 0) {
        e->is_pulled = true;
        websocket_notify(w);
        websocket_notify(w);
    } else {
        (void)!websocket_send(w, data, len, is_text); /* it has ended then */
    }
}

static void echo_write_ready(struct websocket *w, void *state)
{
    struct echo *e = state;

    if (e->is_pulled)
        (void)!websocket_send(w, "pulled", 6, true); /* it has ended then */
    e->is_pulled = false;
}

static void echo_over(struct websocket *w, void *state)
{
    n_over++;
    free(state);
}

static const struct websocket_handler echo = {.max_message_bytes = MESSAGE_MAX_BYTES,
                                              .protocol = "echo.v1",
                                              .takes_binary = true,
                                              .on_message = echo_message,
                                              .on_write_ready = echo_write_ready,
                                              .on_close = echo_over};
static const struct websocket_handler text_echo = {.max_message_bytes = 16,
                                                   .first_ms = 10000,
                                                   .first_code = 4001,
                                                   .first_why = "nothing came",
                                                   .on_message = echo_message,
                                                   .on_write_ready = echo_write_ready,
                                                   .on_close = echo_over};

static void serve_with(struct exchange *x, const struct websocket_handler *handler)
{
    struct echo *e = try_alloc(1, sizeof(*e));
    struct error err;

    if (e == NULL) {
        (void)error_no_memory(&err, sizeof(*e), "an echo");
        exchange_fail(x, &err);
        return;
    }
    if (upgrade_to_websocket(x, handler, e) == NULL)
        free(e);
}

static void serve_echo(struct exchange *x)
{
    serve_with(x, &echo);
}

static void serve_text_echo(struct exchange *x)
{
    serve_with(x, &text_echo);
}

static enum status append_text(struct buf *out, int http_status, const struct error *err)
{
    return buf_printf(out, "%d: %s", http_status, err->text);
}

static const struct http_api api = {"text/plain", append_text, NULL, NULL};
static const struct route rows[] = {
    {"/echo", .methods = METHOD_GET, .serve = serve_echo, .api = &api},
    {"/text", .methods = METHOD_GET, .serve = serve_text_echo, .api = &api},
};
static const struct route_table table = {rows, sizeof(rows) / sizeof(rows[0])};
static const struct route_table *const tables[] = {&table};

static void awake(struct http_front *front)
{
}

/* --- a client --- */

static void open_front(void)
{
    const struct http_config config = {.routes = {.tables = tables, .n_tables = 1, .api = &api},
                                       .max_body_bytes = 4096,
                                       .timeout_ms = 100000,
                                       .env = &fake_env};

    now_us = 1000000;
    n_over = n_messages = 0;
    front_init(&f, &config, awake);
    f.is_serving = true;
}

static void close_front(void)
{
    ck_assert_uint_eq(f.n_answering, 0);
    ck_assert(list_is_empty(&f.connections) && list_is_empty(&f.exchanges));
    ck_assert(front_is_served(&f));
    front_deinit(&f);
}

static bool dial(struct lws *s)
{
    *s = (struct lws){0};
    buf_init(&s->said, SAID_MAX_BYTES);
    s->connection = connection_open(&f, s);
    return s->connection != NULL;
}

static void hang_up(struct lws *s)
{
    if (!s->is_closed && s->connection != NULL)
        connection_close(s->connection);
    buf_deinit(&s->said);
}

static void serve_all(void)
{
    while (!front_is_served(&f))
        front_serve(&f);
}

static void say(struct lws *s, const char *data, size_t len, size_t n_piece)
{
    for (size_t at = 0; at < len && !s->is_closed; at += n_piece) {
        connection_read(s->connection, data + at, n_piece < len - at ? n_piece : len - at);
        serve_all();
    }
}

/* The example of RFC 6455, 1.3. */
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define ACCEPT "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define HANDSHAKE "GET /echo HTTP/1.1\r\nHost: a\r\n" UPGRADE KEY VERSION "\r\n"
#define TEXT_HANDSHAKE "GET /text HTTP/1.1\r\nHost: a\r\n" UPGRADE KEY VERSION "\r\n"

struct frame {
    unsigned first; /* FIN, RSV and opcode */
    const char *payload;
    size_t len;
};

/* A client's frame: masked, with the shortest form of its length. */
static void add_frame(struct buf *out, unsigned first, const char *payload, size_t len)
{
    static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    unsigned char head[14] = {(unsigned char)first};
    size_t n = 2;

    head[1] = (unsigned char)(0x80 | (len < 126 ? len : len < 65536 ? 126 : 127));
    if (len >= 126)
        for (int shift = len < 65536 ? 8 : 56; shift >= 0; shift -= 8)
            head[n++] = (unsigned char)((uint64_t)len >> shift);
    memcpy(head + n, mask, sizeof(mask));
    ck_assert_int_eq(buf_append(out, head, n + sizeof(mask)), STATUS_OK);
    for (size_t i = 0; i < len; i++) {
        const char byte = (char)(payload[i] ^ mask[i & 3]);

        ck_assert_int_eq(buf_append(out, &byte, 1), STATUS_OK);
    }
}

/* What the server has said behind the head of its answer, in words; payloads above 200 bytes as
 * their lengths. A server's frames are whole and not masked. */
static void in_words(struct buf *out, const struct lws *s)
{
    static const char *const names[16] = {
        [1] = "text", [2] = "binary", [8] = "close", [9] = "ping", [10] = "pong"};
    const char *end = memmem(s->said.data, s->said.len, "\r\n\r\n", 4);
    size_t at = (size_t)(end - s->said.data) + 4;

    ck_assert_ptr_nonnull(end);
    buf_init(out, SAID_MAX_BYTES);
    ck_assert_int_eq(buf_reserve(out, 1), STATUS_OK);
    out->data[0] = '\0';
    while (at < s->said.len) {
        const unsigned char *b = (const unsigned char *)s->said.data + at;
        size_t len = b[1], n = 2, code = 0;

        ck_assert_uint_eq(b[0] & 0xf0, 0x80);
        ck_assert_ptr_nonnull(names[b[0] & 15]);
        ck_assert_uint_lt(len, 128);
        if (len >= 126) {
            n += len == 126 ? 2 : 8;
            len = 0;
            for (size_t i = 2; i < n; i++)
                len = len << 8 | b[i];
        }
        ck_assert_uint_le(at + n + len, s->said.len);
        if ((b[0] & 15) == 8 && len >= 2)
            code = (size_t)b[n] << 8 | b[n + 1];
        ck_assert_int_eq(buf_printf(out, "%s ", names[b[0] & 15]), STATUS_OK);
        if (code != 0)
            ck_assert_int_eq(buf_printf(out, "%zu ", code), STATUS_OK);
        if (len > 200)
            ck_assert_int_eq(buf_printf(out, "[%zu]", len), STATUS_OK);
        else
            ck_assert_int_eq(
                buf_append(out, b + n + (code == 0 ? 0 : 2), len - (code == 0 ? 0 : 2)), STATUS_OK);
        ck_assert_int_eq(buf_append_text(out, ";"), STATUS_OK);
        at += n + len;
    }
}

/* The frames behind a handshake, in pieces of so many bytes, are answered so. */
static void answers(const char *which, const char *handshake, const struct buf *frames,
                    size_t n_piece, const char *expected)
{
    struct buf words;
    struct lws s;

    ck_assert(dial(&s));
    say(&s, handshake, strlen(handshake), n_piece);
    say(&s, frames->data, frames->len, n_piece);
    in_words(&words, &s);
    if (strcmp(words.data, expected) != 0)
        ck_abort_msg("%s in pieces of %zu: '%s', not '%s'", which, n_piece, words.data, expected);
    buf_deinit(&words);
    hang_up(&s);
}

static void answer_however(const char *which, const char *handshake, const struct buf *frames,
                           const char *expected)
{
    static const size_t pieces[] = {1, 2, 3, 5, 17, 4096, 1 << 20};

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        answers(which, handshake, frames, pieces[i], expected);
}

/* --- the handshake --- */

/* A request becomes a WebSocket, or is told what it lacks. */
START_TEST(test_handshake)
{
    static const struct {
        const char *head, *status, *says;
    } cases[] = {
        {UPGRADE KEY VERSION, "101", ACCEPT},
        {"upgrade: h2c, WebSocket\r\nconnection: keep-alive, upgrade\r\n" KEY VERSION, "101",
         ACCEPT},
        {UPGRADE KEY VERSION "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: echo.v1, b\r\n",
         "101", "Sec-WebSocket-Protocol: echo.v1\r\n"},
        {UPGRADE KEY VERSION "Sec-WebSocket-Protocol: echo.v2\r\n", "400", "'echo.v1'"},
        {UPGRADE KEY VERSION "Sec-WebSocket-Extensions: permessage-deflate\r\n", "101", ACCEPT},
        {"", "426", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"},
        {"Upgrade: websocket\r\n" KEY VERSION, "426", "proxy"},
        {"Connection: Upgrade\r\n" KEY VERSION, "426", "proxy"},
        {UPGRADE KEY "Sec-WebSocket-Version: 8\r\n", "426", "Sec-WebSocket-Version: 13\r\n"},
        {UPGRADE KEY, "426", "Sec-WebSocket-Version"},
        {UPGRADE VERSION, "400", "Sec-WebSocket-Key"},
        {UPGRADE KEY KEY VERSION, "400", "twice"},
        {UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n", "400", "base64"},
        {UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQQQ\r\n", "400", "base64"},
        {UPGRADE VERSION "Sec-WebSocket-Key: dGhl!HNhbXBsZSBub25jZQ==\r\n", "400", "base64"},
        {UPGRADE KEY VERSION "Origin: http://a\r\n", "101", ACCEPT},
        {UPGRADE KEY VERSION "Origin: http://evil.example\r\n", "403", "evil"},
        {UPGRADE KEY VERSION "Origin: null\r\n", "403", "null"},
    };
    char head[1024];

    open_front();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t n_piece = 1; n_piece < 1024; n_piece *= 31) {
            struct lws s;

            ck_assert(dial(&s));
            (void)snprintf(head, sizeof(head), "GET /echo HTTP/1.1\r\nHost: a\r\n%s\r\n",
                           cases[i].head);
            say(&s, head, strlen(head), n_piece);
            ck_assert_msg(strncmp(s.said.data + 9, cases[i].status, 3) == 0 &&
                              strstr(s.said.data, cases[i].says) != NULL,
                          "%s is answered %s", head, s.said.data);
            ck_assert_ptr_null(strstr(s.said.data, "Extensions"));
            if (strcmp(cases[i].status, "101") == 0)
                ck_assert_ptr_null(strstr(s.said.data, "Content-Length"));
            hang_up(&s);
        }
    }
    close_front();
}
END_TEST

/* A WebSocket is one of HTTP/1.1; a POST to its path is refused by its method. */
START_TEST(test_other_versions)
{
    static const struct {
        const char *bytes, *status;
    } cases[] = {
        {"GET /echo HTTP/1.0\r\nHost: a\r\n" UPGRADE KEY VERSION "\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" UPGRADE KEY VERSION "\r\n",
         "405"},
    };

    open_front();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lws s;

        ck_assert(dial(&s));
        say(&s, cases[i].bytes, strlen(cases[i].bytes), 1000);
        ck_assert_msg(strncmp(s.said.data + 9, cases[i].status, 3) == 0, "%s", s.said.data);
        hang_up(&s);
    }
    close_front();
}
END_TEST

/* --- Autobahn --- */

#define F(first, payload)                     \
    {                                         \
        first, (payload), sizeof(payload) - 1 \
    }
#define TEXT 0x81
#define TEXT_BEGUN 0x01
#define MORE 0x00
#define LAST 0x80
#define BINARY 0x82
#define CLOSE 0x88
#define PING 0x89
#define PONG 0x8a
#define BROKEN "close 1002 a frame breaks the protocol of WebSocket (RFC 6455);"
#define NOT_UTF8 "close 1007 a text is not UTF-8;"
#define TEN "0123456789"
#define LONG_123 TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "012"

static const struct autobahn {
    const char *number;
    struct frame frames[8];
    const char *says;
} autobahn[] = {
    {"1.1.1", {F(TEXT, "")}, "text ;"},
    {"1.1.2", {F(TEXT, "Hello")}, "text Hello;"},
    {"1.2.1", {F(BINARY, "")}, "binary ;"},
    {"1.2.2", {F(BINARY, "\xfe\xfe")}, "binary \xfe\xfe;"},
    {"2.1", {F(PING, "")}, "pong ;"},
    {"2.2", {F(PING, "Hello, world!")}, "pong Hello, world!;"},
    {"2.3", {F(PING, "\xfe\xff\xfc")}, "pong \xfe\xff\xfc;"},
    {"2.4", {F(PING, LONG_123 "45")}, "pong " LONG_123 "45;"},
    {"2.5", {F(PING, LONG_123 "456")}, BROKEN},
    {"2.7", {F(PONG, "")}, ""},
    {"2.8", {F(PONG, "unsolicited")}, ""},
    {"2.9", {F(PONG, "unsolicited"), F(PING, "ping")}, "pong ping;"},
    {"2.10",
     {F(PING, "1"), F(PING, "2"), F(PING, "3"), F(PING, "4")},
     "pong 1;pong 2;pong 3;pong 4;"},
    {"3.1", {F(0x80 | 0x10 | 1, "Hello")}, BROKEN},
    {"3.2", {F(TEXT, "a"), F(0x80 | 0x20 | 1, "b"), F(PING, "")}, "text a;" BROKEN},
    {"3.3", {F(TEXT, "a"), F(0x80 | 0x30 | 1, "b")}, "text a;" BROKEN},
    {"3.4", {F(TEXT, "a"), F(0x80 | 0x40 | 1, "b")}, "text a;" BROKEN}, /* compression */
    {"3.5", {F(0x80 | 0x50 | 2, "b")}, BROKEN},
    {"3.6", {F(0x80 | 0x60 | 9, "b")}, BROKEN},
    {"3.7", {F(0x80 | 0x70 | 8, "b")}, BROKEN},
    {"4.1.1", {F(0x83, "")}, BROKEN},
    {"4.1.2", {F(0x84, "reserved")}, BROKEN},
    {"4.1.3", {F(TEXT, "a"), F(0x85, ""), F(PING, "")}, "text a;" BROKEN},
    {"4.1.4", {F(0x86, "b")}, BROKEN},
    {"4.1.5", {F(0x87, "b")}, BROKEN},
    {"4.2.1", {F(0x8b, "")}, BROKEN},
    {"4.2.2", {F(0x8c, "b")}, BROKEN},
    {"4.2.3", {F(TEXT, "a"), F(0x8d, ""), F(PING, "")}, "text a;" BROKEN},
    {"4.2.4", {F(0x8e, "b")}, BROKEN},
    {"4.2.5", {F(0x8f, "b")}, BROKEN},
    {"5.1", {F(0x09, "a"), F(LAST, "b")}, BROKEN},
    {"5.2", {F(0x0a, "a"), F(LAST, "b")}, BROKEN},
    {"5.3", {F(TEXT_BEGUN, "frag"), F(LAST, "ment")}, "text fragment;"},
    {"5.6", {F(TEXT_BEGUN, "frag"), F(PING, "p"), F(LAST, "ment")}, "pong p;text fragment;"},
    {"5.9", {F(MORE, "non-fin"), F(TEXT, "Hello")}, BROKEN},
    {"5.12", {F(LAST, "fin"), F(TEXT, "Hello")}, BROKEN},
    {"5.15", {F(TEXT_BEGUN, "a"), F(LAST, "b"), F(MORE, "c"), F(TEXT, "d")}, "text ab;" BROKEN},
    {"5.18", {F(TEXT_BEGUN, "a"), F(TEXT, "b")}, BROKEN},
    {"5.19",
     {F(TEXT_BEGUN, "a"), F(MORE, "b"), F(PING, "1"), F(MORE, "c"), F(PING, "2"), F(LAST, "d")},
     "pong 1;pong 2;text abcd;"},
    {"6.1.2", {F(TEXT_BEGUN, ""), F(MORE, ""), F(LAST, "")}, "text ;"},
    {"6.1.3", {F(TEXT_BEGUN, ""), F(MORE, "middle"), F(LAST, "")}, "text middle;"},
    {"6.2.1",
     {F(TEXT, "Hello-\xc2\xb5@\xc3\x9f\xc3\xb6")},
     "text Hello-\xc2\xb5@\xc3\x9f\xc3\xb6;"},
    {"6.2.3",
     {F(TEXT_BEGUN, "\xce"), F(MORE, "\xba\xe1\xbd"), F(LAST, "\xb9")},
     "text \xce\xba\xe1\xbd\xb9;"},
    {"6.3.1",
     {F(TEXT, "\xce\xba\xe1\xbd\xb9\xed\xa0\x80"
              "edited"),
      F(PING, "")},
     NOT_UTF8},
    {"6.4.1", {F(TEXT_BEGUN, "\xce\xba"), F(MORE, "\xf4\x90\x80\x80"), F(LAST, "z")}, NOT_UTF8},
    {"6.5", {F(TEXT, "\xf4\x8f\xbf\xbf")}, "text \xf4\x8f\xbf\xbf;"},
    {"6.6", {F(TEXT, "\xce")}, NOT_UTF8},
    {"6.11", {F(TEXT, "\xf8\x88\x80\x80\x80")}, NOT_UTF8},
    {"6.12", {F(TEXT, "\xf4\x90\x80\x80")}, NOT_UTF8},
    {"6.14", {F(TEXT, "\x80")}, NOT_UTF8},
    {"6.17", {F(TEXT, "\xc0\xaf")}, NOT_UTF8},
    {"6.18", {F(TEXT, "\xe0\x9f\xbf")}, NOT_UTF8},
    {"6.20", {F(TEXT, "\xed\xa0\x80")}, NOT_UTF8},
    {"6.21", {F(TEXT, "\xed\xa0\x80\xed\xb0\x80")}, NOT_UTF8},
    {"6.22", {F(TEXT, "\xef\xbf\xbe\xef\xbf\xbf")}, "text \xef\xbf\xbe\xef\xbf\xbf;"},
    {"6.23", {F(TEXT, "\xef\xbf\xbd")}, "text \xef\xbf\xbd;"},
    {"7.1.1", {F(TEXT, "a"), F(CLOSE, "\x03\xe8")}, "text a;close 1000 ;"},
    {"7.1.2", {F(CLOSE, "\x03\xe8"), F(CLOSE, "\x03\xe8")}, "close 1000 ;"},
    {"7.1.3", {F(CLOSE, "\x03\xe8"), F(PING, "late")}, "close 1000 ;"},
    {"7.1.4", {F(CLOSE, "\x03\xe8"), F(TEXT, "late")}, "close 1000 ;"},
    {"7.1.5", {F(TEXT_BEGUN, "a"), F(CLOSE, "\x03\xe8"), F(LAST, "b")}, "close 1000 ;"},
    {"7.3.1", {F(CLOSE, "")}, "close ;"},
    {"7.3.2", {F(CLOSE, "\x03")}, BROKEN},
    {"7.3.3", {F(CLOSE, "\x03\xe8")}, "close 1000 ;"},
    {"7.3.4",
     {F(CLOSE, "\x03\xe8"
               "Hello")},
     "close 1000 Hello;"},
    {"7.3.5", {F(CLOSE, "\x03\xe8" LONG_123)}, "close 1000 " LONG_123 ";"},
    {"7.3.6", {F(CLOSE, "\x03\xe8" LONG_123 "4")}, BROKEN},
    {"7.5.1", {F(CLOSE, "\x03\xe8\xed\xa0\x80")}, NOT_UTF8},
    {"7.7.1", {F(CLOSE, "\x03\xe9")}, "close 1001 ;"},
    {"7.7.2", {F(CLOSE, "\x03\xea")}, "close 1002 ;"},
    {"7.7.5", {F(CLOSE, "\x03\xf0")}, "close 1008 ;"},
    {"7.7.10", {F(CLOSE, "\x0b\xb8")}, "close 3000 ;"},
    {"7.7.13", {F(CLOSE, "\x13\x87")}, "close 4999 ;"},
    {"7.9.1", {F(CLOSE, "\x00\x00")}, BROKEN},
    {"7.9.2", {F(CLOSE, "\x03\xe7")}, BROKEN},
    {"7.9.3", {F(CLOSE, "\x03\xec")}, BROKEN},
    {"7.9.4", {F(CLOSE, "\x03\xed")}, BROKEN},
    {"7.9.5", {F(CLOSE, "\x03\xee")}, BROKEN},
    {"7.9.7", {F(CLOSE, "\x04\x4c")}, BROKEN},
    {"7.9.8", {F(CLOSE, "\x07\xd0")}, BROKEN},
    {"7.13.1", {F(CLOSE, "\x13\x88")}, BROKEN},
    {"our end", {F(TEXT, "end"), F(TEXT, "late"), F(PING, "late")}, "close 4001 as was asked;"},
};

/* Autobahn's cases, however the network cuts them. */
START_TEST(test_autobahn)
{
    open_front();
    for (size_t i = 0; i < sizeof(autobahn) / sizeof(autobahn[0]); i++) {
        const struct autobahn *a = &autobahn[i];
        struct buf frames;

        buf_init(&frames, SAID_MAX_BYTES);
        for (size_t k = 0; k < 8 && a->frames[k].payload != NULL; k++)
            add_frame(&frames, a->frames[k].first, a->frames[k].payload, a->frames[k].len);
        answer_however(a->number, HANDSHAKE, &frames, a->says);
        buf_deinit(&frames);
    }
    close_front();
}
END_TEST

/* 1.1.3 to 1.2.8, 9 and 10.1.1: each form of a length; and what is over the limit, in one frame and
 * in several, is refused before it has come. */
START_TEST(test_lengths)
{
    static const size_t lens[] = {124, 125, 126, 127, 128, 65534, 65535, 65536};
    char *text = malloc(MESSAGE_MAX_BYTES + 1);
    char expected[256];
    struct buf frames;

    memset(text, '*', MESSAGE_MAX_BYTES + 1);
    open_front();
    buf_init(&frames, SAID_MAX_BYTES);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        buf_clear(&frames);
        add_frame(&frames, TEXT, text, lens[i]);
        if (lens[i] > 200)
            (void)snprintf(expected, sizeof(expected), "text [%zu];", lens[i]);
        else
            (void)snprintf(expected, sizeof(expected), "text %.*s;", (int)lens[i], text);
        answers("a length", HANDSHAKE, &frames, 997, expected);
    }
    buf_clear(&frames);
    for (size_t at = 0; at < MESSAGE_MAX_BYTES; at += 1300)
        add_frame(&frames,
                  at == 0                         ? TEXT_BEGUN
                  : at + 1300 < MESSAGE_MAX_BYTES ? MORE
                                                  : LAST,
                  text, at + 1300 < MESSAGE_MAX_BYTES ? 1300 : MESSAGE_MAX_BYTES - at);
    answers("10.1.1", HANDSHAKE, &frames, 997, "text [65536];");
    buf_clear(&frames);
    add_frame(&frames, TEXT, text, MESSAGE_MAX_BYTES + 1);
    frames.len = 15; /* its head, and a byte */
    answer_however("too big", HANDSHAKE, &frames, "close 1009 a message has at most 65536 bytes;");
    buf_clear(&frames);
    add_frame(&frames, TEXT_BEGUN, text, 10);
    add_frame(&frames, LAST, text, 7);
    answer_however("too big", TEXT_HANDSHAKE, &frames,
                   "close 1009 a message has at most 16 bytes;");
    buf_clear(&frames);
    add_frame(&frames, BINARY, text, 7);
    answer_however("binary", TEXT_HANDSHAKE, &frames,
                   "close 1003 a binary message came: messages are text;");
    buf_deinit(&frames);
    free(text);
    close_front();
}
END_TEST

/* A message may have so many fragments, and no more; a frame that is not masked, or whose length
 * has a longer form than it needs, breaks the protocol. */
START_TEST(test_refused_frames)
{
    static const char unmasked[] = "\x81\x05Hello";
    static const char long_form[] = "\x81\xfe\x00\x05\x00\x00\x00\x00Hello";
    struct buf frames;

    open_front();
    buf_init(&frames, SAID_MAX_BYTES);
    for (unsigned n = 0; n < WEBSOCKET_MAX_FRAGMENTS; n++)
        add_frame(&frames, n == 0 ? TEXT_BEGUN : MORE, "", 0);
    add_frame(&frames, PING, "there", 5);
    answers("fragments", HANDSHAKE, &frames, 4096, "pong there;");
    add_frame(&frames, LAST, "", 0);
    answers("fragments", HANDSHAKE, &frames, 1,
            "pong there;close 1008 a message has too many fragments;");
    buf_clear(&frames);
    ck_assert_int_eq(buf_append(&frames, unmasked, sizeof(unmasked) - 1), STATUS_OK);
    answer_however("unmasked", HANDSHAKE, &frames, BROKEN);
    buf_clear(&frames);
    ck_assert_int_eq(buf_append(&frames, long_form, sizeof(long_form) - 1), STATUS_OK);
    answer_however("long form", HANDSHAKE, &frames, BROKEN);
    buf_deinit(&frames);
    close_front();
}
END_TEST

/* --- time --- */

static void open_echo(struct lws *s)
{
    ck_assert(dial(s));
    say(s, HANDSHAKE, strlen(HANDSHAKE), 1000);
    ck_assert_ptr_nonnull(strstr(s->said.data, ACCEPT));
    ck_assert_uint_eq(f.n_answering, 0); /* it is no request any more */
}

static void pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 250) {
        now_us += 250 * 1000;
        front_sweep(&f);
        serve_all();
    }
}

static void expect(const struct lws *s, const char *expected)
{
    struct buf words;

    in_words(&words, s);
    ck_assert_str_eq(words.data, expected);
    buf_deinit(&words);
}

/* A silent peer is pinged twice, and then it is gone; one that answers stays. */
START_TEST(test_pings)
{
    struct buf pong;
    struct lws quiet, alive;

    open_front();
    open_echo(&quiet);
    open_echo(&alive);
    buf_init(&pong, 64);
    add_frame(&pong, PONG, "", 0);
    pass(WEBSOCKET_PING_MS - 250);
    expect(&quiet, "");
    pass(250);
    expect(&quiet, "ping ;");
    say(&alive, pong.data, pong.len, 100);
    pass(WEBSOCKET_PING_MS);
    expect(&quiet, "ping ;ping ;");
    say(&alive, pong.data, pong.len, 100);
    pass(WEBSOCKET_DEAD_MS - 2 * WEBSOCKET_PING_MS - 250);
    ck_assert(!quiet.is_closed);
    pass(250);
    ck_assert(quiet.is_closed && !alive.is_closed);
    ck_assert_uint_eq(n_over, 1);
    buf_deinit(&pong);
    hang_up(&quiet);
    hang_up(&alive);
    close_front();
}
END_TEST

/* The first message must come in time, where the handler says so. */
START_TEST(test_first_message)
{
    struct lws quiet, early;
    struct buf frame;

    open_front();
    ck_assert(dial(&quiet) && dial(&early));
    buf_init(&frame, 64);
    add_frame(&frame, TEXT, "a", 1);
    say(&quiet, TEXT_HANDSHAKE, strlen(TEXT_HANDSHAKE), 1000);
    say(&early, TEXT_HANDSHAKE, strlen(TEXT_HANDSHAKE), 1000);
    pass(9750);
    say(&early, frame.data, frame.len, 100);
    expect(&quiet, "");
    pass(250);
    expect(&quiet, "close 4001 nothing came;");
    expect(&early, "text a;");
    buf_deinit(&frame);
    hang_up(&quiet);
    hang_up(&early);
    close_front();
}
END_TEST

/* Once the close frame is out our side is shut, and the peer has a moment to close. */
START_TEST(test_lingers)
{
    struct buf frames;
    struct lws s;

    open_front();
    open_echo(&s);
    buf_init(&frames, 64);
    add_frame(&frames, TEXT, "end", 3);
    say(&s, frames.data, frames.len, 100);
    expect(&s, "close 4001 as was asked;");
    ck_assert(s.is_shut && !s.is_closed);
    say(&s, frames.data, frames.len, 1); /* is discarded */
    ck_assert_uint_eq(n_messages, 1);
    pass(WEBSOCKET_LINGER_MS - 250);
    ck_assert(!s.is_closed);
    pass(250);
    ck_assert(s.is_closed);
    ck_assert_uint_eq(n_over, 1);
    buf_deinit(&frames);
    hang_up(&s);
    close_front();
}
END_TEST

/* A peer that takes nothing is given nothing more, and is cut off; one that is slow gets all. */
START_TEST(test_takes_nothing)
{
    struct buf echoed, pulled;
    struct lws stuck, slow;

    open_front();
    open_echo(&stuck);
    open_echo(&slow);
    stuck.is_slow = slow.is_slow = true;
    buf_init(&echoed, 64);
    buf_init(&pulled, 64);
    add_frame(&echoed, TEXT, "a", 1);
    add_frame(&pulled, TEXT, "pull", 4);
    say(&stuck, echoed.data, echoed.len, 100);
    say(&slow, echoed.data, echoed.len, 100);
    say(&stuck, pulled.data, pulled.len, 100);
    say(&slow, pulled.data, pulled.len, 100);
    pass(WEBSOCKET_TAKE_MS - 250);
    expect(&slow, "text a;");
    slow.is_choked = false;
    connection_write_ready(slow.connection);
    serve_all();
    expect(&slow, "text a;ping ;text pulled;");
    ck_assert(!stuck.is_closed);
    pass(250);
    ck_assert(stuck.is_closed && !slow.is_closed);
    expect(&stuck, "text a;");
    buf_deinit(&echoed);
    buf_deinit(&pulled);
    hang_up(&stuck);
    hang_up(&slow);
    ck_assert_uint_eq(n_over, 2);
    close_front();
}
END_TEST

/* A server that stops says so, with 1001, and waits for no WebSocket. */
START_TEST(test_drain)
{
    struct lws s;

    open_front();
    open_echo(&s);
    front_drain(&f);
    serve_all();
    expect(&s, "close 1001 the server is stopping;");
    ck_assert(!front_end(&f));
    pass(WEBSOCKET_LINGER_MS);
    ck_assert(s.is_closed && front_end(&f));
    hang_up(&s);
    close_front();
}
END_TEST

/* --- memory --- */

static enum status echo_once(void *arg)
{
    const struct buf *frames = arg;
    struct buf words;
    struct lws s;
    bool is_whole = false;

    open_front();
    if (dial(&s)) {
        say(&s, HANDSHAKE, strlen(HANDSHAKE), 1000);
        say(&s, frames->data, frames->len, 1000);
        if (s.said.data != NULL && strstr(s.said.data, ACCEPT) != NULL) {
            own_memory(true);
            in_words(&words, &s);
            is_whole = strcmp(words.data, "text one;" BROKEN) == 0;
            buf_deinit(&words);
            own_memory(false);
        }
    }
    hang_up(&s);
    close_front();
    return is_whole ? STATUS_OK : STATUS_EXHAUSTED;
}

/* Whatever allocation fails, the rest is freed, and no half of a frame is sent. */
START_TEST(test_no_memory)
{
    struct buf frames;

    buf_init(&frames, 256);
    add_frame(&frames, TEXT, "one", 3);
    add_frame(&frames, 0x83, "", 0);
    ck_assert_int_gt(sweep(echo_once, &frames), 5);
    buf_deinit(&frames);
}
END_TEST

SUITE_MAIN("server/http/websocket", test_handshake, test_other_versions, test_autobahn,
           test_lengths, test_refused_frames, test_pings, test_first_message, test_lingers,
           test_takes_nothing, test_drain, test_no_memory)
