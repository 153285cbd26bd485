/* The keys under the architecture's name. One that would change what is computed, and that we do
 * not compute, is refused by its name, and so is one that we do not know: ignored, it would give
 * fluent nonsense. Which keys are harmless follows llama.cpp's meaning of them. */
#include <math.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/numbers.h"
#include "compute/model/shape.h"
#include "compute/model/tensors.h"

enum rule {
    RULE_READ,     /* read by shape.c or ropes.c */
    RULE_HARMLESS, /* does not affect the computation */
    RULE_UNKNOWN,  /* as a key that we do not know */
    RULE_ZERO,     /* accepted as 0 */
    RULE_SCALE,    /* accepted as 0, or as attention's own scale */
    RULE_WINDOW,   /* accepted as 0, or no shorter than the context */
    RULE_SOFTMAX,  /* accepted as 0, not stated, or as 1 */
    RULE_TRUE,
    RULE_LAYOUT, /* the text of the layout that llama's files have */
};

/* The rule of a key, but for architectures that have one of `keys`: those read it. */
static const struct {
    const char *name;
    enum rule rule;
    unsigned keys; /* of enum arch_keys */
} rules[] = {
    {"block_count", RULE_READ, 0},
    {"context_length", RULE_READ, 0},
    {"embedding_length", RULE_READ, 0},
    {"feed_forward_length", RULE_READ, 0},
    {"vocab_size", RULE_READ, 0},
    {"attention.head_count", RULE_READ, 0},
    {"attention.head_count_kv", RULE_READ, 0},
    {"attention.key_length", RULE_READ, 0},
    {"attention.value_length", RULE_READ, 0},
    {"attention.layer_norm_rms_epsilon", RULE_READ, 0},
    {"rope.dimension_count", RULE_READ, 0},
    {"rope.freq_base", RULE_READ, 0},
    {"rope.freq_base_swa", RULE_UNKNOWN, KEYS_WINDOW},
    {"rope.scale_linear", RULE_READ, 0}, /* the factor of older files */
    {"rope.scaling.type", RULE_READ, 0},
    {"rope.scaling.factor", RULE_READ, 0},
    {"rope.scaling.attn_factor", RULE_READ, 0},
    {"rope.scaling.original_context_length", RULE_READ, 0},
    {"rope.scaling.finetuned", RULE_HARMLESS, 0}, /* how it was trained; granite reads it */
    {"rope.scaling.yarn_log_multiplier", RULE_READ, 0},
    {"rope.scaling.yarn_beta_fast", RULE_HARMLESS, KEYS_YARN_BETAS},
    {"rope.scaling.yarn_beta_slow", RULE_HARMLESS, KEYS_YARN_BETAS},
    {"expert_count", RULE_ZERO, KEYS_EXPERTS},
    {"expert_feed_forward_length", RULE_UNKNOWN, KEYS_EXPERTS},
    {"expert_gating_func", RULE_SOFTMAX, KEYS_ROUTING},
    {"expert_weights_norm", RULE_TRUE, KEYS_ROUTING},
    {"expert_group_count", RULE_ZERO, KEYS_ROUTING},
    {"expert_group_used_count", RULE_ZERO, KEYS_ROUTING},
    {"leading_dense_block_count", RULE_ZERO, KEYS_DENSE_LEAD},
    {"interleave_moe_layer_step", RULE_UNKNOWN, KEYS_EXPERT_STEP},
    {"expert_shared_count", RULE_ZERO, KEYS_SHARED_EXPERT}, /* the width is the tensor's */
    {"expert_shared_feed_forward_length", RULE_ZERO, KEYS_SHARED_EXPERT},
    {"nextn_predict_layers", RULE_ZERO, KEYS_NEXT_TOKENS},
    {"attention.kv_lora_rank", RULE_UNKNOWN, KEYS_LATENT},
    {"attention.q_lora_rank", RULE_UNKNOWN, KEYS_LATENT},
    {"attention.key_length_mla", RULE_UNKNOWN, KEYS_LATENT},
    {"attention.value_length_mla", RULE_UNKNOWN, KEYS_LATENT},
    {"attention.key_length_swa", RULE_UNKNOWN, KEYS_WINDOW_HEADS},
    {"attention.value_length_swa", RULE_UNKNOWN, KEYS_WINDOW_HEADS},
    {"rope.dimension_count_swa", RULE_UNKNOWN, KEYS_WINDOW_HEADS},
    {"attention.shared_kv_layers", RULE_ZERO, KEYS_SHARED_KV},
    {"embedding_length_per_layer_input", RULE_ZERO, KEYS_LAYER_EMBEDDINGS},
    {"altup.num_inputs", RULE_UNKNOWN, KEYS_STREAMS},
    {"altup.active_idx", RULE_UNKNOWN, KEYS_STREAMS},
    {"activation_sparsity_scale", RULE_UNKNOWN, KEYS_STREAMS},
    {"shortconv.l_cache", RULE_UNKNOWN, KEYS_CONVOLUTION},
    {"ssm.conv_kernel", RULE_UNKNOWN, KEYS_STATE},
    {"ssm.groups_values", RULE_UNKNOWN, KEYS_STATE}, /* of a folder of transformers */
    {"ssm.state_size", RULE_UNKNOWN, KEYS_STATE},
    {"ssm.group_count", RULE_UNKNOWN, KEYS_STATE},
    {"ssm.time_step_rank", RULE_UNKNOWN, KEYS_STATE},
    {"ssm.inner_size", RULE_UNKNOWN, KEYS_STATE},
    {"full_attention_interval", RULE_UNKNOWN, KEYS_RECURRENT_LAYERS},
    {"attention.recurrent_layers", RULE_UNKNOWN, KEYS_RECURRENT_LAYERS},
    /* of pictures: a text's three positions are one */
    {"rope.dimension_sections", RULE_UNKNOWN, KEYS_RECURRENT_LAYERS},
    {"use_parallel_residual", RULE_HARMLESS, 0}, /* the tensors say so */
    {"expert_weights_scale", RULE_UNKNOWN, KEYS_EXPERTS},
    {"expert_used_count", RULE_HARMLESS, 0},            /* without experts */
    {"attention.layer_norm_epsilon", RULE_HARMLESS, 0}, /* of another kind of norm */
    {"attention.causal", RULE_TRUE, 0},
    {"attention.scale", RULE_SCALE, KEYS_ATTENTION_SCALE},
    {"attention.temperature_scale", RULE_ZERO, KEYS_QUERY_TEMPERATURE},
    {"attention.temperature_length", RULE_UNKNOWN, KEYS_TEMPERATURE_LENGTH},
    {"attention.norms_heads", RULE_UNKNOWN, KEYS_TEMPERATURE_LENGTH},
    {"attention.sliding_window", RULE_WINDOW, KEYS_WINDOW | KEYS_WINDOW_IGNORED},
    {"attention.sliding_window_pattern", RULE_UNKNOWN, KEYS_WINDOW | KEYS_WINDOW_IGNORED},
    {"attn_logit_softcapping", RULE_ZERO, KEYS_ATTENTION_CAP},
    {"final_logit_softcapping", RULE_ZERO, KEYS_LOGIT_CAP},
    {"embedding_scale", RULE_UNKNOWN, KEYS_SCALES},
    {"residual_scale", RULE_UNKNOWN, KEYS_SCALES},
    {"logit_scale", RULE_UNKNOWN, KEYS_SCALES | KEYS_LOGIT_FACTOR},
    {"tensor_data_layout", RULE_LAYOUT, 0},
    {"pooling_type", RULE_HARMLESS, 0}, /* of embeddings; the agent reads it */
    {"classifier.output_labels", RULE_HARMLESS, 0},
};

