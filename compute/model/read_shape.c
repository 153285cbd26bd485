/* Reads a file's description of its model, and checks it before anything is computed: each number
 * is within bounds, each tensor exists and has the shape that the numbers require, and no unknown
 * tensor or setting would change the result. */
#include "compute/model/read_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/numbers.h"
#include "compute/model/read_experts.h"
#include "compute/model/read_state.h"
#include "compute/model/ropes.h"
#include "compute/model/tensors.h"

enum {
    MAX_HEADS = 1024,
    LEAST_HEAD_DIM = 2, /* of pages that hold nothing */
    MAX_WIDTH = 1 << 17,
    MAX_TAPS = 16,
    MAX_LATENT_WIDTH = 1 << 18, /* of all heads' queries in the latent space */
    MAX_FFN_WIDTH = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 24,
    MAX_CUT = 100, /* standard deviations */
};

static enum status read_head_count(struct transformer_shape *s, const struct gguf *g,
                                   struct error *err)
{
    const struct arch *a = s->arch;
    enum status rc;

    s->n_heads = s->n_kv_heads = 1;
    if (a->never_attends)
        return STATUS_OK;
    rc = numbers_read_size(&s->n_heads, g, a, "attention.head_count", MAX_HEADS, err);
    if (rc != STATUS_OK)
        return rc;
    s->n_kv_heads = s->n_heads;
    rc = numbers_read_greatest(&s->n_kv_heads, g, a, "attention.head_count_kv", s->n_layers,
                               a->keys & (KEYS_CONVOLUTION | KEYS_STATE) ? 0 : 1, MAX_HEADS, err);
    if (rc == STATUS_NOT_FOUND)
        rc = STATUS_OK;
    if (rc == STATUS_OK && s->n_heads % s->n_kv_heads != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: key '%s.attention.head_count' is %zu, which is not a multiple of "
                         "'%s.attention.head_count_kv' (%zu)",
                         gguf_path(g), a->name, s->n_heads, a->name, s->n_kv_heads);
    return rc;
}

/* Some layers of granite's family are not rotated at all. */
static enum status read_rotated(struct transformer_shape *s, const struct gguf *g,
                                struct error *err)
{
    char key[ARCH_KEY_MAX];
    bool is_rotated = true;
    enum status rc;

    s->n_rotated = s->head_dim;
    rc = numbers_read_optional_size(&s->n_rotated, g, s->arch, "rope.dimension_count", MAX_WIDTH,
                                    err);
    if (rc != STATUS_OK || !s->arch->may_be_unrotated)
        return rc;
    rc = gguf_get_bool(g, arch_key(key, s->arch, "rope.scaling.finetuned"), &is_rotated, err);
    if (!is_rotated)
        s->n_rotated = 0;
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* The widths of a head's keys and values in files that have them for each head, by one tensor. */
static enum status read_whole_heads(struct transformer_shape *s, size_t *ret_key_dim,
                                    const struct gguf *g, struct error *err)
{
    const struct tensor *ignored;
    enum status rc = gguf_tensor(g, "blk.0.attn_kv_b.weight", &ignored, err);

    if (rc != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: neither key '%s.attention.key_length_mla' nor tensor "
                         "'blk.0.attn_kv_b.weight' is there: convert the model again",
                         gguf_path(g), s->arch->name);
    s->value_dim = s->width / s->n_heads;
    s->n_kv_heads = 1; /* as keys and values are kept here */
    rc = numbers_read_size(ret_key_dim, g, s->arch, "attention.key_length", MAX_WIDTH, err);
    return rc == STATUS_OK ? numbers_read_optional_size(&s->value_dim, g, s->arch,
                                                        "attention.value_length", MAX_WIDTH, err)
                           : rc;
}

static enum status read_latent_heads(struct transformer_shape *s, const struct gguf *g,
                                     struct error *err)
{
    const struct arch *a = s->arch;
    size_t key_dim = 0;
    enum status rc;

