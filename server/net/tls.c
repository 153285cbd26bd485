/* The happy path: a handshake; then a socket pair is made, one end goes to the transport, and bytes
 * are passed both ways, each way through one buffer that is filled only when it is empty: a slow
 * side stops the other one.
 *
 * The end: when the peer ends, the transport's end is shut for writing, and the transport answers
 * what it has. When the transport has closed or shut its end, the peer gets close_notify, and
 * further bytes of it are discarded for a moment, since closing at once could lose the answer.
 * Failures of TLS, and a handshake that takes too long, close the connection without a word. */
#include "server/net/tls.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "server/net/tls_files.h"

enum {
    PASS_BYTES = 16 << 10, /* the most that a TLS record holds */
    ROUNDS_MAX = 16,       /* of one connection, before others run */
    HANDSHAKE_MS = 10000,
    FAREWELL_MS = 2000,
    SWEEP_MS = 250,
};

/* Bytes that the one side has and the other has not taken. */
struct tls_pass {
    size_t at, len;
    char bytes[PASS_BYTES];
};

struct tls_connection {
    struct link link; /* of the connections, or of those in their handshake */
    struct tls *tls;
    const struct tls_port_config *port;
    SSL *ssl;
    int net_fd, plain_fd; /* plain_fd -1: before the handshake is done */
    uv_poll_t net, plain;
    unsigned n_handles; /* open handles of the loop */
    uint64_t until_ms;  /* it is closed then; 0: never */
    bool net_ended, plain_ended, is_leaving, is_closed;
    bool wants_net_write;    /* of the last round */
    struct tls_pass in, out; /* from the peer, to the peer */
};

struct tls {
    struct tls_config config;
    uv_loop_t *loop;
    uv_timer_t sweep;
    SSL_CTX *context;
    struct tls_files files; /* as context has them */
    SSL_CTX *next;          /* of a reload between its two parts */
    struct tls_files next_files, files_before;
    struct list connections;
    struct list handshaking; /* in order of arrival */
    size_t n_connections;
    bool is_refusing;
    bool is_closing; /* its timer is closed */
};

/* --- certificates --- */

/* Takes the first of the port's protocols that the client has named. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *ret_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
    const struct tls_connection *c = SSL_get_app_data(ssl);
    const unsigned char *ours = (const unsigned char *)c->port->protocols;
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, ret_len, ours, (unsigned)strlen(c->port->protocols), in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* No sessions are resumed: one could outlive the certificates that it was begun with. */
static enum status context_make(SSL_CTX **out, struct tls_files *files,
                                const struct tls_config *config, struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    enum status rc;

    ERR_clear_error();
    if (context == NULL)
        return error_no_memory(err, 0, "TLS");
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION); /* neither can fail */
    (void)SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");
    (void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                           SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_num_tickets(context, 0);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(context,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
    rc = tls_files_read(files, context, config, err);
    if (rc != STATUS_OK)
        SSL_CTX_free(context);
    else
        *out = context;
    return rc;
}

/* --- the end of a connection --- */

static void tls_maybe_free(struct tls *t)
{
    if (t->is_closing && t->n_connections == 0)
        free(t);
}

static void on_tls_handle_closed(uv_handle_t *handle)
{
    struct tls_connection *c = handle->data;
    struct tls *t = c->tls;

    if (--c->n_handles > 0)
        return;
    free(c);
    t->n_connections--;
    tls_maybe_free(t);
}

static void tls_connection_close(struct tls_connection *c)
{
    if (c->is_closed)
        return;
    c->is_closed = true;
    list_remove(&c->link);
    uv_close((uv_handle_t *)&c->net, on_tls_handle_closed);
    if (c->plain_fd >= 0) {
        uv_close((uv_handle_t *)&c->plain, on_tls_handle_closed);
        (void)close(c->plain_fd); /* what it had not taken is lost with the connection */
    }
    SSL_free(c->ssl);
    (void)close(c->net_fd);
}

static void set_until(struct tls_connection *c, uint64_t ms)
{
    c->until_ms = ms == 0 ? 0 : uv_now(c->tls->loop) + ms;
}

/* --- passing bytes --- */

static void on_net(uv_poll_t *poll, int status, int events);
static void on_plain(uv_poll_t *poll, int status, int events);

/* Whether the result of a call of SSL means that it is to be called again. */
static bool tls_must_wait(struct tls_connection *c, int result)
{
    int why = SSL_get_error(c->ssl, result);

    ERR_clear_error();
    if (why == SSL_ERROR_WANT_WRITE)
        c->wants_net_write = true;
    return why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ;
}

/* The handshake is done. False: no descriptors or memory. */
static bool open_plain(struct tls_connection *c)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return false;
    if ((size_t)fds[1] >= c->port->max_descriptors ||
        uv_poll_init(c->tls->loop, &c->plain, fds[0]) != 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return false;
    }
    c->plain.data = c;
    c->plain_fd = fds[0];
    c->n_handles++;
    list_remove(&c->link);
    list_push(&c->tls->connections, &c->link);
    set_until(c, 0);
    c->port->accepted(c->port->arg, fds[1]);
    return true;
}

