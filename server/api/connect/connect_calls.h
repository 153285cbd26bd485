/* The calls that came by the Connect protocol and have a deadline, which the server keeps: HTTP has
 * none of its own. Loop. */
#ifndef SERVER_API_CONNECT_CONNECT_CALLS_H
#define SERVER_API_CONNECT_CONNECT_CALLS_H

#include "base/list.h"

struct alarm;
struct env;
struct health;

struct connect_calls {
    struct list by_deadline; /* the earliest first */
    struct alarm *alarm;
    const struct env *env;
    struct health *health; /* of the daemon's services; kept */
};

void connect_calls_init(struct connect_calls *c, const struct env *env, struct alarm *alarm,
                        struct health *health);
/* Ends the calls whose deadline has passed. */
void connect_calls_tick(void *calls);

#endif
