/* grpc.health.v1: whether each service serves. Check answers once, Watch streams the changes. A
 * service is a name that was passed to health_set; "" is the server as a whole. Loop. */
#ifndef SERVER_CALL_HEALTH_H
#define SERVER_CALL_HEALTH_H

#include "base/list.h"
#include "server/call/methods.h"

/* The protocol's numbers. */
enum health_status {
    HEALTH_UNKNOWN = 0,
    HEALTH_SERVING = 1,
    HEALTH_NOT_SERVING = 2,
    HEALTH_SERVICE_UNKNOWN = 3,
};

struct health {
    struct list services;
    struct list watchers;
};

void health_init(struct health *h);
/* Frees the services. No call watches any more. */
void health_deinit(struct health *h);

/* Sets the status of a service, whose name is copied, and tells its watchers. A service that is new
 * here may have watchers already. */
void health_set(struct health *h, const char *service, enum health_status status);
/* Sets the status of every service that was set before. */
void health_set_all(struct health *h, enum health_status status);

/* The service's methods; their calls find their health by call_health. */
extern const struct call_table health_methods;

#endif
