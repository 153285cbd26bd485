#include "server/net/inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 };

/* A decimal number from 0 to max, and nothing else; -1 of another text. */
static long inherited_number(const char *text, long max)
{
    char *end;
    long value;

    if (text == NULL || text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    value = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && value <= max ? value : -1;
}

static enum status inherited_add(struct inherited *in, int fd, struct error *err)
{
    int type = 0, is_listening = 0, flags = fcntl(fd, F_GETFL);
    socklen_t len = sizeof(int), len2 = sizeof(int);

    if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len2) != 0 || is_listening == 0)
        return error_set(err, STATUS_INVALID,
                         "LISTEN_FDS: descriptor %d is no listening socket of streams", fd);
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return error_set(err, STATUS_INVALID, "LISTEN_FDS: descriptor %d: %s", fd, strerror(errno));
    in->fds[in->n++] = fd;
    return STATUS_OK;
}

enum status inherited_open(struct inherited *in, struct error *err)
{
    const char *fds = getenv("LISTEN_FDS");
    const bool is_ours = inherited_number(getenv("LISTEN_PID"), INT_MAX) == (long)getpid();
    const long n = inherited_number(fds, INHERITED_MAX);
    enum status rc = STATUS_OK;

    *in = (struct inherited){.n = 0};
    if (fds == NULL || !is_ours)
        return STATUS_OK;
    if (n < 0)
        rc = error_set(err, STATUS_INVALID, "LISTEN_FDS is '%.20s', it must be from 0 to %d", fds,
                       INHERITED_MAX);
    for (int i = 0; rc == STATUS_OK && i < n; i++)
        rc = inherited_add(in, FIRST_FD + i, err);
    (void)unsetenv("LISTEN_PID"); /* cannot fail: the names are well formed */
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return rc;
}

union inherited_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
    struct sockaddr_storage room;
};

/* Whether the socket, which is bound to own, takes what comes to at. */
static bool inherited_is_at(int fd, const union inherited_address *own,
                            const union inherited_address *at)
{
    int only = 1;
    socklen_t len = sizeof(only);

    if (own->any.sa_family == AF_INET6 && at->any.sa_family == AF_INET)
        return own->v6.sin6_port == at->v4.sin_port && at->v4.sin_addr.s_addr == INADDR_ANY &&
               memcmp(&own->v6.sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0 &&
               getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len) == 0 && only == 0;
    if (own->any.sa_family != at->any.sa_family)
        return false;
    switch (own->any.sa_family) {
    case AF_INET:
        return own->v4.sin_port == at->v4.sin_port &&
               own->v4.sin_addr.s_addr == at->v4.sin_addr.s_addr;
    case AF_INET6:
        return own->v6.sin6_port == at->v6.sin6_port &&
               own->v6.sin6_scope_id == at->v6.sin6_scope_id &&
               memcmp(&own->v6.sin6_addr, &at->v6.sin6_addr, sizeof(at->v6.sin6_addr)) == 0;
    case AF_UNIX:
        return strncmp(own->un.sun_path, at->un.sun_path, sizeof(own->un.sun_path)) == 0;
    default:
        return false;
    }
}

/* False: it has no address, which a listening socket has. */
static bool inherited_address(int fd, union inherited_address *out)
{
    socklen_t len = sizeof(*out);

    memset(out, 0, sizeof(*out));
    return getsockname(fd, &out->any, &len) == 0;
}

int inherited_take(struct inherited *in, const struct sockaddr *at, socklen_t len)
{
    union inherited_address own, wanted;

    if (in == NULL || len > sizeof(wanted))
        return -1;
    memset(&wanted, 0, sizeof(wanted));
    memcpy(&wanted, at, len);
    for (size_t i = 0; i < in->n; i++) {
        const int fd = in->fds[i];

        if (fd < 0 || !inherited_address(fd, &own) || !inherited_is_at(fd, &own, &wanted))
            continue;
        in->fds[i] = -1;
        return fd;
    }
    return -1;
}

enum status inherited_check(const struct inherited *in, struct error *err)
{
    union inherited_address own;
    char host[NI_MAXHOST], port[NI_MAXSERV];

    for (size_t i = 0; i < in->n; i++) {
        if (in->fds[i] < 0)
            continue;
        if (!inherited_address(in->fds[i], &own))
            return error_set(err, STATUS_INVALID, "LISTEN_FDS: a socket has no address");
        if (own.any.sa_family == AF_UNIX)
            return error_set(err, STATUS_INVALID,
                             "LISTEN_FDS: no --listen or --http names the socket unix:%.100s",
                             own.un.sun_path);
        if (getnameinfo(&own.any, sizeof(own), host, sizeof(host), port, sizeof(port),
                        NI_NUMERICHOST | NI_NUMERICSERV) != 0)
            return error_set(err, STATUS_INVALID, "LISTEN_FDS: a socket is of an unknown family");
        return error_set(err, STATUS_INVALID,
                         "LISTEN_FDS: no --listen or --http names the socket of %s, port %s", host,
                         port);
    }
    return STATUS_OK;
}

void inherited_close(struct inherited *in)
{
    for (size_t i = 0; i < in->n; i++)
        if (in->fds[i] >= 0)
            (void)close(in->fds[i]); /* nothing was sent */
    in->n = 0;
}
