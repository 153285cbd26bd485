/* Lays out a policy's layers and runs passes over them by the backend's operators. Every buffer is
 * opened once and has room for max_rows rows, so that a pass allocates nothing. */
#include "agents/policy/network.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agents/policy/head.h"
#include "base/alloc.h"

static struct network_layer *add_layer(struct network *net, size_t n_in, size_t n_out, size_t fan)
{
    struct network_layer *l = &net->layers[net->n_layers++];

    assert(net->n_layers <= NETWORK_MAX_LAYERS);
    net->n_numbers += (n_in + 1) * n_out;
    l->weight = (struct param){.n_rows = n_out, .n_cols = n_in};
    l->bias = (struct param){.n_rows = 1, .n_cols = n_out};
    l->bound = 1.0f / sqrtf((float)fan);
    return l;
}

void network_shape(struct network *out, const struct policy_spec *spec)
{
    size_t h = spec->n_hidden, n_in = spec->n_observations;
    struct network_layer *l;

    *out = (struct network){.spec = *spec, .n_outputs = head_n_outputs(spec)};
    if (spec->kind == POLICY_LSTM) {
        l = add_layer(out, n_in, 4 * h, h);
        (void)snprintf(l->name, sizeof(l->name), "lstm.input");
        l = add_layer(out, h, 4 * h, h);
        (void)snprintf(l->name, sizeof(l->name), "lstm.state");
    }
    for (size_t i = 0; spec->kind == POLICY_MLP && i < spec->n_layers; i++, n_in = h) {
        l = add_layer(out, n_in, h, n_in);
        (void)snprintf(l->name, sizeof(l->name), "hidden.%zu", i);
    }
    out->actions = add_layer(out, h, out->n_outputs, h);
    (void)snprintf(out->actions->name, sizeof(out->actions->name), "actions");
    if (spec->has_value) {
        out->value = add_layer(out, h, 1, h);
        (void)snprintf(out->value->name, sizeof(out->value->name), "value");
    }
}

struct param *network_param(struct network *net, size_t layer, int which,
                            char ret_name[PARAM_NAME_SIZE])
{
    struct network_layer *l = &net->layers[layer];

    (void)snprintf(ret_name, PARAM_NAME_SIZE, "%s.%s", l->name, which == 0 ? "weight" : "bias");
    return which == 0 ? &l->weight : &l->bias;
}

/* Opens a buffer [n][width] in *out unless there is one; false, with *err filled, without memory.
 */
static bool network_take(struct backend *b, struct buffer **out, size_t n, size_t width,
                         struct error *err)
{
    size_t size_bytes;

    if (*out != NULL)
        return true;
    if (!__builtin_mul_overflow(n, width * sizeof(float), &size_bytes))
        *out = b->type->buffer_open(b, size_bytes);
    else
        size_bytes = SIZE_MAX;
    if (*out == NULL)
        (void)error_no_memory(err, size_bytes, "a policy");
    return *out != NULL;
}

static void network_give(struct backend *b, struct buffer **m)
{
    if (*m != NULL)
        b->type->buffer_close(b, *m);
    *m = NULL;
}

enum status network_open(struct network *net, struct backend *b, size_t max_rows, struct error *err)
{
    const struct policy_spec *s = &net->spec;
    size_t h = s->n_hidden;
    bool ok;

    net->backend = b;
    net->max_rows = max_rows;
    ok = network_take(b, &net->in, max_rows, s->n_observations, err) &&
         network_take(b, &net->logits, max_rows, net->n_outputs, err);
    if (ok && s->head == POLICY_SOFTMAX)
        ok = network_take(b, &net->logp, max_rows, net->n_outputs, err);
    net->outputs = s->head == POLICY_SOFTMAX ? net->logp : net->logits;
    for (size_t i = 0; ok && i < net->n_layers; i++) {
        struct network_layer *l = &net->layers[i];

        ok = network_take(b, &l->weight.value, l->weight.n_rows, l->weight.n_cols, err) &&
             network_take(b, &l->bias.value, l->bias.n_rows, l->bias.n_cols, err);
    }
    for (size_t i = 0; ok && i < s->n_layers; i++)
        ok = network_take(b, &net->hidden[i], max_rows, h, err);
    if (ok && s->has_value)
        ok = network_take(b, &net->values, max_rows, 1, err);
    if (ok && s->kind == POLICY_LSTM)
        ok = network_take(b, &net->h_in, max_rows, h, err) &&
             network_take(b, &net->c_in, max_rows, h, err) &&
             network_take(b, &net->c_out, max_rows, h, err) &&
             network_take(b, &net->gates, max_rows, 4 * h, err) &&
             network_take(b, &net->from_h, max_rows, 4 * h, err);
    return ok ? STATUS_OK : err->status;
}

