/* Makes a table's chunks and items again from the parts of a checkpoint. Items lie in the slots
 * that they had, and uniform draws go by the places that they had, so that the draws that follow
 * are those that would have followed. Bytes are checked like those of a peer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/replay/table.h"

struct restored_chunk {
    uint64_t id; /* in the checkpoint */
    struct table_chunk *chunk;
};

struct restored_place {
    uint32_t place, slot;
};

struct table_restore {
    struct table_counters counters;
    struct restored_chunk *chunks; /* [n_chunks] by id */
    size_t n_chunks, chunks_cap;
    size_t n_filled;  /* bytes of the last of them */
    uint32_t *places; /* [n_slots] of the items */
    size_t n_slots;
};

enum status table_restore_begin(struct table *t, const struct table_counters *c, struct error *err)
{
    if (!(c->max_priority >= 0.0 && c->max_priority <= TABLE_MAX_PRIORITY))
        return error_set(err, STATUS_DATA_LOSS, "its greatest priority is %g", c->max_priority);
    t->restore = try_alloc(1, sizeof(*t->restore));
    if (t->restore == NULL)
        return error_no_memory(err, sizeof(*t->restore), "a table");
    t->restore->counters = *c;
    return STATUS_OK;
}

void table_restore_free(struct table *t)
{
    struct table_restore *r = t->restore;

    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n_chunks; i++)
        table_chunk_unref(r->chunks[i].chunk);
    free(r->chunks);
    free(r->places);
    free(r);
    t->restore = NULL;
}

static enum status restore_is_damaged(struct error *err, const char *what)
{
    return error_set(err, STATUS_DATA_LOSS, "%s of the stored table is not correct", what);
}

/* --- chunks --- */

static size_t restored_chunk_bytes(const struct table_chunk *c)
{
    return c->n_steps * c->table->step_bytes;
}

/* Drops the last chunk if it was freed while it was written. */
static void restore_drop_unfinished(struct table_restore *r)
{
    if (r->n_chunks > 0 && r->n_filled < restored_chunk_bytes(r->chunks[r->n_chunks - 1].chunk))
        table_chunk_unref(r->chunks[--r->n_chunks].chunk);
    r->n_filled = r->n_chunks == 0 ? 0 : restored_chunk_bytes(r->chunks[r->n_chunks - 1].chunk);
}

static enum status restore_begin_chunk(struct table *t, uint64_t id, uint32_t n_steps,
                                       struct error *err)
{
    struct table_restore *r = t->restore;
    struct restored_chunk *grown;

    restore_drop_unfinished(r);
    if (n_steps == 0 || t->order.n > 0 || (r->n_chunks > 0 && id <= r->chunks[r->n_chunks - 1].id))
        return restore_is_damaged(err, "a chunk");
    if (r->n_chunks == r->chunks_cap) {
        r->chunks_cap = r->chunks_cap == 0 ? 64 : r->chunks_cap + r->chunks_cap / 2;
        grown = try_realloc(r->chunks, r->chunks_cap, sizeof(grown[0]));
        if (grown == NULL)
            return error_no_memory(err, r->chunks_cap * sizeof(grown[0]), "chunks");
        r->chunks = grown;
    }
    if (table_chunk_make(&r->chunks[r->n_chunks].chunk, t, n_steps, err) != STATUS_OK)
        return err->status;
    r->chunks[r->n_chunks++].id = id;
    r->n_filled = 0;
    return STATUS_OK;
}

static enum status restore_take_chunk(struct table *t, struct body_reader *from, struct error *err)
{
    struct table_restore *r = t->restore;
    const uint64_t id = body_take_u64(from);
    const uint32_t n_steps = body_take_u32(from);
    const uint64_t offset = body_take_u64(from);
    size_t len;
    const void *bytes = body_take_bytes(from, &len);
    struct restored_chunk *last;

    if (from->is_bad)
        return restore_is_damaged(err, "a chunk");
    if (offset == 0 && restore_begin_chunk(t, id, n_steps, err) != STATUS_OK)
        return err->status;
    last = r->n_chunks == 0 ? NULL : &r->chunks[r->n_chunks - 1];
    if (last == NULL || last->id != id || last->chunk->n_steps != n_steps ||
        offset != r->n_filled || len > restored_chunk_bytes(last->chunk) - r->n_filled)
        return restore_is_damaged(err, "a chunk");
    memcpy(last->chunk->data + offset, bytes, len);
    r->n_filled += len;
    return STATUS_OK;
}

/* --- items --- */

static struct table_chunk *restore_find_chunk(const struct table_restore *r, uint64_t id)
{
    size_t low = 0, high = r->n_chunks;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;

