#include "compute/kv/traces.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "compute/numerics/kv_type.h"

enum { TRACES_SETS = 1 << 14, TRACES_WAYS = 4 };

struct kv_traces {
    struct trace_entry {
        uint64_t trace; /* 0: none */
        uint64_t owner;
        bool is_other_revision;
    } sets[TRACES_SETS][TRACES_WAYS];
    uint8_t next[TRACES_SETS]; /* the way that is replaced next */
};

enum status kv_traces_open(struct kv_traces **out, struct error *err)
{
    struct kv_traces *t = try_alloc(1, sizeof(*t));

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "the digests of KV pages");
    *out = t;
    return STATUS_OK;
}

void kv_traces_close(struct kv_traces *t)
{
    free(t);
}

uint64_t kv_trace(uint64_t before, const int32_t *ids)
{
    uint64_t hash = before ^ UINT64_C(0x2545f4914f6cdd1d);

    for (size_t i = 0; i < KV_PAGE_TOKENS; i++) {
        hash = (hash ^ (uint32_t)ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash != 0 ? hash : 1;
}

static size_t traces_set(uint64_t trace)
{
    return trace % TRACES_SETS;
}

void kv_traces_add(struct kv_traces *t, uint64_t trace, uint64_t owner, bool is_other_revision)
{
    const size_t at = traces_set(trace);
    struct trace_entry *set = t->sets[at];

    for (size_t i = 0; i < TRACES_WAYS; i++)
        if (set[i].trace == trace && set[i].owner == owner) {
            set[i].is_other_revision = set[i].is_other_revision && is_other_revision;
            return;
        }
    set[t->next[at]] = (struct trace_entry){trace, owner, is_other_revision};
    t->next[at] = (uint8_t)((t->next[at] + 1) % TRACES_WAYS);
}

enum kv_miss kv_traces_why(const struct kv_traces *t, uint64_t trace, uint64_t owner)
{
    const struct trace_entry *set = t->sets[traces_set(trace)];
    enum kv_miss why = KV_MISS_NEVER;

    for (size_t i = 0; i < TRACES_WAYS; i++) {
        if (set[i].trace != trace)
            continue;
        if (set[i].owner == owner)
            return set[i].is_other_revision ? KV_MISS_REVISION : KV_MISS_EVICTED;
        why = KV_MISS_OWNER;
    }
    return why;
}
