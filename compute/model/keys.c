/* The keys under the architecture's name. One that would change what is computed, and that we do
 * not compute, is refused by its name, and so is one that we do not know: ignored, it would give
 * fluent nonsense. Which keys are harmless follows llama.cpp's meaning of them. */
#include <math.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/shape.h"
#include "compute/model/tensors.h"

enum rule {
    RULE_READ,     /* read by shape.c */
    RULE_HARMLESS, /* does not affect the computation */
    RULE_EXPERTS,  /* accepted as 0 */
    RULE_ONE,      /* accepted as 1 */
    RULE_SCALING,  /* accepted as 0, as 1, or where rope.scaling.type is 'none' */
    RULE_SCALE,    /* accepted as 0, or as attention's own scale */
    RULE_WINDOW,   /* accepted as 0, or no shorter than the context */
    RULE_TRUE,
    RULE_NONE,   /* the text 'none' */
    RULE_LAYOUT, /* the text of the layout that llama's files have */
};

#define PREFIX "llama."
#define SCALING_TYPE PREFIX "rope.scaling.type"

static const struct {
    const char *key;
    enum rule rule;
} rules[] = {
    {PREFIX "block_count", RULE_READ},
    {PREFIX "context_length", RULE_READ},
    {PREFIX "embedding_length", RULE_READ},
    {PREFIX "feed_forward_length", RULE_READ},
    {PREFIX "vocab_size", RULE_READ},
    {PREFIX "attention.head_count", RULE_READ},
    {PREFIX "attention.head_count_kv", RULE_READ},
    {PREFIX "attention.key_length", RULE_READ},
    {PREFIX "attention.value_length", RULE_READ},
    {PREFIX "attention.layer_norm_rms_epsilon", RULE_READ},
    {PREFIX "rope.dimension_count", RULE_READ},
    {PREFIX "rope.freq_base", RULE_READ},
    {PREFIX "expert_count", RULE_EXPERTS},
    {PREFIX "expert_used_count", RULE_HARMLESS},            /* without experts */
    {PREFIX "attention.layer_norm_epsilon", RULE_HARMLESS}, /* of another kind of norm */
    {PREFIX "attention.causal", RULE_TRUE},
    {PREFIX "attention.scale", RULE_SCALE},
    {PREFIX "attention.sliding_window", RULE_WINDOW},
    {SCALING_TYPE, RULE_NONE},
    {PREFIX "rope.scaling.factor", RULE_SCALING},
    {PREFIX "rope.scale_linear", RULE_SCALING}, /* the same of older files */
    {PREFIX "rope.scaling.attn_factor", RULE_ONE},
    {PREFIX "rope.scaling.original_context_length", RULE_HARMLESS}, /* of other types of scaling */
    {PREFIX "rope.scaling.finetuned", RULE_HARMLESS},               /* how it was trained */
    {PREFIX "tensor_data_layout", RULE_LAYOUT},
};

enum { N_RULES = sizeof rules / sizeof rules[0], SHOWN_MAX = 60 };

static bool is_known(const char *key, size_t len)
{
    for (size_t i = 0; i < N_RULES; i++)
        if (strlen(rules[i].key) == len && memcmp(rules[i].key, key, len) == 0)
            return true;
    return false;
}

static enum status refuse_unknown(const struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        size_t len;
        const char *key = gguf_key_at(g, i, &len);

        if (len >= strlen(PREFIX) && memcmp(key, PREFIX, strlen(PREFIX)) == 0 &&
            !is_known(key, len))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: key '%.*s' is none that the llama architecture is run with here",
                             gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), key);
    }
    return STATUS_OK;
}

/* An integer or a float. */
static enum status get_number(const struct gguf *g, const char *key, double *out, struct error *err)
{
    uint64_t integer;
    enum status rc = gguf_get_f64(g, key, out, err);

    if (rc != STATUS_DATA_LOSS)
        return rc;
    rc = gguf_get_u64(g, key, &integer, err);
    if (rc == STATUS_OK)
        *out = (double)integer;
    return rc;
}

static enum status check_number(const struct llama_shape *s, const struct gguf *g, const char *key,
                                enum rule rule, struct error *err)
{
    const double usual = 1.0 / sqrt((double)s->head_dim);
    const char *only = "0, a model without experts,";
    bool is_good = false;
    double is;
    enum status rc = get_number(g, key, &is, err);

    if (rc != STATUS_OK)
        return rc;
    switch (rule) {
    case RULE_ONE:
        only = "1";
        is_good = is == 1.0;
        break;
    case RULE_SCALING:
        only = "1";
        is_good = is == 0.0 || is == 1.0;
        break;
    case RULE_SCALE:
        only = "1/sqrt of a head's width";
        is_good = is == 0.0 || fabs(is - usual) <= 1e-6 * usual;
        break;
    case RULE_WINDOW:
        only = "the whole context";
        is_good = is == 0.0 || is >= (double)s->context;
        break;
    default:
        is_good = is == 0.0;
    }
    if (is_good)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is %.9g; only %s is run here",
                     gguf_path(g), key, is, only);
}

static enum status check_text(const struct gguf *g, const char *key, const char *only,
                              struct error *err)
{
    const char *text;
    size_t len;
    enum status rc = gguf_get_text(g, key, &text, &len, err);

    if (rc == STATUS_OK && (len != strlen(only) || memcmp(text, only, len) != 0))
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is '%.*s'; only '%s' is run here",
                         gguf_path(g), key, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text, only);
    return rc;
}

static enum status check_true(const struct gguf *g, const char *key, struct error *err)
{
    bool is;
    enum status rc = gguf_get_bool(g, key, &is, err);

    if (rc == STATUS_OK && !is)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is false; only true is run here",
                         gguf_path(g), key);
    return rc;
}

static enum status check_key(const struct llama_shape *s, const struct gguf *g, const char *key,
                             enum rule rule, struct error *err)
{
    const char *type;
    size_t len;

    switch (rule) {
    case RULE_READ:
    case RULE_HARMLESS:
        return STATUS_OK;
    case RULE_TRUE:
        return check_true(g, key, err);
    case RULE_NONE:
        return check_text(g, key, "none", err);
    case RULE_LAYOUT:
        return check_text(g, key, "Meta AI original pth", err);
    case RULE_SCALING: /* the type, if given, is 'none': it was checked before */
        if (gguf_get_text(g, SCALING_TYPE, &type, &len, err) == STATUS_OK)
            return STATUS_OK;
        break;
    default:
        break;
    }
    return check_number(s, g, key, rule, err);
}

enum status llama_check_keys(const struct llama_shape *s, const struct gguf *g, struct error *err)
{
    enum status rc = refuse_unknown(g, err);

    for (size_t i = 0; i < N_RULES && rc == STATUS_OK; i++) {
        rc = check_key(s, g, rules[i].key, rules[i].rule, err);
        if (rc == STATUS_NOT_FOUND)
            rc = STATUS_OK;
    }
    return rc;
}
