/* Foreign bytes on an HTTP connection of a loading daemon, so that only /health, /metrics, / and
 * /api/version get more than a refusal. The first byte says how the rest is cut into pieces. The
 * output begins like an HTTP response, or HTTP/2's settings, and nothing leaks. */
#include <assert.h>
#include <string.h>

#include "base/alarm.h"
#include "server/api/connect/connect_calls.h"
#include "server/api/metrics.h"
#include "server/api/routes.h"
#include "server/call/health.h"
#include "server/conversation/conversations.h"
#include "server/http/front.h"
#include "server/http/socket.h"
#include "server/server.h"
#include "tests/fuzz/target.h"

enum { FRAME_SETTINGS = 4 };

struct lws {
    struct connection *connection;
    size_t n_written;
    bool is_closed;
};

/* --- a socket that accepts all bytes, and a page of metrics --- */

bool socket_write(struct lws *s, char *data, size_t len)
{
    assert(!s->is_closed);
    if (s->n_written == 0)
        assert(len >= 9 && (memcmp(data, "HTTP/1.1 ", 9) == 0 || data[3] == FRAME_SETTINGS));
    s->n_written += len;
    return true;
}

bool socket_is_choked(const struct lws *s)
{
    return false;
}

bool socket_has_unread(const struct lws *s)
{
    return false;
}

void socket_shut(struct lws *s)
{
}

void socket_close(struct lws *s)
{
    s->is_closed = true;
    connection_close(s->connection);
}

void socket_pause(struct lws *s, bool on)
{
}

void metrics_render(struct server *server, struct buf *out)
{
    (void)!buf_append_text(out, "# none\n"); /* a page may be empty */
}

/* --- */

static void nothing(struct http_front *f)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct conversations conversations; /* none, and no journal */
    static struct server server;
    static struct http_front f;
    const struct http_config config = {.routes = routes_all,
                                       .max_body_bytes = 4096,
                                       .timeout_ms = 1000000,
                                       .server = &server,
                                       .env = &env_real};
    static struct connect_calls connected;
    static struct health health;
    static struct alarm alarm;
    struct lws s = {0};
    size_t piece, at = 1;

    if (size_bytes < 2)
        return 0;
    server = (struct server){.env = &env_real,
                             .state = SERVER_LOADING,
                             .conversations = &conversations,
                             .connected = &connected};
    health_init(&health);
    health_set(&health, "", HEALTH_SERVING);
    connect_calls_init(&connected, &env_real, &alarm, &health);
    front_init(&f, &config, nothing);
    s.connection = connection_open(&f, &s);
    assert(s.connection != NULL);
    piece = data[0] == 0 ? size_bytes : data[0];
    while (at < size_bytes && !s.is_closed) {
        size_t n = piece < size_bytes - at ? piece : size_bytes - at;

        connection_read(s.connection, (const char *)data + at, n);
        at += n;
        while (!list_is_empty(&f.notified))
            front_serve(&f);
    }
    if (!s.is_closed)
        connection_close(s.connection);
    assert(list_is_empty(&f.connections) && f.n_answering == 0);
    front_deinit(&f);
    connect_calls_deinit(&connected);
    health_deinit(&health);
    return 0;
}
