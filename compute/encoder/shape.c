/* Reads an encoder's description and checks it before anything is computed: numbers are within
 * bounds, tensors have the shapes that the numbers require, and no unknown key or tensor would
 * change the result. */
#include "compute/encoder/shape.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "compute/encoder/head.h"
#include "compute/gguf/gguf.h"
#include "compute/model/numbers.h"
#include "compute/model/tensors.h"

enum {
    MAX_WIDTH = 1 << 16,
    MAX_HEADS = 1024,
    MAX_FFN_WIDTH = 1 << 18,
    MAX_CONTEXT = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_TYPES = 16,
    NAME_MAX_BYTES = 64,
    SHOWN_MAX = 60,
};

bool encoder_is_windowed(const struct encoder_shape *s, size_t layer)
{
    return s->half_window > 0 && (s->has_window[layer / 64] >> layer % 64 & 1) != 0;
}

/* When a layer or the model has a part. */
enum need {
    MUST,
    MAY,
    BEFORE,      /* with norms before halves */
    BEFORE_BIAS, /* and perhaps a bias */
    AROUND,
    SUM,
    SUM_BIAS,
    HEADS_NORMED,
    GATED,
    TYPES,
    POSITIONS,
    NORMED_EMBEDDING,
    NORMED_EMBEDDING_BIAS,
    NORMED_OUTPUT,
    NORMED_OUTPUT_BIAS,
};

enum extent { ONE, WIDTH, QUERIES, KEYS, HEAD, HIDDEN, UP_ROWS, VOCAB, N_TYPES, POSITION_ROWS };

static const struct encoder_part_rule {
    const char *name;
    enum extent rows, cols;
    enum need need;
} layer_rules[ENCODER_N_PARTS] = {
    [ENCODER_ATTN_NORM] = {"attn_norm.weight", ONE, WIDTH, BEFORE},
    [ENCODER_ATTN_NORM_BIAS] = {"attn_norm.bias", ONE, WIDTH, BEFORE_BIAS},
    [ENCODER_Q] = {"attn_q.weight", QUERIES, WIDTH, MUST},
    [ENCODER_Q_BIAS] = {"attn_q.bias", ONE, QUERIES, MAY},
    [ENCODER_K] = {"attn_k.weight", KEYS, WIDTH, MUST},
    [ENCODER_K_BIAS] = {"attn_k.bias", ONE, KEYS, MAY},
    [ENCODER_V] = {"attn_v.weight", KEYS, WIDTH, MUST},
    [ENCODER_V_BIAS] = {"attn_v.bias", ONE, KEYS, MAY},
    [ENCODER_Q_NORM] = {"attn_q_norm.weight", ONE, HEAD, HEADS_NORMED},
    [ENCODER_K_NORM] = {"attn_k_norm.weight", ONE, HEAD, HEADS_NORMED},
    [ENCODER_ATTN_OUT] = {"attn_output.weight", WIDTH, QUERIES, MUST},
    [ENCODER_ATTN_OUT_BIAS] = {"attn_output.bias", ONE, WIDTH, MAY},
    [ENCODER_ATTN_POST_NORM] = {"post_attention_norm.weight", ONE, WIDTH, AROUND},
    [ENCODER_ATTN_SUM_NORM] = {"attn_output_norm.weight", ONE, WIDTH, SUM},
    [ENCODER_ATTN_SUM_NORM_BIAS] = {"attn_output_norm.bias", ONE, WIDTH, SUM_BIAS},
    [ENCODER_FFN_NORM] = {"ffn_norm.weight", ONE, WIDTH, BEFORE},
    [ENCODER_FFN_NORM_BIAS] = {"ffn_norm.bias", ONE, WIDTH, BEFORE_BIAS},
    [ENCODER_GATE] = {"ffn_gate.weight", HIDDEN, WIDTH, GATED},
    [ENCODER_UP] = {"ffn_up.weight", UP_ROWS, WIDTH, MUST},
    [ENCODER_UP_BIAS] = {"ffn_up.bias", ONE, UP_ROWS, MAY},
    [ENCODER_DOWN] = {"ffn_down.weight", WIDTH, HIDDEN, MUST},
    [ENCODER_DOWN_BIAS] = {"ffn_down.bias", ONE, WIDTH, MAY},
    [ENCODER_FFN_POST_NORM] = {"post_ffw_norm.weight", ONE, WIDTH, AROUND},
    [ENCODER_FFN_SUM_NORM] = {"layer_output_norm.weight", ONE, WIDTH, SUM},
    [ENCODER_FFN_SUM_NORM_BIAS] = {"layer_output_norm.bias", ONE, WIDTH, SUM_BIAS},
};

