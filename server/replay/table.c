/* A table's items: how they are inserted, sampled, updated and removed, and how calls wait for the
 * limiter. An item's key is the number of its slot and its generation, so the key of a removed item
 * names nothing, even if its slot has another item (struct table_item tells the life of an item).
 */
#include "server/replay/table.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"

enum {
    TABLE_FIRST_SLOTS = 64,
    TABLE_CHUNK_COST = sizeof(struct table_chunk) + 16, /* with what the allocator takes */
};

/* --- opening --- */

static enum status table_check_columns(const struct table_config *c, size_t *ret_step_bytes,
                                       struct error *err)
{
    size_t step_bytes = 0;

    if (c->n_columns == 0 || c->n_columns > TABLE_MAX_COLUMNS)
        return error_field(err, "columns", "has %zu, it must have 1 to %d", c->n_columns,
                           TABLE_MAX_COLUMNS);
    for (size_t i = 0; i < c->n_columns; i++) {
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->columns[i].name, c->columns[k].name) == 0)
                return error_field(err, "columns", "has '%.64s' twice", c->columns[i].name);
        if (c->columns[i].step_bytes > TABLE_MAX_STEP_BYTES - step_bytes)
            return error_field(err, "columns", "of a step have more than %zu bytes",
                               TABLE_MAX_STEP_BYTES);
        step_bytes += c->columns[i].step_bytes;
    }
    *ret_step_bytes = step_bytes;
    return STATUS_OK;
}

static enum status table_check(const struct table_config *c, struct error *err)
{
    if (c->max_items < 1 || c->max_items > TABLE_MAX_ITEMS)
        return error_field(err, "max_items", "is %zu, it must be 1 to %zu", c->max_items,
                           TABLE_MAX_ITEMS);
    if (c->remover == SELECTOR_PRIORITIZED)
        return error_field(err, "remover", "cannot go by priorities");
    if (!(c->alpha >= 0.0 && c->alpha <= 4.0))
        return error_field(err, "alpha", "is %g, it must be from 0 to 4", c->alpha);
    if (!(c->epsilon >= 1e-12 && c->epsilon <= 1e12))
        return error_field(err, "epsilon", "is %g, it must be from 1e-12 to 1e12", c->epsilon);
    return limiter_check(&c->limiter, c->max_items, err);
}

enum status table_open(struct table **out, const struct table_config *config, uint64_t epoch,
                       struct error *err)
{
    struct table_column *columns;
    size_t step_bytes = 0;
    struct table *t;

    if (table_check(config, err) != STATUS_OK ||
        table_check_columns(config, &step_bytes, err) != STATUS_OK)
        return err->status;
    if (config->max_bytes < (size_t)TABLE_CHUNK_COST + step_bytes + TABLE_ITEM_COST)
        return error_field(err, "max_bytes", "is %zu, one item takes %zu", config->max_bytes,
                           (size_t)TABLE_CHUNK_COST + step_bytes + TABLE_ITEM_COST);
    t = try_alloc(1, sizeof(*t));
    columns = try_alloc(config->n_columns, sizeof(columns[0]));
    if (t == NULL || columns == NULL) {
        free(t);
        free(columns);
        return error_no_memory(err, sizeof(*t), "a table");
    }
    memcpy(columns, config->columns, config->n_columns * sizeof(columns[0]));
    t->config = *config;
    t->config.columns = columns;
    t->step_bytes = step_bytes;
    t->epoch = epoch;
    t->first_free = t->walk.slot = SELECTOR_NONE;
    kept_init(&t->kept);
    list_init(&t->chunks);
    t->limiter.config = config->limiter;
    selector_init(&t->order, config->sampler == SELECTOR_PRIORITIZED, config->alpha,
                  config->epsilon);
    list_init(&t->inserters);
    list_init(&t->samplers);
    list_init(&t->users);
    *out = t;
    return STATUS_OK;
}

static void table_changed(struct table *t)
{
    if (t->keeper != NULL)
        kept_changed(t->keeper, &t->kept);
}

void table_use(struct table *t, struct table_user *u)
{
    list_push(&t->users, &u->link);
}

void table_stop_using(struct table_user *u)
{
    if (link_is_on(&u->link))
        list_remove(&u->link);
}

/* --- chunks --- */

static size_t chunk_cost(const struct table *t, size_t n_steps)
{
    return TABLE_CHUNK_COST + n_steps * t->step_bytes;
}

