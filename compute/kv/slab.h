/* A slab: a file with slots of one KV page each. Each slot has a header, which says what it holds
 * and has checksums of itself and of the page, so a slab that a process left behind at any moment
 * is read by its headers alone. Nothing is synchronised to disk: what a power cut tore does not fit
 * its checksum, and is not there. One thread at a time. */
#ifndef COMPUTE_KV_SLAB_H
#define COMPUTE_KV_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/status.h"
#include "compute/numerics/kv_type.h"

struct kv_slab;

/* A digest of all that a page's contents depend on. */
struct kv_key {
    uint8_t bytes[SHA256_BYTES];
};

/* What a slot holds. */
struct kv_slab_page {
    struct kv_key key;
    uint64_t owner;  /* a digest of its principal's name */
    uint64_t trace;  /* a digest of its tokens and those before; for statistics alone */
    uint64_t serial; /* rises from page to page of all slabs of a folder; not 0 */
    int32_t ids[KV_PAGE_TOKENS];
    uint32_t crc; /* of the key and the page's bytes; kv_slab_write sets it */
};

struct kv_slab_shape {
    size_t page_bytes;
    size_t n_slots;
    struct kv_key binding; /* what all pages of the process share, as key has it */
};

enum { KV_SLAB_MOST_SLOTS = 1 << 20 };

/* A slab whose file is made by the first kv_slab_write, with the mode 0600, in place of one with
 * its number. dir is the folder's descriptor, borrowed. NULL: no memory. */
struct kv_slab *kv_slab_plan(int dir, uint32_t number, const struct kv_slab_shape *shape);

typedef void (*kv_slab_found_fn)(void *arg, uint32_t slot, const struct kv_slab_page *page);

/* Opens the file of that number, and calls found for each slot that holds a page. A file of another
 * binding or size of pages is DATA_LOSS, behind the same calls; so is a damaged one. NOT_FOUND:
 * there is none. UNAVAILABLE: it cannot be opened or read now, as where no descriptor is free. */
enum status kv_slab_open(struct kv_slab **out, int dir, uint32_t number, size_t page_bytes,
                         const struct kv_key *binding, kv_slab_found_fn found, void *arg,
                         struct error *err) MUST_CHECK;
void kv_slab_close(struct kv_slab *s); /* the file stays */

size_t kv_slab_n_slots(const struct kv_slab *s);
/* Of a slab with n slots, in all. */
size_t kv_slab_bytes(size_t page_bytes, size_t n_slots);

/* On failure the slot holds nothing. Sets page->crc. */
bool kv_slab_write(struct kv_slab *s, uint32_t slot, struct kv_slab_page *page, const void *data);
/* The slot holds nothing, as far as that can be written. */
void kv_slab_clear(const struct kv_slab *s, uint32_t slot);
/* Reads the page's bytes; false if they are not those that were written. */
bool kv_slab_read(const struct kv_slab *s, uint32_t slot, const struct kv_slab_page *page,
                  void *out);

/* The name of its file. */
enum { KV_SLAB_NAME_BYTES = 24 };
void kv_slab_name(char out[KV_SLAB_NAME_BYTES], uint32_t number);

#endif
