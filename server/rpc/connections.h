/* The connections that a port has given to gRPC core, which reports neither their end nor sends
 * GOAWAY before it stops answering. A connection is known by its descriptor and the socket's inode.
 * Loop. */
#ifndef SERVER_RPC_CONNECTIONS_H
#define SERVER_RPC_CONNECTIONS_H

#include <stddef.h>
#include <sys/types.h>

struct rpc_connection;

struct rpc_connections {
    struct rpc_connection *all; /* [n] of n_max */
    size_t n, n_max;
};

/* Takes note of fd, a connected socket; without memory it is not noted. */
void rpc_connections_add(struct rpc_connections *c, int fd);
/* Those that gRPC core has not closed. */
size_t rpc_connections_n_open(struct rpc_connections *c);
/* Asks each peer once to begin no further call on its connection: HTTP/2's GOAWAY with the highest
 * stream, behind which calls that are on their way are answered still. A peer that has not read
 * what was sent to it is asked in a later call. Only once no message is sent any more, but
 * statuses: gRPC core then writes whole frames to a peer that has read all. */
void rpc_connections_ask_to_leave(struct rpc_connections *c);
void rpc_connections_deinit(struct rpc_connections *c);

#endif