/* A chunk that is freed before its turn, or within it, is in no item. */
static void table_walk_past(struct table *t)
{
    struct link *next = list_next(&t->chunks, &t->walk.chunk->link);

    t->walk.chunk = next == NULL ? NULL : container_of(next, struct table_chunk, link);
    t->walk.offset = 0;
}

void table_chunk_unref(struct table_chunk *c)
{
    if (--c->n_refs > 0)
        return;
    if (c->table->walk.chunk == c)
        table_walk_past(c->table);
    list_remove(&c->link);
    c->table->held_bytes -= chunk_cost(c->table, c->n_steps);
    free(c);
}

unsigned char *table_chunk_column(struct table_chunk *c, size_t column)
{
    unsigned char *at = c->data;

    for (size_t i = 0; i < column; i++)
        at += c->n_steps * c->table->config.columns[i].step_bytes;
    return at;
}

/* --- removing --- */

static void table_take_out(struct table *t, uint32_t slot)
{
    if (slot == t->walk.slot)
        t->walk.slot = selector_next(&t->order, SELECTOR_FIFO, slot);
    selector_remove(&t->order, slot);
    t->items[slot].is_out = true;
}

const struct table_slice *table_slices(const struct table *t, uint32_t slot, size_t *ret_n)
{
    const struct table_item *item = &t->items[slot];

    *ret_n = item->n_slices;
    return item->n_slices == 1 ? &item->one : item->many;
}

static void table_free_item(struct table *t, uint32_t slot)
{
    struct table_item *item = &t->items[slot];
    size_t n;
    const struct table_slice *slices = table_slices(t, slot, &n);

    for (size_t i = 0; i < n; i++)
        table_chunk_unref(slices[i].chunk);
    if (n > 1)
        free(item->many);
    t->held_bytes -= TABLE_ITEM_COST + (n > 1 ? n * sizeof(slices[0]) : 0);
    item->n_slices = 0;
    item->is_out = false;
    item->next_free = t->first_free;
    t->first_free = slot;
}

static double table_uniform(const struct table *t, uint64_t batch, uint32_t draw)
{
    const uint32_t counter[4] = {(uint32_t)batch, (uint32_t)(batch >> 32), draw, 0};
    const uint32_t key[2] = {(uint32_t)t->config.seed, (uint32_t)(t->config.seed >> 32)};
    uint32_t bits[4];

    philox4x32(counter, key, bits);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

/* Of an item that is not out. */
static void table_remove_one(struct table *t)
{
    double ignored, u = 0.0;
    uint32_t slot;

    if (t->config.remover == SELECTOR_UNIFORM)
        u = table_uniform(t, t->n_batches++, 0);
    slot = selector_choose(&t->order, t->config.remover, u, SELECTOR_NONE, &ignored);
    table_take_out(t, slot);
    table_free_item(t, slot);
}

static void table_remove_all(struct table *t)
{
    while (t->order.n > 0) {
        uint32_t slot = t->order.oldest;

        table_take_out(t, slot);
        table_free_item(t, slot);
    }
}

/* Removes items until so much more can be held. */
static enum status table_make_room(struct table *t, size_t size_bytes, const char *field,
                                   struct error *err)
{
    if (size_bytes > t->config.max_bytes) {
        (void)error_field(err, field, "takes %zu bytes, the table holds at most %zu", size_bytes,
                          t->config.max_bytes);
        return err->status = STATUS_RANGE;
    }
    while (t->held_bytes > t->config.max_bytes - size_bytes && t->order.n > 0)
        table_remove_one(t);
    if (t->held_bytes <= t->config.max_bytes - size_bytes)
        return STATUS_OK;
    return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, field,
                         "%zu of the table's %zu bytes are held by streams, %zu are needed",
                         t->held_bytes, t->config.max_bytes, size_bytes);
}

enum status table_chunk_make(struct table_chunk **out, struct table *t, size_t n_steps,
                             struct error *err)
{
    struct table_chunk *c;
    size_t size_bytes;

