/* Accepts a listening socket's connections, several per event. A failure of accept (no descriptors,
 * no memory) is temporary: the listener retries after a moment, without limit. */
#include "server/net/listener.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/address.h"
#include "base/address_holder.h"
#include "base/alloc.h"
#include "base/log.h"
#include "server/net/inherited.h"
#include "server/net/peer_addresses.h"

enum {
    SOCKETS_MAX = 8, /* addresses of one host */
    ACCEPTS_AT_ONCE = 64,
    ACCEPT_AGAIN_MS = 50,
    LOG_EVERY_MS = 1000,
};

struct listener {
    struct listener_config config;
    char address[ADDRESS_HOST_MAX + 16];
    struct {
        int fd;
        bool is_inherited;
        uv_poll_t poll;
    } sockets[SOCKETS_MAX]; /* [n_sockets] */
    size_t n_sockets;
    bool is_serving;                                                /* at inherited sockets */
    uv_timer_t again;                                               /* runs while accept fails */
    size_t n_handles;                                               /* open handles of the loop */
    size_t n_refused;                                               /* since the start */
    uint64_t logged_ms;                                             /* 0: never */
    char unix_path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* "": none */
};

static enum status listener_taken(struct error *err, const char *what, const char *address)
{
    struct address_holder by;

    if (!address_holder_find(&by, address))
        return error_set(err, STATUS_UNAVAILABLE, "the %s is taken by another program", what);
    return error_set(err, STATUS_UNAVAILABLE, "the %s is taken by %s (process %ld)", what, by.name,
                     by.pid);
}

/* Removes a stale socket file: it outlives a killed daemon. */
static enum status clear_path(const char *path, const char *address, struct error *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    int fd, code;

    if (path[0] == '\0' || strlen(path) >= sizeof(to.sun_path))
        return error_set(err, STATUS_INVALID, "a socket's path has 1 to %zu characters",
                         sizeof(to.sun_path) - 1);
    if (lstat(path, &st) != 0)
        return STATUS_OK; /* bind reports other errors */
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, STATUS_INVALID, "there is a file that is not a socket");
    memcpy(to.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a socket: %s", strerror(errno));
    code = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 ? 0 : errno;
    (void)close(fd); /* nothing was sent */
    if (code != ECONNREFUSED)
        return listener_taken(err, "socket", address);
    if (unlink(path) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "cannot remove what is left there: %s",
                         strerror(errno));
    return STATUS_OK;
}

/* --- accepting --- */

/* Logs at most one line a second: many may come. */
static void listener_say(struct listener *l, const char *why)
{
    uint64_t now_ms = uv_now(l->again.loop);

    if (l->logged_ms != 0 && now_ms - l->logged_ms < LOG_EVERY_MS)
        return;
    log_warn("connections", "%s=%s refused=%zu error=\"%s\"", l->config.name, l->address,
             l->n_refused, why);
    l->logged_ms = now_ms;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void poll_all(struct listener *l)
{
    for (size_t i = 0; i < l->n_sockets; i++)
        if (!l->sockets[i].is_inherited || l->is_serving)
            (void)uv_poll_start(&l->sockets[i].poll, UV_READABLE,
                                on_connection); /* fails only when closing */
}

static void on_again(uv_timer_t *again)
{
    poll_all(again->data);
}

/* Peers wait in the kernel's queue meanwhile. */
static void pause_all(struct listener *l)
{
    for (size_t i = 0; i < l->n_sockets; i++)
        (void)uv_poll_stop(&l->sockets[i].poll); /* cannot fail */
    (void)uv_timer_start(&l->again, on_again, ACCEPT_AGAIN_MS,
                         0); /* fails only without a callback */
}

static bool listener_has_room(const struct listener *l, int fd)
{
    return (size_t)fd < l->config.max_descriptors &&
           (l->config.has_room == NULL || l->config.has_room(l->config.arg));
}

/* Closes others until there is room, and returns fd or what it has become: a lower number. */
static int listener_find_room(struct listener *l, int fd)
{
    while (!listener_has_room(l, fd) && l->config.make_room != NULL &&
           l->config.make_room(l->config.arg)) {
        int lower = fcntl(fd, F_DUPFD_CLOEXEC, 0);

        if (lower < 0)
            break;
        (void)close(fd); /* the socket stays open */
        fd = lower;
    }
    return fd;
}

static void listener_take(struct listener *l, int fd)
{
    const char *why = NULL;

    fd = listener_find_room(l, fd);
    if (!listener_has_room(l, fd))
        why = "too many connections for the limit of open files";
    else if (l->config.peer_addresses != NULL &&
             !peer_addresses_admit(l->config.peer_addresses, fd))
        why = "too many connections of one address";
    if (why == NULL) {
        l->config.accepted(l->config.arg, fd);
        return;
    }
    (void)close(fd); /* nothing was sent */
    l->n_refused++;
    if (l->config.n_refused != NULL)
        ++*l->config.n_refused;
    listener_say(l, why);
}

/* At most n_max; false: accept has failed. */
static bool listener_accept(struct listener *l, int listening, int n_max)
{
    for (int i = 0; i < n_max; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            listener_take(l, fd);
        } else if (errno == EAGAIN) {
            return true;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            listener_say(l, strerror(errno));
            return false;
        }
    }
    return true;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    int listening;

    if (uv_fileno((const uv_handle_t *)poll, &listening) == 0 &&
        !listener_accept(poll->data, listening, ACCEPTS_AT_ONCE))
        pause_all(poll->data);
}