static const struct encoder_part_rule model_rules[ENCODER_N_MODEL_PARTS] = {
    [ENCODER_EMBEDDING] = {"token_embd.weight", VOCAB, WIDTH, MUST},
    [ENCODER_TYPES] = {"token_types.weight", N_TYPES, WIDTH, TYPES},
    [ENCODER_POSITIONS] = {"position_embd.weight", POSITION_ROWS, WIDTH, POSITIONS},
    [ENCODER_EMBEDDING_NORM] = {"token_embd_norm.weight", ONE, WIDTH, NORMED_EMBEDDING},
    [ENCODER_EMBEDDING_NORM_BIAS] = {"token_embd_norm.bias", ONE, WIDTH, NORMED_EMBEDDING_BIAS},
    [ENCODER_OUTPUT_NORM] = {"output_norm.weight", ONE, WIDTH, NORMED_OUTPUT},
    [ENCODER_OUTPUT_NORM_BIAS] = {"output_norm.bias", ONE, WIDTH, NORMED_OUTPUT_BIAS},
};

static size_t encoder_extent_of(const struct encoder_shape *s, enum extent e)
{
    switch (e) {
    case ONE:
        return 1;
    case WIDTH:
        return s->width;
    case QUERIES:
        return s->n_heads * s->head_dim;
    case KEYS:
        return s->n_kv_heads * s->head_dim;
    case HEAD:
        return s->head_dim;
    case HIDDEN:
        return s->ffn_width;
    case UP_ROWS:
        return s->arch->gate == ENCODER_GATE_IN_UP ? 2 * s->ffn_width : s->ffn_width;
    case VOCAB:
        return s->n_vocab;
    case N_TYPES:
        return s->n_types;
    default:
        return s->n_positions;
    }
}

static bool encoder_has_part(const struct encoder_shape *s, enum need need)
{
    const struct encoder_arch *a = s->arch;

    switch (need) {
    case BEFORE:
        return a->norms != ENCODER_NORMS_SUM;
    case BEFORE_BIAS:
        return a->norms == ENCODER_NORMS_BEFORE;
    case AROUND:
        return a->norms == ENCODER_NORMS_AROUND;
    case SUM:
    case SUM_BIAS:
        return a->norms == ENCODER_NORMS_SUM;
    case HEADS_NORMED:
        return a->norms_heads;
    case GATED:
        return a->gate == ENCODER_GATED;
    case TYPES:
        return s->n_types > 0;
    case POSITIONS:
        return a->has_positions;
    case NORMED_EMBEDDING:
    case NORMED_EMBEDDING_BIAS:
        return a->norms_embedding;
    case NORMED_OUTPUT:
        return a->norms_output;
    case NORMED_OUTPUT_BIAS:
        return a->norms_output && !a->norms_by_rms;
    default:
        return true;
    }
}

static bool encoder_part_is_optional(enum need need)
{
    return need == MAY || need == BEFORE_BIAS || need == SUM_BIAS ||
           need == NORMED_EMBEDDING_BIAS || need == NORMED_OUTPUT_BIAS;
}

static bool encoder_layer_has(const struct encoder_shape *s, size_t layer, enum encoder_part part)
{
    if (s->arch->embedding_is_normed && layer == 0 &&
        (part == ENCODER_ATTN_NORM || part == ENCODER_ATTN_NORM_BIAS))
        return false;
    return encoder_has_part(s, layer_rules[part].need);
}

