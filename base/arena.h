/* Memory of one turn: allocated piece by piece, freed at once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    size_t used, size;  /* of the newest chunk, in bytes */
    size_t total_bytes; /* allocated since the start */
    size_t limit_bytes; /* of total_bytes: bounds what a peer can make us use */
};

/* Allocates nothing yet. */
void arena_init(struct arena *a, size_t limit_bytes);

/* Frees everything; the arena is as after arena_init. */
void arena_deinit(struct arena *a);

/* Zeroed, aligned for any type; NULL past the limit or when try_alloc fails. */
void *arena_alloc(struct arena *a, size_t n, size_t size_bytes) MUST_CHECK;
char *arena_strndup(struct arena *a, const char *text, size_t len) MUST_CHECK;

#endif