void listener_accept_waiting(struct listener *l)
{
    for (size_t i = 0; i < l->n_sockets; i++)
        if (!l->sockets[i].is_inherited)
            (void)listener_accept(l, l->sockets[i].fd, SOMAXCONN); /* more than wait there */
}

void listener_serve(struct listener *l)
{
    l->is_serving = true;
    poll_all(l);
}

void listener_drain(struct listener *l)
{
    l->is_serving = false;
    for (size_t i = 0; i < l->n_sockets; i++)
        if (l->sockets[i].is_inherited)
            (void)uv_poll_stop(&l->sockets[i].poll); /* cannot fail */
}

/* --- opening --- */

/* Accepted connections inherit these options. */
static void set_options(int fd, const struct listener_config *config)
{
    const int on = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
                     sizeof(on)); /* on failure bind reports an error */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                     sizeof(on));    /* without it connections are only slower */
    if (config->user_timeout_ms > 0) /* without it dead peers are noticed later */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &config->user_timeout_ms,
                         sizeof(config->user_timeout_ms));
}

/* Takes the inherited socket that listens there. False: there is none. */
static bool listener_inherits(struct listener *l, const struct sockaddr *at, socklen_t len)
{
    const int fd = inherited_take(l->config.inherited, at, len);

    if (fd < 0)
        return false;
    if (at->sa_family != AF_UNIX)
        set_options(fd, &l->config);
    l->sockets[l->n_sockets].is_inherited = true;
    l->sockets[l->n_sockets++].fd = fd;
    return true;
}

/* Returns 0, or the errno. */
static int listen_at(struct listener *l, int family, const struct sockaddr *at, socklen_t len)
{
    int code = 0, fd;

    if (listener_inherits(l, at, len))
        return 0;
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (family != AF_UNIX)
        set_options(fd, &l->config);
    if (bind(fd, at, len) != 0 || listen(fd, SOMAXCONN) != 0) {
        code = errno;
        (void)close(fd); /* nothing was sent */
        return code;
    }
    l->sockets[l->n_sockets++].fd = fd;
    return 0;
}

static enum status listen_unix(struct listener *l, const char *path, struct error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    enum status rc;
    int code;

    (void)snprintf(l->address, sizeof(l->address), "%s", l->config.address);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path); /* what is too long is refused */
    if (listener_inherits(l, (const struct sockaddr *)&at, sizeof(at)))
        return STATUS_OK;
    rc = clear_path(path, l->config.address, err);
    if (rc != STATUS_OK)
        return rc;
    code = listen_at(l, AF_UNIX, (const struct sockaddr *)&at, sizeof(at));
    if (code != 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s", strerror(code));
    memcpy(l->unix_path, path, strlen(path) + 1);
    return STATUS_OK;
}