static enum status encoder_find_part(struct tensor *out, const struct gguf *g,
                                     const struct encoder_shape *s, const char *name,
                                     const struct encoder_part_rule *rule, struct error *err)
{
    const struct tensor *t = NULL;
    enum status rc = transformer_tensor_of_shape(&t, g, name, encoder_extent_of(s, rule->rows),
                                                 encoder_extent_of(s, rule->cols), err);

    if (rc == STATUS_OK)
        *out = *t;
    return rc;
}

/* Queries, keys or values as rows of attn_qkv, or numbers of its bias. */
static enum status encoder_find_fused(struct tensor *out, const struct gguf *g,
                                      const struct encoder_shape *s, size_t layer,
                                      enum encoder_part part, struct error *err)
{
    const size_t q = encoder_extent_of(s, QUERIES), k = encoder_extent_of(s, KEYS);
    const bool is_bias = (part - ENCODER_Q) % 2 != 0;
    const size_t which = (size_t)(part - ENCODER_Q) / 2,
                 first = which == 0 ? 0 : q + (which - 1) * k;
    const struct tensor *all = NULL;
    char name[NAME_MAX_BYTES];
    enum status rc;

    (void)snprintf(name, sizeof(name), "blk.%zu.attn_qkv.%s", layer, is_bias ? "bias" : "weight");
    rc = transformer_tensor_of_shape(&all, g, name, is_bias ? 1 : q + 2 * k,
                                     is_bias ? q + 2 * k : s->width, err);
    if (rc != STATUS_OK)
        return rc;
    if (is_bias && dtype_block_values(all->type) != 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: tensor '%s' is %s, it must have floating-point numbers", gguf_path(g),
                         all->name, dtype_name(all->type));
    *out = is_bias ? tensor_columns(all, first, which == 0 ? q : k)
                   : tensor_rows(all, first, which == 0 ? q : k);
    return STATUS_OK;
}

enum status encoder_layer_tensor(struct tensor *out, const struct gguf *g,
                                 const struct encoder_shape *s, size_t layer,
                                 enum encoder_part part, struct error *err)
{
    const struct encoder_part_rule *rule = &layer_rules[part];
    char name[NAME_MAX_BYTES];
    struct error of_fused;
    enum status rc;

    *out = (struct tensor){0};
    if (!encoder_layer_has(s, layer, part))
        return STATUS_OK;
    (void)snprintf(name, sizeof(name), "blk.%zu.%s", layer, rule->name);
    rc = encoder_find_part(out, g, s, name, rule, err);
    if (rc == STATUS_NOT_FOUND && part >= ENCODER_Q && part <= ENCODER_V_BIAS) {
        rc = encoder_find_fused(out, g, s, layer, part, &of_fused);
        if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
            *err = of_fused;
    }
    return rc == STATUS_NOT_FOUND && encoder_part_is_optional(rule->need) ? STATUS_OK : rc;
}

enum status encoder_model_tensor(struct tensor *out, const struct gguf *g,
                                 const struct encoder_shape *s, enum encoder_model_part part,
                                 struct error *err)
{
    const struct encoder_part_rule *rule = &model_rules[part];
    enum status rc;

    *out = (struct tensor){0};
    if (!encoder_has_part(s, rule->need))
        return STATUS_OK;
    rc = encoder_find_part(out, g, s, rule->name, rule, err);
    return rc == STATUS_NOT_FOUND && encoder_part_is_optional(rule->need) ? STATUS_OK : rc;
}

/* Whether the model has a use for a tensor of that name. */
static bool encoder_knows_tensor(const struct encoder_shape *s, const char *name)
{
    uint64_t layer;
    size_t len;

    if (head_has_tensor(name))
        return true;
    for (int part = 0; part < ENCODER_N_MODEL_PARTS; part++)
        if (strcmp(name, model_rules[part].name) == 0)
            return encoder_has_part(s, model_rules[part].need);
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    len = number_take(&layer, name + 4, SIZE_MAX, UINT64_MAX);
    if (len == 0 || layer >= s->n_layers || name[4 + len] != '.')
        return false;
    name += 4 + len + 1;
    if (strcmp(name, "attn_qkv.weight") == 0 || strcmp(name, "attn_qkv.bias") == 0)
        return true;
    for (int part = 0; part < ENCODER_N_PARTS; part++)
        if (strcmp(name, layer_rules[part].name) == 0)
            return encoder_layer_has(s, (size_t)layer, (enum encoder_part)part);
    return false;
}

