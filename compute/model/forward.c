/* One call of a transformer: copies of pages, then the rows, together or in micro-batches. */
#include "compute/backend/states.h"
#include "compute/model/micro_batches.h"
#include "compute/model/recurrent.h"
#include "compute/model/rows.h"
#include "compute/model/state.h"
#include "compute/model/transformer.h"

static void run_copy(struct transformer *m, const struct kv_copy *c)
{
    const struct backend_type *op = m->backend->type;

    if (c->way == KV_OFFLOAD)
        op->kv_offload(m->backend, m->kv, c->from, c->to);
    else if (c->way == KV_RELOAD)
        op->kv_reload(m->backend, m->kv, c->from, c->to);
    else if (c->way == KV_WRITE)
        op->kv_write(m->backend, m->kv, c->to, c->image);
    else if (c->way == KV_WRITE_STATE)
        op->state->write(m->backend, m->states, c->to, c->image);
    else
        op->kv_copy(m->backend, m->kv, c->from, c->to);
}

enum status transformer_forward(struct transformer *m, const struct transformer_row *rows,
                                size_t n_rows, const struct kv_copy *copies, size_t n_copies,
                                struct error *err)
{
    for (size_t i = 0; i < n_copies; i++)
        run_copy(m, &copies[i]);
    return micro_batches_partition(m, rows, n_rows) ? micro_batches_run(m, err)
                                                    : rows_run(m, rows, n_rows, err);
}

enum status transformer_accept(struct transformer *m, const struct transformer_row *rows,
                               size_t n_rows, struct error *err)
{
    return recurrent_accept(m, rows, n_rows) ? m->backend->type->sync(m->backend, err) : STATUS_OK;
}
