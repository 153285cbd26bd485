/* Start: the socket, libwebsockets' context on the daemon's loop, handles of our own. Sockets are
 * accepted here, many at a time, and given to libwebsockets as raw ones: it reads, writes what it
 * is given, and keeps time. Its own HTTP knows no chunked requests and never returns from a POST
 * that came behind another request in one segment (4.1), so connection.c has them parsed by
 * http-parser, and exchange.c answers them.
 *
 * Stop: our handles are closed, and the context, whose connections go at once and whose handles
 * close in the loop's next turns; it is freed when the loop has run dry. */
#include "server/http/http.h"

#include <errno.h>
#include <libwebsockets.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/daemon.h"
#include "server/http/event_lib.h"
#include "server/http/fields.h"
#include "server/http/front.h"
#include "server/port.h"

enum {
    BACKLOG = 1024,
    ACCEPTS_AT_ONCE = 64,
    ACCEPT_AGAIN_MS = 50,
    SWEEP_MS = 250,
    MAX_DESCRIPTORS = 1 << 17, /* libwebsockets takes 16 bytes for each that may be */
    READ_BYTES = 64 << 10,     /* at a time; one buffer for all */
};

struct http {
    struct http_front front;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    int listen_fd;
    uv_poll_t listening;
    /* The woken are served right after the loop has polled; the idle handle keeps it from
     * sleeping when something was woken at another time. */
    uv_check_t check;
    uv_idle_t no_sleep;
    uv_timer_t again; /* accepts again when descriptors were short */
    uv_timer_t sweep;
    char address[80];
};

/* --- libwebsockets calls --- */

static int adopted(struct http *h, struct lws *wsi)
{
    struct connection *c = connection_open(&h->front, wsi);

    lws_set_opaque_user_data(wsi, c);
    return c == NULL ? -1 : 0;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct connection *c = wsi == NULL ? NULL : lws_get_opaque_user_data(wsi);

    (void)user;
    switch (reason) {
    case LWS_CALLBACK_RAW_ADOPT:
        return adopted(lws_context_user(lws_get_context(wsi)), wsi);
    case LWS_CALLBACK_RAW_RX:
        if (c != NULL)
            connection_read(c, in, len);
        return 0;
    case LWS_CALLBACK_RAW_WRITEABLE:
        if (c != NULL)
            connection_has_room(c);
        return 0;
    case LWS_CALLBACK_RAW_CLOSE:
    case LWS_CALLBACK_WSI_DESTROY:
        lws_set_opaque_user_data(wsi, NULL);
        if (c != NULL)
            connection_close(c);
        return 0;
    default:
        return 0;
    }
}

static const struct lws_protocols protocols[] = {
    {.name = "http", .callback = on_event, .tx_packet_size = READ_BYTES},
    {0},
};

static void say(int level, const char *line)
{
    log_warn("libwebsockets", "level=%d said=\"%.*s\"", level, (int)strcspn(line, "\n"), line);
}

/* --- the woken --- */

static void on_check(uv_check_t *check)
{
    struct http *h = check->data;

    if (list_is_empty(&h->front.woken))
        return;
    front_serve(&h->front);
    if (list_is_empty(&h->front.woken))
        (void)uv_idle_stop(&h->no_sleep); /* cannot fail */
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* that it is there is enough */
}

static void stay_awake(struct http_front *f)
{
    struct http *h = container_of(f, struct http, front);

    (void)uv_idle_start(&h->no_sleep, on_idle); /* fails only without a callback */
}

/* --- connections --- */

static void on_again(uv_timer_t *timer);

static void adopt(struct http *h, int fd)
{
    const int on = 1;
    const lws_sock_file_fd_type socket = {.sockfd = fd};

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* only slower without */
    if (lws_adopt_descriptor_vhost(h->vhost, LWS_ADOPT_SOCKET, socket, "http", NULL) == NULL)
        log_warn("refused", "http connection=%d", fd); /* libwebsockets has closed it */
}

static void on_connection(uv_poll_t *listening, int status, int events)
{
    struct http *h = listening->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(h->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            adopt(h, fd);
            continue;
        }
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return;
        /* The peer waits in the backlog until somebody else has gone. */
        log_warn("accept", "http error=\"%s\"", strerror(errno));
        (void)uv_poll_stop(&h->listening);
        (void)uv_timer_start(&h->again, on_again, ACCEPT_AGAIN_MS, 0); /* fails only when closing */
        return;
    }
}

static void on_again(uv_timer_t *timer)
{
    struct http *h = timer->data;

    if (!h->front.is_stopping)
        (void)uv_poll_start(&h->listening, UV_READABLE, on_connection); /* as at the start */
}

/* Libwebsockets has timeouts, but on a loop that is not its own it hears of a new one only when a
 * socket of its has something to say. */
static void on_sweep(uv_timer_t *timer)
{
    struct http *h = timer->data;

    front_sweep(&h->front);
}

/* --- start --- */

