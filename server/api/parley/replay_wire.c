/* Converts configurations, chunks and batches of replay tables. Numbers are not copied on their way
 * in, and once on their way out. */
#include "server/api/parley/replay_wire.h"

#include <string.h>

#include "server/api/parley/wire_tensor.h"

#define REPLAY_MAX_BATCH_BYTES ((size_t)256 << 20)

/* --- tables --- */

static enum status replay_wire_selector(enum selector_kind *out, Parley__V1__ReplaySelector from,
                                        enum selector_kind usual, const char *field,
                                        struct error *err)
{
    static const enum selector_kind kinds[] = {SELECTOR_UNIFORM, SELECTOR_FIFO, SELECTOR_LIFO,
                                               SELECTOR_PRIORITIZED};

    *out = usual;
    if ((unsigned)from > sizeof(kinds) / sizeof(kinds[0]))
        return error_field(err, field, "is %d, which is not a selector", (int)from);
    if (from != 0)
        *out = kinds[from - 1];
    return STATUS_OK;
}

static enum status replay_wire_column(struct table_column *out, const Parley__V1__TensorSpec *from,
                                      struct error *err)
{
    size_t size_bytes;

    if (wire_tensor_type(&out->type, from->dtype, err) != STATUS_OK)
        return error_name_field(err, "columns");
    if (strlen(from->name) > TABLE_MAX_COLUMN_NAME || from->n_shape > TENSOR_MAX_DIMS - 1)
        return error_field(err, "columns",
                           "has '%.40s' with %zu dimensions, a name has at most %d bytes and a "
                           "step %d dimensions",
                           from->name, from->n_shape, TABLE_MAX_COLUMN_NAME, TENSOR_MAX_DIMS - 1);
    memcpy(out->name, from->name, strlen(from->name) + 1);
    size_bytes = tensor_type_size(out->type);
    out->n_dims = from->n_shape;
    for (size_t i = 0; i < from->n_shape; i++) {
        out->dims[i] = from->shape[i];
        if (from->shape[i] < 1 ||
            __builtin_mul_overflow(size_bytes, (size_t)from->shape[i], &size_bytes) ||
            size_bytes > TABLE_MAX_STEP_BYTES)
            return error_field(err, "columns", "has '%.40s' whose dimensions are not 1 to %zu",
                               from->name, TABLE_MAX_STEP_BYTES);
    }
    out->step_bytes = size_bytes;
    return STATUS_OK;
}

enum status replay_wire_config(struct table_config *out, const Parley__V1__ReplayConfig *from,
                               struct arena *arena, struct error *err)
{
    const Parley__V1__ReplayLimiter *limiter = from->limiter;
    struct table_column *columns;
    struct table_config c = {
        .max_items = from->max_items,
        .max_bytes = from->max_bytes,
        .alpha = from->alpha,
        .epsilon = 1.0,
        .max_times_sampled = from->max_times_sampled,
        .limiter = {.min_size = 1},
        .seed = from->seed,
        .n_columns = from->n_columns,
    };

    if (from->n_columns > TABLE_MAX_COLUMNS)
        return error_field(err, "columns", "has %zu, it must have 1 to %d", from->n_columns,
                           TABLE_MAX_COLUMNS);
    columns = arena_alloc(arena, from->n_columns + 1, sizeof(columns[0]));
    if (columns == NULL)
        return error_no_memory(err, from->n_columns * sizeof(columns[0]), "columns");
    for (size_t i = 0; i < from->n_columns; i++)
        if (replay_wire_column(&columns[i], from->columns[i], err) != STATUS_OK)
            return err->status;
    c.columns = columns;
    if (replay_wire_selector(&c.sampler, from->sampler, SELECTOR_UNIFORM, "sampler", err) !=
            STATUS_OK ||
        replay_wire_selector(&c.remover, from->remover, SELECTOR_FIFO, "remover", err) != STATUS_OK)
        return err->status;
    if (c.sampler == SELECTOR_PRIORITIZED)
        c.epsilon = from->epsilon;
    if (limiter != NULL)
        c.limiter = (struct limiter_config){limiter->min_size > 0 ? limiter->min_size : 1,
                                            limiter->samples_per_insert, limiter->min_diff,
                                            limiter->max_diff};
    *out = c;
    return STATUS_OK;
}

