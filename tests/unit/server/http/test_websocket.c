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

enum { MESSAGE_MAX_BYTES = 256 << 10, SAID_MAX_BYTES = 8 << 20 };

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

/* The offers of Autobahn's cases 12 and 13. */
#define DEFLATE_HANDSHAKE                                                        \
    "GET /echo HTTP/1.1\r\nHost: a\r\n" UPGRADE KEY VERSION                      \
    "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; " \
    "client_max_window_bits=9; server_max_window_bits=9, permessage-deflate; "   \
    "server_no_context_takeover; client_max_window_bits, permessage-deflate; "   \
    "client_max_window_bits\r\n\r\n"

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
    {"5.16", {F(MORE, "c"), F(TEXT, "d"), F(MORE, "c"), F(TEXT, "d")}, BROKEN},
    {"5.17", {F(LAST, "c"), F(TEXT, "d"), F(LAST, "c"), F(TEXT, "d")}, BROKEN},
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

#define GOOD(text) true, text, sizeof(text) - 1
#define WRONG(text) false, text, sizeof(text) - 1

/* 6.5 to 6.23: a text is UTF-8, or it is not. */
static const struct utf8_case {
    const char *number;
    bool is_utf8;
    const char *text;
    size_t len;
} utf8_cases[] = {
    {"6.5.1", GOOD("\xce\xba\xcf\x8c\xcf\x83\xce\xbc\xce\xb5")},
    {"6.6.1", WRONG("\xce")},
    {"6.6.2", GOOD("\xce\xba")},
    {"6.6.3", WRONG("\xce\xba\xcf")},
    {"6.6.4", GOOD("\xce\xba\xcf\x8c")},
    {"6.6.5", WRONG("\xce\xba\xcf\x8c\xcf")},
    {"6.6.6", GOOD("\xce\xba\xcf\x8c\xcf\x83")},
    {"6.6.7", WRONG("\xce\xba\xcf\x8c\xcf\x83\xce")},
    {"6.6.8", GOOD("\xce\xba\xcf\x8c\xcf\x83\xce\xbc")},
    {"6.6.9", WRONG("\xce\xba\xcf\x8c\xcf\x83\xce\xbc\xce")},
    {"6.6.10", GOOD("\xce\xba\xcf\x8c\xcf\x83\xce\xbc\xce\xb5")},
    {"6.7.1", GOOD("\x00")},
    {"6.7.2", GOOD("\xc2\x80")},
    {"6.7.3", GOOD("\xe0\xa0\x80")},
    {"6.7.4", GOOD("\xf0\x90\x80\x80")},
    {"6.8.1", WRONG("\xf8\x88\x80\x80\x80")},
    {"6.8.2", WRONG("\xfc\x84\x80\x80\x80\x80")},
    {"6.9.1", GOOD("\x7f")},
    {"6.9.2", GOOD("\xdf\xbf")},
    {"6.9.3", GOOD("\xef\xbf\xbf")},
    {"6.9.4", GOOD("\xf4\x8f\xbf\xbf")},
    {"6.10.1", WRONG("\xf7\xbf\xbf\xbf")},
    {"6.10.2", WRONG("\xfb\xbf\xbf\xbf\xbf")},
    {"6.10.3", WRONG("\xfd\xbf\xbf\xbf\xbf\xbf")},
    {"6.11.1", GOOD("\xed\x9f\xbf")},
    {"6.11.2", GOOD("\xee\x80\x80")},
    {"6.11.3", GOOD("\xef\xbf\xbd")},
    {"6.11.4", GOOD("\xf4\x8f\xbf\xbf")},
    {"6.11.5", WRONG("\xf4\x90\x80\x80")},
    {"6.12.1", WRONG("\x80")},
    {"6.12.2", WRONG("\xbf")},
    {"6.12.3", WRONG("\x80\xbf")},
    {"6.12.4", WRONG("\x80\xbf\x80")},
    {"6.12.5", WRONG("\x80\xbf\x80\xbf")},
    {"6.12.6", WRONG("\x80\xbf\x80\xbf\x80")},
    {"6.12.7", WRONG("\x80\xbf\x80\xbf\x80\xbf")},
    {"6.12.8",
     WRONG(
         "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95"
         "\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab"
         "\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf")},
    {"6.13.1",
     WRONG(
         "\xc0\x20\xc1\x20\xc2\x20\xc3\x20\xc4\x20\xc5\x20\xc6\x20\xc7\x20\xc8\x20\xc9\x20\xca\x20"
         "\xcb\x20\xcc\x20\xcd\x20\xce\x20\xcf\x20\xd0\x20\xd1\x20\xd2\x20\xd3\x20\xd4\x20\xd5\x20"
         "\xd6\x20\xd7\x20\xd8\x20\xd9\x20\xda\x20\xdb\x20\xdc\x20\xdd\x20\xde\x20\xdf\x20")},
    {"6.13.2", WRONG("\xe0\x20\xe1\x20\xe2\x20\xe3\x20\xe4\x20\xe5\x20\xe6\x20\xe7\x20\xe8\x20\xe9"
                     "\x20\xea\x20\xeb\x20\xec\x20\xed\x20\xee\x20\xef\x20")},
    {"6.13.3", WRONG("\xf0\x20\xf1\x20\xf2\x20\xf3\x20\xf4\x20\xf5\x20\xf6\x20\xf7\x20")},
    {"6.13.4", WRONG("\xf8\x20\xf9\x20\xfa\x20\xfb\x20")},
    {"6.13.5", WRONG("\xfc\x20\xfd\x20")},
    {"6.14.1", WRONG("\xc0")},
    {"6.14.2", WRONG("\xe0\x80")},
    {"6.14.3", WRONG("\xf0\x80\x80")},
    {"6.14.4", WRONG("\xf8\x80\x80\x80")},
    {"6.14.5", WRONG("\xfc\x80\x80\x80\x80")},
    {"6.14.6", WRONG("\xdf")},
    {"6.14.7", WRONG("\xef\xbf")},
    {"6.14.8", WRONG("\xf7\xbf\xbf")},
    {"6.14.9", WRONG("\xfb\xbf\xbf\xbf")},
    {"6.14.10", WRONG("\xfd\xbf\xbf\xbf\xbf")},
    {"6.15.1", WRONG("\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7"
                     "\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf")},
    {"6.16.1", WRONG("\xfe")},
    {"6.16.2", WRONG("\xff")},
    {"6.16.3", WRONG("\xfe\xfe\xff\xff")},
    {"6.17.1", WRONG("\xc0\xaf")},
    {"6.17.2", WRONG("\xe0\x80\xaf")},
    {"6.17.3", WRONG("\xf0\x80\x80\xaf")},
    {"6.17.4", WRONG("\xf8\x80\x80\x80\xaf")},
    {"6.17.5", WRONG("\xfc\x80\x80\x80\x80\xaf")},
    {"6.18.1", WRONG("\xc1\xbf")},
    {"6.18.2", WRONG("\xe0\x9f\xbf")},
    {"6.18.3", WRONG("\xf0\x8f\xbf\xbf")},
    {"6.18.4", WRONG("\xf8\x87\xbf\xbf\xbf")},
    {"6.18.5", WRONG("\xfc\x83\xbf\xbf\xbf\xbf")},
    {"6.19.1", WRONG("\xc0\x80")},
    {"6.19.2", WRONG("\xe0\x80\x80")},
    {"6.19.3", WRONG("\xf0\x80\x80\x80")},
    {"6.19.4", WRONG("\xf8\x80\x80\x80\x80")},
    {"6.19.5", WRONG("\xfc\x80\x80\x80\x80\x80")},
    {"6.20.1", WRONG("\xed\xa0\x80")},
    {"6.20.2", WRONG("\xed\xad\xbf")},
    {"6.20.3", WRONG("\xed\xae\x80")},
    {"6.20.4", WRONG("\xed\xaf\xbf")},
    {"6.20.5", WRONG("\xed\xb0\x80")},
    {"6.20.6", WRONG("\xed\xbe\x80")},
    {"6.20.7", WRONG("\xed\xbf\xbf")},
    {"6.21.1", WRONG("\xed\xa0\x80\xed\xb0\x80")},
    {"6.21.2", WRONG("\xed\xa0\x80\xed\xbf\xbf")},
    {"6.21.3", WRONG("\xed\xad\xbf\xed\xb0\x80")},
    {"6.21.4", WRONG("\xed\xad\xbf\xed\xbf\xbf")},
    {"6.21.5", WRONG("\xed\xae\x80\xed\xb0\x80")},
    {"6.21.6", WRONG("\xed\xae\x80\xed\xbf\xbf")},
    {"6.21.7", WRONG("\xed\xaf\xbf\xed\xb0\x80")},
    {"6.21.8", WRONG("\xed\xaf\xbf\xed\xbf\xbf")},
    {"6.22.1", GOOD("\xef\xbf\xbe")},
    {"6.22.2", GOOD("\xef\xbf\xbf")},
    {"6.22.3", GOOD("\xf0\x9f\xbf\xbe")},
    {"6.22.4", GOOD("\xf0\x9f\xbf\xbf")},
    {"6.22.5", GOOD("\xf0\xaf\xbf\xbe")},
    {"6.22.6", GOOD("\xf0\xaf\xbf\xbf")},
    {"6.22.7", GOOD("\xf0\xbf\xbf\xbe")},
    {"6.22.8", GOOD("\xf0\xbf\xbf\xbf")},
    {"6.22.9", GOOD("\xf1\x8f\xbf\xbe")},
    {"6.22.10", GOOD("\xf1\x8f\xbf\xbf")},
    {"6.22.11", GOOD("\xf1\x9f\xbf\xbe")},
    {"6.22.12", GOOD("\xf1\x9f\xbf\xbf")},
    {"6.22.13", GOOD("\xf1\xaf\xbf\xbe")},
    {"6.22.14", GOOD("\xf1\xaf\xbf\xbf")},
    {"6.22.15", GOOD("\xf1\xbf\xbf\xbe")},
    {"6.22.16", GOOD("\xf1\xbf\xbf\xbf")},
    {"6.22.17", GOOD("\xf2\x8f\xbf\xbe")},
    {"6.22.18", GOOD("\xf2\x8f\xbf\xbf")},
    {"6.22.19", GOOD("\xf2\x9f\xbf\xbe")},
    {"6.22.20", GOOD("\xf2\x9f\xbf\xbf")},
    {"6.22.21", GOOD("\xf2\xaf\xbf\xbe")},
    {"6.22.22", GOOD("\xf2\xaf\xbf\xbf")},
    {"6.22.23", GOOD("\xf2\xbf\xbf\xbe")},
    {"6.22.24", GOOD("\xf2\xbf\xbf\xbf")},
    {"6.22.25", GOOD("\xf3\x8f\xbf\xbe")},
    {"6.22.26", GOOD("\xf3\x8f\xbf\xbf")},
    {"6.22.27", GOOD("\xf3\x9f\xbf\xbe")},
    {"6.22.28", GOOD("\xf3\x9f\xbf\xbf")},
    {"6.22.29", GOOD("\xf3\xaf\xbf\xbe")},
    {"6.22.30", GOOD("\xf3\xaf\xbf\xbf")},
    {"6.22.31", GOOD("\xf3\xbf\xbf\xbe")},
    {"6.22.32", GOOD("\xf3\xbf\xbf\xbf")},
    {"6.22.33", GOOD("\xf4\x8f\xbf\xbe")},
    {"6.22.34", GOOD("\xf4\x8f\xbf\xbf")},
    {"6.23.1", GOOD("\xef\xbf\xb9")},
    {"6.23.2", GOOD("\xef\xbf\xba")},
    {"6.23.3", GOOD("\xef\xbf\xbb")},
    {"6.23.4", GOOD("\xef\xbf\xbc")},
    {"6.23.5", GOOD("\xef\xbf\xbd")},
    {"6.23.6", GOOD("\xef\xbf\xbe")},
    {"6.23.7", GOOD("\xef\xbf\xbf")},
};