    if (n_steps > UINT32_MAX || __builtin_mul_overflow(n_steps, t->step_bytes, &size_bytes) ||
        size_bytes > t->config.max_bytes) {
        (void)error_field(err, "chunks", "has %zu steps, which the table cannot hold", n_steps);
        return err->status = STATUS_RANGE;
    }
    if (table_make_room(t, chunk_cost(t, n_steps), "chunks", err) != STATUS_OK)
        return err->status;
    c = try_realloc(NULL, 1, sizeof(*c) + size_bytes); /* not zeroed: all of it is filled */
    if (c == NULL)
        return error_no_memory(err, chunk_cost(t, n_steps), "steps");
    c->table = t;
    c->n_refs = 1;
    c->n_steps = (uint32_t)n_steps;
    c->id = t->next_chunk++;
    list_push(&t->chunks, &c->link);
    t->held_bytes += chunk_cost(t, n_steps);
    *out = c;
    return STATUS_OK;
}

/* --- inserting --- */

static enum status table_grow(struct table *t, struct error *err)
{
    size_t n_slots = t->n_slots + t->n_slots / 2;
    struct table_item *items;

    if (n_slots < TABLE_FIRST_SLOTS)
        n_slots = TABLE_FIRST_SLOTS;
    if (n_slots > t->config.max_items)
        n_slots = t->config.max_items;
    if (selector_reserve(&t->order, n_slots, err) != STATUS_OK)
        return err->status;
    items = try_realloc(t->items, n_slots, sizeof(items[0]));
    if (items == NULL)
        return error_no_memory(err, n_slots * sizeof(items[0]), "items");
    t->items = items;
    t->n_slots = n_slots;
    return STATUS_OK;
}

static enum status table_take_slot(struct table *t, uint32_t *out, struct error *err)
{
    if (t->order.n >= t->config.max_items)
        table_remove_one(t);
    if (t->first_free != SELECTOR_NONE) {
        *out = t->first_free;
        t->first_free = t->items[*out].next_free;
        return STATUS_OK;
    }
    if (t->n_used == t->n_slots && table_grow(t, err) != STATUS_OK)
        return err->status;
    *out = (uint32_t)t->n_used++;
    t->items[*out] = (struct table_item){0};
    return STATUS_OK;
}

static uint64_t table_key(const struct table *t, uint32_t slot)
{
    return (uint64_t)t->items[slot].generation << 32 | slot;
}

static void table_advance(struct table *t);

static uint64_t table_batch_items(const struct table *t, uint64_t n);
static struct table_wait *wait_first(const struct list *list);

/* Also while the first batch that waits needs more items than there are: it would wait for ever. */
static bool table_can_insert(const struct table *t)
{
    const struct table_wait *taker = wait_first(&t->samplers);

    return limiter_allows_insert(&t->limiter, t->order.n) ||
           (taker != NULL && t->order.n < table_batch_items(t, taker->n_samples));
}

bool table_allows_insert(const struct table *t)
{
    return list_is_empty(&t->inserters) && table_can_insert(t);
}

static size_t slices_cost(size_t n_slices)
{
    return n_slices > 1 ? n_slices * sizeof(struct table_slice) : 0;
}

/* What an item of several slices has beside its slot; NULL for one. */
static enum status slices_copy(struct table_slice **out, const struct table_slice *slices,
                               size_t n_slices, struct error *err)
{
    assert(n_slices > 0 && n_slices <= TABLE_MAX_SLICES);
    *out = NULL;
    if (n_slices == 1)
        return STATUS_OK;
    *out = try_alloc(n_slices, sizeof(slices[0]));
    if (*out == NULL)
        return error_no_memory(err, slices_cost(n_slices), "an item");
    memcpy(*out, slices, slices_cost(n_slices));
    return STATUS_OK;
}

/* Takes many, the copy of the slices if there are several. */
static void table_fill_slot(struct table *t, uint32_t slot, const struct table_slice *slices,
                            size_t n_slices, struct table_slice *many, double priority)
{
    struct table_item *item = &t->items[slot];

    item->generation++;
    if (item->generation == 0)
        item->generation = 1;
    item->times_sampled = 0;
    item->priority = priority;
    item->n_slices = (uint32_t)n_slices;
    if (many != NULL)
        item->many = many;
    else
        item->one = slices[0];
    for (size_t i = 0; i < n_slices; i++)
        slices[i].chunk->n_refs++;
    if (fabs(item->priority) > t->max_priority)
        t->max_priority = fabs(item->priority);
    t->held_bytes += TABLE_ITEM_COST + slices_cost(n_slices);
    selector_add(&t->order, slot, item->priority);
}

