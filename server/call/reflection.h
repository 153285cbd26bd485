/* The services grpc.reflection.v1 and v1alpha, which tell a client the daemon's services and their
 * descriptors. */
#ifndef SERVER_CALL_REFLECTION_H
#define SERVER_CALL_REFLECTION_H

#include "server/call/methods.h"

extern const struct call_table reflection_methods;

#endif