    if ((rc = numbers_read_size(&s->latent_rank, g, a, "attention.kv_lora_rank", MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = numbers_read_optional_count(&s->query_rank, g, a, "attention.q_lora_rank", MAX_WIDTH,
                                          err)) != STATUS_OK ||
        (rc = numbers_read_size(&s->n_rotated, g, a, "rope.dimension_count", MAX_WIDTH, err)) !=
            STATUS_OK)
        return rc;
    rc = numbers_read_size(&key_dim, g, a, "attention.key_length_mla", MAX_WIDTH, err);
    if (rc == STATUS_OK)
        rc = numbers_read_size(&s->value_dim, g, a, "attention.value_length_mla", MAX_WIDTH, err);
    else if (rc == STATUS_NOT_FOUND)
        rc = read_whole_heads(s, &key_dim, g, err);
    if (rc != STATUS_OK)
        return rc;
    s->head_dim = s->latent_rank + s->n_rotated;
    if (s->n_kv_heads != 1 || s->n_rotated >= key_dim || s->n_rotated % 2 != 0 ||
        s->head_dim * s->n_heads > MAX_LATENT_WIDTH || key_dim * s->n_heads > MAX_WIDTH ||
        s->value_dim * s->n_heads > MAX_WIDTH)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu heads, of %zu numbers, of which %zu are rotated, with %zu key "
                         "heads: latent keys have one head, and an even part of each is rotated",
                         gguf_path(g), s->n_heads, key_dim, s->n_rotated, s->n_kv_heads);
    s->plain_dim = key_dim - s->n_rotated;
    return rc;
}

static enum status read_heads(struct transformer_shape *s, const struct gguf *g, struct error *err)
{
    const struct arch *a = s->arch;
    size_t value_dim;
    enum status rc = read_head_count(s, g, err);

    if (rc != STATUS_OK)
        return rc;
    if ((a->keys & KEYS_LATENT) != 0)
        return read_latent_heads(s, g, err);
    s->head_dim = LEAST_HEAD_DIM;
    if (a->never_attends)
        return STATUS_OK;
    s->head_dim = s->width / s->n_heads;
    rc = numbers_read_optional_size(&s->head_dim, g, a, "attention.key_length", MAX_WIDTH, err);
    if (rc != STATUS_OK)
        return rc;
    if (s->head_dim == 0 || s->head_dim % 2 != 0 || s->head_dim * s->n_heads > MAX_WIDTH)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: heads of width %zu (model width %zu, %zu heads): the width must be "
                         "even and the heads together at most %d wide",
                         gguf_path(g), s->head_dim, s->width, s->n_heads, MAX_WIDTH);
    value_dim = s->head_dim;
    if ((rc = numbers_read_optional_size(&value_dim, g, a, "attention.value_length", MAX_WIDTH,
                                         err)) != STATUS_OK ||
        (rc = read_rotated(s, g, err)) != STATUS_OK)
        return rc;
    if (value_dim != s->head_dim || s->n_rotated > s->head_dim || s->n_rotated % 2 != 0 ||
        (a->rotates_whole_heads && s->n_rotated != s->head_dim))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: heads of %zu with values of %zu and %zu rotated: not supported for "
                         "the %s architecture",
                         gguf_path(g), s->head_dim, value_dim, s->n_rotated, a->name);
    return STATUS_OK;
}

static enum status read_constants(struct transformer_shape *s, const struct gguf *g,
                                  struct error *err)
{
    static const char *const names[] = {"attention.layer_norm_rms_epsilon",
                                        "attention.layer_norm_epsilon"};
    const size_t own = s->arch->norm_kind == NORM_KIND_LAYER;
    double eps = -1.0, base = 10000.0;
    char key[ARCH_KEY_MAX];
    enum status rc = numbers_read(&eps, g, arch_key(key, s->arch, names[own]), err);

    if (rc == STATUS_NOT_FOUND && s->arch->names_other_epsilon)
        rc = numbers_read(&eps, g, arch_key(key, s->arch, names[1 - own]), err);
    if (rc != STATUS_OK)
        return rc;
    if (!(eps >= 0.0 && eps < 1.0))
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: key '%s' is %.17g, it must be at least 0 and less than 1",
                         gguf_path(g), key, eps);
    rc = numbers_read_optional(&base, g, s->arch, "rope.freq_base", 1.0, 1e12, err);
    s->norm_eps = (float)eps;
    s->rope_base = (float)base;
    return rc;
}

