/* The accounting of host memory behind a device's KV pages: slots of one page each, to which cached
 * pages are moved before they are handed out. The prefix cache knows which page is where. Loop. */
#ifndef COMPUTE_KV_HOST_PAGES_H
#define COMPUTE_KV_HOST_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct kv_host_pages;

enum status kv_host_pages_open(struct kv_host_pages **out, size_t n_slots,
                               struct error *err) MUST_CHECK;
void kv_host_pages_close(struct kv_host_pages *s);

/* Returns a slot to fill: an empty one, else the one that was filled longest ago (*ret_was_full),
 * whose contents are lost. -1 when each is held, or there is none. */
int32_t kv_host_pages_take(struct kv_host_pages *s, bool *ret_was_full);
/* A held slot is not taken until it is let go, full again or empty. */
void kv_host_pages_hold(struct kv_host_pages *s, int32_t slot);
void kv_host_pages_release(struct kv_host_pages *s, int32_t slot, bool is_full);
/* Empties the slot that was filled longest ago; -1 when all are empty. */
int32_t kv_host_pages_empty_one(struct kv_host_pages *s);

size_t kv_host_pages_n(const struct kv_host_pages *s);
size_t kv_host_pages_n_full(const struct kv_host_pages *s);

#endif
