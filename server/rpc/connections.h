/* The connections that a port has given to gRPC core. gRPC core does not report when a connection
 * ends, and sends no GOAWAY before it stops answering. A connection is known by its descriptor and
 * the socket's inode. All functions are called on the loop. */
#ifndef SERVER_RPC_CONNECTIONS_H
#define SERVER_RPC_CONNECTIONS_H

#include <stddef.h>
#include <sys/types.h>

struct rpc_connection;

struct rpc_connections {
    struct rpc_connection *all; /* [n] of n_max */
    size_t n, n_max;
};

/* Notes fd, a connected socket. Does nothing when memory is short. */
void rpc_connections_add(struct rpc_connections *c, int fd);
/* Returns how many of the connections gRPC core has not closed. */
size_t rpc_connections_n_open(struct rpc_connections *c);
/* Asks each peer once to begin no further call on its connection, by HTTP/2's GOAWAY with the
 * highest stream number: calls that are on their way are still answered. A peer that has not read
 * everything that was sent to it is asked by a later call of this function. Call this only when
 * nothing but statuses is sent any more, because gRPC core then writes whole frames. */
void rpc_connections_ask_to_leave(struct rpc_connections *c);
void rpc_connections_deinit(struct rpc_connections *c);

#endif
