#include "base/arena.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct arena_chunk {
    struct arena_chunk *next; /* older */
    alignas(max_align_t) char data[];
};

/* Sizes with the header. Small at first, so that a small turn stays small; doubling, so that a
 * large one takes few chunks; bounded, so that little is wasted. */
enum { CHUNK_FIRST_BYTES = 1 << 10, CHUNK_LAST_BYTES = 1 << 18 };

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_deinit(struct arena *a)
{
    if (a == NULL)
        return;
    while (a->chunks != NULL) {
        struct arena_chunk *next = a->chunks->next;

        free(a->chunks);
        a->chunks = next;
    }
    arena_init(a, a->limit_bytes);
}

/* A chunk for one large piece comes zeroed, which the system does for nothing where its pages are
 * new. Others are not: of most chunks much stays unused. */
static struct arena_chunk *chunk_make(size_t size_bytes, bool is_zeroed)
{
    const size_t size = sizeof(struct arena_chunk) + size_bytes;

    return is_zeroed ? try_alloc(size, 1) : try_realloc(NULL, size, 1);
}

/* ret_is_zeroed may be false: the piece has any bytes then. */
static void *arena_take(struct arena *a, size_t n, size_t size_bytes, bool *ret_is_zeroed)
{
    struct arena_chunk *chunk;
    size_t need, chunk_size;
    void *piece;

    *ret_is_zeroed = false;
    if (__builtin_mul_overflow(n, size_bytes, &need) || need > a->limit_bytes - a->total_bytes)
        return NULL;
    need = need == 0 ? 1 : need; /* each piece has its own address */
    if (need > PTRDIFF_MAX / 2)
        return NULL;
    need = (need + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (need > a->limit_bytes - a->total_bytes)
        return NULL;

    if (need > a->size - a->used) {
        chunk_size = a->chunks == NULL ? CHUNK_FIRST_BYTES - sizeof(*chunk)
                                       : 2 * (a->size + sizeof(*chunk)) - sizeof(*chunk);
        if (chunk_size > CHUNK_LAST_BYTES - sizeof(*chunk))
            chunk_size = CHUNK_LAST_BYTES - sizeof(*chunk);
        if (need > chunk_size && a->chunks != NULL) {
            /* A large piece gets a chunk of its own after the newest, whose rest stays usable. */
            chunk = chunk_make(need, true);
            if (chunk == NULL)
                return NULL;
            *ret_is_zeroed = true;
            chunk->next = a->chunks->next;
            a->chunks->next = chunk;
            a->total_bytes += need;
            return chunk->data;
        }
        *ret_is_zeroed = need > chunk_size;
        chunk_size = need > chunk_size ? need : chunk_size;
        chunk = chunk_make(chunk_size, *ret_is_zeroed);
        if (chunk == NULL)
            return NULL;
        chunk->next = a->chunks;
        a->chunks = chunk;
        a->size = chunk_size;
        a->used = 0;
    }
    piece = a->chunks->data + a->used;
    a->used += need;
    a->total_bytes += need;
    return piece;
}

void *arena_alloc(struct arena *a, size_t n, size_t size_bytes)
{
    bool is_zeroed;
    void *piece = arena_take(a, n, size_bytes, &is_zeroed);

    if (piece != NULL && !is_zeroed)
        memset(piece, 0, n * size_bytes);
    return piece;
}

char *arena_strndup(struct arena *a, const char *text, size_t len)
{
    bool ignored;
    char *copy;

    if (len == SIZE_MAX)
        return NULL;
    copy = arena_take(a, len + 1, 1, &ignored);
    if (copy == NULL)
        return NULL;
    if (len > 0)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}
