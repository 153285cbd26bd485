#include "server/rpc/connections.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/alloc.h"

enum { CONNECTIONS_MIN = 16 };

struct rpc_connection {
    int fd;
    bool was_asked;
    ino_t inode;
};

/* gRPC core may close the descriptor at any time, and a file may get its number; but sockets are
 * opened by the loop alone. */
static bool rpc_connection_is_open(const struct rpc_connection *c)
{
    struct stat st;

    return fstat(c->fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == c->inode;
}

size_t rpc_connections_n_open(struct rpc_connections *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        if (rpc_connection_is_open(&c->all[i]))
            c->all[n++] = c->all[i];
    c->n = n;
    return n;
}

/* Looks for ended ones only when it is full, and grows where most are open: on average an addition
 * costs a few looks. */
static bool rpc_connections_make_room(struct rpc_connections *c)
{
    struct rpc_connection *more;
    size_t n_max = c->n_max == 0 ? CONNECTIONS_MIN : 2 * c->n_max;

    if (c->n < c->n_max || rpc_connections_n_open(c) < c->n_max / 2)
        return true;
    more = try_alloc(n_max, sizeof(*more));
    if (more == NULL)
        return c->n < c->n_max;
    for (size_t i = 0; i < c->n; i++)
        more[i] = c->all[i];
    free(c->all);
    c->all = more;
    c->n_max = n_max;
    return true;
}

void rpc_connections_add(struct rpc_connections *c, int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && rpc_connections_make_room(c))
        c->all[c->n++] = (struct rpc_connection){.fd = fd, .inode = st.st_ino};
}

void rpc_connections_ask_to_leave(struct rpc_connections *c)
{
    /* 8 bytes, GOAWAY, no flags, stream 0: last stream 2^31 - 1, NO_ERROR (RFC 9113, 6.8). */
    static const unsigned char goaway[] = {0,    0,    8,    7,    0, 0, 0, 0, 0,
                                           0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0};

    for (size_t i = 0; i < c->n; i++) {
        struct rpc_connection *one = &c->all[i];
        int n_unread;

        if (one->was_asked || !rpc_connection_is_open(one) ||
            ioctl(one->fd, TIOCOUTQ, &n_unread) != 0 || n_unread > 0)
            continue;
        one->was_asked = send(one->fd, goaway, sizeof(goaway), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
    }
}

void rpc_connections_deinit(struct rpc_connections *c)
{
    free(c->all);
}