/* Opens Adam's moments, zeroed. */
static bool network_take_moments(struct network *net, struct param *p, struct error *err)
{
    struct backend *b = net->backend;
    bool is_new = p->second == NULL;
    bool ok = network_take(b, &p->first, p->n_rows, p->n_cols, err) &&
              network_take(b, &p->second, p->n_rows, p->n_cols, err);

    if (ok && is_new) {
        b->type->net->zero(b, p->first, p->n_rows, p->n_cols);
        b->type->net->zero(b, p->second, p->n_rows, p->n_cols);
    }
    return ok;
}

enum status network_prepare(struct network *net, struct error *err)
{
    const struct policy_spec *s = &net->spec;
    struct backend *b = net->backend;
    size_t n = net->max_rows, h = s->n_hidden;
    bool ok = network_take(b, &net->dlogits, n, net->n_outputs, err) &&
              network_take(b, &net->dtop, n, h, err) && network_take(b, &net->dbelow, n, h, err);

    if (ok && s->has_value)
        ok = network_take(b, &net->dvalues, n, 1, err);
    if (ok && s->kind == POLICY_LSTM)
        ok = network_take(b, &net->dh, n, h, err) && network_take(b, &net->dc, n, h, err) &&
             network_take(b, &net->dgates, n, 4 * h, err);
    for (size_t i = 0; ok && i < net->n_layers; i++)
        for (int which = 0; ok && which < 2; which++) {
            char name[PARAM_NAME_SIZE];
            struct param *p = network_param(net, i, which, name);

            ok = network_take(b, &p->gradient, p->n_rows, p->n_cols, err) &&
                 network_take_moments(net, p, err);
        }
    return ok ? STATUS_OK : err->status;
}

static void network_close_buffers(struct network *net)
{
    struct backend *b = net->backend;
    struct buffer **single[] = {&net->in,     &net->logits,  &net->logp,    &net->values,
                                &net->h_in,   &net->c_in,    &net->c_out,   &net->gates,
                                &net->from_h, &net->dlogits, &net->dvalues, &net->dtop,
                                &net->dbelow, &net->dh,      &net->dc,      &net->dgates};

    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        network_give(b, single[i]);
    for (size_t i = 0; i < POLICY_MAX_LAYERS; i++)
        network_give(b, &net->hidden[i]);
    for (size_t i = 0; i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(net, i / 2, (int)(i % 2), name);

        network_give(b, &p->value);
        network_give(b, &p->gradient);
        network_give(b, &p->first);
        network_give(b, &p->second);
    }
}

void network_close(struct network *net)
{
    network_close_buffers(net);
    free(net->kept);
    *net = (struct network){0};
}

enum status network_load(struct network *net, const float *numbers, struct error *err)
{
    struct backend *b = net->backend;

    for (size_t i = 0; i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(net, i / 2, (int)(i % 2), name);
        size_t n = p->n_rows * p->n_cols;

        b->type->upload(b, p->value, numbers, n * sizeof(*numbers));
        if (net->n_steps > 0) {
            if (!network_take_moments(net, p, err))
                return err->status;
            b->type->upload(b, p->first, numbers + net->n_numbers, n * sizeof(*numbers));
            b->type->upload(b, p->second, numbers + 2 * net->n_numbers, n * sizeof(*numbers));
        } else if (p->second != NULL) {
            b->type->net->zero(b, p->first, p->n_rows, p->n_cols);
            b->type->net->zero(b, p->second, p->n_rows, p->n_cols);
        }
        numbers += n;
    }
    return b->type->sync(b, err);
}

