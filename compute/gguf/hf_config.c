/* config.json. */
#include <math.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { LAYERS_MAX = 1 << 10, EXPERTS_MAX = 1 << 12, SIZE_MAX_WIDTH = 1 << 24, SHOWN_MAX = 40 };

#define GEMMA_ACTIVATION "gelu_pytorch_tanh"
#define GEMMA3                                                                      \
    .architecture = "gemma3", .activation = GEMMA_ACTIVATION, .norms_around = true, \
    .is_tied = true, .norm_add = 1, .window = HF_WINDOW_KEY,                        \
    .defaults = {{"rms_norm_eps", 1e-6},     {"head_dim", 256},                     \
                 {"num_attention_heads", 8}, {"num_key_value_heads", 4},            \
                 {"vocab_size", 262208},     {"max_position_embeddings", 131072}}

static const struct hf_family families[] = {
    {.model_type = "llama", .architecture = "llama", .activation = "silu", .has_pairs = true},
    {.model_type = "mistral", .architecture = "llama", .activation = "silu", .has_pairs = true},
    {.model_type = "mixtral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .n_experts = "num_local_experts"},
    {.model_type = "qwen2", .architecture = "qwen2", .activation = "silu"},
    {.model_type = "qwen3", .architecture = "qwen3", .activation = "silu"},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .activation = "silu",
     .n_experts = "num_experts",
     .expert_ffn_key = "moe_intermediate_size"},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .activation = GEMMA_ACTIVATION,
     .norms_around = true,
     .is_tied = true,
     .norm_add = 1,
     .window = HF_WINDOW_KEY},
    {.model_type = "gemma3_text", GEMMA3},
    {.model_type = "gemma3", .is_nested = true, GEMMA3},
    {.model_type = "phi3", .architecture = "phi3", .activation = "silu", .window = HF_WINDOW_KEY},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .activation = "silu",
     .has_pairs = true,
     .is_tied = true,
     .unrotated_every = 4},
    {.model_type = "olmo2", .architecture = "olmo2", .activation = "silu", .norms_around = true},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .activation = "silu",
     .norms_around = true,
     .window = HF_WINDOW_KEY},
    {.model_type = "granite", .architecture = "granite", .activation = "silu", .has_pairs = true},
};

const json_t *hf_config_text(const json_t *config)
{
    const json_t *text = hf_json_object(config, "text_config");

    return text != NULL ? text : config;
}

static enum status find_hf_family(const struct hf_family **out, const json_t *config,
                                  struct error *err)
{
    const char *type = hf_json_text(config, "model_type");

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (strcmp(families[i].model_type, type) == 0) {
            *out = &families[i];
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "key 'model_type' is '%.*s', which is not supported in safetensors; convert "
                     "the model to GGUF",
                     SHOWN_MAX, type);
}

/* The number that the family has where config.json has none: NOT_FOUND, err untouched, for none. */
static enum status hf_default(double *out, const struct hf_family *f, const char *name)
{
    for (size_t i = 0; i < HF_DEFAULTS_MAX && f->defaults[i].name != NULL; i++)
        if (strcmp(f->defaults[i].name, name) == 0) {
            *out = f->defaults[i].value;
            return STATUS_OK;
        }
    return STATUS_NOT_FOUND;
}

static enum status read_config_f64(double *out, const struct hf_family *f, const json_t *config,
                                   const char *name, struct error *err)
{
    enum status rc = hf_json_f64(config, name, out, err);

    return rc == STATUS_NOT_FOUND ? hf_default(out, f, name) : rc;
}

static enum status read_config_size(uint64_t *out, const struct hf_family *f, const json_t *config,
                                    const char *name, uint64_t max, struct error *err)
{
    double usual;
    enum status rc = hf_json_u64(config, name, out, err);

    if (rc == STATUS_NOT_FOUND && hf_default(&usual, f, name) == STATUS_OK) {
        *out = (uint64_t)usual;
        return STATUS_OK;
    }
    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is absent", name);
    if (rc == STATUS_OK && (*out == 0 || *out > max))
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is %llu, it must be from 1 to %llu", name,
                         (unsigned long long)*out, (unsigned long long)max);
    return rc;
}

static bool has_value(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);

    return value != NULL && !json_is_null(value);
}

