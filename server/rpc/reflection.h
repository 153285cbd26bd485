/* grpc.reflection.v1 and v1alpha: the services and their descriptors. */
#ifndef SERVER_RPC_REFLECTION_H
#define SERVER_RPC_REFLECTION_H

#include "server/rpc/call.h"

extern const struct rpc_table reflection_rpcs;

#endif
