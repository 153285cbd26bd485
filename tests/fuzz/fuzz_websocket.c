/* Foreign bytes behind the handshake of a WebSocket. The first byte says how the rest is cut into
 * pieces, the second whether the socket is slow. What is said is whole frames, of which the last is
 * a close frame with a sentence if the bytes break a rule; texts are UTF-8; nothing leaks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/http/exchange.h"
#include "server/http/front.h"
#include "server/http/socket.h"
#include "server/http/upgrade.h"
#include "server/http/websocket.h"
#include "tests/fuzz/target.h"

enum { MESSAGE_MAX_BYTES = 300 };

struct lws {
    struct connection *connection;
    size_t n_left;   /* of the frame that is being written */
    bool has_opened; /* the answer to the handshake is written */
    bool has_closed; /* a close frame is written */
    bool is_slow, is_choked, is_closed;
};

/* --- a socket that checks the frames it takes --- */

static size_t check_head(struct lws *s, const unsigned char *b, size_t len)
{
    const unsigned opcode = b[0] & 15;
    size_t n = 2, n_payload = b[1];

    assert(!s->has_closed && (b[0] & 0xf0) == 0x80 && (b[1] & 0x80) == 0);
    assert(opcode == 1 || opcode == 2 || (opcode >= 8 && opcode <= 10));
    if (n_payload == 126) {
        n_payload = (size_t)b[2] << 8 | b[3];
        n = 4;
    }
    assert(n_payload <= MESSAGE_MAX_BYTES && n + n_payload <= len);
    s->has_closed = opcode == 8;
    return n + n_payload;
}

bool socket_write(struct lws *s, char *data, size_t len)
{
    assert(!s->is_closed && !s->is_choked);
    if (!s->has_opened)
        assert(len > 12 && memcmp(data, "HTTP/1.1 101", 12) == 0);
    for (size_t at = 0; s->has_opened && at < len;)
        at += check_head(s, (const unsigned char *)data + at, len - at);
    s->is_choked = s->has_opened && s->is_slow;
    s->has_opened = true;
    return true;
}

bool socket_is_choked(const struct lws *s)
{
    return s->is_choked;
}

bool socket_has_unread(const struct lws *s)
{
    return false;
}

void socket_shut(struct lws *s)
{
    assert(s->has_closed);
}

void socket_close(struct lws *s)
{
    s->is_closed = true;
    connection_close(s->connection);
}

void socket_pause(struct lws *s, bool on)
{
}

/* --- the route --- */

static void fuzz_message(struct websocket *w, void *state, const char *data, size_t len,
                         bool is_text)
{
    assert(len <= MESSAGE_MAX_BYTES);
    assert(!is_text || utf8_is_valid(data, len));
    (void)!websocket_send(w, data, len, is_text);
}

static void fuzz_write_ready(struct websocket *w, void *state)
{
}

static void fuzz_over(struct websocket *w, void *state)
{
    *(bool *)state = true;
}

static bool is_over;

static void serve_fuzz(struct exchange *x)
{
    static const struct websocket_handler handler = {.max_message_bytes = MESSAGE_MAX_BYTES,
                                                     .takes_binary = true,
                                                     .on_message = fuzz_message,
                                                     .on_write_ready = fuzz_write_ready,
                                                     .on_close = fuzz_over};

    is_over = false;
    if (upgrade_to_websocket(x, &handler, &is_over) == NULL)
        abort();
}

static enum status append_fuzz(struct buf *out, int http_status, const struct error *err)
{
    return buf_append_text(out, err->text);
}

static void nothing(struct http_front *f)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static const char handshake[] = "GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
                                    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    static const struct http_api api = {"text/plain", append_fuzz, NULL, NULL};
    static const struct route row = {"/echo", .methods = METHOD_GET, .serve = serve_fuzz,
                                     .api = &api};
    static const struct route_table table = {&row, 1};
    static const struct route_table *const tables[] = {&table};
    static struct http_front f;
    const struct http_config config = {.routes = {.tables = tables, .n_tables = 1, .api = &api},
                                       .max_body_bytes = 4096,
                                       .timeout_ms = 1000000,
                                       .env = &env_real};
    struct lws s = {0};
    size_t piece, at = 2;

    if (size_bytes < 3)
        return 0;
    front_init(&f, &config, nothing);
    f.is_serving = true;
    s.connection = connection_open(&f, &s);
    assert(s.connection != NULL);
    connection_read(s.connection, handshake, sizeof(handshake) - 1);
    while (!front_is_served(&f))
        front_serve(&f);
    assert(s.has_opened);
    s.is_slow = (data[1] & 1) != 0;
    piece = data[0] == 0 ? size_bytes : data[0];
    while (at < size_bytes && !s.is_closed) {
        size_t n = piece < size_bytes - at ? piece : size_bytes - at;

        connection_read(s.connection, (const char *)data + at, n);
        at += n;
        while (!front_is_served(&f))
            front_serve(&f);
        if (s.is_choked) {
            s.is_choked = false;
            connection_write_ready(s.connection);
        }
        front_sweep(&f);
    }
    if (!s.is_closed)
        connection_close(s.connection);
    assert(is_over && list_is_empty(&f.connections) && f.n_answering == 0);
    front_deinit(&f);
    return 0;
}
