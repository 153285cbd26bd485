#include "server/net/peer_addresses.h"

#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"

/* An address that has connections; IPv4 as IPv6 maps it. */
struct peer_address {
    struct hash_node by_address;
    struct in6_addr address;
    struct list connections;
    size_t n;
};

struct peer_connection {
    struct link link; /* of its peer's */
    struct peer_address *peer;
    int fd;
    in_port_t port;
};

struct peer_addresses {
    struct hash by_address;
    struct peer_connection **by_fd; /* [n_fds]; NULL: none */
    size_t n_fds, max;
};

/* False: it is no TCP connection, or has ended. */
static bool peer_address_of(struct in6_addr *ret_address, in_port_t *ret_port, int fd)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage storage;
    } at;
    socklen_t len = sizeof(at);

    if (getpeername(fd, &at.any, &len) != 0)
        return false;
    if (at.any.sa_family == AF_INET6) {
        *ret_address = at.v6.sin6_addr;
        *ret_port = at.v6.sin6_port;
        return true;
    }
    if (at.any.sa_family != AF_INET)
        return false;
    memcpy(ret_address->s6_addr, mapped, sizeof(mapped));
    memcpy(ret_address->s6_addr + sizeof(mapped), &at.v4.sin_addr, sizeof(at.v4.sin_addr));
    *ret_port = at.v4.sin_port;
    return true;
}

struct peer_addresses *peer_addresses_open(size_t max, const struct env *env)
{
    struct peer_addresses *p = xalloc(sizeof(*p));

    hash_init(&p->by_address, env);
    p->max = max;
    return p;
}

static void peer_addresses_forget(struct peer_addresses *p, struct peer_connection *c)
{
    struct peer_address *peer = c->peer;

    p->by_fd[c->fd] = NULL;
    list_remove(&c->link);
    free(c);
    if (--peer->n > 0)
        return;
    hash_remove(&p->by_address, &peer->by_address);
    free(peer);
}

void peer_addresses_close(struct peer_addresses *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_fds; i++)
        if (p->by_fd[i] != NULL)
            peer_addresses_forget(p, p->by_fd[i]);
    hash_deinit(&p->by_address);
    free(p->by_fd);
    free(p);
}

static uint64_t peer_addresses_hash(const struct peer_addresses *p, const struct in6_addr *address)
{
    return hash_bytes(&p->by_address, 0, address, sizeof(*address));
}

static struct peer_address *peer_addresses_find(const struct peer_addresses *p,
                                                const struct in6_addr *address)
{
    struct hash_node *node = hash_first(&p->by_address, peer_addresses_hash(p, address));

    for (; node != NULL; node = hash_next(node)) {
        struct peer_address *peer = container_of(node, struct peer_address, by_address);

        if (memcmp(&peer->address, address, sizeof(*address)) == 0)
            return peer;
    }
    return NULL;
}

static bool peer_connection_lives(const struct peer_connection *c)
{
    struct in6_addr address;
    in_port_t port;

    return peer_address_of(&address, &port, c->fd) && port == c->port &&
           memcmp(&address, &c->peer->address, sizeof(address)) == 0;
}

/* Forgets the connections of an address that have ended; those that live are counted. The address
 * itself is forgotten with its last. */
static size_t peer_addresses_sweep(struct peer_addresses *p, const struct in6_addr *address)
{
    struct peer_address *peer = peer_addresses_find(p, address);
    size_t n = 0;
    struct link *at, *next;

    if (peer == NULL)
        return 0;
    if (peer->n < p->max)
        return peer->n;
    for (at = list_first(&peer->connections); at != NULL; at = next) {
        struct peer_connection *c = container_of(at, struct peer_connection, link);

        next = list_next(&peer->connections, at);
        if (peer_connection_lives(c))
            n++;
        else
            peer_addresses_forget(p, c); /* after the last there is no next */
    }
    return n;
}

static bool peer_addresses_reserve(struct peer_addresses *p, size_t fd)
{
    struct peer_connection **all;
    size_t n = fd + 1 > 2 * p->n_fds ? fd + 1 : 2 * p->n_fds;

    if (fd < p->n_fds)
        return true;
    all = try_realloc(p->by_fd, n, sizeof(*all));
    if (all == NULL)
        return false;
    memset(all + p->n_fds, 0, (n - p->n_fds) * sizeof(*all));
    p->by_fd = all;
    p->n_fds = n;
    return true;
}

static void peer_addresses_note(struct peer_addresses *p, int fd, const struct in6_addr *address,
                                in_port_t port)
{
    struct peer_address *peer = peer_addresses_find(p, address);
    struct peer_connection *c;

    if (peer == NULL) {
        peer = xalloc(sizeof(*peer));
        peer->address = *address;
        list_init(&peer->connections);
        hash_add(&p->by_address, &peer->by_address, peer_addresses_hash(p, address));
    }
    c = xalloc(sizeof(*c));
    *c = (struct peer_connection){.peer = peer, .fd = fd, .port = port};
    list_push(&peer->connections, &c->link);
    peer->n++;
    p->by_fd[fd] = c;
}

bool peer_addresses_admit(struct peer_addresses *p, int fd)
{
    struct in6_addr address;
    in_port_t port;

    if (!peer_addresses_reserve(p, (size_t)fd))
        return true;
    if (p->by_fd[fd] != NULL)
        peer_addresses_forget(p, p->by_fd[fd]); /* its number was given out again: it has ended */
    if (!peer_address_of(&address, &port, fd))
        return true;
    if (peer_addresses_sweep(p, &address) >= p->max)
        return false;
    peer_addresses_note(p, fd, &address, port);
    return true;
}
