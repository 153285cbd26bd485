/* Trajectories of an LSTM through time. All rows of one time make passes of at most max_rows, whose
 * states stay on a tape for each pass; backwards, each step is computed once more from its state.
 * Gradients are added time by time, from the last on, and row by row, so that the split into passes
 * does not change the bits. */
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"

/* The rows of one pass. */
struct time_part {
    size_t first, n;
};

static struct time_part time_part_at(const struct time_rows *r, size_t i)
{
    size_t most = r->policy->max_rows, first = i * most;

    return (struct time_part){first, r->n - first < most ? r->n - first : most};
}

/* The slot of a tape that holds the gradients by the states before a step; the slots below hold the
 * states before the steps. */
static size_t slot_of_gradients(const struct time_rows *r)
{
    return r->n_steps + 1;
}

/* Writes the states before the first observations of a pass. */
static void time_start(struct time_rows *r, size_t i)
{
    struct policy *p = r->policy;
    struct time_part part = time_part_at(r, i);
    size_t h = p->net.spec.n_hidden;

    memset(p->h, 0, part.n * h * sizeof(*p->h));
    memset(p->c, 0, part.n * h * sizeof(*p->c));
    for (size_t k = 0; r->states != NULL && k < part.n; k++) {
        const float *state = r->states + (part.first + k) * 2 * h;

        memcpy(p->h + k * h, state, h * sizeof(*p->h));
        memcpy(p->c + k * h, state + h, h * sizeof(*p->c));
    }
    tape_upload(&r->tapes[i], 0, p->h, p->c, part.n);
}

enum status time_rows_open(struct time_rows *r, struct error *err)
{
    size_t n_tapes = (r->n + r->policy->max_rows - 1) / r->policy->max_rows;
    enum status rc = STATUS_OK;

    r->keep = try_alloc(r->policy->max_rows, sizeof(*r->keep));
    r->tapes = try_alloc(n_tapes, sizeof(*r->tapes));
    if (r->keep == NULL || r->tapes == NULL)
        return error_no_memory(err, n_tapes * sizeof(*r->tapes), "passes through time");
    r->n_tapes = n_tapes;
    for (size_t i = 0; rc == STATUS_OK && i < n_tapes; i++) {
        rc =
            tape_open(&r->tapes[i], r->policy, time_part_at(r, i).n, slot_of_gradients(r) + 1, err);
        if (rc == STATUS_OK)
            time_start(r, i);
    }
    return rc;
}

void time_rows_close(struct time_rows *r)
{
    for (size_t i = 0; i < r->n_tapes; i++)
        tape_close(&r->tapes[i]);
    free(r->tapes);
    free(r->keep);
}

/* The row of trajectory k at time t. */
static size_t time_row(const struct time_rows *r, size_t k, size_t t)
{
    return k * (r->n_steps + 1) + t;
}

/* A forward pass at time t, from the tape's state. An observation begins an episode behind a step
 * that reset the environment or ended the episode by its own rules. */
static void time_pass(struct time_rows *r, size_t i, size_t t)
{
    struct policy *p = r->policy;
    struct network *net = &p->net;
    struct time_part part = time_part_at(r, i);
    size_t width = net->spec.n_observations;

    for (size_t k = 0; k < part.n; k++) {
        size_t from = part.first + k, before = from * r->n_steps + t - 1;

        memcpy(p->in + k * width, r->observations + time_row(r, from, t) * width,
               width * sizeof(*p->in));
        r->keep[k] = t == 0 || !(r->terminated[before] || r->resets[before]);
    }
    memset(p->draws, 0, part.n * sizeof(*p->draws)); /* no dropout */
    p->backend->type->upload(p->backend, net->in, p->in, part.n * width * sizeof(*p->in));
    tape_cut(p, r->keep, part.n, r->tapes[i].h[t], r->tapes[i].c[t]);
    tape_load(&r->tapes[i], t, net->h_in, net->c_in, part.n);
    network_forward(net, p->draws, part.n);
}

/* Downloads the pass's outputs to the rows of time t. */
static enum status time_fetch(struct time_rows *r, size_t i, size_t t, float *outputs,
                              float *values, struct error *err)
{
    struct policy *p = r->policy;
    struct backend *b = p->backend;
    struct time_part part = time_part_at(r, i);
    size_t n_outputs = p->net.n_outputs;
    enum status rc;

    b->type->download(b, p->outputs, p->net.outputs, part.n * n_outputs * sizeof(*outputs));
    if (p->net.values != NULL)
        b->type->download(b, p->values, p->net.values, part.n * sizeof(*values));
    rc = policy_sync(p, err);
    for (size_t k = 0; rc == STATUS_OK && k < part.n; k++) {
        size_t row = time_row(r, part.first + k, t);

        memcpy(outputs + row * n_outputs, p->outputs + k * n_outputs, n_outputs * sizeof(*outputs));
        if (p->net.values != NULL)
            values[row] = p->values[k];
    }
    return rc;
}

enum status time_rows_forward(struct time_rows *r, float *outputs, float *values, struct error *err)
{
    struct network *net = &r->policy->net;
    enum status rc = STATUS_OK;

    for (size_t t = 0; t <= r->n_steps; t++)
        for (size_t i = 0; rc == STATUS_OK && i < r->n_tapes; i++) {
            time_pass(r, i, t);
            if (t < r->n_steps)
                tape_keep(&r->tapes[i], t + 1, net->hidden[0], net->c_out, time_part_at(r, i).n);
            rc = time_fetch(r, i, t, outputs, values, err);
        }
    return rc;
}

static void time_pull(struct time_rows *r, size_t i, size_t t, const float *doutputs,
                      const float *dvalues)
{
    struct policy *p = r->policy;
    struct network *net = &p->net;
    struct backend *b = p->backend;
    struct time_part part = time_part_at(r, i);
    size_t n_outputs = net->n_outputs;

    for (size_t k = 0; k < part.n; k++) {
        size_t row = time_row(r, part.first + k, t);

        memcpy(p->outputs + k * n_outputs, doutputs + row * n_outputs,
               n_outputs * sizeof(*doutputs));
        p->values[k] = dvalues[row];
    }
    b->type->upload(b, net->dlogits, p->outputs, part.n * n_outputs * sizeof(*doutputs));
    if (net->dvalues != NULL)
        b->type->upload(b, net->dvalues, p->values, part.n * sizeof(*dvalues));
}

void time_rows_backward(struct time_rows *r, const float *doutputs, const float *dvalues)
{
    struct policy *p = r->policy;
    struct network *net = &p->net;
    const struct net_ops *ops = p->backend->type->net;
    size_t slot = slot_of_gradients(r), h = net->spec.n_hidden;

    for (size_t i = 0; i < r->n_tapes; i++) {
        ops->zero(p->backend, r->tapes[i].h[slot], time_part_at(r, i).n, h);
        ops->zero(p->backend, r->tapes[i].c[slot], time_part_at(r, i).n, h);
    }
    /* the rows behind the last step have no gradient */
    for (size_t t = r->n_steps; t-- > 0;)
        for (size_t i = 0; i < r->n_tapes; i++) {
            size_t n = time_part_at(r, i).n;

            time_pass(r, i, t);
            time_pull(r, i, t, doutputs, dvalues);
            tape_load(&r->tapes[i], slot, net->dh, net->dc, n);
            network_backward(net, p->draws, n);
            tape_cut(p, r->keep, n, net->dh, net->dc);
            tape_keep(&r->tapes[i], slot, net->dh, net->dc, n);
        }
}
