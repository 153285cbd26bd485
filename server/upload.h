/* Numbers on their way in: chunks are copied from where the transport has them to their place in a
 * block, and checked, on the compute thread of their set. Nothing of an upload counts before all of
 * it is there and right. Loop. */
#ifndef SERVER_UPLOAD_H
#define SERVER_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "agents/params/params.h"
#include "base/checksum.h"
#include "proto/chunk.h"
#include "server/model.h"

enum {
    UPLOAD_MAX_CHUNK_BYTES = 1 << 20,
    UPLOAD_MAX_JOBS =
        4, /* chunks that are being checked at once: copying overlaps with receiving */
};

/* A chunk where it came. */
struct upload_chunk {
    struct chunk chunk;
    const struct iovec *pieces;
    void (*release)(void *arg); /* the pieces, on the loop */
    void *arg;
};

struct upload;

struct upload_events {
    void (*room)(void *arg); /* after a full house: one more chunk may come */
    /* Once, last: after a chunk that is wrong, or after upload_end. */
    void (*ended)(void *arg, const struct error *err);
    void *arg;
};

struct upload_config {
    const struct params_spec *spec;
    struct params_memory *memory;
    struct model *model;    /* on whose thread */
    bool may_be_non_finite; /* else INVALID names the tensor */
    bool is_ignored;        /* it was there before: its chunks are counted and let go */
};

/* STATUS_EXHAUSTED without memory. */
enum status upload_open(struct upload **out, const struct upload_config *config,
                        const struct upload_events *events, struct error *err) MUST_CHECK;

/* No event comes after; what was received is given up, once nobody works on it. NULL is fine. */
void upload_drop(struct upload *u);

bool upload_has_room(const struct upload *u);
/* Takes the chunk, in any case: only when there is room. INVALID when it is not the one that is
 * due. DATA_LOSS comes by ended. */
enum status upload_add(struct upload *u, const struct upload_chunk *chunk,
                       struct error *err) MUST_CHECK;
/* That was all, and this is its hash. INVALID when something is missing. */
enum status upload_end(struct upload *u, const uint8_t sha256[SHA256_BYTES],
                       struct error *err) MUST_CHECK;

bool upload_is_empty(const struct upload *u); /* no chunk has come */
/* Its block, [spec->n], after it ended well, or while it is empty: the caller's, to be given to
 * memory. */
float *upload_take(struct upload *u);

#endif
