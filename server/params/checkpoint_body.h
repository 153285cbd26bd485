/* What the journal's record of a checkpoint holds beside the numbers, behind what the keeper puts
 * there. Reading checks everything; what is not correct is DATA_LOSS. */
#ifndef SERVER_PARAMS_CHECKPOINT_BODY_H
#define SERVER_PARAMS_CHECKPOINT_BODY_H

#include "base/buf.h"
#include "base/checksum.h"
#include "server/journal/body_bytes.h"
#include "server/params/counters.h"

/* What is remembered of a contributor, so that none of its steps counts twice. */
struct checkpoint_client {
    const char *id;
    uint64_t last_step, last_version;
};

struct checkpoint_body {
    const void *config; /* [config_size] what describes the set, as params_make got it */
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
/* Reads to the end. Borrows the body; arrays and texts are in the reader's arena. */
enum status checkpoint_body_read(struct checkpoint_body *out, struct body_reader *r,
                                 struct error *err) MUST_CHECK;

#endif
