/* Answers a request of HTTP by the daemon that has its conversation: the request goes there as it
 * came, and its answer comes back as it is. All functions are called on the loop. */
#ifndef SERVER_API_PASSED_EXCHANGE_H
#define SERVER_API_PASSED_EXCHANGE_H

#include <stdbool.h>

#include "server/journal/store.h"

struct exchange;

/* Passes on the request, which has no handler, and answers with the other daemon's answer. here is
 * called instead, once and not inside, if the other daemon has ended and has begun nothing, or
 * nothing that the same request would begin again. Returns false, and calls nothing, if the request
 * cannot be passed on. */
bool passed_exchange_begin(struct exchange *x, const struct journal_peer *to,
                           void (*here)(struct exchange *x, void *arg), void *arg);

#endif