static Parley__V1__TensorSpec **replay_wire_specs(const struct table_config *c, struct arena *arena)
{
    Parley__V1__TensorSpec *specs = arena_alloc(arena, c->n_columns, sizeof(specs[0]));
    Parley__V1__TensorSpec **list = arena_alloc(arena, c->n_columns, sizeof(list[0]));

    if (specs == NULL || list == NULL)
        return NULL;
    for (size_t i = 0; i < c->n_columns; i++) {
        const struct table_column *column = &c->columns[i];

        parley__v1__tensor_spec__init(&specs[i]);
        specs[i].name = (char *)column->name;
        specs[i].dtype = (Parley__V1__DType)((int)column->type + 1);
        specs[i].shape = (int64_t *)column->dims;
        specs[i].n_shape = column->n_dims;
        list[i] = &specs[i];
    }
    return list;
}

static uint32_t count_links(const struct list *list)
{
    uint32_t n = 0;

    for (struct link *l = list_first(list); l != NULL; l = list_next(list, l))
        n++;
    return n;
}

enum status replay_wire_info(Parley__V1__ReplayTableInfo *out, const struct table *t,
                             struct arena *arena, struct error *err)
{
    const struct table_config *c = &t->config;
    Parley__V1__ReplayConfig *m = arena_alloc(arena, 1, sizeof(*m));
    Parley__V1__ReplayLimiter *limiter = arena_alloc(arena, 1, sizeof(*limiter));
    Parley__V1__TensorSpec **columns = replay_wire_specs(c, arena);

    if (m == NULL || limiter == NULL || columns == NULL)
        return error_no_memory(err, sizeof(*m), "a table's description");
    parley__v1__replay_table_info__init(out);
    parley__v1__replay_config__init(m);
    parley__v1__replay_limiter__init(limiter);
    out->config = m;
    m->columns = columns;
    m->n_columns = c->n_columns;
    m->max_items = c->max_items;
    m->max_bytes = c->max_bytes;
    m->sampler = (Parley__V1__ReplaySelector)((int)c->sampler + 1);
    m->remover = (Parley__V1__ReplaySelector)((int)c->remover + 1);
    m->alpha = c->alpha;
    m->epsilon = c->epsilon;
    m->max_times_sampled = c->max_times_sampled;
    m->seed = c->seed;
    m->limiter = limiter;
    limiter->min_size = c->limiter.min_size;
    limiter->samples_per_insert = c->limiter.samples_per_insert;
    limiter->min_diff = c->limiter.min_diff;
    limiter->max_diff = c->limiter.max_diff;
    out->epoch = t->epoch;
    out->items = t->order.n;
    out->held_bytes = t->held_bytes;
    out->inserted = t->limiter.n_inserted;
    out->sampled = t->limiter.n_sampled;
    out->waiting_inserts = count_links(&t->inserters);
    out->waiting_samples = count_links(&t->samplers);
    return STATUS_OK;
}

/* --- steps --- */

enum status replay_wire_chunk(const struct tensor_view **views, size_t *ret_n_steps,
                              const Parley__V1__ReplayChunk *from, const struct table *t,
                              struct arena *arena, struct error *err)
{
    const struct table_config *c = &t->config;

