/* Memory that a stream of updates shares with its client on the same machine: a gradient on its way
 * here, and parameters on their way back, in place of chunks. It is the daemon's memfd, which
 * nobody can cut off (F_SEAL_SHRINK). The client opens it by /proc with the rights of its own
 * process: so it gets only what it may have, and the daemon opens nothing that a client names. The
 * memory is gone with the stream and with the client's mapping, also where either process is
 * killed. Loop, but for the numbers. */
#ifndef SERVER_PARAMS_SHARED_H
#define SERVER_PARAMS_SHARED_H

#include <stddef.h>

#include "agents/params/params.h"
#include "base/env.h"

enum {
    /* The least bytes of the set's numbers. For fewer bytes the chunks cost little. Each memory
     * takes a descriptor, so that the budget of bytes also bounds the descriptors. */
    PARAMS_SHARED_MIN_BYTES = 4 << 20,
    PARAMS_SHARED_LABEL_SIZE = 48, /* bytes of the memfd's name, with the NUL */
};

struct params_shared {
    size_t n_refs;
    struct params_budget *budget;
    int fd;
    char label[PARAMS_SHARED_LABEL_SIZE]; /* unpredictable: who finds it has found this memory */
    size_t n, size_bytes;                 /* the set's numbers; the bytes of both halves */
    float *gradient; /* [n] written by the client, which then says so on the stream */
    float *values;   /* [n] written by the daemon, which then says so on the stream */
};

/* Makes the memory for a set of n numbers, with one reference; it counts in the budget, which
 * outlives it. INVALID for a set that is too small, EXHAUSTED. */
enum status params_shared_open(struct params_shared **out, struct params_budget *budget, size_t n,
                               const struct env *env, struct error *err) MUST_CHECK;
/* Adds a reference, and returns s. */
struct params_shared *params_shared_ref(struct params_shared *s);
/* Drops a reference, and frees the memory with the last. s may be NULL. */
void params_shared_unref(struct params_shared *s);

#endif
