/* A binary heap of pairs of symbols, those that merge first at the top: lowest rank first, leftmost
 * first among equals. An entry is stale if the symbol at its place now has another rank. */
#ifndef AGENTS_LM_TOKENIZER_RANK_HEAP_H
#define AGENTS_LM_TOKENIZER_RANK_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* rank << 32 | place, so that entries sort in the order of merging. */
static inline uint64_t rank_entry(uint32_t rank, uint32_t place)
{
    return (uint64_t)rank << 32 | place;
}

static inline void rank_heap_sink(uint64_t *heap, size_t n, size_t i)
{
    uint64_t entry = heap[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (entry <= heap[child])
            break;
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

/* Orders n entries in any order. */
static inline void rank_heap_make(uint64_t *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        rank_heap_sink(heap, n, i);
}

static inline void rank_heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t i = (*n)++;

    for (; i > 0 && entry < heap[(i - 1) / 2]; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static inline uint64_t rank_heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t first = heap[0];

    heap[0] = heap[--*n];
    if (*n > 0)
        rank_heap_sink(heap, *n, 0);
    return first;
}

#endif
