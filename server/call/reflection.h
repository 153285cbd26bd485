/* grpc.reflection.v1 and v1alpha: the services and their descriptors. */
#ifndef SERVER_CALL_REFLECTION_H
#define SERVER_CALL_REFLECTION_H

#include "server/call/call.h"

extern const struct rpc_table reflection_rpcs;

#endif