/* Each in one frame, and each byte in a frame of its own. */
START_TEST(test_utf8)
{
    open_front();
    for (size_t i = 0; i < sizeof(utf8_cases) / sizeof(utf8_cases[0]); i++) {
        const struct utf8_case *c = &utf8_cases[i];
        struct buf frames, expected;

        buf_init(&expected, SAID_MAX_BYTES);
        ck_assert_int_eq(buf_append_text(&expected, c->is_utf8 ? "text " : NOT_UTF8), STATUS_OK);
        if (c->is_utf8) {
            ck_assert_int_eq(buf_append(&expected, c->text, c->len), STATUS_OK);
            ck_assert_int_eq(buf_append_text(&expected, ";"), STATUS_OK);
        }
        buf_init(&frames, SAID_MAX_BYTES);
        add_frame(&frames, TEXT, c->text, c->len);
        answer_however(c->number, HANDSHAKE, &frames, expected.data);
        buf_clear(&frames);
        for (size_t at = 0; at < c->len; at++)
            add_frame(&frames, at == 0 ? TEXT_BEGUN : MORE, c->text + at, 1);
        add_frame(&frames, LAST, "", 0);
        answer_however(c->number, HANDSHAKE, &frames, expected.data);
        buf_deinit(&frames);
        buf_deinit(&expected);
    }
    close_front();
}
END_TEST