/* An absent key, or one that the architecture does not have, leaves *out as it is. */
static enum status read_factor_if(float *out, unsigned has, const struct gguf *g,
                                  const struct arch *a, const char *name, struct error *err)
{
    double value = (double)*out;
    enum status rc = STATUS_OK;

    if (has != 0)
        rc = numbers_read_optional(&value, g, a, name, 0.0, 1e9, err);
    *out = (float)value;
    return rc;
}

/* The factor of the logits: logit_scale, or its inverse. */
static enum status read_logit_factor(struct transformer_shape *s, const struct gguf *g,
                                     struct error *err)
{
    const struct arch *a = s->arch;
    unsigned has = a->keys & (KEYS_SCALES | KEYS_LOGIT_FACTOR);
    float scale = has == 0                   ? 1.0f
                  : a->scale_base_width == 0 ? 0.0f
                                             : (float)s->width / (float)a->scale_base_width;
    char key[ARCH_KEY_MAX];
    enum status rc = read_factor_if(&scale, has, g, a, "logit_scale", err);

    if (rc != STATUS_OK)
        return rc;
    if (scale <= 0.0f)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is missing or 0", gguf_path(g),
                         arch_key(key, a, "logit_scale"));
    s->logit_factor = a->keys & KEYS_LOGIT_FACTOR ? scale : 1.0f / scale;
    return STATUS_OK;
}

/* Where old files lack these keys, what they should say is not known. */
static enum status check_scales(const struct transformer_shape *s, const struct gguf *g,
                                struct error *err)
{
    static const char *const names[] = {"embedding_scale", "residual_scale"};
    char key[ARCH_KEY_MAX];
    double value;

    for (size_t i = 0; s->arch->requires_scales && i < 2; i++)
        if (numbers_read(&value, g, arch_key(key, s->arch, names[i]), err) != STATUS_OK)
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: key '%s' is missing: convert the model again, by a newer "
                             "converter",
                             gguf_path(g), key);
    return STATUS_OK;
}

static enum status read_factors(struct transformer_shape *s, const struct gguf *g,
                                struct error *err)
{
    const struct arch *a = s->arch;
    enum status rc = check_scales(s, g, err);

    if (rc != STATUS_OK)
        return rc;
    s->embedding_scale = a->embeds_by_width ? sqrtf((float)s->width) : 1.0f;
    s->residual_scale = 1.0f;
    if (a->scale_base_width > 0) {
        s->embedding_scale = a->scale_embedding;
        s->residual_scale = a->scale_depth / sqrtf((float)s->n_layers);
    }
    s->attention_scale = a->scores_unscaled ? 1.0f : 0.0f;
    s->attention_cap = a->attention_cap;
    s->logit_cap = a->logit_cap;
    if (a->layers_scaled_by_width == s->n_layers)
        s->attention_scale = 1.0f / sqrtf((float)s->width / (float)s->n_heads);
    if ((rc = read_factor_if(&s->embedding_scale, a->keys & KEYS_SCALES, g, a, "embedding_scale",
                             err)) != STATUS_OK ||
        (rc = read_factor_if(&s->residual_scale, a->keys & KEYS_SCALES, g, a, "residual_scale",
                             err)) != STATUS_OK ||
        (rc = read_factor_if(&s->attention_scale, a->keys & KEYS_ATTENTION_SCALE, g, a,
                             "attention.scale", err)) != STATUS_OK ||
        (rc = read_factor_if(&s->attention_cap, a->keys & KEYS_ATTENTION_CAP, g, a,
                             "attn_logit_softcapping", err)) != STATUS_OK ||
        (rc = read_factor_if(&s->logit_cap, a->keys & KEYS_LOGIT_CAP, g, a,
                             "final_logit_softcapping", err)) != STATUS_OK ||
        (rc = read_logit_factor(s, g, err)) != STATUS_OK)
        return rc;
    if (fabs((double)s->attention_scale * sqrt((double)s->head_dim) - 1.0) <= 1e-6)
        s->attention_scale = 0.0f; /* the usual one, and its bits */
    return STATUS_OK;
}

static enum status read_query_rise(struct transformer_shape *s, const struct gguf *g,
                                   struct error *err)
{
    const struct arch *a = s->arch;