enum status network_restart(struct network *net, const struct backend_config *config,
                            struct error *err)
{
    struct backend *b = net->backend;
    enum status rc;

    assert(net->kept != NULL);  /* only a device fails */
    network_close_buffers(net); /* none is open after a restart that failed */
    rc = backend_restart(b, config, err);
    if (rc == STATUS_OK)
        rc = network_open(net, b, net->max_rows, err);
    if (rc == STATUS_OK)
        rc = network_load(net, net->kept, err);
    if (rc != STATUS_OK && !b->is_down)
        network_close_buffers(net);
    return rc;
}

size_t network_n_kinds(const struct network *net)
{
    return net->n_steps > 0 ? 3 : 1;
}

size_t network_weight_bytes(const struct network *net)
{
    size_t n = 0;

    for (size_t i = 0; i < net->n_layers; i++) {
        const struct network_layer *l = &net->layers[i];

        n += l->weight.n_rows * l->weight.n_cols + l->bias.n_cols;
    }
    return n * sizeof(float);
}

/* A layer of the networks of parts, into the buffer of a pass of the first. */
static void network_apply(const struct network_part *parts, size_t n_parts, size_t layer,
                          const struct buffer *in, struct buffer *out)
{
    const struct network_layer *l = &parts->net->layers[layer];
    struct backend *b = parts->net->backend;
    struct net_group groups[NETWORK_MAX_GROUP];

    if (n_parts == 1) {
        b->type->net->linear(b, in, l->weight.value, l->bias.value, parts->n_rows, l->weight.n_cols,
                             l->weight.n_rows, out);
        return;
    }
    for (size_t i = 0; i < n_parts; i++) {
        const struct network_layer *own = &parts[i].net->layers[layer];

        groups[i] = (struct net_group){parts[i].n_rows, own->weight.value, own->bias.value};
    }
    b->type->net->linear_grouped(b, in, groups, n_parts, l->weight.n_cols, l->weight.n_rows, out);
}

/* din may be NULL. */
static void apply_backward(const struct network *net, const struct network_layer *l,
                           const struct buffer *in, const struct buffer *dout, size_t n,
                           struct buffer *din)
{
    struct backend *b = net->backend;

    b->type->net->linear_backward(b, in, l->weight.value, dout, n, l->weight.n_cols,
                                  l->weight.n_rows, din, l->weight.gradient, l->bias.gradient);
}

bool network_groups_with(const struct network *a, const struct network *b)
{
    const struct policy_spec *x = &a->spec, *y = &b->spec;

    return a->backend->type == b->backend->type && a->backend->type->net->linear_grouped != NULL &&
           x->kind == y->kind && x->head == y->head && x->n_observations == y->n_observations &&
           x->n_actions == y->n_actions && x->n_hidden == y->n_hidden &&
           x->n_layers == y->n_layers && x->dropout == y->dropout && x->has_value == y->has_value;
}

void network_forward_group(const struct network_part *parts, size_t n_parts,
                           const struct net_draw *draws)
{
    struct network *net = parts->net;
    const struct policy_spec *s = &net->spec;
    struct backend *b = net->backend;
    const struct net_ops *ops = b->type->net;
    struct buffer *top = net->in;
    size_t n = 0, layer = 0;

    assert(n_parts > 0 && n_parts <= NETWORK_MAX_GROUP);
    for (size_t i = 0; i < n_parts; i++)
        n += parts[i].n_rows;
    assert(n <= net->max_rows);
    if (s->kind == POLICY_LSTM) {
        network_apply(parts, n_parts, layer++, net->in, net->gates);
        network_apply(parts, n_parts, layer++, net->h_in, net->from_h);
        ops->lstm(b, net->gates, net->from_h, net->c_in, n, s->n_hidden, net->c_out,
                  net->hidden[0]);
        top = net->hidden[0];
    }
    for (size_t i = 0; s->kind == POLICY_MLP && i < s->n_layers; i++, top = net->hidden[i - 1]) {
        network_apply(parts, n_parts, layer++, top, net->hidden[i]);
        ops->dropout(b, draws, (uint32_t)i, s->dropout, n, s->n_hidden, net->hidden[i]);
        ops->relu(b, net->hidden[i], n, s->n_hidden);
    }
    network_apply(parts, n_parts, layer++, top, net->logits);
    if (s->head == POLICY_SOFTMAX)
        ops->log_softmax(b, net->logits, n, s->n_actions, net->logp);
    if (net->value != NULL)
        network_apply(parts, n_parts, layer, top, net->values);
}

