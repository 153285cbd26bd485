/* config.json. */
#include <assert.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { LAYERS_MAX = 1 << 10, SIZE_MAX_WIDTH = 1 << 24, SHOWN_MAX = 40 };

static const struct hf_family families[] = {
    {"llama", "llama", "silu", true, false, 0},
    {"mistral", "llama", "silu", true, false, 0},
    {"qwen2", "qwen2", "silu", false, false, 0},
    {"qwen3", "qwen3", "silu", false, false, 0},
    {"gemma2", "gemma2", "gelu_pytorch_tanh", false, true, 1},
    {"gemma3_text", "gemma3", "gelu_pytorch_tanh", false, true, 1},
    {"smollm3", "smollm3", "silu", true, false, 0},
    {"olmo2", "olmo2", "silu", false, true, 0},
    {"granite", "granite", "silu", true, false, 0},
};

static enum status find_hf_family(const struct hf_family **out, const json_t *config,
                                  struct error *err)
{
    const char *type = hf_json_text(config, "model_type");

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].model_type, type) == 0) {
            *out = &families[i];
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "key 'model_type' is '%.*s', which is not read from safetensors; convert the "
                     "model to GGUF",
                     SHOWN_MAX, type);
}

static enum status read_config_size(uint64_t *out, const json_t *config, const char *name,
                                    uint64_t max, struct error *err)
{
    enum status rc = hf_json_u64(config, name, out, err);

    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is absent", name);
    if (rc == STATUS_OK && (*out == 0 || *out > max))
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is %llu, not within 1 and %llu", name,
                         (unsigned long long)*out, (unsigned long long)max);
    return rc;
}

static enum status read_hf_heads(struct hf_model *m, const json_t *config, struct error *err)
{
    enum status rc = read_config_size(&m->n_heads, config, "num_attention_heads", 1 << 12, err);

    if (rc != STATUS_OK)
        return rc;
    m->n_kv_heads = m->n_heads;
    rc = read_config_size(&m->n_kv_heads, config, "num_key_value_heads", 1 << 12, err);
    if (rc != STATUS_OK && json_object_get(config, "num_key_value_heads") != NULL)
        return rc;
    m->head_dim = m->width / m->n_heads;
    rc = hf_json_u64(config, "head_dim", &m->head_dim, err);
    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (m->head_dim == 0 || m->head_dim % 2 != 0 || m->head_dim > SIZE_MAX_WIDTH)
        return error_set(err, STATUS_DATA_LOSS, "heads of %llu: must be even",
                         (unsigned long long)m->head_dim);
    return STATUS_OK;
}

/* Numbers that have a key of their own in GGUF, where config.json has them. */
static enum status copy_numbers(struct hf_keys *keys, const json_t *config, struct error *err)
{
    static const struct {
        const char *from, *to;
    } numbers[] = {
        {"embedding_multiplier", ".embedding_scale"},
        {"residual_multiplier", ".residual_scale"},
        {"logits_scaling", ".logit_scale"},
        {"attention_multiplier", ".attention.scale"},
        {"attn_logit_softcapping", ".attn_logit_softcapping"},
        {"final_logit_softcapping", ".final_logit_softcapping"},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double value;
        enum status rc = hf_json_f64(config, numbers[i].from, &value, err);

        if (rc == STATUS_OK)
            hf_key_f32(keys, numbers[i].to, value);
        else if (rc != STATUS_NOT_FOUND)
            return rc;
    }
    return STATUS_OK;
}

/* Newer files have all of rope in rope_parameters, older ones its scaling in rope_scaling. */
static const json_t *hf_rope_of(const json_t *config)
{
    const json_t *rope = hf_json_object(config, "rope_parameters");

    return rope != NULL ? rope : hf_json_object(config, "rope_scaling");
}

static const char *rope_type_of(const json_t *rope)
{
    const char *type = hf_json_text(rope, "rope_type");

    if (*type == '\0')
        type = hf_json_text(rope, "type");
    return rope == NULL || *type == '\0' ? "default" : type;
}

static enum status read_llama3_rope(struct hf_model *m, const json_t *rope, struct error *err)
{
    enum status rc = hf_json_f64(rope, "factor", &m->factor, err);

    if (rc == STATUS_OK)
        rc = hf_json_f64(rope, "low_freq_factor", &m->low, err);
    if (rc == STATUS_OK)
        rc = hf_json_f64(rope, "high_freq_factor", &m->high, err);
    if (rc == STATUS_OK)
        rc = hf_json_f64(rope, "original_max_position_embeddings", &m->original, err);
    if (rc != STATUS_OK || m->factor < 1 || m->low <= 0 || m->high <= m->low || m->original <= 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "'rope_scaling' of type llama3 needs factor, low_freq_factor, "
                         "high_freq_factor and original_max_position_embeddings");
    return STATUS_OK;
}

static enum status read_scaled_rope(struct hf_keys *keys, const json_t *rope, const char *type,
                                    struct error *err)
{
    double factor;
    uint64_t original;
    enum status rc = hf_json_f64(rope, "factor", &factor, err);

