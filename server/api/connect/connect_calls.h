/* The calls that came by the Connect protocol: how many there are, and those with a deadline, which
 * the server keeps, since HTTP has none of its own. Loop. */
#ifndef SERVER_API_CONNECT_CONNECT_CALLS_H
#define SERVER_API_CONNECT_CONNECT_CALLS_H

#include "base/list.h"
#include "base/shared_limit.h"

struct alarm;
struct env;
struct health;

struct connect_calls {
    struct shared_limit limit; /* calls in flight; methods that need no key do not count */
    struct list by_deadline;   /* the earliest first */
    struct alarm *alarm;
    const struct env *env;
    struct health *health; /* of the daemon's services; kept */
};

void connect_calls_init(struct connect_calls *c, const struct env *env, struct alarm *alarm,
                        struct health *health);
/* Frees the registry. No call is in flight any more. */
void connect_calls_deinit(void *calls);
/* Ends the calls whose deadline has passed. */
void connect_calls_tick(void *calls);

#endif