static enum status encoder_check_tensors(const struct encoder_shape *s, const struct gguf *g,
                                         struct error *err)
{
    struct tensor t;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        if (!encoder_knows_tensor(s, name))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: tensor '%.60s' is not supported for the %s architecture",
                             gguf_path(g), name, s->arch->is.name);
    }
    for (int part = 0; part < ENCODER_N_MODEL_PARTS; part++)
        if (encoder_model_tensor(&t, g, s, (enum encoder_model_part)part, err) != STATUS_OK)
            return err->status;
    for (size_t layer = 0; layer < s->n_layers; layer++)
        for (int part = 0; part < ENCODER_N_PARTS; part++)
            if (encoder_layer_tensor(&t, g, s, layer, (enum encoder_part)part, err) != STATUS_OK)
                return err->status;
    return STATUS_OK;
}

/* Keys under the architecture's name that are read, or change nothing. */
static const char *const known_keys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "embedding_length_out", /* the head's tensors say so */
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.causal",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "pooling_type",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "dense_2_feat_in", /* of the head's tensors, */
    "dense_2_feat_out",
    "dense_3_feat_in",
    "dense_3_feat_out",
    "classifier.output_labels", /* and what its scores are called */
    "hidden_activation",
};

static bool is_known_key(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++)
        if (strlen(known_keys[i]) == len && memcmp(known_keys[i], name, len) == 0)
            return true;
    return false;
}

static enum status encoder_check_keys(const struct encoder_shape *s, const struct gguf *g,
                                      struct error *err)
{
    const char *name = s->arch->is.name;
    const size_t begin = strlen(name);
    char key[ARCH_KEY_MAX];
    bool is_causal = false;
    enum status rc;

    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        size_t len;
        const char *is = gguf_key_at(g, i, &len);

        if (len > begin && memcmp(is, name, begin) == 0 && is[begin] == '.' &&
            !is_known_key(is + begin + 1, len - begin - 1))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: key '%.*s' is not supported for the %s architecture",
                             gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), is, name);
    }
    rc = gguf_get_bool(g, arch_key(key, &s->arch->is, "attention.causal"), &is_causal, err);
    if (rc == STATUS_OK && is_causal)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: key '%s' is true: an encoder's tokens see the whole text",
                         gguf_path(g), key);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* The activation of a gated network, where the file names it. */
static enum status check_activation(const struct encoder_shape *s, const struct gguf *g,
                                    struct error *err)
{
    char key[ARCH_KEY_MAX];
    const char *text;
    size_t len;
    enum status rc =
        gguf_get_text(g, arch_key(key, &s->arch->is, "hidden_activation"), &text, &len, err);

    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (len == 4 && memcmp(text, "gelu", 4) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is '%.*s'; only 'gelu' is supported",
                     gguf_path(g), key, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
}

static enum status encoder_read_rope(struct encoder_shape *s, const struct gguf *g,
                                     struct error *err)
{
    const struct arch *a = &s->arch->is;
    double base = (double)s->arch->rope_base, window_base = (double)s->arch->window_rope_base;
    char key[ARCH_KEY_MAX];
    const char *type = "none";
    size_t len = 4, n_rotated = s->head_dim;
    enum status rc;