        if (r->chunks[mid].id == id)
            return r->chunks[mid].chunk;
        if (r->chunks[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool restore_take_slice(struct table_slice *out, const struct table_restore *r,
                               struct body_reader *from)
{
    out->chunk = restore_find_chunk(r, body_take_u64(from));
    out->first = body_take_u32(from);
    out->n_steps = body_take_u32(from);
    return !from->is_bad && out->chunk != NULL && out->n_steps > 0 &&
           out->first < out->chunk->n_steps && out->n_steps <= out->chunk->n_steps - out->first;
}

static enum status restore_note_place(struct table *t, uint32_t slot, uint32_t place,
                                      struct error *err)
{
    struct table_restore *r = t->restore;
    uint32_t *grown;

    if (r->n_slots < t->n_slots) {
        grown = try_realloc(r->places, t->n_slots, sizeof(grown[0]));
        if (grown == NULL)
            return error_no_memory(err, t->n_slots * sizeof(grown[0]), "the places of items");
        r->places = grown;
        r->n_slots = t->n_slots;
    }
    r->places[slot] = place;
    return STATUS_OK;
}

static enum status restore_take_item(struct table *t, struct body_reader *from,
                                     struct table_slice *slices, struct error *err)
{
    const uint32_t slot = body_take_u32(from);
    const uint32_t place = body_take_u32(from);
    const uint32_t times_sampled = body_take_u32(from);
    const double priority = body_take_double(from);
    const uint32_t n_slices = body_take_u32(from);

    if (from->is_bad || n_slices == 0 || n_slices > TABLE_MAX_SLICES ||
        slot >= t->config.max_items || !(fabs(priority) <= TABLE_MAX_PRIORITY))
        return restore_is_damaged(err, "an item");
    for (uint32_t i = 0; i < n_slices; i++)
        if (!restore_take_slice(&slices[i], t->restore, from))
            return restore_is_damaged(err, "an item");
    if (table_put_item(t, slot, slices, n_slices, priority, times_sampled, err) != STATUS_OK)
        return err->status;
    return restore_note_place(t, slot, place, err);
}

static enum status restore_take_items(struct table *t, struct body_reader *from, struct error *err)
{
    struct table_slice *slices = try_alloc(TABLE_MAX_SLICES, sizeof(slices[0]));
    enum status rc = STATUS_OK;

    if (slices == NULL)
        return error_no_memory(err, TABLE_MAX_SLICES * sizeof(slices[0]), "items");
    restore_drop_unfinished(t->restore);
    while (rc == STATUS_OK && from->at < from->end)
        rc = restore_take_item(t, from, slices, err);
    free(slices);
    return rc;
}

enum status table_restore_part(struct table *t, struct body_reader *r, struct error *err)
{
    const uint32_t kind = body_take_u32(r);
    enum status rc = STATUS_OK;

    if (r->is_bad || (kind != TABLE_PART_CHUNKS && kind != TABLE_PART_ITEMS))
        return restore_is_damaged(err, "a part");
    if (kind == TABLE_PART_ITEMS)
        return restore_take_items(t, r, err);
    while (rc == STATUS_OK && r->at < r->end)
        rc = restore_take_chunk(t, r, err);
    return rc;
}

/* --- the end --- */

static int compare_places(const void *a, const void *b)
{
    const struct restored_place *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static enum status restore_arrange(struct table *t, struct error *err)
{
    struct restored_place *sorted = try_alloc(t->order.n + 1, sizeof(sorted[0]));
    uint32_t *slots = try_alloc(t->order.n + 1, sizeof(slots[0]));
    enum status rc = STATUS_OK;

    if (sorted == NULL || slots == NULL)
        rc = error_no_memory(err, t->order.n * sizeof(sorted[0]), "the order of items");
    for (size_t i = 0; rc == STATUS_OK && i < t->order.n; i++) {
        const uint32_t slot = t->order.dense[i];

        sorted[i] = (struct restored_place){t->restore->places[slot], slot};
    }
    if (rc == STATUS_OK) {
        qsort(sorted, t->order.n, sizeof(sorted[0]), compare_places);
        for (size_t i = 0; i < t->order.n; i++)
            slots[i] = sorted[i].slot;
        selector_arrange(&t->order, slots);
    }
    free(sorted);
    free(slots);
    return rc;
}

enum status table_restore_end(struct table *t, struct error *err)
{
    const struct table_counters c = t->restore->counters;

    table_settle_slots(t);
    if (restore_arrange(t, err) != STATUS_OK)
        return err->status;
    table_restore_free(t);
    t->limiter.n_inserted = c.n_inserted;
    t->limiter.n_sampled = c.n_sampled;
    t->n_batches = c.n_batches;
    t->max_priority = c.max_priority;
    return STATUS_OK;
}
