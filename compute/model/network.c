#include "compute/model/network.h"

#include "compute/model/state.h"

static void network_add_bias(struct transformer *m, const struct weight *bias, size_t n,
                             struct buffer *x)
{
    if (bias != NULL)
        m->backend->type->add_bias(m->backend, bias, n, x);
}

void network_run(struct transformer *m, const struct model_network *f, const struct input *in,
                 size_t n, bool stores, struct buffer *out)
{
    const struct arch *a = m->shape.arch;
    const struct backend_type *op = m->backend->type;
    const struct ffn fused = {.gate = f->gate,
                              .up = f->up,
                              .down = f->down,
                              .activation = a->activation,
                              .stores = stores};
    const struct product inner[] = {{f->up, m->upped}, {f->gate, m->gated}};
    const struct product down = {f->down, out};
    struct buffer *hidden = f->gate != NULL ? m->gated : m->upped;
    const struct input activated = {.x = hidden};

    if (a->network == NETWORK_GATED && !f->cuts) {
        op->ffn(m->backend, in, n, &fused, out);
        return;
    }
    op->matmul(m->backend, in, n, inner, f->gate != NULL ? 2 : 1);
    network_add_bias(m, f->gate_bias, n, m->gated);
    network_add_bias(m, f->up_bias, n, m->upped);
    if (f->cuts)
        op->cut(m->backend, f->cut, n, f->hidden, m->gated);
    op->activate(m->backend, a->network == NETWORK_CLAMPED ? ACTIVATION_CLAMPED : a->activation,
                 f->gate != NULL ? m->upped : NULL, n, f->hidden, hidden);
    if (stores)
        op->matmul(m->backend, &activated, n, &down, 1);
    else
        op->matmul_add(m->backend, &activated, n, &down);
    network_add_bias(m, f->down_bias, n, out);
}
