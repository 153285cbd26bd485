/* Reads a file's description of its model, and checks it before anything is computed: each number
 * is within bounds, each tensor exists and has the shape that the numbers require, and no unknown
 * tensor or setting would change the result. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/model/shape.h"
#include "compute/model/tensors.h"

enum {
    MAX_LAYERS = 1024,
    MAX_HEADS = 1024,
    MAX_WIDTH = 1 << 17,
    MAX_FFN_WIDTH = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 24,
    TENSOR_NAME_MAX = 64,
};

static const char *const part_names[N_PARTS] = {
    [PART_ATTN_NORM] = "attn_norm",
    [PART_Q] = "attn_q",
    [PART_K] = "attn_k",
    [PART_V] = "attn_v",
    [PART_ATTN_OUT] = "attn_output",
    [PART_FFN_NORM] = "ffn_norm",
    [PART_GATE] = "ffn_gate",
    [PART_UP] = "ffn_up",
    [PART_DOWN] = "ffn_down",
};

static void part_shape(const struct llama_shape *s, enum llama_part part, size_t *ret_rows,
                       size_t *ret_cols)
{
    size_t rows = 1, cols = s->width;

    switch (part) {
    case PART_Q:
        rows = s->n_heads * s->head_dim;
        break;
    case PART_K:
    case PART_V:
        rows = s->n_kv_heads * s->head_dim;
        break;
    case PART_ATTN_OUT:
        rows = s->width;
        cols = s->n_heads * s->head_dim;
        break;
    case PART_GATE:
    case PART_UP:
        rows = s->ffn_width;
        break;
    case PART_DOWN:
        rows = s->width;
        cols = s->ffn_width;
        break;
    case PART_ATTN_NORM:
    case PART_FFN_NORM:
    case N_PARTS:
        break;
    }
    *ret_rows = rows;
    *ret_cols = cols;
}

static enum status tensor_of_shape(const struct tensor **out, const struct gguf *g,
                                   const char *name, size_t n_rows, size_t n_cols,
                                   struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, name, &t, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->n_rows != n_rows || t->n_cols != n_cols)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: tensor '%s' is %zu x %zu, where the metadata ask for %zu x %zu",
                         gguf_path(g), name, t->n_rows, t->n_cols, n_rows, n_cols);
    *out = t;
    return STATUS_OK;
}

enum status llama_layer_tensor(const struct tensor **out, const struct gguf *g,
                               const struct llama_shape *s, size_t layer, enum llama_part part,
                               struct error *err)
{
    char name[TENSOR_NAME_MAX];
    size_t n_rows, n_cols;

    (void)snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, part_names[part]);
    part_shape(s, part, &n_rows, &n_cols);
    return tensor_of_shape(out, g, name, n_rows, n_cols, err);
}

enum status llama_embed_tensor(const struct tensor **out, const struct gguf *g,
                               const struct llama_shape *s, struct error *err)
{
    return tensor_of_shape(out, g, "token_embd.weight", s->n_vocab, s->width, err);
}

enum status llama_norm_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err)
{
    return tensor_of_shape(out, g, "output_norm.weight", 1, s->width, err);
}

enum status llama_head_tensor(const struct tensor **out, const struct gguf *g,
                              const struct llama_shape *s, struct error *err)
{
    enum status rc = tensor_of_shape(out, g, "output.weight", s->n_vocab, s->width, err);

    return rc == STATUS_NOT_FOUND ? llama_embed_tensor(out, g, s, err) : rc;
}

static enum status check_divisors(const float *divisors, const struct tensor *t, struct error *err)
{
    for (size_t i = 0; i < t->n_cols; i++)
        if (!(divisors[i] >= 1e-6f && divisors[i] <= 1e6f))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: tensor '%s' holds %g, not within 1e-6 and 1e6",
                             gguf_path(t->file), t->name, (double)divisors[i]);
    return STATUS_OK;
}

enum status llama_read_rope_scale(float **out, const struct gguf *g, const struct llama_shape *s,
                                  struct error *err)
{
    const struct tensor *t = NULL;
    float *divisors;
    enum status rc = tensor_of_shape(&t, g, "rope_freqs.weight", 1, s->head_dim / 2, err);

    if (rc == STATUS_NOT_FOUND)
        *out = NULL;
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (t->type != DTYPE_F32)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: tensor '%s' is %s, not F32", gguf_path(g),
                         t->name, dtype_name(t->type));
    divisors = try_alloc(t->n_cols, sizeof *divisors);
    if (divisors == NULL)
        return error_no_memory(err, t->size_bytes, t->name);
    rc = tensor_read(t, 0, 1, divisors, err);
    if (rc == STATUS_OK)
        rc = check_divisors(divisors, t, err);
    if (rc == STATUS_OK)
        *out = divisors;
    else
        free(divisors);
    return rc;
}

static enum status bad_number(const struct gguf *g, const char *key, const char *what, double is,
                              struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is %.17g: %s", gguf_path(g), key, is,
                     what);
}

static enum status shape_read_size(size_t *out, const struct gguf *g, const char *key, uint64_t max,
                                   struct error *err)
{
    uint64_t value;
    enum status rc = gguf_get_u64(g, key, &value, err);

    if (rc != STATUS_OK)
        return rc;
    if (value < 1 || value > max)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is %llu, not within 1 and %llu",
                         gguf_path(g), key, (unsigned long long)value, (unsigned long long)max);
    *out = (size_t)value;
    return STATUS_OK;
}

/* An absent key leaves *out as it is. */
static enum status read_optional_size(size_t *out, const struct gguf *g, const char *key,
                                      uint64_t max, struct error *err)
{
    enum status rc = shape_read_size(out, g, key, max, err);

    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status read_architecture(const struct gguf *g, struct error *err)
{
    const char *text;
    size_t len;
    enum status rc = gguf_get_text(g, "general.architecture", &text, &len, err);

    if (rc != STATUS_OK)
        return rc;
    if (len != 5 || memcmp(text, "llama", 5) != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: the architecture is '%.*s'; only 'llama' is run here", gguf_path(g),
                         (int)(len < 40 ? len : 40), text);
    return STATUS_OK;
}

static enum status read_heads(struct llama_shape *s, const struct gguf *g, struct error *err)
{
    size_t n_rotated, value_dim;
    enum status rc;

    if ((rc = shape_read_size(&s->n_heads, g, "llama.attention.head_count", MAX_HEADS, err)) !=
        STATUS_OK)
        return rc;
    s->n_kv_heads = s->n_heads;
    if ((rc = read_optional_size(&s->n_kv_heads, g, "llama.attention.head_count_kv", MAX_HEADS,
                                 err)) != STATUS_OK)
        return rc;
    if (s->n_heads % s->n_kv_heads != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: key 'llama.attention.head_count' is %zu, no multiple of "
                         "'llama.attention.head_count_kv', %zu",
                         gguf_path(g), s->n_heads, s->n_kv_heads);
    s->head_dim = s->width / s->n_heads;
    if ((rc = read_optional_size(&s->head_dim, g, "llama.attention.key_length", MAX_WIDTH, err)) !=
        STATUS_OK)
        return rc;
    if (s->head_dim == 0 || s->head_dim % 2 != 0 || s->head_dim * s->n_heads > MAX_WIDTH)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: heads of %zu (width %zu, %zu heads): must be even and %d in all at "
                         "most",
                         gguf_path(g), s->head_dim, s->width, s->n_heads, MAX_WIDTH);
    value_dim = n_rotated = s->head_dim;
    if ((rc = read_optional_size(&value_dim, g, "llama.attention.value_length", MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = read_optional_size(&n_rotated, g, "llama.rope.dimension_count", MAX_WIDTH, err)) !=
            STATUS_OK)
        return rc;
    if (value_dim != s->head_dim || n_rotated != s->head_dim)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: heads of %zu with values of %zu and %zu rotated; only equal ones are "
                         "run here",
                         gguf_path(g), s->head_dim, value_dim, n_rotated);
    return STATUS_OK;
}