/* 7.7, 7.9 and 7.13: codes of a close frame, which is answered with the same one, or is wrong. */
START_TEST(test_codes)
{
    static const struct {
        unsigned code;
        bool is_wrong;
    } codes[] = {{1000, false}, {1001, false}, {1002, false}, {1003, false}, {1007, false},
                 {1008, false}, {1009, false}, {1010, false}, {1011, false}, {3000, false},
                 {3999, false}, {4000, false}, {4999, false}, {0, true},     {999, true},
                 {1004, true},  {1005, true},  {1006, true},  {1016, true},  {1100, true},
                 {2000, true},  {2999, true},  {5000, true},  {65535, true}};
    char expected[80];

    open_front();
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        const char payload[2] = {(char)(codes[i].code >> 8), (char)codes[i].code};
        struct buf frames;

        buf_init(&frames, SAID_MAX_BYTES);
        add_frame(&frames, CLOSE, payload, sizeof(payload));
        (void)snprintf(expected, sizeof(expected), "close %u ;", codes[i].code);
        answer_however("a code", HANDSHAKE, &frames, codes[i].is_wrong ? BROKEN : expected);
        buf_deinit(&frames);
    }
    close_front();
}
END_TEST

static void add_fragments(struct buf *frames, const char *text, size_t len, size_t n_fragment)
{
    for (size_t at = 0; at < len; at += n_fragment) {
        const bool is_last = at + n_fragment >= len;

        add_frame(frames, at == 0 ? (is_last ? TEXT : TEXT_BEGUN) : (is_last ? LAST : MORE),
                  text + at, is_last ? len - at : n_fragment);
    }
}

