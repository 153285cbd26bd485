/* config.json: the keys of the architecture. hf_families.c knows the families, hf_rope.c their
 * rope. */
#include <math.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { EXPERTS_MAX = 1 << 12, SHOWN_MAX = 40 };

const json_t *hf_config_text(const json_t *config)
{
    const json_t *text = hf_json_object(config, "text_config");

    return text != NULL ? text : config;
}

enum status hf_config_f64(double *out, const struct hf_family *f, const json_t *config,
                          const char *name, struct error *err)
{
    enum status rc = hf_json_f64(config, name, out, err);

    return json_object_get(config, name) == NULL ? hf_family_default(out, f, name) : rc;
}

enum status hf_config_size(uint64_t *out, const struct hf_family *f, const json_t *config,
                           const char *name, uint64_t max, struct error *err)
{
    double usual;
    enum status rc = hf_json_u64(config, name, out, err);

    if (json_object_get(config, name) == NULL && hf_family_default(&usual, f, name) == STATUS_OK) {
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

static enum status read_hf_head_width(struct hf_model *m, const json_t *config, struct error *err)
{
    double width = (double)(m->width / m->n_heads);
    enum status rc = hf_config_f64(&width, m->family, config, "head_dim", err);

    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (!(width >= 2 && width <= HF_WIDTH_MAX) || (uint64_t)width % 2 != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the width of a head is %g, it must be an even number", width);
    m->head_dim = (uint64_t)width;
    return STATUS_OK;
}

static enum status read_hf_heads(struct hf_model *m, const json_t *config, struct error *err)
{
    static const char kv_heads[] = "num_key_value_heads";
    const struct hf_family *f = m->family;
    const json_t *given = json_object_get(config, kv_heads);
    double usual;
    enum status rc = hf_config_size(&m->n_heads, f, config, "num_attention_heads", 1 << 12, err);

    if (rc != STATUS_OK)
        return rc;
    m->n_kv_heads = m->n_heads;
    if (given != NULL ? !json_is_null(given) : hf_family_default(&usual, f, kv_heads) == STATUS_OK)
        rc = hf_config_size(&m->n_kv_heads, f, config, kv_heads, 1 << 12, err);
    return rc == STATUS_OK ? read_hf_head_width(m, config, err) : rc;
}

/* Numbers that have a key of their own in GGUF, where config.json has them. */
static enum status copy_numbers(struct hf_keys *keys, const struct hf_family *f,
                                const json_t *config, struct error *err)
{
    static const struct {
        const char *from, *to;
    } numbers[] = {
        {"embedding_multiplier", ".embedding_scale"},
        {"residual_multiplier", ".residual_scale"},
        {"logits_scaling", ".logit_scale"},
        {"logit_scale", ".logit_scale"}, /* cohere: a factor there, not a divisor */
        {"attention_multiplier", ".attention.scale"},
        {"attn_logit_softcapping", ".attn_logit_softcapping"},
        {"final_logit_softcapping", ".final_logit_softcapping"},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        double value;
        enum status rc = f->has_factors ? STATUS_NOT_FOUND /* weights have them */
                                        : hf_config_f64(&value, f, config, numbers[i].from, err);

        if (rc == STATUS_OK)
            hf_key_f32(keys, numbers[i].to, value);
        else if (rc != STATUS_NOT_FOUND)
            return rc;
    }
    return STATUS_OK;
}

/* MiniCPM states its factors for models of any size. */
static enum status write_depth_scales(const struct hf_model *m, struct hf_keys *keys,
                                      const json_t *config, struct error *err)
{
    double embedding = 0, depth = 0, base = 0;

    if (!m->family->scales_by_depth)
        return STATUS_OK;
    if (hf_config_f64(&embedding, m->family, config, "scale_emb", err) != STATUS_OK ||
        hf_config_f64(&depth, m->family, config, "scale_depth", err) != STATUS_OK ||
        hf_config_f64(&base, m->family, config, "dim_model_base", err) != STATUS_OK || !(base > 0))
        return error_set(err, STATUS_DATA_LOSS,
                         "keys 'scale_emb', 'scale_depth' and 'dim_model_base' must be numbers "
                         "above 0");
    hf_key_f32(keys, ".embedding_scale", embedding);
    hf_key_f32(keys, ".residual_scale", depth / sqrt((double)m->n_layers));
    hf_key_f32(keys, ".logit_scale", (double)m->width / base);
    return STATUS_OK;
}

/* --- windows --- */

/* The window of layers that have one; 0: none has. */
static enum status read_window_size(uint64_t *out, const struct hf_model *m, const json_t *config,
                                    struct error *err)
{
    static const char name[] = "sliding_window", use[] = "use_sliding_window";
    const json_t *types = json_object_get(config, "layer_types"), *type;
    const json_t *is_used = json_object_get(config, use);
    double usual = 0;
    bool is_listed = false;
    size_t i;

    *out = 0;
    if (hf_json_u64(config, name, out, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (json_object_get(config, name) == NULL &&
        hf_family_default(&usual, m->family, name) == STATUS_OK)
        *out = (uint64_t)usual;
    json_array_foreach(types, i, type) is_listed =
        is_listed ||
        (json_is_string(type) && strcmp(json_string_value(type), "sliding_attention") == 0);
    if (json_is_false(is_used) || (json_is_array(types) && !is_listed) ||
        (!json_is_array(types) && !json_is_true(is_used) && m->family->window_is_optional))
        *out = 0;
    return STATUS_OK;
}

static enum status write_layer_types(const struct hf_model *m, struct hf_keys *keys,
                                     const json_t *types, struct error *err)
{
    bool has_window[HF_LAYERS_MAX];
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

static enum status read_hf_window(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                  struct error *err)
{
    uint64_t window;
    enum status rc = read_window_size(&window, m, config, err);

    if (rc != STATUS_OK || window == 0)
        return rc;
    if (m->family->window == HF_WINDOW_CUTS) {
        if (window < m->context)
            m->context = window;
        return STATUS_OK;
    }
    hf_key_u64(keys, ".attention.sliding_window", window);
    if (m->family->window == HF_WINDOW_ALL) {
        hf_key_u64(keys, ".attention.sliding_window_pattern", 0);
        return STATUS_OK;
    }
    rc = m->family->has_two_heads ? STATUS_OK : write_window_pattern(m, keys, config, err);
    return rc == STATUS_OK ? hf_rope_write_window_base(keys, config, err) : rc;
}

/* Gemma divides scores by the root of a number of its own. GGUF files have no key for it: where it
 * is not what the model's size says, it is written as a factor. */
static enum status write_query_scale(const struct hf_model *m, struct hf_keys *keys,
                                     const json_t *config, struct error *err)
{
    const bool is_27b = m->n_layers == 46 || m->n_layers == 62;
    double scalar = 0;
    enum status rc;

    if (m->family->has_streams) /* its scores are not divided */
        return STATUS_OK;
    rc = hf_config_f64(&scalar, m->family, config, "query_pre_attn_scalar", err);
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (!(scalar > 0))
        return error_set(err, STATUS_DATA_LOSS, "key 'query_pre_attn_scalar' is not above 0");
    if (scalar != (double)(is_27b ? m->width / m->n_heads : m->head_dim))
        hf_key_f32(keys, ".attention.scale", 1 / sqrt(scalar));
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

/* A number that files name differently: NOT_FOUND, for none of the names. Hunyuan's is a list for
 * each layer, all alike. */
static enum status read_named_size(uint64_t *out, const struct hf_family *f, const json_t *config,
                                   const char *const names[], struct error *err)
{
    double usual;

    for (size_t i = 0; names[i] != NULL; i++) {
        const json_t *value = json_object_get(config, names[i]), *one;
        const json_t *first = json_array_get(value, 0);
        size_t k;

        json_array_foreach(value, k, one) if (!json_equal(one, first)) return error_set(
            err, STATUS_UNIMPLEMENTED,
            "key '%s' is not the same for all layers, which is not supported", names[i]);
        if (json_is_integer(first) && json_integer_value(first) >= 0) {
            *out = (uint64_t)json_integer_value(first);
            return STATUS_OK;
        }
        if (value != NULL && !json_is_null(value))
            return hf_json_u64(config, names[i], out, err);
    }
    for (size_t i = 0; names[i] != NULL; i++)
        if (hf_family_default(&usual, f, names[i]) == STATUS_OK) {
            *out = (uint64_t)usual;
            return STATUS_OK;
        }
    return error_set(err, STATUS_NOT_FOUND, "key '%s' is absent", names[0]);
}

enum { N_NAMES_MAX = 6 };

/* What GGUF has of a mixture of experts. */
static const struct expert_number {
    const char *names[N_NAMES_MAX];
    const char *key;
    bool is_required;
} expert_numbers[] = {
    {{"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", NULL},
     ".expert_count",
     true},
    {{"num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", NULL},
     ".expert_used_count",
     true},
    {{"moe_intermediate_size", NULL}, ".expert_feed_forward_length", false},
    {{"n_shared_experts", "moe_num_shared_experts", "num_shared_expert", NULL},
     ".expert_shared_count",
     false},
    {{"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
      "shared_intermediate_size", NULL},
     ".expert_shared_feed_forward_length",
     false},
    {{"first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", NULL},
     ".leading_dense_block_count",
     false},
    {{"moe_layer_interval", "interleave_moe_layer_step", NULL},
     ".interleave_moe_layer_step",
     false},
};

/* Groups of one are none. */
static enum status write_expert_groups(const struct hf_family *f, struct hf_keys *keys,
                                       const json_t *config, struct error *err)
{
    static const char *const counts[] = {"n_group", NULL}, *const used[] = {"topk_group", NULL};
    uint64_t n = 0, n_used = 0;

    if (read_named_size(&n, f, config, counts, err) == STATUS_DATA_LOSS ||
        read_named_size(&n_used, f, config, used, err) == STATUS_DATA_LOSS)
        return err->status;
    if (n > 1) {
        hf_key_u64(keys, ".expert_group_count", n);
        hf_key_u64(keys, ".expert_group_used_count", n_used);
    }
    return STATUS_OK;
}

/* Layers without experts are the first ones, and each so many. */
static enum status check_expert_layers(const struct hf_model *m, const json_t *config,
                                       struct error *err)
{
    const json_t *dense = json_object_get(config, "mlp_only_layers");
    uint64_t step = 1;
    int64_t end = -1;

    if (hf_json_u64(config, "decoder_sparse_step", &step, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (json_is_integer(json_object_get(config, "moe_layer_end_index")))
        end = json_integer_value(json_object_get(config, "moe_layer_end_index"));
    if (step == 1 && json_array_size(dense) == 0 && (end < 0 || end + 1 >= (int64_t)m->n_layers))
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "keys 'mlp_only_layers', 'decoder_sparse_step' and 'moe_layer_end_index' name "
                     "layers without experts, which is not supported");
}

/* A model of a family that may have experts says that it has none. */
static bool has_no_experts(const struct hf_model *m, const json_t *config)
{
    const json_t *n = json_object_get(config, "num_local_experts");

    if (m->family->mamba == HF_MAMBA_HALVES)
        return memchr(m->kinds, 'E', m->n_layers) == NULL;
    return m->family->mamba == HF_MAMBA && json_is_integer(n) && json_integer_value(n) == 0;
}

/* How near scores must be to be shared among: GGUF has no key for it. */
static enum status check_near(const struct hf_family *f, const json_t *config, struct error *err)
{
    static const char name[] = "router_jitter_noise";
    double near = f->near;

    if (hf_json_f64(config, name, &near, err) == STATUS_DATA_LOSS)
        return err->status;
    if (near == f->near)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "key '%s' is not %g, and no other number is supported", name, f->near);
}

static enum status read_hf_experts(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                   struct error *err)
{
    const struct hf_family *f = m->family;
    double scale, norms = 1;
    enum status rc;

    if (!f->has_experts || (f->experts_if != NULL && !hf_json_is_true(config, f->experts_if)) ||
        has_no_experts(m, config))
        return STATUS_OK;
    for (size_t i = 0; i < sizeof(expert_numbers) / sizeof(expert_numbers[0]); i++) {
        const struct expert_number *n = &expert_numbers[i];
        uint64_t value = 0;

        rc = read_named_size(&value, f, config, n->names, err);
        if (rc == STATUS_NOT_FOUND && !n->is_required)
            continue;
        if (rc != STATUS_OK || (n->is_required && (value == 0 || value > EXPERTS_MAX)))
            return error_set(err, STATUS_DATA_LOSS, "key '%s' is %s", n->names[0],
                             rc == STATUS_NOT_FOUND ? "absent" : "no number of experts");
        m->n_experts = i == 0 ? value : m->n_experts;
        hf_key_u64(keys, n->key, value);
    }
    if (f->near > 0) /* shares are not stated either */
        return check_near(f, config, err);
    if (f->routing != 0)
        hf_key_u64(keys, ".expert_gating_func", f->routing);
    (void)hf_family_default(&norms, f, "norm_topk_prob");
    if (json_is_boolean(json_object_get(config, "norm_topk_prob")))
        norms = hf_json_is_true(config, "norm_topk_prob");
    hf_key_bool(keys, ".expert_weights_norm", norms != 0);
    rc = hf_json_f64(config, "routed_scaling_factor", &scale, err);
    if (rc == STATUS_DATA_LOSS)
        return rc;
    if (rc == STATUS_OK)
        hf_key_f32(keys, ".expert_weights_scale", scale);
    if ((rc = write_expert_groups(f, keys, config, err)) != STATUS_OK)
        return rc;
    return check_expert_layers(m, config, err);
}

static enum status check_hf_activation(const struct hf_family *f, const json_t *config,
                                       struct error *err)
{
    const char *is = hf_json_text(config, "hidden_activation");

    if (*is == '\0')
        is = hf_json_text(config, "hidden_act");
    if (*is == '\0')
        is = hf_json_text(config, "mlp_hidden_act");
    if (*is != '\0' && strcmp(is, f->activation) != 0)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "key 'hidden_act' is '%.*s'; a model of type '%s' is supported only with '%s'",
            SHOWN_MAX, is, f->model_type, f->activation);
    return STATUS_OK;
}

/* LFM2's network is two thirds of what its file says, in whole blocks. */
static enum status widen_network(uint64_t *ffn_width, const json_t *config, struct error *err)
{
    double factor = 1, width = floor(2 * (double)*ffn_width / 3);
    uint64_t block = 256;

    if (!hf_json_is_true(config, "block_auto_adjust_ff_dim"))
        return STATUS_OK;
    if (hf_json_f64(config, "block_ffn_dim_multiplier", &factor, err) == STATUS_DATA_LOSS ||
        hf_json_u64(config, "block_multiple_of", &block, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (block == 0 || !(factor > 0 && factor < 1000))
        return error_set(err, STATUS_DATA_LOSS,
                         "keys 'block_multiple_of' and 'block_ffn_dim_multiplier' must be above 0");
    width = floor(factor * width);
    *ffn_width = ((uint64_t)width + block - 1) / block * block;
    return STATUS_OK;
}

/* A number, or a list of one for each layer, all alike. */
static enum status read_size_of_all(uint64_t *out, const struct hf_family *f, const json_t *config,
                                    const char *name, uint64_t max, struct error *err)
{
    const char *const names[] = {name, NULL};
    enum status rc;

    if (!json_is_array(json_object_get(config, name)))
        return hf_config_size(out, f, config, name, max, err);
    rc = read_named_size(out, f, config, names, err);
    if (rc == STATUS_OK && (*out == 0 || *out > max))
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is %llu, it must be from 1 to %llu", name,
                         (unsigned long long)*out, (unsigned long long)max);
    return rc;
}

static enum status read_hf_sizes(struct hf_model *m, uint64_t *ret_ffn_width, uint64_t *ret_vocab,
                                 const json_t *config, struct error *err)
{
    const struct {
        const char *name;
        uint64_t *out, max;
    } sizes[] = {
        {"num_hidden_layers", &m->n_layers, HF_LAYERS_MAX},
        {"hidden_size", &m->width, HF_WIDTH_MAX},
        {m->family->dense_width != NULL ? m->family->dense_width : "intermediate_size",
         ret_ffn_width, HF_WIDTH_MAX},
        {"max_position_embeddings", &m->context, HF_WIDTH_MAX},
        {"vocab_size", ret_vocab, HF_WIDTH_MAX},
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        enum status rc;

        /* not of a model whose layers all have experts, or nothing but a state */
        if (sizes[i].out == ret_ffn_width && m->family->mamba == HF_MAMBA_ALONE)
            continue;
        if (sizes[i].out == ret_ffn_width && m->family->has_experts &&
            m->family->dense_width == NULL && json_object_get(config, sizes[i].name) == NULL)
            continue;
        if (sizes[i].out == &m->n_layers && m->family->mamba == HF_MAMBA_HALVES) {
            m->n_layers = hf_mamba_n_layers(config);
            if (m->n_layers > 0 && m->n_layers <= HF_LAYERS_MAX)
                continue;
        }
        rc = read_size_of_all(sizes[i].out, m->family, config, sizes[i].name, sizes[i].max, err);
        if (rc != STATUS_OK)
            return rc;
    }
    return widen_network(ret_ffn_width, config, err) == STATUS_OK ? read_hf_heads(m, config, err)
                                                                  : err->status;
}

static bool is_layer_type(const json_t *type, const char *name)
{
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

/* Layers that convolve in place of attending have none. */
static void write_kv_heads(const struct hf_model *m, struct hf_keys *keys, const json_t *config)
{
    static const char key[] = ".attention.head_count_kv";
    const json_t *types = json_object_get(config, "layer_types"), *type;
    bool convolves = false;
    size_t i;

    if (m->family->mamba == HF_MAMBA) {
        hf_key_numbers(keys, key, m->n_layers);
        for (i = 0; i < m->n_layers; i++)
            hf_item_number(keys, m->kinds[i] == '*' ? (uint32_t)m->n_kv_heads : 0);
        return;
    }
    json_array_foreach(types, i, type) convolves = convolves || is_layer_type(type, "conv");
    if (!convolves || json_array_size(types) != m->n_layers) {
        hf_key_u64(keys, key, m->n_kv_heads);
        return;
    }
    hf_key_numbers(keys, key, m->n_layers);
    json_array_foreach(types, i, type)
        hf_item_number(keys, is_layer_type(type, "conv") ? 0 : (uint32_t)m->n_kv_heads);
}

/* Each layer has heads of keys, or a network, or neither. */
static enum status write_halves(const struct hf_model *m, struct hf_keys *keys,
                                const json_t *config, uint64_t ffn_width, struct error *err)
{
    uint64_t of_experts = 0;

    if (hf_json_u64(config, "moe_intermediate_size", &of_experts, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    hf_key_numbers(keys, ".attention.head_count_kv", m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++)
        hf_item_number(keys, m->kinds[i] == '*' ? (uint32_t)m->n_kv_heads : 0);
    hf_key_numbers(keys, ".feed_forward_length", m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++)
        hf_item_number(keys, m->kinds[i] == '-'   ? (uint32_t)ffn_width
                             : m->kinds[i] == 'E' ? (uint32_t)of_experts
                                                  : 0);
    return STATUS_OK;
}

/* The widths of heads and networks, where layers differ. */
static enum status write_hf_layers(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                   uint64_t ffn_width, struct error *err)
{
    uint64_t window_dim;
    enum status rc;

    if (m->family->has_two_heads)
        return hf_two_heads_read(m, &window_dim, keys, config, ffn_width, err);
    if ((rc = hf_chunks_read(m, keys, config, err)) != STATUS_OK ||
        (rc = hf_streams_read(m, keys, config, err)) != STATUS_OK ||
        (rc = hf_latent_read(m, keys, config, err)) != STATUS_OK ||
        (rc = hf_state_read(m, keys, config, err)) != STATUS_OK ||
        (rc = hf_mamba_read(m, keys, config, err)) != STATUS_OK)
        return rc;
    if (m->family->mamba == HF_MAMBA && has_no_experts(m, config))
        rc = hf_config_size(&ffn_width, m->family, config, "shared_intermediate_size", HF_WIDTH_MAX,
                            err);
    if (rc == STATUS_OK && m->family->mamba == HF_MAMBA_HALVES)
        return write_halves(m, keys, config, ffn_width, err);
    if (rc == STATUS_OK && ffn_width > 0)
        hf_key_u64(keys, ".feed_forward_length", ffn_width);
    write_kv_heads(m, keys, config);
    return rc;
}

/* The keys that all architectures have. */
static enum status write_hf_sizes(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                  struct error *err)
{
    const struct hf_family *f = m->family;
    const char *eps_name = f->eps != NULL       ? f->eps
                           : f->rms_eps != NULL ? f->rms_eps
                                                : "rms_norm_eps";
    uint64_t ffn_width = 0, n_vocab = 0;
    double eps = 0;
    enum status rc = read_hf_sizes(m, &ffn_width, &n_vocab, config, err);

    if (rc != STATUS_OK)
        return rc;
    rc = hf_config_f64(&eps, m->family, config, eps_name, err);
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND
                   ? error_set(err, STATUS_DATA_LOSS, "key '%s' is absent", eps_name)
                   : rc;
    hf_key_u64(keys, ".block_count", m->n_layers);
    hf_key_u64(keys, ".embedding_length", m->width);
    hf_key_u64(keys, ".vocab_size", n_vocab);
    hf_key_u64(keys, ".attention.head_count", m->n_heads);
    if ((rc = write_hf_layers(m, keys, config, ffn_width, err)) != STATUS_OK)
        return rc;
    hf_key_u64(keys, ".attention.key_length", m->latent_rank + m->head_dim);
    hf_key_u64(keys, ".attention.value_length", m->latent_rank > 0 ? m->latent_rank : m->head_dim);
    hf_key_f32(keys,
               m->family->eps != NULL ? ".attention.layer_norm_epsilon"
                                      : ".attention.layer_norm_rms_epsilon",
               eps);
    return STATUS_OK;
}

/* How many rows and columns of a matrix in FP8 have one scale. */
static void read_scale_blocks(struct hf_model *m, const json_t *config)
{
    const json_t *sizes =
        json_object_get(hf_json_object(config, "quantization_config"), "weight_block_size");

    if (json_array_size(sizes) != 2 || json_integer_value(json_array_get(sizes, 0)) <= 0 ||
        json_integer_value(json_array_get(sizes, 1)) <= 0)
        return;
    m->block_rows = (uint64_t)json_integer_value(json_array_get(sizes, 0));
    m->block_cols = (uint64_t)json_integer_value(json_array_get(sizes, 1));
}

/* Of a model that also sees, either of its two objects may say it. */
static bool ties_embeddings(const struct hf_family *f, const json_t *config, const json_t *whole)
{
    static const char name[] = "tie_word_embeddings";
    const bool is_said = json_is_boolean(json_object_get(config, name)) ||
                         json_is_boolean(json_object_get(whole, name));

    return is_said ? hf_json_is_true(config, name) || hf_json_is_true(whole, name) : f->is_tied;
}

enum status hf_config_read(struct hf_model *out, struct hf_keys *keys, const json_t *config,
                           const json_t *pooling, struct error *err)
{
    struct hf_model m = {0};
    const json_t *whole = config;
    uint64_t taps;
    enum status rc = hf_family_find(&m.family, config, err);

    if (rc != STATUS_OK)
        return rc;
    if (m.family->nested_type != NULL)
        config = hf_config_text(config);
    keys->prefix = m.family->architecture;
    hf_key_text(keys, "general.architecture", keys->prefix, strlen(keys->prefix));
    if (m.family->encoder_layers != NULL) {
        rc = hf_encoder_read(&m, keys, config, pooling, err);
        if (rc == STATUS_OK)
            *out = m;
        return rc;
    }
    if ((rc = check_hf_activation(m.family, config, err)) != STATUS_OK ||
        (rc = write_hf_sizes(&m, keys, config, err)) != STATUS_OK ||
        (rc = copy_numbers(keys, m.family, config, err)) != STATUS_OK ||
        (rc = write_depth_scales(&m, keys, config, err)) != STATUS_OK ||
        (rc = hf_rope_read(&m, keys, config, err)) != STATUS_OK ||
        (rc = read_hf_window(&m, keys, config, err)) != STATUS_OK ||
        (rc = read_hf_experts(&m, keys, config, err)) != STATUS_OK ||
        (rc = check_unrotated(&m, config, err)) != STATUS_OK)
        return rc;
    if ((rc = write_query_scale(&m, keys, config, err)) != STATUS_OK)
        return rc;
    hf_key_u64(keys, ".context_length", m.context);
    if ((rc = hf_ranker_read(&m, config, pooling, err)) != STATUS_OK ||
        (rc = hf_pooling_write(&m, keys, pooling, err)) != STATUS_OK)
        return rc;
    if (hf_json_u64(config, "conv_L_cache", &taps, err) == STATUS_OK)
        hf_key_u64(keys, ".shortconv.l_cache", taps);
    read_scale_blocks(&m, whole);
    m.is_tied = hf_ranks(config) || /* saved with the head of its scores alone */
                ties_embeddings(m.family, config, whole);
    if ((rc = hf_factors_read(&m, config, err)) != STATUS_OK)
        return rc;
    *out = m;
    return STATUS_OK;
}