void network_forward(struct network *net, const struct net_draw *draws, size_t n)
{
    const struct network_part part = {net, n};

    network_forward_group(&part, 1, draws);
}

void network_zero_gradients(struct network *net)
{
    struct backend *b = net->backend;

    for (size_t i = 0; i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(net, i / 2, (int)(i % 2), name);

        b->type->net->zero(b, p->gradient, p->n_rows, p->n_cols);
    }
}

static void backward_mlp(struct network *net, const struct net_draw *draws, size_t n)
{
    const struct policy_spec *s = &net->spec;
    struct backend *b = net->backend;
    struct buffer *top = net->dtop, *below = net->dbelow;

    for (size_t i = s->n_layers; i-- > 0;) {
        struct buffer *freed = top;

        b->type->net->relu_backward(b, net->hidden[i], n, s->n_hidden, top);
        b->type->net->dropout(b, draws, (uint32_t)i, s->dropout, n, s->n_hidden, top);
        apply_backward(net, &net->layers[i], i > 0 ? net->hidden[i - 1] : net->in, top, n,
                       i > 0 ? below : NULL);
        top = below;
        below = freed;
    }
}

static void backward_lstm(struct network *net, size_t n)
{
    struct backend *b = net->backend;
    size_t h = net->spec.n_hidden;

    b->type->net->add(b, net->dh, net->dtop, n, h);
    b->type->net->lstm_backward(b, net->gates, net->c_in, net->c_out, net->dh, n, h, net->dc,
                                net->dgates);
    apply_backward(net, &net->layers[0], net->in, net->dgates, n, NULL);
    apply_backward(net, &net->layers[1], net->h_in, net->dgates, n, net->dh);
}

void network_backward(struct network *net, const struct net_draw *draws, size_t n)
{
    const struct policy_spec *s = &net->spec;
    struct backend *b = net->backend;
    struct buffer *top = net->hidden[s->n_layers - 1];

    apply_backward(net, net->actions, top, net->dlogits, n, net->dtop);
    if (net->value != NULL) {
        apply_backward(net, net->value, top, net->dvalues, n, net->dbelow);
        b->type->net->add(b, net->dtop, net->dbelow, n, s->n_hidden);
    }
    if (s->kind == POLICY_LSTM)
        backward_lstm(net, n);
    else
        backward_mlp(net, draws, n);
}

void network_step(struct network *net, float learning_rate)
{
    const struct optim adam = {
        .kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    struct backend *b = net->backend;

    for (size_t i = 0; i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(net, i / 2, (int)(i % 2), name);

        b->type->net->optim_step(b, &adam, net->n_steps + 1, learning_rate, p->n_rows * p->n_cols,
                                 p->gradient, p->value, p->first, p->second);
    }
}

void network_fetch(struct network *net, size_t n_kinds, float *numbers)
{
    struct backend *b = net->backend;

    for (size_t i = 0; i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        const struct param *p = network_param(net, i / 2, (int)(i % 2), name);
        const struct buffer *kinds[] = {p->value, p->first, p->second};
        size_t n = p->n_rows * p->n_cols;

        for (size_t k = 0; k < n_kinds; k++)
            b->type->download(b, numbers + k * net->n_numbers, kinds[k], n * sizeof(*numbers));
        numbers += n;
    }
}

void network_stepped(struct network *net, float *numbers)
{
    free(net->kept);
    net->kept = numbers;
    net->n_steps++;
}
