#include <stdbool.h>

#include "compute/backend/backend.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda/tile.h"

/* The number of tokens of one item. */
static size_t tile_tokens(size_t n_sharing)
{
    return n_sharing < CUDA_TILE_QUERIES ? CUDA_TILE_QUERIES / n_sharing : 1;
}

static size_t spans_for(size_t n_positions)
{
    return (n_positions + CUDA_SPAN - 1) / CUDA_SPAN;
}

static size_t count_tiles(const struct attend_row *rows, size_t n_rows, size_t tile)
{
    size_t n = 0;

    for (size_t i = 0; i < n_rows; i++)
        n += (rows[i].n_tokens + tile - 1) / tile;
    return n;
}

/* Adds one tile's items, of which item is the first. */
static void put_tile(struct cuda_attend_sizes *s, struct cuda_attend_item *items,
                     struct cuda_attend_item item, bool apart)
{
    uint32_t n_parts = apart ? item.n_spans : 1;

    item.partial = (uint32_t)s->n_partials;
    item.counter = (uint32_t)s->n_counters;
    for (uint32_t part = 0; part < n_parts; part++) {
        item.first_span = part;
        item.end_span = apart ? part + 1 : item.n_spans;
        if (items != NULL)
            items[s->n_items] = item;
        s->n_items++;
    }
    if (n_parts > 1) {
        s->n_partials += (size_t)item.n_tokens * item.n_spans;
        s->n_counters++;
    }
}

void cuda_attend_plan(struct cuda_attend_sizes *ret_sizes, struct cuda_attend_item *items,
                      const struct attend_row *rows, size_t n_rows, size_t n_sharing, size_t enough)
{
    size_t tile = tile_tokens(n_sharing), table = 0;
    bool apart = count_tiles(rows, n_rows, tile) < enough;

    *ret_sizes = (struct cuda_attend_sizes){0};
    for (const struct attend_row *row = rows; row < rows + n_rows; row++) {
        size_t end = row->pos + row->n_tokens;

        for (size_t t = 0; t < row->n_tokens; t += tile) {
            size_t n = row->n_tokens - t < tile ? row->n_tokens - t : tile;

            put_tile(ret_sizes, items,
                     (struct cuda_attend_item){
                         .row = (uint32_t)(row->first + t),
                         .n_tokens = (uint32_t)n,
                         .pos = (uint32_t)(row->pos + t),
                         .table = (uint32_t)table,
                         .n_spans = (uint32_t)spans_for(row->pos + t + n),
                     },
                     apart);
        }
        table += (end + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    }
}