    s->query_rise = a->unrotated_rise;
    s->query_ahead = a->unrotated_every > 0;
    s->query_every = a->unrotated_every > 0 ? a->unrotated_every : s->context;
    if ((a->keys & KEYS_QUERY_TEMPERATURE) == 0)
        return STATUS_OK;
    if (numbers_read_optional_size(&s->query_every, g, a,
                                   a->unrotated_every > 0 ? "attention.temperature_length"
                                                          : "rope.scaling.original_context_length",
                                   MAX_CONTEXT, err) != STATUS_OK)
        return err->status;
    return read_factor_if(&s->query_rise, KEYS_QUERY_TEMPERATURE, g, a,
                          "attention.temperature_scale", err);
}

/* Whether queries and keys are normed without a weight once they are rotated. */
static enum status read_norms_rotated(struct transformer_shape *s, const struct gguf *g,
                                      struct error *err)
{
    const struct arch *a = s->arch;
    char key[ARCH_KEY_MAX];
    enum status rc;

    s->norms_rotated = a->norms_rotated && s->n_experts != a->experts_unnormed;
    if (!a->norms_rotated)
        return STATUS_OK;
    rc = gguf_get_bool(g, arch_key(key, a, "attention.norms_heads"), &s->norms_rotated, err);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* Of so many layers all but the last have the window; 0: all have it. */
static void shape_set_pattern(struct transformer_shape *s, size_t pattern)
{
    for (size_t i = 0; i < s->n_layers; i++)
        if (pattern == 0 || i % pattern < pattern - 1)
            s->has_window[i / 64] |= (uint64_t)1 << i % 64;
}

/* A bool for each layer. */
static enum status read_pattern_array(struct transformer_shape *s, const struct gguf *g,
                                      const char *key, struct error *err)
{
    for (size_t i = 0; i < s->n_layers; i++) {
        bool has = false;
        enum status rc = gguf_array_bool(g, key, i, &has, err);

        if (rc != STATUS_OK)
            return rc;
        s->has_window[i / 64] |= (uint64_t)has << i % 64;
    }
    return STATUS_OK;
}

static enum status read_window(struct transformer_shape *s, const struct gguf *g, struct error *err)
{
    const struct arch *a = s->arch;
    char key[ARCH_KEY_MAX];
    size_t len;
    uint64_t pattern,
        window = a->window_layers == 0 || a->window_layers == s->n_layers ? a->window : 0;
    enum status rc;

    (void)arch_key(key, a, "attention.sliding_window_pattern");
    if ((a->keys & KEYS_WINDOW) == 0 &&
        ((a->keys & KEYS_WINDOW_IGNORED) == 0 || gguf_get_u64(g, key, &pattern, err) != STATUS_OK))
        return STATUS_OK;
    rc = gguf_get_u64(g, arch_key(key, a, "attention.sliding_window"), &window, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    s->window = window < s->context ? (size_t)window : 0;
    s->has_windows = window > 0;
    (void)arch_key(key, a, "attention.sliding_window_pattern");
    if (gguf_array_len(g, key, &len, err) == STATUS_OK)
        return read_pattern_array(s, g, key, err);
    rc = gguf_get_u64(g, key, &pattern, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    shape_set_pattern(s, rc == STATUS_OK ? (size_t)pattern : a->window_pattern);
    return STATUS_OK;
}

static enum status read_vocab_size(struct transformer_shape *s, const struct gguf *g,
                                   struct error *err)
{
    const struct tensor *embed;
    enum status rc = gguf_tensor(g, "token_embd.weight", &embed, err);

    if (rc != STATUS_OK)
        return rc;
    s->n_vocab = embed->n_rows;
    if (s->n_vocab > MAX_VOCAB)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: tensor 'token_embd.weight' has %zu rows, it may have at most %d",
                         gguf_path(g), s->n_vocab, MAX_VOCAB);
    rc = numbers_read_optional_size(&s->n_vocab, g, s->arch, "vocab_size", MAX_VOCAB, err);
    return rc == STATUS_OK ? transformer_embed_tensor(&embed, g, s, err) : rc;
}

/* The layers, without the blocks at the end that predict further tokens. */
static enum status read_layers(struct transformer_shape *s, const struct gguf *g, struct error *err)
{
    size_t n_next = 0;
    enum status rc =
        numbers_read_size(&s->n_blocks, g, s->arch, "block_count", SHAPE_MAX_LAYERS, err);

