/* Who is due when: a binary heap, of which its owner keeps the earliest in sight. Entries know
 * their place, so that any can leave. Loop. */
#ifndef SERVER_EXPIRY_H
#define SERVER_EXPIRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct expiry_entry {
    uint64_t at_us;
    size_t place; /* in the heap, from 1; 0: not there */
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
/* The entry's at_us has changed. */
void expiry_moved(struct expiry *e, struct expiry_entry *entry);
/* NULL when there is none. */
struct expiry_entry *expiry_first(const struct expiry *e);

#endif
