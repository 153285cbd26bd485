/* The body of a checkpoint's record in the journal: everything but the numbers. It stands behind
 * what the keeper writes. Reading checks everything; DATA_LOSS if something is not correct. The
 * functions may be called on any thread. */
#ifndef SERVER_PARAMS_CHECKPOINT_BODY_H
#define SERVER_PARAMS_CHECKPOINT_BODY_H

#include "base/buf.h"
#include "base/checksum.h"
#include "server/journal/body_bytes.h"
#include "server/params/counters.h"

/* A contributor's last step, so that no step counts twice. */
struct checkpoint_client {
    const char *id;
    uint64_t last_step, last_version;
};

struct checkpoint_body {
    const void *config; /* [config_size] the set's description, which params_describe got */
    size_t config_size;
    uint64_t n;         /* how many numbers the set has */
    uint32_t n_moments; /* how many moments each number has */
    uint64_t version;
    uint8_t sha256[SHA256_BYTES]; /* of the values */
    struct params_counters counters;
    const struct checkpoint_client *clients; /* [n_clients], most recently seen first */
    uint32_t n_clients;
    const uint64_t *steps; /* [n_steps] the optimiser's, that each tensor has had */
    uint32_t n_steps;      /* 0 in a body of version 1: each has had `version` */
};

enum { CHECKPOINT_BODY_VERSION = 2 };

enum status checkpoint_body_write(struct buf *out, const struct checkpoint_body *b,
                                  struct error *err) MUST_CHECK;
/* Reads a body to its end. out borrows the body; its arrays and texts lie in the reader's arena.
 * DATA_LOSS; EXHAUSTED. */
enum status checkpoint_body_read(struct checkpoint_body *out, struct body_reader *r,
                                 struct error *err) MUST_CHECK;

#endif
