/* The headers of a request that can be retried: Idempotency-Key, and Last-Event-ID to continue its
 * stream. */
#ifndef SERVER_API_REQUEST_KEY_H
#define SERVER_API_REQUEST_KEY_H

#include "base/checksum.h"
#include "server/conversation/event_id.h"

struct exchange;
struct keyed_reply;

struct request_key {
    const char *text; /* NULL: the request has none */
    uint8_t digest[SHA256_BYTES];
    struct keyed_reply *reply;   /* to the request as sent before; NULL: it is new */
    const struct event_id *from; /* in the arena of the exchange; NULL: from the start */
};

/* INVALID for values that are none, EXISTS if another request has the key, RANGE for an id that was
 * never given out. */
enum status request_key_read(struct request_key *out, struct exchange *x,
                             struct error *err) MUST_CHECK;

#endif