/* 9: large messages, up to the limit, in one frame and in fragments, which come in large and small
 * pieces; and a thousand in a row. Autobahn's are up to 16 MiB. */
START_TEST(test_large)
{
    static const size_t lens[] = {65536, MESSAGE_MAX_BYTES};
    static const size_t fragments[] = {256, 1024, 4096, 16384, 65536};
    static const size_t pieces[] = {64, 128, 256, 512, 1024, 2048};
    static const size_t in_row[] = {0, 16, 64, 200, 1024, 4096};
    char *text = malloc(MESSAGE_MAX_BYTES), expected[80];
    struct buf frames, all;

    memset(text, '*', MESSAGE_MAX_BYTES);
    open_front();
    buf_init(&frames, SAID_MAX_BYTES);
    buf_init(&all, SAID_MAX_BYTES);
    for (unsigned first = TEXT; first <= BINARY; first++) /* 9.1, 9.2 */
        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
            buf_clear(&frames);
            add_frame(&frames, first, text, lens[i]);
            (void)snprintf(expected, sizeof(expected), "%s [%zu];",
                           first == TEXT ? "text" : "binary", lens[i]);
            answers("9.1", HANDSHAKE, &frames, 1 << 20, expected);
        }
    (void)snprintf(expected, sizeof(expected), "text [%d];", MESSAGE_MAX_BYTES);
    for (size_t i = 0; i < sizeof(fragments) / sizeof(fragments[0]); i++) { /* 9.3, 9.4 */
        buf_clear(&frames);
        add_fragments(&frames, text, MESSAGE_MAX_BYTES, fragments[i]);
        answers("9.3", HANDSHAKE, &frames, 1 << 20, expected);
    }
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) /* 9.5, 9.6 */
        answers("9.5", HANDSHAKE, &frames, pieces[i], expected);
    for (size_t i = 0; i < sizeof(in_row) / sizeof(in_row[0]); i++) { /* 9.7, 9.8 */
        buf_clear(&frames);
        buf_clear(&all);
        (void)snprintf(expected, sizeof(expected), "text [%zu];", in_row[i]);
        for (size_t n = 0; n < 1000; n++) {
            add_frame(&frames, TEXT, text, in_row[i]);
            ck_assert_int_eq(in_row[i] > 200 ? buf_append_text(&all, expected)
                                             : buf_printf(&all, "text %.*s;", (int)in_row[i], text),
                             STATUS_OK);
        }
        answers("9.7", HANDSHAKE, &frames, 4096, all.data);
    }
    buf_deinit(&frames);
    buf_deinit(&all);
    free(text);
    close_front();
}
END_TEST