enum { N_RULES = sizeof(rules) / sizeof(rules[0]), SHOWN_MAX = 60 };

static enum rule rule_of(const struct arch *a, size_t i)
{
    return (rules[i].keys & a->keys) != 0 ? RULE_READ : rules[i].rule;
}

static bool is_known(const struct arch *a, const char *name, size_t len)
{
    for (size_t i = 0; i < N_RULES; i++)
        if (strlen(rules[i].name) == len && memcmp(rules[i].name, name, len) == 0)
            return rule_of(a, i) != RULE_UNKNOWN;
    return false;
}

static enum status refuse_unknown(const struct arch *a, const struct gguf *g, struct error *err)
{
    size_t begin = strlen(a->name);

    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        size_t len;
        const char *key = gguf_key_at(g, i, &len);

        if (len > begin && memcmp(key, a->name, begin) == 0 && key[begin] == '.' &&
            !is_known(a, key + begin + 1, len - begin - 1))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: key '%.*s' is not supported for the %s architecture",
                             gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), key, a->name);
    }
    return STATUS_OK;
}

static enum status check_number(const struct transformer_shape *s, const struct gguf *g,
                                const char *key, enum rule rule, struct error *err)
{
    const double usual = 1.0 / sqrt((double)s->head_dim);
    const char *only = "0";
    bool is_good = false;
    double is;
    enum status rc = numbers_read(&is, g, key, err);

    if (rc != STATUS_OK)
        return rc;
    switch (rule) {
    case RULE_SCALE:
        only = "1/sqrt of a head's width";
        is_good = is == 0.0 || fabs(is - usual) <= 1e-6 * usual;
        break;
    case RULE_WINDOW:
        only = "the whole context";
        is_good = is == 0.0 || is >= (double)s->context;
        break;
    case RULE_SOFTMAX:
        only = "1, softmax,";
        is_good = is == 0.0 || is == 1.0;
        break;
    default:
        is_good = is == 0.0;
    }
    if (is_good)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is %.9g; only %s is supported",
                     gguf_path(g), key, is, only);
}

