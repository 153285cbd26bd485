/* grpc.health.v1: whether each service serves. Check asks once, Watch streams the changes. A
 * service is a name that health_set was given; "" is the server as a whole. Loop. */
#ifndef SERVER_HEALTH_H
#define SERVER_HEALTH_H

#include "base/list.h"
#include "server/call.h"

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
/* Every watching call is gone. */
void health_deinit(struct health *h);

/* Watchers are told. service is copied; one that is new may have been watched already. */
void health_set(struct health *h, const char *service, enum health_status status);
/* Of every service that is known. */
void health_set_all(struct health *h, enum health_status status);

/* The rows of the dispatcher; their calls find their health by daemon_health. */
enum { N_HEALTH_RPCS = 2 };
extern const struct rpc health_rpcs[N_HEALTH_RPCS];

/* The daemon's. */
struct health *daemon_health(struct daemon *daemon);

#endif
