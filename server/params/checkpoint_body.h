/* What the journal's record of a checkpoint holds beside the numbers. Reading checks everything;
 * what is not correct is DATA_LOSS. */
#ifndef SERVER_PARAMS_CHECKPOINT_BODY_H
#define SERVER_PARAMS_CHECKPOINT_BODY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/checksum.h"
#include "server/journal/store.h"
#include "server/params/params.h"

/* What is remembered of a contributor, so that none of its steps counts twice. */
struct checkpoint_client {
    const char *id;
    uint64_t last_step, last_version;
};

struct checkpoint_body {
    uint8_t id[JOURNAL_ID_BYTES]; /* of the checkpoint's blocks */
    const char *principal;        /* whose set it is, by name */
    const void *config;           /* [config_size] what describes the set, as params_make got it */
    size_t config_size;
    uint64_t n;         /* numbers */
    uint32_t n_moments; /* for each */
    uint64_t version;
    uint8_t sha256[SHA256_BYTES]; /* of the values */
    struct params_counters counters;
    const struct checkpoint_client *clients; /* [n_clients], most recently seen first */
    uint32_t n_clients;
};

enum status checkpoint_body_write(struct buf *out, const struct checkpoint_body *b,
                                  struct error *err) MUST_CHECK;
/* Borrows the body; arrays and texts are in the arena. */
enum status checkpoint_body_read(struct checkpoint_body *out, const void *body, size_t size_bytes,
                                 struct arena *arena, struct error *err) MUST_CHECK;

#endif
