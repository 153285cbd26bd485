/* Tasks of parley.v1.Work on the wire: payloads in several messages, and results. */
#ifndef SERVER_API_PARLEY_WORK_WIRE_H
#define SERVER_API_PARLEY_WORK_WIRE_H

#include <stdbool.h>

#include "base/arena.h"
#include "parley/v1/work.pb-c.h"
#include "server/work/work.h"

struct call;

enum {
    WORK_WIRE_MAX_TASKS = 256,      /* of a message that we send */
    WORK_WIRE_PART_BYTES = 1 << 20, /* of payloads in a message that we send, about */
    WORK_WIRE_ARENA_BYTES = 1 << 20,
};

/* A payload whose end comes in later messages. Zeroed: none. */
struct work_wire_rest {
    const uint8_t *at;
    size_t left_bytes;
};

/* Puts a payload, or its first part, into a message that has room. */
void work_wire_payload(ProtobufCBinaryData *payload, uint64_t *size_bytes,
                       struct work_wire_rest *rest, const struct work_bytes *from,
                       size_t *room_bytes);
/* The next part. */
void work_wire_rest(ProtobufCBinaryData *out, struct work_wire_rest *rest);

/* Takes a payload, or its first part. */
enum status work_wire_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                            const ProtobufCBinaryData *payload, uint64_t size_bytes,
                            struct error *err) MUST_CHECK;

/* The results of a wait to a client. */
struct work_results {
    struct work_wait wait;
    struct work_wire_rest rest; /* of the first that is ready */
    size_t n_sent;
    bool has_failed; /* one that was sent */
    bool forgets;    /* those that were sent */
    bool has_tags;
};

/* Writes a message of results that are ready; false: none is. The call is write-ready. At most max
 * results. */
bool work_results_write(struct work_results *r, struct call *call, size_t max);

#endif
