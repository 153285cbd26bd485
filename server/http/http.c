/* Start: the listener, libwebsockets' context on the daemon's loop, and our handles. Libwebsockets
 * gets connections as raw ones: it reads, writes, and keeps time-outs. Its own HTTP does not
 * support chunked requests and never returns from a POST that follows another request in one
 * segment (4.1), so http1.c parses, and exchange.c answers.
 *
 * Stop: closes the connections and our handles. The context is destroyed when nothing else opens
 * descriptors any more: libwebsockets (4.1) closes that of its own pipe twice, an iteration apart,
 * and the second one may be another's by then. It is freed when the loop is empty. */
#include "server/http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "server/http/event_lib.h"
#include "server/http/front.h"
#include "server/json/fields.h"
#include "server/net/listener.h"
#include "server/net/open_files.h"
#include "server/net/silents.h"
#include "server/net/tls.h"

enum {
    SWEEP_MS = 250,
    FRESH_MS = 100, /* at the end a connection is awaited so long for its request */
    PROTOCOL_ADMIN = 1,
    READ_BYTES = 64 << 10, /* of one read; all share one buffer */
    CONTEXT_ROOM_BYTES = 4 << 20,
};

struct http {
    struct http_front front;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct http_address {
        struct http *http;
        const char *protocol; /* of libwebsockets: "http", "admin" */
        struct listener *listener;
        struct silents *silents;
        struct tls_port_config tls_port;
        size_t max_connections; /* of the public ones: gRPC needs some, too */
    } public, admin;            /* listener NULL: none */
    /* Notified exchanges are served right after the loop has polled; the idle handle keeps the loop
     * from sleeping when one was notified at another time. */
    uv_check_t check;
    uv_idle_t no_sleep;
    uv_timer_t sweep;
};

/* --- libwebsockets' callbacks --- */

static int adopted(struct http *h, struct lws *wsi)
{
    struct connection *c = connection_open(&h->front, wsi);

    if (c != NULL && lws_get_protocol(wsi)->id == PROTOCOL_ADMIN)
        connection_set_admin(c);
    lws_set_opaque_user_data(wsi, c);
    return c == NULL ? -1 : 0;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct connection *c = wsi == NULL ? NULL : lws_get_opaque_user_data(wsi);

    switch (reason) {
    case LWS_CALLBACK_RAW_ADOPT:
        return adopted(lws_context_user(lws_get_context(wsi)), wsi);
    case LWS_CALLBACK_RAW_RX:
        if (c != NULL)
            connection_read(c, in, len);
        return 0;
    case LWS_CALLBACK_RAW_WRITEABLE:
        if (c != NULL)
            connection_write_ready(c);
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
    {.name = "admin", .callback = on_event, .tx_packet_size = READ_BYTES, .id = PROTOCOL_ADMIN},
    {0},
};

static void http_say(int level, const char *line)
{
    log_warn("libwebsockets", "level=%d said=\"%.*s\"", level, (int)strcspn(line, "\n"), line);
}

/* --- notified exchanges --- */

static void on_check(uv_check_t *check)
{
    struct http *h = check->data;

    if (front_is_served(&h->front))
        return;
    front_serve(&h->front);
    if (front_is_served(&h->front))
        (void)uv_idle_stop(&h->no_sleep); /* cannot fail */
}

static void on_idle(uv_idle_t *idle)
{
}

static void stay_awake(struct http_front *f)
{
    struct http *h = container_of(f, struct http, front);

    (void)uv_idle_start(&h->no_sleep, on_idle); /* fails only without a callback */
}

/* --- connections --- */

static bool http_has_room(void *arg)
{
    const struct http_address *a = arg;

    return a->http->front.n_connections + silents_n(a->silents) < a->max_connections;
}

/* The descriptor of an idle connection is free only later: it makes room for the next peer. */
static bool http_make_room(void *arg)
{
    struct http_address *a = arg;
    struct tls *tls = a->http->front.config.tls;

    if (silents_drop_oldest(a->silents) || (tls != NULL && tls_drop_oldest(tls, &a->tls_port)))
        return true;
    front_spare(&a->http->front, a == &a->http->admin);
    return false;
}

static void http_adopt(void *arg, int fd)
{
    const struct http_address *a = arg;
    const lws_sock_file_fd_type socket = {.sockfd = fd};

    if (lws_adopt_descriptor_vhost(a->http->vhost, LWS_ADOPT_SOCKET, socket, a->protocol, NULL) ==
        NULL)
        log_warn("refused", "http connection=%d", fd); /* libwebsockets has closed it */
}

static void http_accepted(void *arg, int fd)
{
    const struct http_address *a = arg;

    silents_add(a->silents, fd);
}

static void http_accepted_tls(void *arg, int fd)
{
    struct http_address *a = arg;

    tls_accept(a->http->front.config.tls, &a->tls_port, fd);
}

/* Libwebsockets has time-outs, but on a foreign loop it notices a new one only with the next event
 * of one of its sockets. */
static void on_sweep(uv_timer_t *timer)
{
    struct http *h = timer->data;

    front_sweep(&h->front);
}

/* --- start --- */

/* address may be NULL: then there is none. */
static enum status http_open_address(struct http_address *a, struct http *h, bool *ret_is_loopback,
                                     uv_loop_t *loop, const char *address, struct error *err)
{
    const bool is_admin = a == &h->admin;
    const struct http_config *c = &h->front.config;
    const struct silents_config silents = {.timeout_ms = SILENT_MS,
                                           .n_first = 1,
                                           .spoke = http_adopt,
                                           .arg = a,
                                           .n_dropped = c->n_dropped};
    const struct listener_config config = {
        .name = "http",
        .address = address,
        .max_descriptors = is_admin ? open_files_for_admin() : open_files_for_http(),
        .has_room = http_has_room,
        .make_room = http_make_room,
        .peer_addresses = c->peer_addresses,
        .inherited = c->inherited,
        .accepted = c->tls != NULL ? http_accepted_tls : http_accepted,
        .arg = a,
        .n_refused = c->n_refused};
    struct sockaddr_storage at;

    if (address == NULL)
        return STATUS_OK;
    if (listener_open(&a->listener, loop, &config, err) != STATUS_OK)
        return err->status;
    a->http = h;
    a->protocol = is_admin ? "admin" : "http";
    a->max_connections = is_admin ? SIZE_MAX : open_files_max() / 2;
    a->silents = silents_open(loop, &silents);
    a->tls_port =
        (struct tls_port_config){TLS_H2 TLS_HTTP1, config.max_descriptors, http_accepted, a};
    listener_sockaddr(a->listener, &at);
    *ret_is_loopback = origin_is_loopback((struct sockaddr *)&at);
    return STATUS_OK;
}

static void http_close_address(struct http_address *a)
{
    listener_close(a->listener);
    silents_close(a->silents);
    a->listener = NULL;
    a->silents = NULL;
}

static enum status http_open_addresses(struct http *h, uv_loop_t *loop, struct error *err)
{
    struct http_front *f = &h->front;
    enum status rc = http_open_address(&h->public, h, &f->config.origins.is_loopback, loop,
                                       f->config.listen, err);

    if (rc != STATUS_OK)
        return error_prefix(err, "--http");
    rc = http_open_address(&h->admin, h, &f->is_admin_loopback, loop, f->config.admin, err);
    return rc == STATUS_OK ? rc : error_prefix(err, "--http-admin");
}

/* Libwebsockets (4.1) opens this file, and crashes where it cannot. */
static enum status check_random(struct error *err)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "--http: libwebsockets needs /dev/urandom: %s",
                         strerror(errno));
    (void)close(fd); /* nothing was written */
    return STATUS_OK;
}

