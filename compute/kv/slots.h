/* The accounting of slots of recurrent state (compute/backend/states.h): who holds which, not their
 * contents. It is owned by the loop, as that of pages (compute/kv/pages.h), and follows the same
 * rule: a slot that has a second holder is never written. A row reads one slot and writes others,
 * so that a fork only adds a holder. */
#ifndef COMPUTE_KV_SLOTS_H
#define COMPUTE_KV_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct kv_slots;

enum { KV_NO_SLOT = -1 };

struct kv_slot_usage {
    size_t n_slots, n_free, n_shared; /* n_shared: with more than one holder */
};

enum status kv_slots_open(struct kv_slots **out, size_t n_slots, struct error *err) MUST_CHECK;
void kv_slots_close(struct kv_slots *s); /* asserts that every slot is free */
void kv_slots_usage(const struct kv_slots *s, struct kv_slot_usage *out);

/* A free slot, with one holder; KV_NO_SLOT: none is free. */
int32_t kv_slot_take(struct kv_slots *s);
/* Adds a holder to a held slot, and returns the slot. */
int32_t kv_slot_share(struct kv_slots *s, int32_t slot);
/* Removes a holder; a slot without one is free. KV_NO_SLOT: does nothing. */
void kv_slot_drop(struct kv_slots *s, int32_t slot);
size_t kv_slot_n_holders(const struct kv_slots *s, int32_t slot);

#endif
