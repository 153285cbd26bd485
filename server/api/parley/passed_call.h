/* Answers a call by the daemon that has its conversation: requests and responses pass as they are,
 * and so do the status and a cancellation. All functions are called on the loop. */
#ifndef SERVER_API_PARLEY_PASSED_CALL_H
#define SERVER_API_PARLEY_PASSED_CALL_H

#include "server/call/call.h"
#include "server/journal/store.h"

/* Passes on the call, which has no handler, and ends it with the other daemon's answer. If the
 * client sends one request, here is called instead, once and not inside, if the other daemon has
 * ended and has begun nothing, or nothing that the same request would begin again. ends_on_drain:
 * the call ends when this daemon drains, since it may last. Returns false, and calls nothing, if
 * the call cannot be passed on. */
bool passed_call_begin(struct call *call, const struct journal_peer *to, bool ends_on_drain,
                       void (*here)(struct call *call, void *arg), void *arg);

#endif