    s->rope_factor = 1.0;
    if (!s->arch->rotates)
        return STATUS_OK;
    if ((rc = numbers_read_optional(&base, g, a, "rope.freq_base", 1.0, 1e12, err)) != STATUS_OK ||
        (rc = numbers_read_optional(&window_base, g, a, "rope.freq_base_swa", 1.0, 1e12, err)) !=
            STATUS_OK ||
        (rc = numbers_read_optional(&s->rope_factor, g, a, "rope.scaling.factor", 1e-6, 1e6,
                                    err)) != STATUS_OK ||
        (rc = numbers_read_optional_size(&n_rotated, g, a, "rope.dimension_count", MAX_WIDTH,
                                         err)) != STATUS_OK)
        return rc;
    rc = gguf_get_text(g, arch_key(key, a, "rope.scaling.type"), &type, &len, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if (len == 4 && memcmp(type, "none", 4) == 0)
        s->rope_factor = 1.0;
    else if (len != 6 || memcmp(type, "linear", 6) != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: key '%s' is '%.*s'; only none and linear are supported", gguf_path(g),
                         key, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), type);
    if (n_rotated != s->head_dim)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: %zu numbers of a head are rotated, of %zu; only all are supported",
                         gguf_path(g), n_rotated, s->head_dim);
    s->rope_base = (float)base;
    s->window_rope_base = (float)window_base;
    return STATUS_OK;
}

static enum status encoder_read_pattern(struct encoder_shape *s, const struct gguf *g,
                                        struct error *err)
{
    uint64_t pattern = s->arch->window_pattern;
    char key[ARCH_KEY_MAX];
    size_t len;
    enum status rc;

    (void)arch_key(key, &s->arch->is, "attention.sliding_window_pattern");
    if (gguf_array_len(g, key, &len, err) == STATUS_OK) {
        for (size_t i = 0; i < s->n_layers; i++) {
            bool has = false;

            rc = gguf_array_bool(g, key, i, &has, err);
            if (rc != STATUS_OK)
                return rc;
            s->has_window[i / 64] |= (uint64_t)has << i % 64;
        }
        return STATUS_OK;
    }
    rc = gguf_get_u64(g, key, &pattern, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    for (size_t i = 0; i < s->n_layers; i++) {
        const bool is_full =
            pattern > 0 && i % pattern == (s->arch->full_is_first ? 0 : pattern - 1);

        s->has_window[i / 64] |= (uint64_t)!is_full << i % 64;
    }
    return STATUS_OK;
}

static enum status encoder_read_window(struct encoder_shape *s, const struct gguf *g,
                                       struct error *err)
{
    size_t window = 0;
    enum status rc = numbers_read_optional_count(&window, g, &s->arch->is,
                                                 "attention.sliding_window", MAX_CONTEXT, err);

    if (rc != STATUS_OK || window < 2)
        return rc;
    if (s->arch->window_pattern == 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: key '%s.attention.sliding_window' is %zu; only 0 is supported",
                         gguf_path(g), s->arch->is.name, window);
    s->half_window = window / 2;
    return encoder_read_pattern(s, g, err);
}

static enum status encoder_read_constants(struct encoder_shape *s, const struct gguf *g,
                                          struct error *err)
{
    const struct arch *a = &s->arch->is;
    double eps = -1.0, scale = 0.0;
    size_t pooling = ENCODER_POOLS_NONE;
    enum status rc;

    rc = numbers_read_optional(&eps, g, a,
                               s->arch->norms_by_rms ? "attention.layer_norm_rms_epsilon"
                                                     : "attention.layer_norm_epsilon",
                               0.0, 1.0, err);
    if (rc == STATUS_OK && eps < 0.0)
        rc = error_set(err, STATUS_DATA_LOSS,
                       "%s: key '%s.attention.layer_norm_%sepsilon' is missing", gguf_path(g),
                       a->name, s->arch->norms_by_rms ? "rms_" : "");
    if (rc != STATUS_OK ||
        (rc = numbers_read_optional(&scale, g, a, "attention.scale", 0.0, 1e3, err)) != STATUS_OK ||
        (rc = numbers_read_optional_count(&pooling, g, a, "pooling_type", ENCODER_POOLS_RANK,
                                          err)) != STATUS_OK)
        return rc;
    s->norm_eps = (float)eps;
    s->attention_scale = (float)scale;
    s->pooling = (enum encoder_pooling)pooling;
    return STATUS_OK;
}

static enum status encoder_read_heads(struct encoder_shape *s, const struct gguf *g,
                                      struct error *err)
{
    const struct arch *a = &s->arch->is;
    size_t value_dim;
    enum status rc = numbers_read_size(&s->n_heads, g, a, "attention.head_count", MAX_HEADS, err);

