/* What was computed once: digests of token ids with who computed them, so that a lookup that finds
 * nothing can say why. A fixed number of the newest is kept; a digest that was pushed out counts as
 * never computed. For statistics alone: a digest may collide. Loop. */
#ifndef COMPUTE_KV_TRACES_H
#define COMPUTE_KV_TRACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum kv_miss {
    KV_MISS_NEVER,    /* nobody has computed these tokens */
    KV_MISS_EVICTED,  /* their keys and values were dropped, or could not be read */
    KV_MISS_OWNER,    /* another principal has them */
    KV_MISS_REVISION, /* they are of another model, arithmetic or revision of the engine */
    N_KV_MISSES
};

struct kv_traces;

enum status kv_traces_open(struct kv_traces **out, struct error *err) MUST_CHECK;
void kv_traces_close(struct kv_traces *t);

/* The digest of ids [KV_PAGE_TOKENS] behind what before is the digest of; 0: nothing. */
uint64_t kv_trace(uint64_t before, const int32_t *ids);

void kv_traces_add(struct kv_traces *t, uint64_t trace, uint64_t owner, bool is_other_revision);
enum kv_miss kv_traces_why(const struct kv_traces *t, uint64_t trace, uint64_t owner);

#endif
