/* Writes a table's checkpoint part by part, while the table is used: first the chunks that exist at
 * the beginning, then the items, oldest first. Chunks and items that are freed before they are
 * reached are skipped. An item refers to chunks that are written. If one of its chunks was made
 * after the beginning, the item is left out and not counted. */
#include "server/replay/table.h"

void table_walk_begin(struct table *t)
{
    struct link *first = list_first(&t->chunks);

    t->walk = (struct table_walk){
        .state = TABLE_WALK_CHUNKS,
        .until_chunk = t->next_chunk,
        .chunk = first == NULL ? NULL : container_of(first, struct table_chunk, link),
        .slot = SELECTOR_NONE,
    };
}

void table_walk_end(struct table *t)
{
    t->walk = (struct table_walk){.state = TABLE_WALK_OFF, .slot = SELECTOR_NONE};
}

static bool walk_has_chunk(const struct table_walk *walk)
{
    return walk->chunk != NULL && walk->chunk->id < walk->until_chunk;
}

static void walk_put_chunks(struct table *t, struct body_writer *w, size_t about_bytes)
{
    struct table_walk *walk = &t->walk;
    const size_t before = w->out->len;

    while (walk_has_chunk(walk) && !w->has_failed && w->out->len - before < about_bytes) {
        const struct table_chunk *c = walk->chunk;
        const size_t size_bytes = c->n_steps * t->step_bytes;
        size_t len = size_bytes - walk->offset;
        struct link *next;

        if (len > about_bytes)
            len = about_bytes;
        body_put_u64(w, c->id);
        body_put_u32(w, c->n_steps);
        body_put_u64(w, walk->offset);
        body_put_bytes(w, c->data + walk->offset, len);
        walk->offset += len;
        if (walk->offset < size_bytes)
            continue;
        next = list_next(&t->chunks, &c->link);
        walk->chunk = next == NULL ? NULL : container_of(next, struct table_chunk, link);
        walk->offset = 0;
    }
}

static bool walk_has_written(const struct table_walk *walk, const struct table_slice *slices,
                             size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (slices[i].chunk->id >= walk->until_chunk)
            return false;
    return true;
}

static void walk_put_item(struct table *t, struct body_writer *w)
{
    const uint32_t slot = t->walk.slot;
    const struct table_item *item = &t->items[slot];
    size_t n;
    const struct table_slice *slices = table_slices(t, slot, &n);

    if (!walk_has_written(&t->walk, slices, n)) {
        t->walk.n_left_out++;
        return;
    }
    body_put_u32(w, slot);
    body_put_u32(w, t->order.slots[slot].place);
    body_put_u32(w, item->times_sampled);
    body_put_double(w, item->priority);
    body_put_u32(w, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        body_put_u64(w, slices[i].chunk->id);
        body_put_u32(w, slices[i].first);
        body_put_u32(w, slices[i].n_steps);
    }
}

/* At the end the counters are noted, at the moment that the last item was looked at. */
static void walk_put_items(struct table *t, struct body_writer *w, size_t about_bytes)
{
    struct table_walk *walk = &t->walk;
    const size_t before = w->out->len;

    while (walk->slot != SELECTOR_NONE && !w->has_failed && w->out->len - before < about_bytes) {
        walk_put_item(t, w);
        walk->slot = selector_next(&t->order, SELECTOR_FIFO, walk->slot);
    }
    if (walk->slot != SELECTOR_NONE)
        return;
    walk->state = TABLE_WALK_OFF;
    t->kept_counters = (struct table_counters){
        .n_inserted = t->limiter.n_inserted > walk->n_left_out
                          ? t->limiter.n_inserted - walk->n_left_out
                          : 0, /* it was cleared meanwhile */
        .n_sampled = t->limiter.n_sampled,
        .n_batches = t->n_batches,
        .max_priority = t->max_priority,
    };
}

void table_walk_part(struct table *t, struct body_writer *w, size_t about_bytes)
{
    const size_t before = w->out->len;
    struct table_walk *walk = &t->walk;

    if (walk_has_chunk(walk)) {
        body_put_u32(w, TABLE_PART_CHUNKS);
        walk_put_chunks(t, w, about_bytes);
        return;
    }
    if (walk->state == TABLE_WALK_CHUNKS) {
        walk->state = TABLE_WALK_ITEMS;
        walk->slot = t->order.oldest;
    }
    if (walk->state != TABLE_WALK_ITEMS)
        return;
    body_put_u32(w, TABLE_PART_ITEMS);
    walk_put_items(t, w, about_bytes);
    /* Of items that were all left out nothing is written. */
    if (!w->has_failed && walk->state == TABLE_WALK_OFF && w->out->len == before + sizeof(uint32_t))
        w->out->len = before;
}
