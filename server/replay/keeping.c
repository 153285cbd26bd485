/* Tables in the journal: what describes one, and its counters; its parts are table_walk.c's. */
#include <string.h>

#include "server/access/access.h"
#include "server/replay/replays.h"

static struct table *kept_table(const struct kept_thing *k)
{
    return container_of(k, struct table, kept);
}

static void table_kept_name(const struct kept_thing *k, const char **ret_principal,
                            const char **ret_name)
{
    const struct table *t = kept_table(k);

    *ret_principal = t->name.owner->name;
    *ret_name = t->name.text;
}

static enum status table_kept_begin(struct kept_thing *k, struct error *err)
{
    table_walk_begin(kept_table(k));
    return STATUS_OK;
}

static void table_kept_part(struct kept_thing *k, struct body_writer *w, size_t about_bytes)
{
    table_walk_part(kept_table(k), w, about_bytes);
}

static void table_kept_ended(struct kept_thing *k)
{
    table_walk_end(kept_table(k));
}

/* --- what describes it --- */

static void put_column(struct body_writer *w, const struct table_column *c)
{
    body_put_text(w, c->name);
    body_put_u32(w, (uint32_t)c->type);
    body_put_u32(w, (uint32_t)c->n_dims);
    for (size_t i = 0; i < c->n_dims; i++)
        body_put_u64(w, (uint64_t)c->dims[i]);
}

static void put_limiter(struct body_writer *w, const struct limiter_config *c)
{
    body_put_u64(w, c->min_size);
    body_put_double(w, c->samples_per_insert);
    body_put_double(w, c->min_diff);
    body_put_double(w, c->max_diff);
}

static void table_kept_body(struct kept_thing *k, struct body_writer *w)
{
    const struct table *t = kept_table(k);
    const struct table_config *c = &t->config;

    body_put_u64(w, c->max_items);
    body_put_u64(w, c->max_bytes);
    body_put_u32(w, (uint32_t)c->sampler);
    body_put_u32(w, (uint32_t)c->remover);
    body_put_double(w, c->alpha);
    body_put_double(w, c->epsilon);
    body_put_u32(w, c->max_times_sampled);
    put_limiter(w, &c->limiter);
    body_put_u64(w, c->seed);
    body_put_u32(w, (uint32_t)c->n_columns);
    for (size_t i = 0; i < c->n_columns; i++)
        put_column(w, &c->columns[i]);
    kept_put_sharing(w, &t->name.sharing);
    body_put_u64(w, t->kept_counters.n_inserted);
    body_put_u64(w, t->kept_counters.n_sampled);
    body_put_u64(w, t->kept_counters.n_batches);
    body_put_double(w, t->kept_counters.max_priority);
}

static void take_column(struct table_column *out, struct body_reader *r)
{
    const char *name = body_take_text(r);
    size_t size_bytes;

    out->type = (enum tensor_type)body_take_up_to(r, TENSOR_BOOL);
    out->n_dims = body_take_up_to(r, TENSOR_MAX_DIMS - 1);
    size_bytes = tensor_type_size(out->type);
    for (size_t i = 0; i < out->n_dims; i++) {
        out->dims[i] = (int64_t)body_take_u64(r);
        r->is_bad = r->is_bad || out->dims[i] < 1 ||
                    __builtin_mul_overflow(size_bytes, (size_t)out->dims[i], &size_bytes) ||
                    size_bytes > TABLE_MAX_STEP_BYTES;
    }
    r->is_bad = r->is_bad || strlen(name) > TABLE_MAX_COLUMN_NAME;
    if (r->is_bad)
        return;
    memcpy(out->name, name, strlen(name) + 1);
    out->step_bytes = size_bytes;
}

static void take_limiter(struct limiter_config *out, struct body_reader *r)
{
    out->min_size = body_take_u64(r);
    out->samples_per_insert = body_take_double(r);
    out->min_diff = body_take_double(r);
    out->max_diff = body_take_double(r);
}

static void take_config(struct table_config *out, struct body_reader *r)
{
    struct table_column *columns;

    out->max_items = body_take_u64(r);
    out->max_bytes = body_take_u64(r);
    out->sampler = (enum selector_kind)body_take_up_to(r, SELECTOR_PRIORITIZED);
    out->remover = (enum selector_kind)body_take_up_to(r, SELECTOR_PRIORITIZED);
    out->alpha = body_take_double(r);
    out->epsilon = body_take_double(r);
    out->max_times_sampled = body_take_u32(r);
    take_limiter(&out->limiter, r);
    out->seed = body_take_u64(r);
    out->n_columns = body_take_up_to(r, TABLE_MAX_COLUMNS);
    columns = body_take_array(r, out->n_columns, sizeof(columns[0]), 16);
    for (size_t i = 0; columns != NULL && i < out->n_columns; i++)
        take_column(&columns[i], r);
    out->columns = columns;
}

static enum status table_kept_make(struct keeper *kp, struct kept_thing **out,
                                   const struct principal *owner, const char *name,
                                   struct body_reader *body, struct error *err)
{
    struct replays *r = kp->self;
    struct access_sharing sharing;
    struct table_config config = {0};
    struct table_counters counters;
    struct table *t;

    take_config(&config, body);
    kept_take_sharing(&sharing, body);
    counters.n_inserted = body_take_u64(body);
    counters.n_sampled = body_take_u64(body);
    counters.n_batches = body_take_u64(body);
    counters.max_priority = body_take_double(body);
    if (body_end(body, err) != STATUS_OK ||
        replays_add(&t, r, owner, name, &config, &sharing, false, err) != STATUS_OK)
        return err->status;
    *out = &t->kept; /* dropped, where this fails */
    return table_restore_begin(t, &counters, err);
}

static enum status table_kept_take(struct kept_thing *k, struct body_reader *part,
                                   struct error *err)
{
    return table_restore_part(kept_table(k), part, err);
}

static enum status table_kept_made(struct kept_thing *k, struct error *err)
{
    return table_restore_end(kept_table(k), err);
}

static void table_kept_drop(struct kept_thing *k)
{
    const struct error why = {.status = STATUS_DATA_LOSS, .text = "the table cannot be read"};
    struct table *t = kept_table(k);

    replays_delete(t->keeper->self, t, &why);
}

const struct keeper_type replays_keeper = {
    .kind = KEEPER_TABLE,
    .version = 1,
    .max_body_bytes = KEEPER_BODY_BYTES,
    .noun = "table",
    .name = table_kept_name,
    .begin = table_kept_begin,
    .part = table_kept_part,
    .body = table_kept_body,
    .ended = table_kept_ended,
    .make = table_kept_make,
    .take = table_kept_take,
    .made = table_kept_made,
    .drop = table_kept_drop,
};