static enum status read_hf_head_width(struct hf_model *m, const json_t *config, struct error *err)
{
    double part = 1, width = (double)(m->width / m->n_heads);
    enum status rc = read_config_f64(&width, m->family, config, "head_dim", err);

    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (!(width >= 2 && width <= SIZE_MAX_WIDTH) || (uint64_t)width % 2 != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the width of a head is %g, it must be an even number", width);
    m->head_dim = (uint64_t)width;
    if (hf_json_f64(config, "partial_rotary_factor", &part, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    m->n_rotated = part > 0 && part <= 1 ? (uint64_t)(width * part) : 0;
    if (m->n_rotated == 0 || m->n_rotated % 2 != 0)
        return error_set(
            err, STATUS_DATA_LOSS,
            "key 'partial_rotary_factor' is %g, which rotates no pair of a head of width %g", part,
            width);
    return STATUS_OK;
}

static enum status read_hf_heads(struct hf_model *m, const json_t *config, struct error *err)
{
    static const char kv_heads[] = "num_key_value_heads";
    const struct hf_family *f = m->family;
    double usual;
    enum status rc = read_config_size(&m->n_heads, f, config, "num_attention_heads", 1 << 12, err);

    if (rc != STATUS_OK)
        return rc;
    m->n_kv_heads = m->n_heads;
    if (has_value(config, kv_heads) || hf_default(&usual, f, kv_heads) == STATUS_OK)
        rc = read_config_size(&m->n_kv_heads, f, config, kv_heads, 1 << 12, err);
    return rc == STATUS_OK ? read_hf_head_width(m, config, err) : rc;
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

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        double value;
        enum status rc = hf_json_f64(config, numbers[i].from, &value, err);

        if (rc == STATUS_OK)
            hf_key_f32(keys, numbers[i].to, value);
        else if (rc != STATUS_NOT_FOUND)
            return rc;
    }
    return STATUS_OK;
}

/* Newer files have all of rope in rope_parameters, those of layers with a window beside it; older
 * ones its scaling in rope_scaling. */
static const json_t *hf_rope_of(const json_t *config)
{
    const json_t *rope = hf_json_object(config, "rope_parameters");
    const json_t *full = hf_json_object(rope, "full_attention");

    if (full != NULL)
        return full;
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

/* What the divisors were made for; a file has it beside rope or in it. */
static enum status read_rope_original(struct hf_model *m, struct hf_keys *keys,
                                      const json_t *config, const json_t *rope, struct error *err)
{
    static const char name[] = "original_max_position_embeddings";
    uint64_t original;
    enum status rc = hf_json_u64(rope, name, &original, err);

    if (rc == STATUS_NOT_FOUND)
        rc = hf_json_u64(config, name, &original, err);
    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (rc == STATUS_OK)
        m->original = (double)original;
    /* stated, since a window may end the context before */
    hf_key_u64(keys, ".rope.scaling.original_context_length",
               rc == STATUS_OK ? original : m->context);
    return STATUS_OK;
}

/* YaRN's ramp is run with the usual ends, which GGUF has no keys for. */
static enum status check_yarn(const json_t *rope, struct error *err)
{
    static const struct hf_default only[] = {{"beta_fast", 32}, {"beta_slow", 1}};

    for (size_t i = 0; i < 2; i++) {
        double is = only[i].value;

        if (hf_json_f64(rope, only[i].name, &is, err) == STATUS_DATA_LOSS)
            return STATUS_DATA_LOSS;
        if (is != only[i].value)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "'rope_scaling' has a %s of %g; only %g is supported", only[i].name,
                             is, only[i].value);
    }
    if (has_value(rope, "mscale") || has_value(rope, "mscale_all_dim"))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "'rope_scaling' has an mscale, which is not supported");
    return json_is_false(json_object_get(rope, "truncate"))
               ? error_set(err, STATUS_UNIMPLEMENTED,
                           "'rope_scaling' has truncate: false, which is not supported")
               : STATUS_OK;
}

/* Queries and keys are multiplied by attention_factor, which GGUF has as a multiple of what is
 * usual for YaRN. */
static enum status write_yarn_factor(struct hf_keys *keys, const json_t *rope, double factor,
                                     struct error *err)
{
    double amplitude;
    enum status rc = hf_json_f64(rope, "attention_factor", &amplitude, err);

    if (rc == STATUS_OK)
        hf_key_f32(keys, ".rope.scaling.attn_factor", amplitude / (1 + 0.1 * log(factor)));
    return rc == STATUS_DATA_LOSS ? rc : check_yarn(rope, err);
}

static enum status read_scaled_rope(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                    const json_t *rope, const char *type, struct error *err)
{
    double factor;
    enum status rc = hf_json_f64(rope, "factor", &factor, err);

