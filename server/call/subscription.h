/* What calls share that tell a client of something for as long as there is something to tell: such
 * a call ends once, whether the client leaves, the thing goes or the server drains. The first
 * member of a handler's state. */
#ifndef SERVER_CALL_SUBSCRIPTION_H
#define SERVER_CALL_SUBSCRIPTION_H

#include <stdbool.h>

#include "server/call/call.h"

struct subscription {
    struct call *call;
    bool is_over; /* it has ended: nothing is to be written any more */
};

/* Sets the handler, whose state begins with s; what there is to tell is written first. */
void subscription_start(struct subscription *s, struct call *call,
                        const struct call_handler *handler);
/* The first end counts. err as for call_finish. */
void subscription_end(struct subscription *s, const struct error *err);
/* A handler's drain: UNAVAILABLE, "the server is shutting down". */
void subscription_drain(struct call *call, void *state);

#endif
