/* A binary heap of deadlines; its owner arms a timer for the earliest. Entries know their place, so
 * any can be removed. Loop. */
#ifndef SERVER_CONVERSATION_EXPIRY_H
#define SERVER_CONVERSATION_EXPIRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct expiry_entry {
    uint64_t at_us;
    size_t place; /* index in the heap, from 1; 0: not in it */
};

struct expiry {
    struct expiry_entry **heap; /* [cap]; heap[1] is the earliest */
    size_t n, cap;
};

void expiry_init(struct expiry *e);
void expiry_deinit(struct expiry *e); /* empty */

/* STATUS_EXHAUSTED without memory. */
enum status expiry_add(struct expiry *e, struct expiry_entry *entry, struct error *err) MUST_CHECK;
void expiry_remove(struct expiry *e, struct expiry_entry *entry);
/* Frees the memory of removed entries. */
void expiry_shrink(struct expiry *e);
/* The entry's at_us has changed. */
void expiry_moved(struct expiry *e, struct expiry_entry *entry);
/* NULL when there is none. */
struct expiry_entry *expiry_first(const struct expiry *e);

#endif