    if (rc != STATUS_OK || !(factor >= 1))
        return error_set(err, STATUS_DATA_LOSS,
                         "'rope_scaling' of type %s needs a factor of at least 1", type);
    hf_key_text(keys, ".rope.scaling.type", type, strlen(type));
    hf_key_f32(keys, ".rope.scaling.factor", factor);
    rc = read_rope_original(m, keys, config, rope, err);
    if (rc == STATUS_OK && strcmp(type, "yarn") == 0)
        rc = write_yarn_factor(keys, rope, factor, err);
    return rc;
}

static enum status take_listed_divisors(const json_t **out, const struct hf_model *m,
                                        const json_t *rope, const char *name, struct error *err)
{
    const json_t *list = json_object_get(rope, name), *one;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) != m->n_rotated / 2)
        return error_set(err, STATUS_DATA_LOSS,
                         "'rope_scaling' has a %s of %zu numbers, it must have %llu", name,
                         json_array_size(list), (unsigned long long)(m->n_rotated / 2));
    json_array_foreach(list, i, one) if (!json_is_number(one)) return error_set(
        err, STATUS_DATA_LOSS, "'rope_scaling' has a %s with an entry that is not a number", name);
    *out = list;
    return STATUS_OK;
}

/* Divisors by the context's length. The amplitude grows with the context that they allow. */
static enum status read_long_rope(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                  const json_t *rope, struct error *err)
{
    double amplitude, growth;
    enum status rc;

    if ((rc = take_listed_divisors(&m->long_divisors, m, rope, "long_factor", err)) != STATUS_OK ||
        (rc = take_listed_divisors(&m->short_divisors, m, rope, "short_factor", err)) !=
            STATUS_OK ||
        (rc = read_rope_original(m, keys, config, rope, err)) != STATUS_OK)
        return rc;
    if (m->original <= 1)
        return error_set(err, STATUS_DATA_LOSS,
                         "'rope_scaling' of type longrope needs original_max_position_embeddings");
    growth = (double)m->context / m->original;
    amplitude = growth > 1 ? sqrt(1 + log(growth) / log(m->original)) : 1;
    if (hf_json_f64(rope, "attention_factor", &amplitude, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    hf_key_text(keys, ".rope.scaling.type", "longrope", strlen("longrope"));
    hf_key_f32(keys, ".rope.scaling.attn_factor", amplitude);
    return STATUS_OK;
}

static enum status read_rope_scaling(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                     const json_t *rope, struct error *err)
{
    const char *type = rope_type_of(rope);

    if (strcmp(type, "default") == 0)
        return STATUS_OK;
    if (strcmp(type, "llama3") == 0)
        return read_llama3_rope(m, rope, err);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0)
        return read_scaled_rope(m, keys, config, rope, type, err);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return read_long_rope(m, keys, config, rope, err);
    return error_set(
        err, STATUS_UNIMPLEMENTED,
        "'rope_scaling' of type '%.*s' is not supported in safetensors; convert the model to GGUF",
        SHOWN_MAX, type);
}

static enum status read_hf_rope(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                struct error *err)
{
    const json_t *rope = hf_rope_of(config);
    enum status rc;

    /* Gemma 3's own, where its file says nothing */
    m->rope_base = strcmp(m->family->architecture, "gemma3") == 0 ? 1e6 : 10000;
    rc = hf_json_f64(config, "rope_theta", &m->rope_base, err);
    if (rc == STATUS_NOT_FOUND)
        rc = hf_json_f64(rope, "rope_theta", &m->rope_base, err);
    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (!(m->rope_base >= 1))
        return error_set(err, STATUS_DATA_LOSS, "key 'rope_theta' is less than 1");
    hf_key_f32(keys, ".rope.freq_base", m->rope_base);
    return read_rope_scaling(m, keys, config, rope, err);
}

/* --- windows --- */

static bool has_windows(const json_t *config)
{
    const json_t *types = json_object_get(config, "layer_types"), *type;
    size_t i;

    if (!has_value(config, "sliding_window") ||
        json_is_false(json_object_get(config, "use_sliding_window")))
        return false;
    json_array_foreach(types, i, type) if (json_is_string(type) &&
                                           strcmp(json_string_value(type), "sliding_attention") ==
                                               0) return true;
    return !json_is_array(types);
}

static enum status write_layer_types(const struct hf_model *m, struct hf_keys *keys,
                                     const json_t *types, struct error *err)
{
    bool has_window[LAYERS_MAX];
    const json_t *one;
    size_t i;

    if (json_array_size(types) != m->n_layers)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'layer_types' has %zu entries, it must have %llu, one for each layer",
                         json_array_size(types), (unsigned long long)m->n_layers);
    json_array_foreach(types, i, one)
    {
        const char *type = json_is_string(one) ? json_string_value(one) : "";

        has_window[i] = strcmp(type, "sliding_attention") == 0;
        if (!has_window[i] && strcmp(type, "full_attention") != 0)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'layer_types' has a layer of the unsupported type '%.*s'",
                             SHOWN_MAX, type);
    }
    hf_key_bools(keys, ".attention.sliding_window_pattern", has_window, m->n_layers);
    return STATUS_OK;
}