    if (rc == STATUS_OK && (s->arch->keys & KEYS_NEXT_TOKENS) != 0)
        rc = numbers_read_optional_count(&n_next, g, s->arch, "nextn_predict_layers",
                                         s->n_blocks - 1, err);
    s->n_layers = s->n_blocks - n_next;
    return rc;
}

/* Not of a model whose layers all have experts. */
static enum status read_ffn_width(struct transformer_shape *s, const struct gguf *g,
                                  struct error *err)
{
    enum status rc;

    if (s->arch->never_attends)
        return STATUS_OK;
    rc = numbers_read_greatest(&s->ffn_width, g, s->arch, "feed_forward_length", s->n_layers,
                               s->arch->has_halves ? 0 : 1, MAX_FFN_WIDTH, err);
    if (rc == STATUS_NOT_FOUND && (s->arch->keys & KEYS_EXPERTS) != 0 &&
        numbers_read_size(&s->ffn_width, g, s->arch, "expert_feed_forward_length", MAX_FFN_WIDTH,
                          err) == STATUS_OK)
        return STATUS_OK;
    return rc;
}

/* The heads of layers with a window. */
static enum status read_window_heads(struct transformer_shape *s, const struct gguf *g,
                                     size_t *ret_head_dim, struct error *err)
{
    const struct arch *a = s->arch;
    size_t value_dim;
    enum status rc;

    *ret_head_dim = s->head_dim;
    s->window_rotated = s->n_rotated;
    if ((a->keys & KEYS_WINDOW_HEADS) == 0)
        return STATUS_OK;
    rc = numbers_read_optional_size(ret_head_dim, g, a, "attention.key_length_swa", MAX_WIDTH, err);
    s->window_rotated = value_dim = *ret_head_dim;
    if (rc != STATUS_OK ||
        (rc = numbers_read_optional_size(&value_dim, g, a, "attention.value_length_swa", MAX_WIDTH,
                                         err)) != STATUS_OK ||
        (rc = numbers_read_optional_size(&s->window_rotated, g, a, "rope.dimension_count_swa",
                                         MAX_WIDTH, err)) != STATUS_OK)
        return rc;
    if (*ret_head_dim > s->head_dim || *ret_head_dim % 2 != 0 || value_dim != *ret_head_dim ||
        s->window_rotated > *ret_head_dim || s->window_rotated % 2 != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: heads of %zu with values of %zu and %zu rotated in layers with a "
                         "window: not supported for the %s architecture",
                         gguf_path(g), *ret_head_dim, value_dim, s->window_rotated, a->name);
    return STATUS_OK;
}

/* The width of a layer's network: its tensor's, where layers have one half each, since files state
 * there that of experts. 0: none. */
static size_t ffn_width_of(const struct transformer_shape *s, const struct gguf *g, size_t layer)
{
    size_t width = numbers_of_layer(g, s->arch, "feed_forward_length", layer, s->ffn_width);
    const struct tensor *t;
    struct error err;
    char name[ARCH_KEY_MAX];

    (void)snprintf(name, sizeof(name), "blk.%zu.ffn_up.weight", layer);
    if (s->arch->has_halves && width > 0 && gguf_tensor(g, name, &t, &err) == STATUS_OK)
        width = t->n_rows <= MAX_FFN_WIDTH ? t->n_rows : width;
    return width;
}

/* The streams beside the residual one, and where networks' gates are cut: minus infinity is
 * nowhere. */
static enum status read_streams(struct transformer_shape *s, const struct gguf *g,
                                struct error *err)
{
    const struct tensor *left;
    size_t active = 0, len;
    char key[ARCH_KEY_MAX];
    enum status rc;