/* False: it has failed. */
static bool handshake(struct tls_connection *c)
{
    int rc = SSL_do_handshake(c->ssl);

    return rc == 1 ? open_plain(c) : tls_must_wait(c, rc);
}

/* Each moves what can be moved, and returns whether something was; an end is noted. */
static bool read_net(struct tls_connection *c)
{
    int n;

    if (c->net_ended || c->in.len > 0)
        return false;
    n = SSL_read(c->ssl, c->in.bytes, PASS_BYTES);
    if (n > 0) {
        c->in.at = 0;
        c->in.len = c->is_leaving ? 0 : (size_t)n; /* nobody reads them */
        return true;
    }
    c->net_ended = !tls_must_wait(c, n);
    return c->net_ended;
}

static bool write_plain(struct tls_connection *c)
{
    ssize_t n;

    if (c->in.len == 0)
        return false;
    n = send(c->plain_fd, c->in.bytes + c->in.at, c->in.len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0) { /* the transport has closed: its last bytes may be there yet */
        c->in.len = 0;
        c->is_leaving = true;
        return true;
    }
    c->in.at += (size_t)n;
    c->in.len -= (size_t)n;
    return true;
}

static bool read_plain(struct tls_connection *c)
{
    ssize_t n;

    if (c->plain_ended || c->out.len > 0)
        return false;
    n = recv(c->plain_fd, c->out.bytes, PASS_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    c->out.at = 0;
    c->out.len = n > 0 ? (size_t)n : 0;
    c->plain_ended = n <= 0;
    return true;
}

static bool write_net(struct tls_connection *c)
{
    int n;

    if (c->out.len == 0)
        return false;
    n = SSL_write(c->ssl, c->out.bytes + c->out.at, (int)c->out.len);
    if (n > 0) {
        c->out.at += (size_t)n;
        c->out.len -= (size_t)n;
        return true;
    }
    if (tls_must_wait(c, n))
        return false;
    c->out.len = 0;
    c->net_ended = true;
    return true;
}

/* The transport has ended, and the peer has all of it. */
static void tls_say_farewell(struct tls_connection *c)
{
    (void)SSL_shutdown(c->ssl); /* a peer that has gone needs none */
    ERR_clear_error();
    (void)shutdown(c->net_fd, SHUT_WR);
    c->is_leaving = true;
    set_until(c, FAREWELL_MS);
}

static void tls_poll(struct tls_connection *c, bool is_cut_short)
{
    int net = (c->net_ended || c->in.len > 0 ? 0 : UV_READABLE) |
              (c->wants_net_write || is_cut_short ? UV_WRITABLE : 0);
    int plain =
        (c->plain_ended || c->out.len > 0 ? 0 : UV_READABLE) | (c->in.len > 0 ? UV_WRITABLE : 0);

    (void)uv_poll_start(&c->net, net, on_net); /* fails only when closing, with no event it stops */
    if (c->plain_fd >= 0)
        (void)uv_poll_start(&c->plain, plain, on_plain);
}

/* Moves all that can be moved now. */
static void tls_pump(struct tls_connection *c)
{
    bool is_moving = true;

    c->wants_net_write = false;
    if (c->plain_fd < 0 && !handshake(c)) {
        tls_connection_close(c);
        return;
    }
    for (int i = 0; c->plain_fd >= 0 && i < ROUNDS_MAX && is_moving; i++) {
        is_moving = read_net(c);
        is_moving = write_plain(c) || is_moving;
        is_moving = read_plain(c) || is_moving;
        is_moving = write_net(c) || is_moving;
    }
    if (c->net_ended && c->in.len == 0 && c->plain_fd >= 0)
        (void)shutdown(c->plain_fd, SHUT_WR); /* again does no harm */
    if (c->plain_ended && c->out.len == 0 && c->until_ms == 0)
        tls_say_farewell(c);
    if (c->net_ended && (c->plain_ended || c->is_leaving))
        tls_connection_close(c);
    else
        tls_poll(c, c->plain_fd >= 0 && is_moving);
}

static void on_net(uv_poll_t *poll, int status, int events)
{
    tls_pump(poll->data);
}

static void on_plain(uv_poll_t *poll, int status, int events)
{
    on_net(poll, status, events);
}

static void tls_close_late(struct tls *t, struct list *list)
{
    struct link *at = list_first(list), *next;

    for (; at != NULL; at = next) {
        struct tls_connection *c = container_of(at, struct tls_connection, link);

        next = list_next(list, at);
        if (c->until_ms != 0 && c->until_ms <= uv_now(t->loop))
            tls_connection_close(c);
    }
}

static void on_tls_sweep(uv_timer_t *timer)
{
    struct tls *t = timer->data;

    tls_close_late(t, &t->connections);
    tls_close_late(t, &t->handshaking);
    if (list_is_empty(&t->connections) && list_is_empty(&t->handshaking))
        (void)uv_timer_stop(timer); /* cannot fail */
}

/* --- */

void tls_accept(struct tls *t, const struct tls_port_config *config, int fd)
{
    struct tls_connection *c = t->is_refusing ? NULL : try_alloc(1, sizeof(*c));
    SSL *ssl = c == NULL ? NULL : SSL_new(t->context);

    if (ssl == NULL || SSL_set_fd(ssl, fd) != 1 || uv_poll_init(t->loop, &c->net, fd) != 0) {
        SSL_free(ssl);
        free(c);
        (void)close(fd); /* nothing was sent */
        return;
    }
    SSL_set_app_data(ssl, c);
    SSL_set_accept_state(ssl);
    c->tls = t;
    c->port = config;
    c->ssl = ssl;
    c->net_fd = fd;
    c->plain_fd = -1;
    c->net.data = c;
    c->n_handles = 1;
    set_until(c, HANDSHAKE_MS);
    list_push(&t->handshaking, &c->link);
    t->n_connections++;
    (void)uv_timer_start(&t->sweep, on_tls_sweep, SWEEP_MS, SWEEP_MS); /* only when closing */
    (void)uv_poll_start(&c->net, UV_READABLE, on_net);
}

enum status tls_open(struct tls **out, uv_loop_t *loop, const struct tls_config *config,
                     struct error *err)
{
    struct tls_files files;
    SSL_CTX *context;
    struct tls *t;

    if (config->certificate == NULL || config->private_key == NULL)
        return error_set(err, STATUS_INVALID, "both --tls-cert and --tls-key are needed");
    if (context_make(&context, &files, config, err) != STATUS_OK)
        return err->status;
    t = xalloc(sizeof(*t));
    t->config = *config;
    t->context = context;
    t->files = t->files_before = files;
    t->loop = loop;
    list_init(&t->connections);
    list_init(&t->handshaking);
    (void)uv_timer_init(loop, &t->sweep); /* cannot fail */
    t->sweep.data = t;
    *out = t;
    return STATUS_OK;
}

enum status tls_prepare(struct tls *t, struct error *err)
{
    tls_discard(t);
    return context_make(&t->next, &t->next_files, &t->config, err);
}

void tls_discard(struct tls *t)
{
    SSL_CTX_free(t->next);
    t->next = NULL;
}

void tls_commit(struct tls *t)
{
    SSL_CTX_free(t->context); /* connections have references */
    t->context = t->next;
    t->next = NULL;
    t->files_before = t->files;
    t->files = t->next_files;
}

unsigned tls_changes(const struct tls *t)
{
    unsigned changes = 0;

    for (int i = 0; i < TLS_FILES; i++)
        if (memcmp(t->files.sums[i], t->files_before.sums[i], SHA256_BYTES) != 0)
            changes |= 1u << i;
    return changes;
}

const char *tls_valid_until(const struct tls *t)
{
    return t->files.until;
}

bool tls_drop_oldest(struct tls *t, const struct tls_port_config *config)
{
    for (struct link *at = list_first(&t->handshaking); at != NULL;
         at = list_next(&t->handshaking, at)) {
        struct tls_connection *c = container_of(at, struct tls_connection, link);

        if (c->port != config)
            continue;
        tls_connection_close(c);
        return true;
    }
    return false;
}

static void tls_close_all(struct list *list)
{
    struct link *at;

    while ((at = list_first(list)) != NULL)
        tls_connection_close(container_of(at, struct tls_connection, link));
}

void tls_refuse(struct tls *t)
{
    t->is_refusing = true;
    tls_close_all(&t->handshaking);
}

static void on_tls_sweep_closed(uv_handle_t *handle)
{
    struct tls *t = handle->data;

    t->is_closing = true;
    tls_maybe_free(t);
}

void tls_close(struct tls *t)
{
    if (t == NULL)
        return;
    tls_close_all(&t->connections);
    tls_close_all(&t->handshaking);
    SSL_CTX_free(t->context);
    SSL_CTX_free(t->next);
    t->context = NULL;
    uv_close((uv_handle_t *)&t->sweep, on_tls_sweep_closed);
}