/* Which layers have a window: the list, else every so many do not, else as the architecture has it.
 */
static enum status write_window_pattern(const struct hf_model *m, struct hf_keys *keys,
                                        const json_t *config, struct error *err)
{
    static const char *const names[] = {"sliding_window_pattern", "_sliding_window_pattern"};
    const json_t *types = json_object_get(config, "layer_types");
    uint64_t every;

    if (json_is_array(types))
        return write_layer_types(m, keys, types, err);
    for (size_t i = 0; i < 2; i++) {
        enum status rc = hf_json_u64(config, names[i], &every, err);

        if (rc == STATUS_OK)
            hf_key_u64(keys, ".attention.sliding_window_pattern", every);
        if (rc != STATUS_NOT_FOUND)
            return rc;
    }
    return STATUS_OK;
}

/* The base of rope in layers with a window. */
static enum status write_local_base(struct hf_keys *keys, const json_t *config, struct error *err)
{
    const json_t *both = hf_json_object(config, "rope_parameters");
    const json_t *local = hf_json_object(both, "sliding_attention");
    double base;
    enum status rc = local != NULL ? hf_json_f64(local, "rope_theta", &base, err)
                                   : hf_json_f64(config, "rope_local_base_freq", &base, err);

    if (rc == STATUS_OK)
        hf_key_f32(keys, ".rope.freq_base_swa", base);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status read_hf_window(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                  struct error *err)
{
    const bool has_pattern = strcmp(m->family->architecture, "phi3") != 0;
    uint64_t window;
    enum status rc = STATUS_OK;

    if (!has_windows(config))
        return STATUS_OK;
    rc = hf_json_u64(config, "sliding_window", &window, err);
    if (rc != STATUS_OK)
        return rc;
    if (m->family->window == HF_WINDOW_CUTS) {
        if (window > 0 && window < m->context)
            m->context = window;
        return STATUS_OK;
    }
    hf_key_u64(keys, ".attention.sliding_window", window);
    if (has_pattern && (rc = write_window_pattern(m, keys, config, err)) != STATUS_OK)
        return rc;
    return has_pattern ? write_local_base(keys, config, err) : rc;
}

/* Gemma divides scores by the root of a number of its own, which GGUF files have no key for. */
static enum status check_query_scale(const struct hf_model *m, const json_t *config,
                                     struct error *err)
{
    const bool is_27b = m->n_layers == 46 || m->n_layers == 62;
    double scalar = 256;

    if (hf_json_f64(config, "query_pre_attn_scalar", &scalar, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (scalar != (double)(is_27b ? m->width / m->n_heads : m->head_dim))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'query_pre_attn_scalar' is %g, which does not match the model's size",
                         scalar);
    return STATUS_OK;
}

/* The layers that are not rotated are those that the architecture has so. */
static enum status check_unrotated(const struct hf_model *m, const json_t *config,
                                   struct error *err)
{
    const json_t *rotated = json_object_get(config, "no_rope_layers"), *one;
    const size_t every = m->family->unrotated_every;
    size_t i;

    json_array_foreach(
        rotated, i,
        one) if (every != 0 &&
                 json_integer_value(one) !=
                     ((i + 1) % every != 0)) return error_set(err, STATUS_UNIMPLEMENTED,
                                                              "key 'no_rope_layers' is not "
                                                              "supported: its entry of layer %zu",
                                                              i);
    return STATUS_OK;
}

static enum status read_hf_experts(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                   struct error *err)
{
    const struct hf_family *f = m->family;
    const json_t *norms = json_object_get(config, "norm_topk_prob");
    uint64_t used, ffn_width;
    enum status rc;

    if (f->n_experts == NULL)
        return STATUS_OK;
    if ((rc = read_config_size(&m->n_experts, f, config, f->n_experts, EXPERTS_MAX, err)) !=
            STATUS_OK ||
        (rc = read_config_size(&used, f, config, "num_experts_per_tok", m->n_experts, err)) !=
            STATUS_OK)
        return rc;
    hf_key_u64(keys, ".expert_count", m->n_experts);
    hf_key_u64(keys, ".expert_used_count", used);
    if (json_is_boolean(norms))
        hf_key_bool(keys, ".expert_weights_norm", json_is_true(norms));
    if (f->expert_ffn_key == NULL)
        return STATUS_OK;
    rc = read_config_size(&ffn_width, f, config, f->expert_ffn_key, SIZE_MAX_WIDTH, err);
    if (rc == STATUS_OK)
        hf_key_u64(keys, ".expert_feed_forward_length", ffn_width);
    return rc;
}

static enum status check_hf_activation(const struct hf_family *f, const json_t *config,
                                       struct error *err)
{
    const char *is = hf_json_text(config, "hidden_activation");

