/* The accounting of the host's memory behind a device's KV pages: slots of a page each, that pages
 * move to before they are handed out. Who they are known by is the prefix cache's. Loop. */
#ifndef COMPUTE_KV_SLOTS_H
#define COMPUTE_KV_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct kv_slots;

enum status kv_slots_open(struct kv_slots **out, size_t n_slots, struct error *err) MUST_CHECK;
void kv_slots_close(struct kv_slots *s);

/* A slot to be filled: an empty one, else the one that was filled longest ago (*ret_was_full),
 * whose contents are lost. -1 when each is held, or there is none. */
int32_t kv_slots_take(struct kv_slots *s, bool *ret_was_full);
/* A full slot is not taken until it is let go: full again, or empty. */
void kv_slots_hold(struct kv_slots *s, int32_t slot);
void kv_slots_let_go(struct kv_slots *s, int32_t slot, bool is_full);
/* Empties the slot that was filled longest ago; -1 when all are empty. */
int32_t kv_slots_empty_one(struct kv_slots *s);

size_t kv_slots_n(const struct kv_slots *s);
size_t kv_slots_n_full(const struct kv_slots *s);

#endif
