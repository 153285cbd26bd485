#include "compute/kv/slots.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

struct kv_slots {
    uint32_t *n_holders; /* [n_slots] */
    int32_t *blank;      /* [n_slots] a stack, the first n_free are free */
    struct kv_slot_usage usage;
};

enum status kv_slots_open(struct kv_slots **out, size_t n_slots, struct error *err)
{
    struct kv_slots *s = xalloc(sizeof(*s));

    assert(n_slots <= INT32_MAX);
    s->n_holders = try_alloc(n_slots, sizeof(*s->n_holders));
    s->blank = try_alloc(n_slots, sizeof(*s->blank));
    if (s->n_holders == NULL || s->blank == NULL) {
        kv_slots_close(s);
        return error_no_memory(err, n_slots * (sizeof(*s->n_holders) + sizeof(*s->blank)),
                               "the list of state slots");
    }
    for (size_t i = 0; i < n_slots; i++) /* low slots are handed out first */
        s->blank[i] = (int32_t)(n_slots - 1 - i);
    s->usage.n_slots = s->usage.n_free = n_slots;
    *out = s;
    return STATUS_OK;
}

void kv_slots_close(struct kv_slots *s)
{
    if (s == NULL)
        return;
    assert(s->usage.n_free == s->usage.n_slots);
    free(s->n_holders);
    free(s->blank);
    free(s);
}

void kv_slots_usage(const struct kv_slots *s, struct kv_slot_usage *out)
{
    *out = s->usage;
}

int32_t kv_slot_take(struct kv_slots *s)
{
    int32_t slot;

    if (s->usage.n_free == 0)
        return KV_NO_SLOT;
    slot = s->blank[--s->usage.n_free];
    assert(s->n_holders[slot] == 0);
    s->n_holders[slot] = 1;
    return slot;
}

int32_t kv_slot_share(struct kv_slots *s, int32_t slot)
{
    assert(slot >= 0 && s->n_holders[slot] > 0);
    if (++s->n_holders[slot] == 2)
        s->usage.n_shared++;
    return slot;
}

void kv_slot_drop(struct kv_slots *s, int32_t slot)
{
    if (slot < 0)
        return;
    assert(s->n_holders[slot] > 0);
    if (--s->n_holders[slot] == 1)
        s->usage.n_shared--;
    if (s->n_holders[slot] == 0)
        s->blank[s->usage.n_free++] = slot;
}

size_t kv_slot_n_holders(const struct kv_slots *s, int32_t slot)
{
    return s->n_holders[slot];
}
