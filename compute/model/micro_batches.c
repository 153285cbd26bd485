#include "compute/model/micro_batches.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "compute/model/open_state.h"
#include "compute/model/row.h"
#include "compute/model/rows.h"
#include "compute/model/state.h"

enum {
    MICRO_BATCH_TOKENS = 16, /* on average; fewer do not pay for reading the weights */
    LEVEL = 16,           /* the partition is even if none exceeds the mean by more than 1/LEVEL */
    APART = 4,            /* they ended too far apart if the gap is over 1/APART of the longest: */
    UNDIVIDED_STEPS = 32, /* another process uses a processor, probably for some steps */
    PRODUCTS = 18,        /* products of a weight cost as much as a number of a key and its value */
};

/* A thread's part of a step: a transformer on a backend of one thread, with the weights and pages
 * of its model. */
struct micro_batch {
    struct backend *backend;
    struct transformer *model;
    struct transformer_row *rows; /* [n_rows], at most max_tokens, of the step */
    size_t n_rows, cost;
    uint64_t finished_ns;
    enum status status;
    struct error err;
};

/* The cost of a row, in positions that a token attends to. */
static size_t row_cost(const struct transformer *m, const struct transformer_row *row)
{
    const struct transformer_shape *s = &m->shape;
    size_t q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    size_t weights = s->width * (2 * q_width + 2 * kv_width + 3 * s->ffn_width); /* of a layer */

    return row->n_tokens * (1 + weights / (PRODUCTS * q_width) + row->pos + row->n_tokens / 2);
}

static struct micro_batch *lightest(const struct transformer *m)
{
    struct micro_batch *best = m->micro_batches;

    for (struct micro_batch *part = m->micro_batches + 1;
         part < m->micro_batches + m->n_micro_batches; part++)
        if (part->cost < best->cost)
            best = part;
    return best;
}

/* Rows of one token are assigned last, because they even out the others. */
static void partition_rows(struct transformer *m, const struct transformer_row *rows, size_t n_rows,
                           bool single)
{
    for (size_t i = 0; i < n_rows; i++) {
        struct micro_batch *part = lightest(m);

        if ((rows[i].n_tokens == 1) != single)
            continue;
        part->rows[part->n_rows++] = rows[i];
        part->cost += row_cost(m, &rows[i]);
    }
}

bool micro_batches_partition(struct transformer *m, const struct transformer_row *rows,
                             size_t n_rows)
{
    size_t most = 0, all = 0, n_tokens = 0;

    if (m->n_micro_batches == 0)
        return false;
    if (m->n_undivided > 0) {
        m->n_undivided--;
        return false;
    }
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].n_drafts > 0) /* transformer_accept finds their inputs in one place */
            return false;
        n_tokens += rows[i].n_tokens;
    }
    if (n_tokens < MICRO_BATCH_TOKENS * m->n_micro_batches ||
        n_rows < m->n_micro_batches) /* each needs a row */
        return false;
    for (struct micro_batch *part = m->micro_batches; part < m->micro_batches + m->n_micro_batches;
         part++)
        part->n_rows = part->cost = 0;
    partition_rows(m, rows, n_rows, false);
    partition_rows(m, rows, n_rows, true);
    for (const struct micro_batch *part = m->micro_batches;
         part < m->micro_batches + m->n_micro_batches; part++) {
        most = part->cost > most ? part->cost : most;
        all += part->cost;
    }
    return (most - most / LEVEL) * m->n_micro_batches <= all;
}

static void micro_batch_run(void *arg, size_t i)
{
    struct micro_batch *part = &((struct micro_batch *)arg)[i];

    part->status = rows_run(part->model, part->rows, part->n_rows, &part->err);
    part->finished_ns = clock_ns();
}

enum status micro_batches_run(struct transformer *m, struct error *err)
{
    uint64_t begun_ns = clock_ns(), shortest = UINT64_MAX, longest = 0;

    m->backend->type->each(m->backend, m->n_micro_batches, micro_batch_run, m->micro_batches);
    for (const struct micro_batch *part = m->micro_batches;
         part < m->micro_batches + m->n_micro_batches; part++) {
        uint64_t took = part->finished_ns - begun_ns;

        if (part->status != STATUS_OK) {
            *err = part->err;
            return part->status;
        }
        shortest = took < shortest ? took : shortest;
        longest = took > longest ? took : longest;
    }
    if (longest - shortest > longest / APART)
        m->n_undivided = UNDIVIDED_STEPS;
    return STATUS_OK;
}

static void micro_batch_close(struct micro_batch *part)
{
    state_close(part->model);
    backend_close(part->backend);
    free(part->rows);
}

static enum status micro_batch_open(struct micro_batch *part, struct transformer *m,
                                    struct error *err)
{
    const struct backend_config one_thread = {.n_threads = 1};
    size_t n = m->config.max_tokens; /* at least one a row */
    enum status rc;

    part->rows = try_alloc(n, sizeof(*part->rows));
    if (part->rows == NULL)
        return error_no_memory(err, n * sizeof(*part->rows), "the rows of a micro-batch");
    rc = backend_open_type(&part->backend, m->backend->type, &one_thread, err);
    return rc == STATUS_OK ? state_open_borrowing(&part->model, m, part->backend, err) : rc;
}

enum status micro_batches_open(struct transformer *m, struct error *err)
{
    const struct backend_type *type = m->backend->type;
    size_t n = type->each != NULL ? type->n_threads(m->backend) : 1;
    enum status rc = STATUS_OK;

    if (n == 1)
        return STATUS_OK;
    m->micro_batches = try_alloc(n, sizeof(*m->micro_batches));
    if (m->micro_batches == NULL)
        return error_no_memory(err, n * sizeof(*m->micro_batches), "micro-batches");
    for (; rc == STATUS_OK && m->n_micro_batches < n; m->n_micro_batches += rc == STATUS_OK) {
        struct micro_batch *part = &m->micro_batches[m->n_micro_batches];

        rc = micro_batch_open(part, m, err);
        if (rc != STATUS_OK)
            micro_batch_close(part);
    }
    return rc;
}

void micro_batches_close(struct transformer *m)
{
    for (size_t i = 0; i < m->n_micro_batches; i++)
        micro_batch_close(&m->micro_batches[i]);
    free(m->micro_batches);
    m->micro_batches = NULL;
    m->n_micro_batches = 0;
}