    if (*is == '\0')
        is = hf_json_text(config, "hidden_act");
    if (*is != '\0' && strcmp(is, f->activation) != 0)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "key 'hidden_act' is '%.*s'; a model of type '%s' is supported only with '%s'",
            SHOWN_MAX, is, f->model_type, f->activation);
    return STATUS_OK;
}

static enum status read_hf_sizes(struct hf_model *m, uint64_t *ret_ffn_width, uint64_t *ret_vocab,
                                 const json_t *config, struct error *err)
{
    const struct {
        const char *name;
        uint64_t *out, max;
    } sizes[] = {
        {"num_hidden_layers", &m->n_layers, LAYERS_MAX},
        {"hidden_size", &m->width, SIZE_MAX_WIDTH},
        {"intermediate_size", ret_ffn_width, SIZE_MAX_WIDTH},
        {"max_position_embeddings", &m->context, SIZE_MAX_WIDTH},
        {"vocab_size", ret_vocab, SIZE_MAX_WIDTH},
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        enum status rc =
            read_config_size(sizes[i].out, m->family, config, sizes[i].name, sizes[i].max, err);

        if (rc != STATUS_OK)
            return rc;
    }
    return read_hf_heads(m, config, err);
}

/* The keys that all architectures have. */
static enum status write_hf_sizes(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                  struct error *err)
{
    uint64_t ffn_width = 0, n_vocab = 0;
    double eps = 0;
    enum status rc = read_hf_sizes(m, &ffn_width, &n_vocab, config, err);

    if (rc != STATUS_OK)
        return rc;
    rc = read_config_f64(&eps, m->family, config, "rms_norm_eps", err);
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND
                   ? error_set(err, STATUS_DATA_LOSS, "key 'rms_norm_eps' is absent")
                   : rc;
    hf_key_u64(keys, ".block_count", m->n_layers);
    hf_key_u64(keys, ".embedding_length", m->width);
    hf_key_u64(keys, ".feed_forward_length", ffn_width);
    hf_key_u64(keys, ".vocab_size", n_vocab);
    hf_key_u64(keys, ".attention.head_count", m->n_heads);
    hf_key_u64(keys, ".attention.head_count_kv", m->n_kv_heads);
    hf_key_u64(keys, ".attention.key_length", m->head_dim);
    hf_key_u64(keys, ".attention.value_length", m->head_dim);
    hf_key_u64(keys, ".rope.dimension_count", m->n_rotated);
    hf_key_f32(keys, ".attention.layer_norm_rms_epsilon", eps);
    return STATUS_OK;
}

enum status hf_config_read(struct hf_model *out, struct hf_keys *keys, const json_t *config,
                           struct error *err)
{
    struct hf_model m = {0};
    const json_t *ties;
    enum status rc = find_hf_family(&m.family, config, err);

    if (rc != STATUS_OK)
        return rc;
    if (m.family->is_nested)
        config = hf_config_text(config);
    keys->prefix = m.family->architecture;
    hf_key_text(keys, "general.architecture", keys->prefix, strlen(keys->prefix));
    if ((rc = check_hf_activation(m.family, config, err)) != STATUS_OK ||
        (rc = write_hf_sizes(&m, keys, config, err)) != STATUS_OK ||
        (rc = copy_numbers(keys, config, err)) != STATUS_OK ||
        (rc = read_hf_rope(&m, keys, config, err)) != STATUS_OK ||
        (rc = read_hf_window(&m, keys, config, err)) != STATUS_OK ||
        (rc = read_hf_experts(&m, keys, config, err)) != STATUS_OK ||
        (rc = check_unrotated(&m, config, err)) != STATUS_OK)
        return rc;
    if (m.family->norm_add != 0 && (rc = check_query_scale(&m, config, err)) != STATUS_OK)
        return rc;
    hf_key_u64(keys, ".context_length", m.context);
    ties = json_object_get(config, "tie_word_embeddings");
    m.is_tied = json_is_boolean(ties) ? json_is_true(ties) : m.family->is_tied;
    *out = m;
    return STATUS_OK;
}
