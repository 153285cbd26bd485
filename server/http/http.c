/* Start: the socket, libwebsockets' context on the daemon's loop, handles of our own. Sockets are
 * accepted here, many at a time, and given to libwebsockets, which reads heads and bodies and
 * writes what it is given; exchange.c makes answers of them.
 *
 * Stop: our handles are closed, and the context, whose connections go at once and whose handles
 * close in the loop's next turns; it is freed when the loop has run dry. */
#include "server/http/http.h"

#include <errno.h>
#include <jansson.h>
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
#include "server/http/exchange_parts.h"
#include "server/port.h"

enum {
    BACKLOG = 1024,
    ACCEPTS_AT_ONCE = 64,
    ACCEPT_AGAIN_MS = 50,
    MAX_DESCRIPTORS = 1 << 17, /* libwebsockets takes 16 bytes for each that may be */
    HEAD_BYTES = 8 << 10,      /* of a request's head */
    READ_BYTES = 64 << 10,     /* at a time; one buffer for all */
    KEEP_ALIVE_S = 120,
};

/* --- libwebsockets calls --- */

/* An upgrade need not be granted; but libwebsockets would grant HTTP/2 and WebSocket, or hang up.
 * So it finds a name that it does not know. */
static void forget_upgrade(char *name)
{
    if (name != NULL && name[0] != '\0')
        name[0] = '-';
}

static void close_if_idle(struct lws *wsi, const struct exchange *x)
{
    if (x == NULL)
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct exchange *x = wsi == NULL ? NULL : lws_get_opaque_user_data(wsi);

    (void)user;
    switch (reason) {
    case LWS_CALLBACK_HTTP:
        return exchange_open(lws_context_user(lws_get_context(wsi)), wsi, in, len) ? 0 : -1;
    case LWS_CALLBACK_HTTP_BODY:
        if (x != NULL)
            exchange_more(x, in, len);
        return 0;
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        if (x != NULL)
            exchange_whole(x);
        return 0;
    case LWS_CALLBACK_HTTP_WRITEABLE:
        if (x != NULL)
            exchange_wake(x);
        return 0;
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_WSI_DESTROY:
        if (x != NULL)
            exchange_gone(x);
        return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        forget_upgrade(in);
        return 0;
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return -1;
    case LWS_CALLBACK_USER: /* http_drain's */
        close_if_idle(wsi, x);
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
    struct list due;

    if (list_is_empty(&h->woken))
        return;
    list_init(&due);
    list_move(&h->woken, &due);
    while (!list_is_empty(&due))
        exchange_serve(container_of(list_first(&due), struct exchange, woken));
    if (list_is_empty(&h->woken))
        (void)uv_idle_stop(&h->no_sleep); /* cannot fail */
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* that it is there is enough */
}

void http_stay_awake(struct http *h)
{
    (void)uv_idle_start(&h->no_sleep, on_idle); /* fails only without a callback */
}

/* --- connections --- */

static void on_again(uv_timer_t *timer);

static void adopt(struct http *h, int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* only slower without */
    if (lws_adopt_socket_vhost(h->vhost, fd) == NULL)
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

    if (!h->is_stopping)
        (void)uv_poll_start(&h->listening, UV_READABLE, on_connection); /* as at the start */
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

/* Of the JSON that peers send. */
static void *take_json(size_t size_bytes)
{
    return try_alloc(1, size_bytes);
}

static enum status open_socket(struct http *h, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char host[PORT_HOST_MAX + 1], port[6];
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);
    struct addrinfo *found = NULL;
    enum status rc = port_split_address(host, port, h->config.listen, err);
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
    const unsigned timeout_s = (unsigned)((h->config.timeout_ms + 999) / 1000);
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .foreign_loops = loops,
        .pt_serv_buf_size = READ_BYTES,
        .max_http_header_data2 = HEAD_BYTES,
        .max_http_header_pool2 = MAX_DESCRIPTORS,
        .timeout_secs = timeout_s,
        .timeout_secs_ah_idle = (int)timeout_s,
        .keepalive_timeout = KEEP_ALIVE_S,
        .vhost_name = "parley",
        .server_string = "parley",
        .user = h,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
    };

    lws_set_log_level(LLL_ERR, say);
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
    h->listening.data = h->check.data = h->again.data = h;
    (void)uv_poll_start(&h->listening, UV_READABLE, on_connection);
    (void)uv_check_start(&h->check, on_check);
}

enum status http_start(struct http **out, uv_loop_t *loop, const struct http_config *config,
                       struct error *err)
{
    struct http *h = try_alloc(1, sizeof(*h));
    enum status rc;

    if (h == NULL)
        return error_no_memory(err, sizeof(*h), "the HTTP port");
    json_set_alloc_funcs(take_json, free);
    h->config = *config;
    h->listen_fd = -1;
    list_init(&h->exchanges);
    list_init(&h->woken);
    memory_init(&h->memory, &config->daemon->conversations);
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

size_t http_n_exchanges(const struct http *h)
{
    return h->n_exchanges;
}

/* --- stop --- */

void http_drain(struct http *h)
{
    h->is_draining = true;
    (void)lws_callback_all_protocol(h->lws, lws_vhost_name_to_protocol(h->vhost, "http"),
                                    LWS_CALLBACK_USER); /* it always says 0 */
}

static void on_listening_closed(uv_handle_t *handle)
{
    struct http *h = handle->data;

    (void)close(h->listen_fd); /* nothing was sent */
}

void http_stop(struct http *h)
{
    if (h == NULL || h->is_stopping)
        return;
    h->is_stopping = true;
    uv_close((uv_handle_t *)&h->listening, on_listening_closed);
    uv_close((uv_handle_t *)&h->check, NULL);
    uv_close((uv_handle_t *)&h->no_sleep, NULL);
    uv_close((uv_handle_t *)&h->again, NULL);
    lws_context_destroy(h->lws);
    /* Those whose connection says so only later. */
    while (!list_is_empty(&h->exchanges))
        exchange_gone(container_of(list_first(&h->exchanges), struct exchange, link));
}

void http_free(struct http *h)
{
    if (h == NULL)
        return;
    lws_context_destroy(h->lws); /* the second time: what is left of it */
    memory_deinit(&h->memory);
    free(h);
}
