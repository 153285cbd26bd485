/* A failed call's end: the status, a sentence, and its detail in the trailers parley-error-bin,
 * grpc-status-details-bin and, with a hint when to come back, retry-after-ms. */
#ifndef SERVER_RPC_FAILURE_H
#define SERVER_RPC_FAILURE_H

#include <grpc/grpc.h>
#include <stddef.h>

#include "base/status.h"

struct failure {
    enum status status;
    grpc_slice text;
    size_t n_trailers;
    grpc_metadata trailers[3];
};

/* Makes the end of a call that failed with err; the caller frees it. Returns NULL without memory.
 */
struct failure *failure_make(const struct error *err);
/* Frees f, which may be NULL. */
void failure_free(struct failure *f);

#endif