static enum status read_constants(struct llama_shape *s, const struct gguf *g, struct error *err)
{
    static const char eps_key[] = "llama.attention.layer_norm_rms_epsilon";
    static const char base_key[] = "llama.rope.freq_base";
    double eps, base = 10000.0;
    enum status rc = gguf_get_f64(g, eps_key, &eps, err);

    if (rc != STATUS_OK)
        return rc;
    if (!(eps >= 0.0 && eps < 1.0))
        return bad_number(g, eps_key, "must be in [0, 1)", eps, err);
    rc = gguf_get_f64(g, base_key, &base, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if (!(base >= 1.0 && base <= 1e12))
        return bad_number(g, base_key, "must be in [1, 1e12]", base, err);
    s->norm_eps = (float)eps;
    s->rope_base = (float)base;
    return STATUS_OK;
}

static enum status read_numbers(struct llama_shape *s, const struct gguf *g, struct error *err)
{
    const struct tensor *embed;
    enum status rc;

    if ((rc = shape_read_size(&s->n_layers, g, "llama.block_count", MAX_LAYERS, err)) !=
            STATUS_OK ||
        (rc = shape_read_size(&s->width, g, "llama.embedding_length", MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = shape_read_size(&s->ffn_width, g, "llama.feed_forward_length", MAX_FFN_WIDTH, err)) !=
            STATUS_OK ||
        (rc = shape_read_size(&s->context, g, "llama.context_length", MAX_CONTEXT, err)) !=
            STATUS_OK ||
        (rc = read_heads(s, g, err)) != STATUS_OK ||
        (rc = read_constants(s, g, err)) != STATUS_OK ||
        (rc = gguf_tensor(g, "token_embd.weight", &embed, err)) != STATUS_OK)
        return rc;
    s->n_vocab = embed->n_rows;
    if (s->n_vocab > MAX_VOCAB)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: tensor 'token_embd.weight' has %zu rows, more than %d", gguf_path(g),
                         s->n_vocab, MAX_VOCAB);
    if ((rc = read_optional_size(&s->n_vocab, g, "llama.vocab_size", MAX_VOCAB, err)) != STATUS_OK)
        return rc;
    return llama_embed_tensor(&embed, g, s, err);
}

/* The part that a layer's tensor name means; N_PARTS if it is unknown. */
static enum llama_part part_of_name(const char *name, size_t n_layers)
{
    char *end;
    unsigned long layer;
    int part = 0;

    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return N_PARTS;
    layer = strtoul(name + 4, &end, 10);
    if (layer >= n_layers || *end != '.' || (name[4] == '0' && end != name + 5))
        return N_PARTS;
    while (part < N_PARTS) {
        size_t len = strlen(part_names[part]);

        if (strncmp(end + 1, part_names[part], len) == 0 && strcmp(end + 1 + len, ".weight") == 0)
            break;
        part++;
    }
    return (enum llama_part)part;
}

/* A weight that we do not use (a bias, an expert) would silently be left out of the sum. */
static enum status refuse_unknown_tensors(const struct llama_shape *s, const struct gguf *g,
                                          struct error *err)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        if (strcmp(name, "token_embd.weight") != 0 && strcmp(name, "output_norm.weight") != 0 &&
            strcmp(name, "output.weight") != 0 && strcmp(name, "rope_freqs.weight") != 0 &&
            part_of_name(name, s->n_layers) == N_PARTS)
            return error_set(
                err, STATUS_UNIMPLEMENTED,
                "%s: tensor '%.60s' is none that the llama architecture is run with here",
                gguf_path(g), name);
    }
    return STATUS_OK;
}

