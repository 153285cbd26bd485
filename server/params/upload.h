/* An upload of numbers. Its chunks are copied from the transport's memory into a block, and
 * checked, on the compute thread of the set. An upload counts only once it is complete and its hash
 * is right. All functions are called on the loop. */
#ifndef SERVER_PARAMS_UPLOAD_H
#define SERVER_PARAMS_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "agents/params/params.h"
#include "base/checksum.h"
#include "proto/chunk.h"
#include "server/model/model.h"
#include "server/params/shared.h"

enum {
    UPLOAD_MAX_CHUNK_BYTES = 1 << 20,
    UPLOAD_MAX_JOBS = 4, /* chunks checked at once: copying overlaps with receiving */
};

/* A chunk in the transport's memory. */
struct upload_chunk {
    struct chunk chunk;
    const struct iovec *pieces;
    void (*release)(void *arg); /* gives the pieces back; called on the loop */
    void *arg;
};

struct upload;

struct upload_events {
    void (*on_ready)(void *arg); /* tells that an upload that was full takes one more chunk */
    /* Tells the end, after a bad chunk or after upload_end. Called once, as the last event. */
    void (*ended)(void *arg, const struct error *err);
    void *arg;
};

struct upload_config {
    const struct params_spec *spec;
    struct params_memory *memory;
    struct model *model;    /* the model on whose thread the chunks are copied */
    bool may_be_non_finite; /* else INVALID names the tensor */
    bool is_ignored;        /* the upload is a duplicate: its chunks are counted and dropped */
    bool is_crc_only;       /* there is no hash of all */
    /* Where the numbers lie, which the upload holds: no chunk comes. NULL: they come in chunks. */
    struct params_shared *shared;
};

/* EXHAUSTED. */
enum status upload_open(struct upload **out, const struct upload_config *config,
                        const struct upload_events *events, struct error *err) MUST_CHECK;

/* Gives the upload up: no event comes afterwards, and its data are freed once no job uses them.
 * NULL is fine. */
void upload_drop(struct upload *u);

/* Returns whether the upload takes one more chunk now. */
bool upload_is_ready(const struct upload *u);
/* Takes the chunk, in any case, while the upload is ready. INVALID for a chunk out of order, and
 * for any chunk of an upload from shared memory. ended reports DATA_LOSS. */
enum status upload_add(struct upload *u, const struct upload_chunk *chunk,
                       struct error *err) MUST_CHECK;
/* Tells that all chunks have come. sha256 is their hash, [SHA256_BYTES]; NULL: there is none.
 * INVALID if numbers are missing, or if there is a hash with is_crc_only or shared. */
enum status upload_end(struct upload *u, const uint8_t *sha256, struct error *err) MUST_CHECK;

/* Returns whether no chunk has come. */
bool upload_is_empty(const struct upload *u);
/* Returns the block, [spec->n], after a successful end, or while the upload is empty. The caller
 * gives it back to memory. */
float *upload_take(struct upload *u);

#endif