    if ((s->arch->keys & KEYS_STREAMS) == 0)
        return STATUS_OK;
    if ((rc = numbers_read_size(&s->n_streams, g, s->arch, "altup.num_inputs", SHAPE_MAX_STREAMS,
                                err)) != STATUS_OK ||
        (rc = numbers_read_optional_count(&active, g, s->arch, "altup.active_idx",
                                          SHAPE_MAX_STREAMS, err)) != STATUS_OK ||
        (rc = gguf_tensor(g, "blk.0.laurel_l.weight", &left, err)) != STATUS_OK)
        return rc;
    s->laurel_rank = left->n_rows;
    if (active != 0 || s->n_streams < 2 || s->embedding_width == 0 || s->laurel_rank > MAX_WIDTH)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: %zu streams, of which the layers run number %zu, with embeddings of "
                         "%zu and a product of rank %zu beside attention: not supported",
                         gguf_path(g), s->n_streams, active, s->embedding_width, s->laurel_rank);
    if (gguf_array_len(g, arch_key(key, s->arch, "activation_sparsity_scale"), &len, err) !=
        STATUS_OK)
        return err->status == STATUS_NOT_FOUND ? STATUS_OK : err->status;
    for (size_t i = 0; i < s->n_layers; i++) {
        double cut = 0;

        if ((rc = gguf_array_f64(g, key, i, &cut, err)) != STATUS_OK)
            return rc;
        if (isnan(cut) || cut > MAX_CUT || (cut < -MAX_CUT && !isinf(cut)))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: key '%s' has the number %g for layer %zu, it must be from -%d "
                             "to %d, or minus infinity",
                             gguf_path(g), key, cut, i, MAX_CUT, MAX_CUT);
        s->layers[i].cuts = !isinf(cut);
        s->layers[i].cut = (float)cut;
    }
    return STATUS_OK;
}

/* What each layer has; all else is read. */
static enum status read_each_layer(struct transformer_shape *s, const struct gguf *g,
                                   struct error *err)
{
    const struct arch *a = s->arch;
    size_t window_head_dim, n_sharing = 0;
    enum status rc = read_window_heads(s, g, &window_head_dim, err);

    if (rc != STATUS_OK)
        return rc;
    if ((a->keys & KEYS_STATE) != 0 && (rc = state_read_shape(s, g, err)) != STATUS_OK)
        return rc;
    s->are_alike = true;
    for (size_t i = 0; i < s->n_layers; i++) {
        struct shape_layer *l = &s->layers[i];

        l->head_dim = (uint16_t)(transformer_is_windowed(s, i) ? window_head_dim : s->head_dim);
        l->n_kv_heads =
            a->never_attends ? 0
            : s->latent_rank > 0
                ? 1
                : (uint16_t)numbers_of_layer(g, a, "attention.head_count_kv", i, s->n_kv_heads);
        if (transformer_recurs(s, i)) /* of a delta net; of others it is not known yet */
            l->n_kv_heads = 0;
        l->ffn_width = (uint32_t)ffn_width_of(s, g, i);
        s->ffn_width = l->ffn_width > s->ffn_width ? l->ffn_width : s->ffn_width;
        if (a->recurs_beside ? l->n_kv_heads > 0
                             : a->recurrence == RECURRENCE_SUM && l->n_kv_heads == 0 &&
                                   (!a->has_halves || l->ffn_width == 0))
            s->has_state[i / 64] |= (uint64_t)1 << i % 64;
        if (l->n_kv_heads > 0 && s->n_heads % l->n_kv_heads != 0)
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: %zu heads of layer %zu cannot share %u heads of keys",
                             gguf_path(g), s->n_heads, i, l->n_kv_heads);
        s->are_alike = s->are_alike && l->head_dim == s->layers[0].head_dim &&
                       l->n_kv_heads == s->layers[0].n_kv_heads &&
                       ((a->keys & KEYS_CONVOLUTION) == 0 || l->n_kv_heads > 0);
    }
    if ((a->keys & KEYS_SHARED_KV) != 0 &&
        (rc = numbers_read_optional_count(&n_sharing, g, a, "attention.shared_kv_layers",
                                          s->n_layers - 1, err)) != STATUS_OK)
        return rc;
    s->n_kv_layers = s->n_layers - n_sharing;
    if ((a->keys & KEYS_CONVOLUTION) != 0 &&
        (rc = numbers_read_size(&s->n_taps, g, a, "shortconv.l_cache", MAX_TAPS, err)) != STATUS_OK)
        return rc;
    for (size_t i = s->n_kv_layers; i < s->n_layers; i++)
        if (transformer_is_windowed(s, i) != transformer_is_windowed(s, transformer_kv_layer(s, i)))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: no layer has keys and values for layer %zu", gguf_path(g), i);
    if ((a->keys & KEYS_LAYER_EMBEDDINGS) == 0)
        return STATUS_OK;
    return numbers_read_optional_count(&s->embedding_width, g, a,
                                       "embedding_length_per_layer_input", MAX_WIDTH, err);
}