static enum status shape_check_tensors(const struct llama_shape *s, const struct gguf *g,
                                       struct error *err)
{
    const struct tensor *t;
    float *rope_scale;
    enum status rc;

    for (size_t layer = 0; layer < s->n_layers; layer++)
        for (int part = 0; part < N_PARTS; part++)
            if ((rc = llama_layer_tensor(&t, g, s, layer, (enum llama_part)part, err)) != STATUS_OK)
                return rc;
    if ((rc = llama_norm_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = llama_head_tensor(&t, g, s, err)) != STATUS_OK ||
        (rc = llama_read_rope_scale(&rope_scale, g, s, err)) != STATUS_OK)
        return rc;
    free(rope_scale);
    return STATUS_OK;
}

enum status llama_read_shape(struct llama_shape *out, const struct gguf *g, struct error *err)
{
    struct llama_shape s = {0};
    enum status rc;

    if ((rc = read_architecture(g, err)) != STATUS_OK ||
        (rc = read_numbers(&s, g, err)) != STATUS_OK ||
        (rc = llama_check_keys(&s, g, err)) != STATUS_OK ||
        (rc = refuse_unknown_tensors(&s, g, err)) != STATUS_OK ||
        (rc = shape_check_tensors(&s, g, err)) != STATUS_OK)
        return rc;
    *out = s;
    return STATUS_OK;
}
