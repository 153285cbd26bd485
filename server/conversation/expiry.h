/* A binary heap of deadlines. Its owner arms a timer for the earliest deadline. Each entry knows
 * its place in the heap, so any entry can be removed. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_EXPIRY_H
#define SERVER_CONVERSATION_EXPIRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct expiry_entry {
    uint64_t at_us;
    size_t place; /* the entry's index in the heap, from 1; 0: the entry is not in the heap */
};

struct expiry {
    struct expiry_entry **heap; /* [cap]; heap[1] is the earliest */
    size_t n, cap;
};

void expiry_init(struct expiry *e);
void expiry_deinit(struct expiry *e); /* the heap must be empty */

/* STATUS_EXHAUSTED without memory. */
enum status expiry_add(struct expiry *e, struct expiry_entry *entry, struct error *err) MUST_CHECK;
void expiry_remove(struct expiry *e, struct expiry_entry *entry);
/* Frees the memory of removed entries. */
void expiry_shrink(struct expiry *e);
/* Says that the entry's at_us has changed. */
void expiry_moved(struct expiry *e, struct expiry_entry *entry);
/* Returns the earliest entry; NULL if the heap is empty. */
struct expiry_entry *expiry_first(const struct expiry *e);

#endif