static enum status bind_first(int *ret_fd, const struct addrinfo *found, struct error *err)
{
    const int on = 1;
    int code = EADDRNOTAVAIL;

    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);

        if (fd < 0) {
            code = errno;
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* then bind says it */
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
            *ret_fd = fd;
            return STATUS_OK;
        }
        code = errno;
        (void)close(fd); /* nothing was sent */
    }
    if (code == EADDRINUSE)
        return error_set(err, STATUS_UNAVAILABLE, "the port is taken by another program");
    return error_set(err, STATUS_UNAVAILABLE, "%s", strerror(code));
}

static enum status open_socket(struct http *h, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char host[PORT_HOST_MAX + 1], port[6];
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);
    struct addrinfo *found = NULL;
    enum status rc = port_split_address(host, port, h->front.config.listen, err);
    int gai;

    if (rc != STATUS_OK)
        return rc;
    gai = getaddrinfo(host, port, &hints, &found);
    if (gai != 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s", gai_strerror(gai));
    rc = bind_first(&h->listen_fd, found, err);
    freeaddrinfo(found);
    if (rc != STATUS_OK)
        return rc;
    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &len) != 0 ||
        getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return error_set(err, STATUS_INTERNAL, "the address of the socket cannot be had");
    (void)snprintf(h->address, sizeof(h->address),
                   at.ss_family == AF_INET6 ? "[%.64s]:%s" : "%.64s:%s", host, port);
    return STATUS_OK;
}

/* Every connection is a descriptor. Libwebsockets asks how many there may be, once. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max < MAX_DESCRIPTORS ? limit.rlim_max : MAX_DESCRIPTORS;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* fewer connections, then */
}

static enum status open_context(struct http *h, uv_loop_t *loop, struct error *err)
{
    void *loops[] = {loop};
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .foreign_loops = loops,
        .pt_serv_buf_size = READ_BYTES,
        .vhost_name = "parley",
        .server_string = "parley",
        .user = h,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
    };

    lws_set_log_level(LLL_ERR, say);
    event_lib_locate();
    h->lws = lws_create_context(&info);
    if (h->lws == NULL)
        return error_set(err, STATUS_UNAVAILABLE,
                         "libwebsockets does not start; its part for libuv is in the package "
                         "libwebsockets-evlib-uv");
    h->vhost = lws_create_vhost(h->lws, &info);
    if (h->vhost == NULL)
        return error_set(err, STATUS_EXHAUSTED, "libwebsockets has no memory");
    return STATUS_OK;
}

static void open_handles(struct http *h, uv_loop_t *loop)
{
    /* None of these takes anything that could be missing. */
    (void)uv_poll_init(loop, &h->listening, h->listen_fd);
    (void)uv_check_init(loop, &h->check);
    (void)uv_idle_init(loop, &h->no_sleep);
    (void)uv_timer_init(loop, &h->again);
    (void)uv_timer_init(loop, &h->sweep);
    h->listening.data = h->check.data = h->again.data = h->sweep.data = h;
    (void)uv_poll_start(&h->listening, UV_READABLE, on_connection);
    (void)uv_check_start(&h->check, on_check);
    (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
}

enum status http_start(struct http **out, uv_loop_t *loop, const struct http_config *config,
                       struct error *err)
{
    struct http *h = try_alloc(1, sizeof(*h));
    enum status rc;

    if (h == NULL)
        return error_no_memory(err, sizeof(*h), "the HTTP port");
    fields_init();
    front_init(&h->front, config, stay_awake);
    h->listen_fd = -1;
    rc = open_socket(h, err);
    if (rc == STATUS_OK) {
        raise_descriptors();
        rc = open_context(h, loop, err);
    }
    if (rc == STATUS_OK) {
        open_handles(h, loop);
        *out = h;
        return STATUS_OK;
    }
    if (h->listen_fd >= 0)
        (void)close(h->listen_fd); /* nothing was sent */
    if (h->lws != NULL) {
        lws_context_destroy(h->lws);
        /* Its connections' handles close, then its own. */
        (void)uv_run(loop, UV_RUN_NOWAIT);
        (void)uv_run(loop, UV_RUN_NOWAIT);
        lws_context_destroy(h->lws);
    }
    free(h);
    return rc;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

size_t http_n_answering(const struct http *h)
{
    return h->front.n_answering;
}

/* --- stop --- */

void http_drain(struct http *h)
{
    h->front.is_draining = true;
    front_close_idle(&h->front);
}

static void on_listening_closed(uv_handle_t *handle)
{
    struct http *h = handle->data;

    (void)close(h->listen_fd); /* nothing was sent */
}

void http_stop(struct http *h)
{
    if (h == NULL || h->front.is_stopping)
        return;
    h->front.is_stopping = true;
    uv_close((uv_handle_t *)&h->listening, on_listening_closed);
    uv_close((uv_handle_t *)&h->check, NULL);
    uv_close((uv_handle_t *)&h->no_sleep, NULL);
    uv_close((uv_handle_t *)&h->again, NULL);
    uv_close((uv_handle_t *)&h->sweep, NULL);
    lws_context_destroy(h->lws);
    front_abandon(&h->front); /* those whose sockets say so only later */
}

void http_free(struct http *h)
{
    if (h == NULL)
        return;
    lws_context_destroy(h->lws); /* the second time: what is left of it */
    front_deinit(&h->front);
    free(h);
}
