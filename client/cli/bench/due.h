/* What is due when: a binary heap of moments, the earliest first. */
#ifndef CLIENT_CLI_BENCH_DUE_H
#define CLIENT_CLI_BENCH_DUE_H

#include <stddef.h>
#include <stdint.h>

struct due_entry {
    uint64_t at_us;
    uint32_t id; /* the caller's */
};

struct due {
    struct due_entry *entries; /* [n]: none is earlier than its parent, entry (i - 1) / 2 */
    size_t n, cap;
};

/* Zeroed, it is empty. */
void due_deinit(struct due *d);
void due_add(struct due *d, uint64_t at_us, uint32_t id);
/* The earliest moment; UINT64_MAX when there is none. */
uint64_t due_next(const struct due *d);
/* Removes the earliest one, which there is. */
struct due_entry due_take(struct due *d);

#endif