/* 12, 13: whatever compression is offered, none is agreed on, and a frame that is marked as
 * compressed breaks the protocol. */
START_TEST(test_compression)
{
    struct buf frames;
    struct lws s;

    open_front();
    ck_assert(dial(&s));
    say(&s, DEFLATE_HANDSHAKE, strlen(DEFLATE_HANDSHAKE), 1000);
    ck_assert_ptr_nonnull(strstr(s.said.data, ACCEPT));
    ck_assert_ptr_null(strstr(s.said.data, "Extensions"));
    hang_up(&s);
    buf_init(&frames, 256);
    add_frame(&frames, TEXT, "plain", 5);
    add_frame(&frames, 0xc1, "\xf2\x48\xcd\xc9\xc9\x07", 7); /* RFC 7692, 7.2.3.1 */
    answer_however("13", DEFLATE_HANDSHAKE, &frames, "text plain;" BROKEN);
    buf_deinit(&frames);
    close_front();
}
END_TEST

/* 1.1.3 to 1.2.8 and 10.1.1: each form of a length; and what is over the limit, in one frame and
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
    add_fragments(&frames, text, 65536, 1300);
    answers("10.1.1", HANDSHAKE, &frames, 997, "text [65536];");
    buf_clear(&frames);
    add_frame(&frames, TEXT, text, MESSAGE_MAX_BYTES + 1);
    frames.len = 15; /* its head, and a byte */
    answer_however("too big", HANDSHAKE, &frames, "close 1009 a message has at most 262144 bytes;");
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

SUITE_MAIN("server/http/websocket", test_handshake, test_other_versions, test_autobahn, test_utf8,
           test_codes, test_large, test_compression, test_lengths, test_refused_frames, test_pings,
           test_first_message, test_lingers, test_takes_nothing, test_drain, test_no_memory)