    if (rc != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS, "'rope_scaling' of type %s needs a factor", type);
    hf_key_text(keys, ".rope.scaling.type", type, strlen(type));
    hf_key_f32(keys, ".rope.scaling.factor", factor);
    rc = hf_json_u64(rope, "original_max_position_embeddings", &original, err);
    if (rc == STATUS_OK)
        hf_key_u64(keys, ".rope.scaling.original_context_length", original);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status read_hf_rope(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                struct error *err)
{
    const json_t *rope = hf_rope_of(config);
    const char *type = rope_type_of(rope);
    enum status rc;

    m->rope_base = 10000;
    rc = hf_json_f64(config, "rope_theta", &m->rope_base, err);
    if (rc == STATUS_NOT_FOUND)
        rc = hf_json_f64(rope, "rope_theta", &m->rope_base, err);
    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (!(m->rope_base >= 1))
        return error_set(err, STATUS_DATA_LOSS, "key 'rope_theta' is below 1");
    hf_key_f32(keys, ".rope.freq_base", m->rope_base);
    if (strcmp(type, "default") == 0)
        return STATUS_OK;
    if (strcmp(type, "llama3") == 0)
        return read_llama3_rope(m, rope, err);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0)
        return read_scaled_rope(keys, rope, type, err);
    return error_set(
        err, STATUS_UNIMPLEMENTED,
        "'rope_scaling' of type '%.*s' is not read from safetensors; convert the model "
        "to GGUF",
        SHOWN_MAX, type);
}

/* Gemma's window and scale. */
static enum status read_hf_gemma(const struct hf_model *m, struct hf_keys *keys,
                                 const json_t *config, struct error *err)
{
    uint64_t window;
    double scalar = (double)m->head_dim, base;
    const bool is_27b = m->n_layers == 46 || m->n_layers == 62;
    enum status rc = hf_json_u64(config, "sliding_window", &window, err);

    if (rc == STATUS_OK)
        hf_key_u64(keys, ".attention.sliding_window", window);
    if (hf_json_f64(config, "rope_local_base_freq", &base, err) == STATUS_OK)
        hf_key_f32(keys, ".rope.freq_base_swa", base);
    (void)hf_json_f64(config, "query_pre_attn_scalar", &scalar, err); /* absent: as it is */
    if (scalar != (double)(is_27b ? m->width / m->n_heads : m->head_dim))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'query_pre_attn_scalar' is %g; the model's size asks for another",
                         scalar);
    return rc == STATUS_DATA_LOSS ? rc : STATUS_OK;
}

static enum status check_hf_activation(const struct hf_family *f, const json_t *config,
                                       struct error *err)
{
    const char *is = hf_json_text(config, "hidden_activation");

    if (*is == '\0')
        is = hf_json_text(config, "hidden_act");
    if (*is != '\0' && strcmp(is, f->activation) != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'hidden_act' is '%.*s'; a model of type '%s' is run with '%s' alone",
                         SHOWN_MAX, is, f->model_type, f->activation);
    return STATUS_OK;
}

enum status hf_config_read(struct hf_model *out, struct hf_keys *keys, const json_t *config,
                           struct error *err)
{
    struct hf_model m = {0};
    uint64_t ffn_width, context, n_vocab;
    double eps;
    enum status rc;

    if ((rc = find_hf_family(&m.family, config, err)) != STATUS_OK ||
        (rc = check_hf_activation(m.family, config, err)) != STATUS_OK ||
        (rc = read_config_size(&m.n_layers, config, "num_hidden_layers", LAYERS_MAX, err)) !=
            STATUS_OK ||
        (rc = read_config_size(&m.width, config, "hidden_size", SIZE_MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = read_config_size(&ffn_width, config, "intermediate_size", SIZE_MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = read_config_size(&context, config, "max_position_embeddings", SIZE_MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = read_config_size(&n_vocab, config, "vocab_size", SIZE_MAX_WIDTH, err)) != STATUS_OK ||
        (rc = hf_json_f64(config, "rms_norm_eps", &eps, err)) != STATUS_OK ||
        (rc = read_hf_heads(&m, config, err)) != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_DATA_LOSS : rc;
    keys->prefix = m.family->architecture;
    hf_key_text(keys, "general.architecture", keys->prefix, strlen(keys->prefix));
    hf_key_u64(keys, ".block_count", m.n_layers);
    hf_key_u64(keys, ".context_length", context);
    hf_key_u64(keys, ".embedding_length", m.width);
    hf_key_u64(keys, ".feed_forward_length", ffn_width);
    hf_key_u64(keys, ".vocab_size", n_vocab);
    hf_key_u64(keys, ".attention.head_count", m.n_heads);
    hf_key_u64(keys, ".attention.head_count_kv", m.n_kv_heads);
    hf_key_u64(keys, ".attention.key_length", m.head_dim);
    hf_key_u64(keys, ".attention.value_length", m.head_dim);
    hf_key_u64(keys, ".rope.dimension_count", m.head_dim);
    hf_key_f32(keys, ".attention.layer_norm_rms_epsilon", eps);
    m.is_tied = hf_json_is_true(config, "tie_word_embeddings") ||
                (m.family->norm_add != 0 && /* Gemma's default */
                 json_object_get(config, "tie_word_embeddings") == NULL);
    if ((rc = copy_numbers(keys, config, err)) != STATUS_OK ||
        (rc = read_hf_rope(&m, keys, config, err)) != STATUS_OK)
        return rc;
    if (m.family->norm_add != 0 && (rc = read_hf_gemma(&m, keys, config, err)) != STATUS_OK)
        return rc;
    *out = m;
    return STATUS_OK;
}