    if (from->n_columns != c->n_columns)
        return error_field(err, "chunks.columns", "has %zu columns, the table has %zu",
                           from->n_columns, c->n_columns);
    if (wire_tensors(views, from->columns, from->n_columns, TABLE_MAX_COLUMNS, "chunks.columns",
                     arena, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < c->n_columns; i++) {
        const struct table_column *column = &c->columns[i];
        struct tensor_view v = (*views)[i];
        int64_t dims[TENSOR_MAX_DIMS] = {i == 0 || v.n_dims == 0 ? -1 : (*views)[0].dims[0]};

        v.name = column->name;
        memcpy(dims + 1, column->dims, column->n_dims * sizeof(dims[0]));
        if (tensor_expect(&v, column->type, dims, column->n_dims + 1, err) != STATUS_OK)
            return error_name_field(err, "chunks.columns");
    }
    if ((*views)[0].dims[0] < 1)
        return error_field(err, "chunks.columns", "has no steps");
    *ret_n_steps = (size_t)(*views)[0].dims[0];
    return STATUS_OK;
}

static void replay_wire_gather(unsigned char *to, const struct table *t,
                               const struct table_draw *draws, size_t n, size_t column)
{
    const size_t step_bytes = t->config.columns[column].step_bytes;

    for (size_t i = 0; i < n; i++) {
        size_t n_slices;
        const struct table_slice *slices = table_slices(t, draws[i].slot, &n_slices);

        for (size_t k = 0; k < n_slices; k++) {
            const size_t size_bytes = slices[k].n_steps * step_bytes;

            memcpy(to, table_chunk_column(slices[k].chunk, column) + slices[k].first * step_bytes,
                   size_bytes);
            to += size_bytes;
        }
    }
}

static enum status replay_wire_columns(Parley__V1__ReplayBatch *m, const struct table *t,
                                       const struct table_draw *draws, size_t n, size_t n_steps,
                                       unsigned char *data, struct arena *arena, struct error *err)
{
    const struct table_config *c = &t->config;
    Parley__V1__Tensor *tensors = arena_alloc(arena, c->n_columns, sizeof(tensors[0]));
    int64_t(*shapes)[TENSOR_MAX_DIMS] = arena_alloc(arena, c->n_columns, sizeof(shapes[0]));

    m->columns = arena_alloc(arena, c->n_columns, sizeof(m->columns[0]));
    if (tensors == NULL || shapes == NULL || m->columns == NULL)
        return error_no_memory(err, c->n_columns * sizeof(tensors[0]), "a batch");
    for (size_t i = 0; i < c->n_columns; i++) {
        const struct table_column *column = &c->columns[i];
        Parley__V1__Tensor *out = &tensors[i];

        replay_wire_gather(data, t, draws, n, i);
        parley__v1__tensor__init(out);
        out->name = (char *)column->name;
        out->dtype = (Parley__V1__DType)((int)column->type + 1);
        shapes[i][0] = (int64_t)n_steps;
        memcpy(shapes[i] + 1, column->dims, column->n_dims * sizeof(column->dims[0]));
        out->shape = shapes[i];
        out->n_shape = column->n_dims + 1;
        out->data.data = data;
        out->data.len = n_steps * column->step_bytes;
        data += out->data.len;
        m->columns[i] = out;
    }
    m->n_columns = c->n_columns;
    return STATUS_OK;
}

enum status replay_wire_batch_bytes(size_t *out, const struct table *t,
                                    const struct table_draw *draws, size_t n, struct error *err)
{
    size_t n_steps = 0;

    for (size_t i = 0; i < n; i++)
        n_steps += draws[i].n_steps;
    *out = n_steps * t->step_bytes;
    if (*out <= REPLAY_MAX_BATCH_BYTES)
        return STATUS_OK;
    (void)error_field(err, "batch_size", "makes a batch of %zu bytes, the limit is %zu", *out,
                      REPLAY_MAX_BATCH_BYTES);
    return err->status = STATUS_RANGE;
}

enum status replay_wire_batch(Parley__V1__ReplayBatch **out, const struct table *t,
                              const struct table_draw *draws, size_t n, unsigned char *data,
                              struct arena *arena, struct error *err)
{
    Parley__V1__ReplayBatch *m = arena_alloc(arena, 1, sizeof(*m));
    uint64_t *keys = arena_alloc(arena, n, sizeof(keys[0]));
    double *numbers = arena_alloc(arena, n, 2 * sizeof(numbers[0]));
    uint32_t *counts = arena_alloc(arena, n, 2 * sizeof(counts[0]));
    size_t n_steps = 0;

    if (m == NULL || keys == NULL || numbers == NULL || counts == NULL)
        return error_no_memory(err, n * sizeof(draws[0]), "a batch");
    parley__v1__replay_batch__init(m);
    for (size_t i = 0; i < n; i++) {
        keys[i] = draws[i].key;
        numbers[i] = draws[i].probability;
        numbers[n + i] = draws[i].priority;
        counts[i] = draws[i].times_sampled;
        counts[n + i] = draws[i].n_steps;
        n_steps += draws[i].n_steps;
    }
    m->keys = keys;
    m->probabilities = numbers;
    m->priorities = numbers + n;
    m->times_sampled = counts;
    m->steps = counts + n;
    m->n_keys = m->n_probabilities = m->n_priorities = m->n_times_sampled = m->n_steps = n;
    if (replay_wire_columns(m, t, draws, n, n_steps, data, arena, err) != STATUS_OK)
        return err->status;
    *out = m;
    return STATUS_OK;
}