/* Libwebsockets crashes where its context runs out of memory halfway. */
static enum status check_room(struct error *err)
{
    void *room = try_alloc(1, CONTEXT_ROOM_BYTES);

    if (room == NULL)
        return error_no_memory(err, CONTEXT_ROOM_BYTES, "libwebsockets");
    free(room);
    return STATUS_OK;
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

    lws_set_log_level(LLL_ERR, http_say);
    event_lib_locate();
    if (check_room(err) != STATUS_OK)
        return err->status;
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

static void http_open_handles(struct http *h, uv_loop_t *loop)
{
    /* None of these allocates. */
    (void)uv_check_init(loop, &h->check);
    (void)uv_idle_init(loop, &h->no_sleep);
    (void)uv_timer_init(loop, &h->sweep);
    h->check.data = h->sweep.data = h;
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
    rc = check_random(err);
    if (rc == STATUS_OK)
        rc = http_open_addresses(h, loop, err);
    if (rc == STATUS_OK)
        rc = open_context(h, loop, err);
    if (rc == STATUS_OK) {
        http_open_handles(h, loop);
        *out = h;
        return STATUS_OK;
    }
    http_close_address(&h->public);
    http_close_address(&h->admin);
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
    return h->public.listener == NULL ? NULL : listener_address(h->public.listener);
}

const char *http_admin_address(const struct http *h)
{
    return h->admin.listener == NULL ? NULL : listener_address(h->admin.listener);
}

void http_configure(struct http *h, uint64_t timeout_ms, const char *const *origins,
                    size_t n_origins)
{
    h->front.config.timeout_ms = timeout_ms;
    h->front.config.origins.allowed = origins;
    h->front.config.origins.n_allowed = n_origins;
}

struct http_front *http_front(struct http *h)
{
    return &h->front;
}

size_t http_n_answering(const struct http *h)
{
    return h->front.n_answering;
}

/* --- stop --- */

void http_serve(struct http *h)
{
    h->front.is_serving = true;
    if (h->public.listener != NULL)
        listener_serve(h->public.listener);
    if (h->admin.listener != NULL)
        listener_serve(h->admin.listener);
}

void http_check_keys(struct http *h)
{
    front_check_keys(&h->front);
}

void http_drain(struct http *h)
{
    front_drain(&h->front);
    if (h->public.listener != NULL)
        listener_drain(h->public.listener);
    if (h->admin.listener != NULL)
        listener_drain(h->admin.listener);
}

/* Whoever has connected may send a request yet. */
static void http_close_listener(struct http_address *a)
{
    if (a->listener == NULL)
        return;
    listener_accept_waiting(a->listener);
    listener_close(a->listener);
    a->listener = NULL;
}

static bool http_awaits(const struct http_address *a)
{
    return a->silents != NULL && silents_has_newer(a->silents, FRESH_MS);
}

bool http_end(struct http *h)
{
    http_close_listener(&h->public);
    http_close_listener(&h->admin);
    return front_end(&h->front) && !http_awaits(&h->public) && !http_awaits(&h->admin);
}

void http_stop(struct http *h)
{
    if (h == NULL || h->front.is_stopping)
        return;
    h->front.is_stopping = true;
    http_close_address(&h->public);
    http_close_address(&h->admin);
    front_abandon(&h->front);
    uv_close((uv_handle_t *)&h->check, NULL);
    uv_close((uv_handle_t *)&h->no_sleep, NULL);
    uv_close((uv_handle_t *)&h->sweep, NULL);
}

void http_close(struct http *h)
{
    if (h != NULL)
        lws_context_destroy(h->lws);
}

void http_free(struct http *h)
{
    if (h == NULL)
        return;
    lws_context_destroy(h->lws); /* the second call frees the rest */
    front_deinit(&h->front);
    free(h);
}