    if (rc != STATUS_OK)
        return rc;
    s->n_kv_heads = s->n_heads;
    s->head_dim = s->width / s->n_heads;
    if ((rc = numbers_read_optional_size(&s->n_kv_heads, g, a, "attention.head_count_kv", MAX_HEADS,
                                         err)) != STATUS_OK ||
        (rc = numbers_read_optional_size(&s->head_dim, g, a, "attention.key_length", MAX_WIDTH,
                                         err)) != STATUS_OK)
        return rc;
    value_dim = s->head_dim;
    rc = numbers_read_optional_size(&value_dim, g, a, "attention.value_length", MAX_WIDTH, err);
    if (rc != STATUS_OK)
        return rc;
    if (s->head_dim == 0 || s->head_dim % 2 != 0 || value_dim != s->head_dim ||
        s->head_dim * s->n_heads > MAX_WIDTH || s->n_heads % s->n_kv_heads != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu heads of keys and values for %zu of %zu numbers, with values of "
                         "%zu: these do not fit together",
                         gguf_path(g), s->n_kv_heads, s->n_heads, s->head_dim, value_dim);
    return STATUS_OK;
}

/* The vocabulary, and how many types and positions there are, as the tensors have it. */
static enum status read_tables(struct encoder_shape *s, const struct gguf *g, struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, model_rules[ENCODER_EMBEDDING].name, &t, err);

    if (rc != STATUS_OK)
        return rc;
    s->n_vocab = t->n_rows;
    if (s->arch->has_types && gguf_tensor(g, model_rules[ENCODER_TYPES].name, &t, err) == STATUS_OK)
        s->n_types = t->n_rows;
    if (s->n_vocab > MAX_VOCAB || s->n_types > MAX_TYPES)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu tokens and %zu types of texts: at most %d and %d are supported",
                         gguf_path(g), s->n_vocab, s->n_types, MAX_VOCAB, MAX_TYPES);
    if (!s->arch->has_positions)
        return STATUS_OK;
    rc = gguf_tensor(g, model_rules[ENCODER_POSITIONS].name, &t, err);
    if (rc != STATUS_OK)
        return rc;
    s->n_positions = t->n_rows;
    if (s->n_positions < s->context)
        s->context = s->n_positions; /* XLM-R's files may state two more than they have */
    return rc;
}

enum status encoder_read_shape(struct encoder_shape *out, const struct gguf *g, struct error *err)
{
    struct encoder_shape s = {0};
    const char *name;
    size_t len;
    enum status rc = gguf_get_text(g, "general.architecture", &name, &len, err);

    if (rc != STATUS_OK)
        return rc;
    s.arch = encoder_arch_find(name, len);
    if (s.arch == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: '%.*s' is not the architecture of an encoder", gguf_path(g),
                         (int)(len < SHOWN_MAX ? len : SHOWN_MAX), name);
    if ((rc = numbers_read_size(&s.n_layers, g, &s.arch->is, "block_count", ENCODER_MAX_LAYERS,
                                err)) != STATUS_OK ||
        (rc = numbers_read_size(&s.width, g, &s.arch->is, "embedding_length", MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&s.ffn_width, g, &s.arch->is, "feed_forward_length", MAX_FFN_WIDTH,
                                err)) != STATUS_OK ||
        (rc = numbers_read_size(&s.context, g, &s.arch->is, "context_length", MAX_CONTEXT, err)) !=
            STATUS_OK ||
        (rc = encoder_read_heads(&s, g, err)) != STATUS_OK ||
        (rc = encoder_read_constants(&s, g, err)) != STATUS_OK ||
        (rc = encoder_read_rope(&s, g, err)) != STATUS_OK ||
        (rc = encoder_read_window(&s, g, err)) != STATUS_OK ||
        (rc = read_tables(&s, g, err)) != STATUS_OK ||
        (rc = encoder_check_keys(&s, g, err)) != STATUS_OK ||
        (rc = check_activation(&s, g, err)) != STATUS_OK ||
        (rc = encoder_check_tensors(&s, g, err)) != STATUS_OK)
        return rc;
    *out = s;
    return STATUS_OK;
}