/* Whether the network reads what attention reads. */
static void read_parallel(struct transformer_shape *s, const struct gguf *g)
{
    const struct tensor *ignored;
    struct error err;

    s->is_parallel = s->arch->is_parallel ||
                     (s->arch->may_be_parallel &&
                      gguf_tensor(g, "blk.0.ffn_norm.weight", &ignored, &err) != STATUS_OK);
}

static enum status read_numbers(struct transformer_shape *s, const struct gguf *g,
                                struct error *err)
{
    const struct arch *a = s->arch;
    enum status rc;

    if ((rc = read_layers(s, g, err)) != STATUS_OK ||
        (rc = numbers_read_size(&s->width, g, a, "embedding_length", MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = read_ffn_width(s, g, err)) != STATUS_OK ||
        (rc = numbers_read_size(&s->context, g, a, "context_length", MAX_CONTEXT, err)) !=
            STATUS_OK ||
        (rc = read_heads(s, g, err)) != STATUS_OK ||
        (rc = read_constants(s, g, err)) != STATUS_OK ||
        (rc = read_factors(s, g, err)) != STATUS_OK ||
        (rc = read_query_rise(s, g, err)) != STATUS_OK ||
        (rc = read_window(s, g, err)) != STATUS_OK ||
        (rc = experts_read_shape(s, g, err)) != STATUS_OK)
        return rc;
    if ((rc = read_each_layer(s, g, err)) != STATUS_OK)
        return rc;
    read_parallel(s, g);
    if ((rc = read_norms_rotated(s, g, err)) != STATUS_OK ||
        (rc = read_streams(s, g, err)) != STATUS_OK)
        return rc;
    return read_vocab_size(s, g, err);
}

static enum status shape_check_tensors(const struct transformer_shape *s, const struct gguf *g,
                                       struct error *err)
{
    const struct tensor *t;
    struct tensor part_of;
    struct model_ropes ropes;
    enum status rc;

    for (size_t layer = 0; layer < s->n_layers; layer++)
        for (int part = 0; part < N_PARTS; part++)
            if ((rc = transformer_layer_tensor(&part_of, g, s, layer, (enum transformer_part)part,
                                               err)) != STATUS_OK)
                return rc;
    for (int part = 0; s->embedding_width > 0 && part < N_LAYER_EMBEDDINGS; part++)
        if ((rc = transformer_layer_embedding_tensor(&t, g, s, (enum layer_embedding_part)part,
                                                     err)) != STATUS_OK)
            return rc;
    for (size_t i = 2; i < 2 * s->n_streams; i++)
        if ((rc = transformer_stream_tensor(&part_of, g, s, i / 2, i % 2 != 0, err)) != STATUS_OK)
            return rc;
    if ((rc = transformer_norm_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = transformer_head_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = transformer_head_bias_tensor(&t, g, s, err)) != STATUS_OK)
        return rc;
    rc = model_ropes_init(&ropes, g, s, s->context, err);
    model_ropes_deinit(&ropes);
    return rc;
}

enum status transformer_read_shape(struct transformer_shape *out, const struct gguf *g,
                                   struct error *err)
{
    struct transformer_shape s = {0};
    enum status rc;

    if ((rc = arch_of_file(&s.arch, g, err)) != STATUS_OK ||
        (rc = read_numbers(&s, g, err)) != STATUS_OK ||
        (rc = transformer_check_keys(&s, g, err)) != STATUS_OK ||
        (rc = transformer_refuse_unknown_tensors(&s, g, err)) != STATUS_OK ||
        (rc = shape_check_tensors(&s, g, err)) != STATUS_OK)
        return rc;
    *out = s;
    return STATUS_OK;
}
