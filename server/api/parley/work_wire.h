/* Converts what parley.v1.Work sends and receives: payloads that come in several messages, and the
 * results of tasks. */
#ifndef SERVER_API_PARLEY_WORK_WIRE_H
#define SERVER_API_PARLEY_WORK_WIRE_H

#include <stdbool.h>

#include "base/arena.h"
#include "parley/v1/work.pb-c.h"
#include "server/work/work.h"

struct call;

enum {
    WORK_WIRE_MAX_TASKS = 256,      /* the most tasks in a message that the daemon sends */
    WORK_WIRE_PART_BYTES = 1 << 20, /* about the most bytes of payloads in such a message */
    WORK_WIRE_ARENA_BYTES = 1 << 20,
};

/* The end of a payload, which later messages bring. A zeroed struct is no such end. */
struct work_wire_rest {
    const uint8_t *at;
    size_t left_bytes;
};

/* Puts a payload, or its first part, into a message that has *room_bytes left, and takes the bytes
 * from these. rest is what is left of the payload. */
void work_wire_payload(ProtobufCBinaryData *payload, uint64_t *size_bytes,
                       struct work_wire_rest *rest, const struct work_bytes *from,
                       size_t *room_bytes);
/* Puts the next part of a payload into a message. */
void work_wire_rest(ProtobufCBinaryData *out, struct work_wire_rest *rest);

/* Takes a payload of size_bytes, or its first part, for a task of the principal. Fails as
 * work_bytes_begin and work_bytes_append do. */
enum status work_wire_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                            const ProtobufCBinaryData *payload, uint64_t size_bytes,
                            struct error *err) MUST_CHECK;

/* The results that a call sends to its client. */
struct work_results {
    struct work_wait wait;
    struct work_wire_rest rest; /* what is left of the first result that is ready */
    size_t n_sent;
    bool has_failed; /* a result that was sent is a failure */
    bool forgets;    /* a task is forgotten once its result was sent */
    bool has_tags;
};

/* Writes a message of at most max results that are ready to the write-ready call. Returns false
 * where no result is ready. */
bool work_results_write(struct work_results *r, struct call *call, size_t max);

#endif
