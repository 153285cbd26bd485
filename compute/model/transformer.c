#include "compute/model/transformer.h"

#include <assert.h>

#include "base/alloc.h"
#include "compute/backend/states.h"
#include "compute/model/micro_batches.h"
#include "compute/model/open_state.h"
#include "compute/model/read_shape.h"
#include "compute/model/state.h"
#include "compute/model/tensors.h"

const struct transformer_shape *transformer_shape(const struct transformer *m)
{
    return &m->shape;
}

size_t transformer_weight_bytes(const struct transformer *m)
{
    return m->weight_bytes;
}

size_t transformer_page_bytes(const struct transformer *m)
{
    return transformer_kv_page_bytes(&m->shape, m->config.kv_type);
}

size_t transformer_slot_bytes(const struct transformer *m)
{
    return transformer_state_bytes(&m->shape);
}

bool transformer_can_draw(const struct transformer *m)
{
    return m->backend->type->sample != NULL;
}

bool transformer_can_offload(const struct backend *b)
{
    return b->type->kv_offload != NULL;
}

size_t transformer_image_bytes(const struct transformer *m)
{
    return m->backend->type->kv_read != NULL ? m->backend->type->kv_image_bytes(m->kv) : 0;
}

void transformer_read_page(const struct transformer *m, int32_t page, void *out)
{
    m->backend->type->kv_read(m->kv, page, out);
}

void transformer_read_slot(const struct transformer *m, int32_t slot, void *out)
{
    m->backend->type->state->read(m->backend, m->states, slot, out);
}

static enum status model_open_device(struct transformer *m, struct error *err)
{
    enum status rc = state_open_device(m, err);

    if (rc == STATUS_OK)
        rc = micro_batches_open(m, err);
    return rc == STATUS_OK ? m->backend->type->sync(m->backend, err) : rc;
}

static void model_close_device(struct transformer *m)
{
    micro_batches_close(m);
    state_close_device(m);
}

/* Positions that a sequence may have. */
static size_t sequence_context(const struct transformer_config *config,
                               const struct transformer_shape *s)
{
    return config->max_context > 0 && config->max_context < s->context ? config->max_context
                                                                       : s->context;
}

/* What the shape needs and the backend has no kernel for; NULL: nothing. */
static const char *lacking(const struct backend_type *type, const struct transformer_shape *s)
{
    const struct arch *a = s->arch;

    if (a->has_sinks && !type->attends_to_sinks)
        return "attention sinks";
    if (a->window_is_chunk && s->window > 0 && !type->attends_in_chunks)
        return "attention in chunks";
    if (s->state.n_heads > 0 && type->state == NULL)
        return "recurrent state";
    if (s->n_taps > 0 && type->kv_conv == NULL)
        return "convolutions";
    if (!s->are_alike && !type->has_unlike_layers)
        return "layers with unlike heads";
    if ((a->values_may_be_keys || s->embedding_width > 0) && type->copy_columns == NULL)
        return "values or embeddings of layers";
    if (s->n_streams > 0 && type->cut == NULL)
        return "several residual streams";
    if (s->latent_rank > 0 && type->copy_columns == NULL)
        return "latent attention";
    if (a->norm_kind == NORM_KIND_LAYER && type->layer_norm == NULL)
        return "layer norms";
    if (a->network != NETWORK_GATED && type->activate == NULL)
        return "this kind of feed-forward network";
    if (s->n_experts > 0 && (a->norms != NORMS_BEFORE || s->residual_scale != 1.0f) &&
        type->fill == NULL)
        return "experts that are normed or scaled";
    return NULL;
}

static enum status check_backend(const struct backend *b, const struct transformer_shape *s,
                                 const struct gguf *g, struct error *err)
{
    const char *what = lacking(b->type, s);

    if (what == NULL)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: the %s architecture has %s, for which the backend '%s' has no kernel: "
                     "run it with --backend cpu",
                     gguf_path(g), s->arch->name, what, b->type->name);
}

enum status transformer_open(struct transformer **out, struct backend *b, const struct gguf *g,
                             const struct transformer_config *config, struct error *err)
{
    struct transformer_shape shape;
    struct transformer *m = NULL;
    enum status rc = transformer_read_shape(&shape, g, err);

    if (rc == STATUS_OK)
        rc = check_backend(b, &shape, g, err);
    if (rc != STATUS_OK)
        return rc;
    assert(config->max_tokens > 0 && config->max_logits > 0 && config->n_kv_pages > 0);
    m = xalloc(sizeof(*m));
    assert(shape.state.n_heads == 0 || config->n_state_slots > 0);
    assert(config->n_kv_host_pages == 0 || transformer_can_offload(b));
    m->backend = b;
    m->file = g;
    m->shape = shape;
    m->config = *config;
    if ((rc = model_ropes_init(&m->ropes, g, &shape, sequence_context(config, &shape), err)) !=
            STATUS_OK ||
        (rc = state_open_tables(m, err)) != STATUS_OK ||
        (rc = model_open_device(m, err)) != STATUS_OK)
        goto out;
    *out = m;
    m = NULL; /* the caller's now */
out:
    transformer_close(m);
    return rc;
}

void transformer_close(struct transformer *m)
{
    if (m == NULL)
        return;
    micro_batches_close(m);
    state_close(m);
}

bool transformer_prefault(struct transformer *m, bool is_busy)
{
    const struct backend_type *type = m->backend->type;

    return type->kv_prepare != NULL && m->kv != NULL &&
           type->kv_prepare(m->backend, m->kv, is_busy);
}

enum status transformer_restart(struct transformer *m, const struct backend_config *config,
                                struct error *err)
{
    enum status rc;

    if (m->config.weights_of != NULL || atomic_load(&m->n_sharers) != m->n_micro_batches)
        return error_set(err, STATUS_PRECONDITION,
                         "the device has failed and its weights are shared: restart the process");
    rc = gguf_check_unchanged(m->file, err);
    if (rc != STATUS_OK)
        return rc;
    model_close_device(m);
    rc = backend_restart(m->backend, config, err);
    if (rc == STATUS_OK && (rc = model_open_device(m, err)) != STATUS_OK)
        model_close_device(m);
    return rc;
}