enum status table_insert(struct table *t, const struct table_slice *slices, size_t n_slices,
                         const double *priority, uint64_t *ret_key, struct error *err)
{
    struct table_slice *many;
    uint32_t slot = 0;
    enum status rc;

    if (slices_copy(&many, slices, n_slices, err) != STATUS_OK)
        return err->status;
    rc = table_make_room(t, TABLE_ITEM_COST + slices_cost(n_slices), "items", err);
    if (rc == STATUS_OK)
        rc = table_take_slot(t, &slot, err);
    if (rc != STATUS_OK) {
        free(many);
        return rc;
    }
    table_fill_slot(t, slot, slices, n_slices, many,
                    priority != NULL ? *priority : t->max_priority);
    t->limiter.n_inserted++;
    *ret_key = table_key(t, slot);
    table_changed(t);
    table_advance(t);
    return STATUS_OK;
}

/* --- what a checkpoint has --- */

enum status table_put_item(struct table *t, uint32_t slot, const struct table_slice *slices,
                           size_t n_slices, double priority, uint32_t times_sampled,
                           struct error *err)
{
    struct table_slice *many;

    while (slot >= t->n_slots)
        if (table_grow(t, err) != STATUS_OK)
            return err->status;
    if (slices_copy(&many, slices, n_slices, err) != STATUS_OK)
        return err->status;
    while (t->n_used <= slot)
        t->items[t->n_used++] = (struct table_item){0};
    if (t->items[slot].n_slices > 0) {
        table_take_out(t, slot);
        table_free_item(t, slot);
    }
    table_fill_slot(t, slot, slices, n_slices, many, priority);
    t->items[slot].times_sampled = times_sampled;
    return STATUS_OK;
}

void table_settle_slots(struct table *t)
{
    while (t->order.n > 0 &&
           (t->order.n > t->config.max_items || t->held_bytes > t->config.max_bytes)) {
        const uint32_t slot = t->order.oldest;

        table_take_out(t, slot);
        table_free_item(t, slot);
    }
    t->first_free = SELECTOR_NONE;
    for (size_t i = t->n_used; i > 0; i--) {
        if (t->items[i - 1].n_slices > 0)
            continue;
        t->items[i - 1].next_free = t->first_free;
        t->first_free = (uint32_t)(i - 1);
    }
}

/* --- sampling --- */

static bool table_goes_in_order(const struct table *t)
{
    return t->config.sampler == SELECTOR_FIFO || t->config.sampler == SELECTOR_LIFO;
}

/* A batch has so many different items at least. */
static uint64_t table_batch_items(const struct table *t, uint64_t n)
{
    return table_goes_in_order(t) || t->config.max_times_sampled > 0 ? n : 1;
}

enum status table_check_batch(const struct table *t, uint64_t n, struct error *err)
{
    if (n < 1 || n > TABLE_MAX_BATCH)
        return error_field(err, "batch_size", "is %" PRIu64 ", it must be 1 to %d", n,
                           TABLE_MAX_BATCH);
    if (table_batch_items(t, n) > t->config.max_items)
        return error_field(err, "batch_size", "is %" PRIu64 ", the table has at most %zu items", n,
                           t->config.max_items);
    return limiter_check_batch(&t->config.limiter, n, err);
}

static bool table_can_sample(const struct table *t, uint64_t n)
{
    return t->order.n >= table_batch_items(t, n) &&
           limiter_allows_sample(&t->limiter, t->order.n, n);
}

bool table_allows_sample(const struct table *t, uint64_t n)
{
    return list_is_empty(&t->samplers) && table_can_sample(t, n);
}

void table_sample(struct table *t, struct table_draw *draws, size_t n)
{
    const uint64_t batch = t->n_batches++;
    uint32_t at = SELECTOR_NONE;

    assert(table_can_sample(t, n));
    for (size_t i = 0; i < n; i++) {
        double u = table_uniform(t, batch, (uint32_t)i);
        struct table_draw *d = &draws[i];
        struct table_item *item;

        if (t->config.sampler == SELECTOR_PRIORITIZED) /* one of each nth of the sum */
            u = ((double)i + u) / (double)n;
        d->slot = selector_choose(&t->order, t->config.sampler, u, at, &d->probability);
        if (table_goes_in_order(t))
            at = selector_next(&t->order, t->config.sampler, d->slot);
        item = &t->items[d->slot];
        item->times_sampled++;
        d->key = table_key(t, d->slot);
        d->priority = item->priority;
        d->times_sampled = item->times_sampled;
        d->n_steps = 0;
        for (size_t k = 0, n_slices = item->n_slices; k < n_slices; k++)
            d->n_steps += (n_slices == 1 ? &item->one : item->many)[k].n_steps;
        if (t->config.max_times_sampled > 0 && item->times_sampled >= t->config.max_times_sampled)
            table_take_out(t, d->slot);
    }
    t->limiter.n_sampled += n;
    table_changed(t);
}

