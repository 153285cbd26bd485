#include "server/net/peer_addresses.h"

#include <check.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/env.h"
#include "tests/unit/base/suite.h"

static int listening;
static struct sockaddr_in at;

static void listen_here(void)
{
    socklen_t len = sizeof(at);

    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    listening = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(listening, 0);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&at, len), 0);
    ck_assert_int_eq(listen(listening, 16), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&at, &len), 0);
}

/* A connection from 127.0.0.host; *ret_client is its other end. */
static int connection_from(uint32_t host, int *ret_client)
{
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(0x7f000000 | host)};
    int client = socket(AF_INET, SOCK_STREAM, 0), fd;

    ck_assert_int_ge(client, 0);
    ck_assert_int_eq(bind(client, (const struct sockaddr *)&from, sizeof(from)), 0);
    ck_assert_int_eq(connect(client, (struct sockaddr *)&at, sizeof(at)), 0);
    fd = accept(listening, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    *ret_client = client;
    return fd;
}

static void close_both(int fd, int client)
{
    (void)close(fd);
    (void)close(client);
}

/* Each address has its own bound; a connection that was closed makes room, whoever closed it. */
START_TEST(bounds)
{
    struct peer_addresses *p = peer_addresses_open(2, &env_real);
    int fds[4], clients[4], other, others;

    listen_here();
    for (int i = 0; i < 3; i++) {
        fds[i] = connection_from(1, &clients[i]);
        ck_assert(peer_addresses_admit(p, fds[i]) == (i < 2));
    }
    other = connection_from(2, &others);
    ck_assert(peer_addresses_admit(p, other));
    close_both(fds[2], clients[2]);
    fds[2] = connection_from(1, &clients[2]);
    ck_assert(!peer_addresses_admit(p, fds[2]));
    close_both(fds[0], clients[0]);
    ck_assert(peer_addresses_admit(p, fds[2]));
    fds[3] = connection_from(1, &clients[3]); /* has the number of fds[0] */
    ck_assert(!peer_addresses_admit(p, fds[3]));
    close_both(fds[1], clients[1]);
    close_both(fds[2], clients[2]);
    close_both(other, others);
    fds[1] = connection_from(3, &clients[1]); /* a number of 127.0.0.1's goes to another */
    ck_assert(peer_addresses_admit(p, fds[1]));
    ck_assert(peer_addresses_admit(p, fds[3]));
    close_both(fds[1], clients[1]);
    close_both(fds[3], clients[3]);
    peer_addresses_close(p);
    (void)close(listening);
}
END_TEST

/* All connections of a unix socket are this machine's: they are not counted. */
START_TEST(leaves_unix_sockets)
{
    struct peer_addresses *p = peer_addresses_open(1, &env_real);
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    for (int i = 0; i < 3; i++)
        ck_assert(peer_addresses_admit(p, pair[0]));
    close_both(pair[0], pair[1]);
    peer_addresses_close(p);
    peer_addresses_close(NULL);
}
END_TEST

SUITE_MAIN("server/peer_addresses", bounds, leaves_unix_sockets)
