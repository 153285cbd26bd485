/* How many tokens a prompt has that a context does not hold. */
#ifndef SERVER_API_CONTEXT_COUNTS_H
#define SERVER_API_CONTEXT_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* False: err is another error, or does not say it. n_tokens: at least, and above most. */
struct context_counts {
    uint64_t n_tokens, n_most;
};
bool context_counts_read(struct context_counts *out, const struct error *err);

#endif