static enum status check_text(const struct gguf *g, const char *key, const char *only,
                              struct error *err)
{
    const char *text;
    size_t len;
    enum status rc = gguf_get_text(g, key, &text, &len, err);

    if (rc == STATUS_OK && (len != strlen(only) || memcmp(text, only, len) != 0))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: key '%s' is '%.*s'; only '%s' is supported", gguf_path(g), key,
                         (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text, only);
    return rc;
}

static enum status check_true(const struct gguf *g, const char *key, struct error *err)
{
    bool is;
    enum status rc = gguf_get_bool(g, key, &is, err);

    if (rc == STATUS_OK && !is)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: key '%s' is false; only true is supported",
                         gguf_path(g), key);
    return rc;
}

static enum status check_key(const struct transformer_shape *s, const struct gguf *g,
                             const char *key, enum rule rule, struct error *err)
{
    switch (rule) {
    case RULE_READ:
    case RULE_HARMLESS:
    case RULE_UNKNOWN:
        return STATUS_OK;
    case RULE_TRUE:
        return check_true(g, key, err);
    case RULE_LAYOUT:
        return check_text(g, key, "Meta AI original pth", err);
    default:
        return check_number(s, g, key, rule, err);
    }
}

enum status transformer_check_keys(const struct transformer_shape *s, const struct gguf *g,
                                   struct error *err)
{
    enum status rc = refuse_unknown(s->arch, g, err);
    char key[ARCH_KEY_MAX];

    for (size_t i = 0; i < N_RULES && rc == STATUS_OK; i++) {
        rc = check_key(s, g, arch_key(key, s->arch, rules[i].name), rule_of(s->arch, i), err);
        if (rc == STATUS_NOT_FOUND)
            rc = STATUS_OK;
    }
    return rc;
}