void table_release(struct table *t, const struct table_draw *draws, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->items[draws[i].slot].is_out)
            table_free_item(t, draws[i].slot);
    table_advance(t);
}

/* --- changing --- */

enum status table_update(struct table *t, uint64_t epoch, const uint64_t *keys,
                         const double *priorities, size_t n, size_t *ret_applied, struct error *err)
{
    size_t n_applied = 0;

    for (size_t i = 0; i < n; i++)
        if (!(fabs(priorities[i]) <= TABLE_MAX_PRIORITY))
            return error_field(err, "priorities", "has %g at %zu, at most %g are taken",
                               priorities[i], i, TABLE_MAX_PRIORITY);
    for (size_t i = 0; i < n && epoch == t->epoch; i++) {
        uint32_t slot = (uint32_t)keys[i];
        struct table_item *item;

        if (slot >= t->n_used)
            continue;
        item = &t->items[slot];
        if (item->n_slices == 0 || item->is_out || table_key(t, slot) != keys[i])
            continue;
        item->priority = priorities[i];
        if (fabs(priorities[i]) > t->max_priority)
            t->max_priority = fabs(priorities[i]);
        selector_update(&t->order, slot, priorities[i]);
        n_applied++;
    }
    *ret_applied = n_applied;
    if (n_applied > 0)
        table_changed(t);
    return STATUS_OK;
}

void table_clear(struct table *t, uint64_t epoch)
{
    table_remove_all(t);
    t->epoch = epoch;
    t->max_priority = 0.0;
    t->limiter.n_inserted = t->limiter.n_sampled = 0;
    table_changed(t);
    table_advance(t);
}

/* --- waiting --- */

static struct table_wait *wait_first(const struct list *list)
{
    struct link *l = list_first(list);

    return l == NULL ? NULL : container_of(l, struct table_wait, link);
}

static void wait_remove(struct table_wait *w)
{
    list_remove(&w->link);
    w->table = NULL;
}

void table_leave(struct table_wait *w)
{
    struct table *t = w->table;

    if (t == NULL)
        return;
    wait_remove(w);
    table_advance(t); /* those behind it may need less */
}

void table_wait_end(struct table_wait *w, const struct error *why)
{
    struct table *t = w->table;

    wait_remove(w);
    future_settle(&w->future, why);
    table_advance(t);
}

/* Lets who waits go on, one after the other, as the limiter allows it. A continuation may insert,
 * sample, wait again, or leave; what it changes is seen by the loop. */
static void table_advance(struct table *t)
{
    const struct error ok = {0};
    bool goes_on = true;

    if (t->is_advancing)
        return;
    t->is_advancing = true;
    while (goes_on) {
        struct table_wait *inserter = wait_first(&t->inserters);
        struct table_wait *taker = wait_first(&t->samplers);

        goes_on = false;
        if (taker != NULL && table_can_sample(t, taker->n_samples)) {
            table_wait_end(taker, &ok);
            goes_on = true;
        } else if (inserter != NULL && table_can_insert(t)) {
            table_wait_end(inserter, &ok);
            goes_on = true;
        }
    }
    t->is_advancing = false;
}

void table_wait(struct table *t, struct table_wait *w, future_then_fn then, void *arg)
{
    assert(w->table == NULL);
    w->table = t;
    future_init(&w->future, then, arg);
    list_push(w->is_insert ? &t->inserters : &t->samplers, &w->link);
    if (!w->is_insert)
        table_advance(t); /* it may need inserts */
}

void table_close(struct table *t)
{
    if (t == NULL)
        return;
    assert(list_is_empty(&t->inserters) && list_is_empty(&t->samplers));
    table_remove_all(t);
    assert(t->held_bytes == 0);
    selector_deinit(&t->order);
    free(t->items);
    free((void *)t->config.columns);
    free(t);
}
