/* A subscription: a call that tells its client of changes for as long as there may be changes. The
 * call ends once, whether the client leaves, the thing that changes is gone, or the server drains.
 * A subscription is the first member of its handler's state. Loop. */
#ifndef SERVER_CALL_SUBSCRIPTION_H
#define SERVER_CALL_SUBSCRIPTION_H

#include <stdbool.h>

#include "server/call/call.h"

struct subscription {
    struct call *call;
    bool is_over; /* the call has ended: the handler writes nothing any more */
};

/* Sets the call's handler, whose state begins with s, and has it write what it has to tell now. */
void subscription_start(struct subscription *s, struct call *call,
                        const struct call_handler *handler);
/* Ends the call with err, as call_finish does, unless the call has ended already. */
void subscription_end(struct subscription *s, const struct error *err);
/* The drain of such a handler: ends the call with UNAVAILABLE, "the server is shutting down". */
void subscription_drain(struct call *call, void *state);

#endif