/* Listens at each of the host's addresses; one is enough. Port 0 becomes the first one's port. */
static enum status listen_tcp(struct listener *l, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char host[ADDRESS_HOST_MAX + 1], port[6];
    enum status rc = address_split(host, port, l->config.address, err);
    union {
        struct sockaddr any;
        struct sockaddr_in v4; /* the same offset as v6's port */
        struct sockaddr_storage room;
    } at;
    struct addrinfo *found = NULL;
    socklen_t len;
    int gai, code = EADDRNOTAVAIL;
    in_port_t number = 0;

    if (rc != STATUS_OK)
        return rc;
    gai = getaddrinfo(host, port, &hints, &found);
    if (gai != 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s", gai_strerror(gai));
    for (const struct addrinfo *a = found; a != NULL && l->n_sockets < SOCKETS_MAX;
         a = a->ai_next) {
        len = a->ai_addrlen;
        memcpy(&at, a->ai_addr, len);
        if (number != 0)
            at.v4.sin_port = number;
        code = listen_at(l, a->ai_family, &at.any, len);
        len = sizeof(at);
        if (code == 0 && number == 0 &&
            getsockname(l->sockets[0].fd, &at.any, &len) == 0) /* cannot fail */
            number = at.v4.sin_port;
    }
    freeaddrinfo(found);
    if (l->n_sockets == 0 && code == EADDRINUSE)
        return listener_taken(err, "port", l->config.address);
    if (l->n_sockets == 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s", strerror(code));
    (void)snprintf(l->address, sizeof(l->address), strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                   host, (unsigned)ntohs(number));
    return STATUS_OK;
}

static enum status listener_open_handles(struct listener *l, uv_loop_t *loop, struct error *err)
{
    int rc;

    (void)uv_timer_init(loop, &l->again); /* cannot fail */
    l->again.data = l;
    for (l->n_handles = 1; l->n_handles <= l->n_sockets; l->n_handles++) {
        uv_poll_t *poll = &l->sockets[l->n_handles - 1].poll;

        rc = uv_poll_init(loop, poll, l->sockets[l->n_handles - 1].fd);
        if (rc != 0)
            return error_set(err, STATUS_EXHAUSTED, "cannot watch the socket: %s", uv_strerror(rc));
        poll->data = l;
    }
    poll_all(l);
    return STATUS_OK;
}

enum status listener_open(struct listener **out, uv_loop_t *loop,
                          const struct listener_config *config, struct error *err)
{
    const char *path = address_unix_path(config->address);
    struct listener *l = xalloc(sizeof(*l));
    enum status rc;

    l->config = *config;
    rc = path != NULL ? listen_unix(l, path, err) : listen_tcp(l, err);
    if (rc == STATUS_OK)
        rc = listener_open_handles(l, loop, err);
    if (rc != STATUS_OK) {
        (void)error_prefix(err, "cannot listen on %s", config->address);
        listener_close(l);
        return rc;
    }
    *out = l;
    return STATUS_OK;
}

const char *listener_address(const struct listener *l)
{
    return l->address;
}

void listener_sockaddr(const struct listener *l, struct sockaddr_storage *out)
{
    socklen_t len = sizeof(*out);
    int rc = getsockname(l->sockets[0].fd, (struct sockaddr *)out, &len);

    assert(rc == 0); /* it is bound */
    (void)rc;
}

/* --- closing --- */

static void on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;

    if (--l->n_handles == 0)
        free(l);
}

void listener_close(struct listener *l)
{
    size_t n_polls;

    if (l == NULL)
        return;
    n_polls = l->n_handles > 0 ? l->n_handles - 1 : 0;
    if (l->unix_path[0] != '\0')
        (void)unlink(l->unix_path); /* may be gone already */
    for (size_t i = 0; i < n_polls; i++)
        uv_close((uv_handle_t *)&l->sockets[i].poll, on_closed);
    for (size_t i = 0; i < l->n_sockets; i++)
        (void)close(l->sockets[i].fd); /* nothing was sent */
    if (l->n_handles > 0)
        uv_close((uv_handle_t *)&l->again, on_closed);
    else
        free(l);
}
