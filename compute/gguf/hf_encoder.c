/* config.json of encoders: BERT, XLM-R, Nomic's and ModernBERT. Names of numbers differ between
 * them, and those of Nomic's own code are those of GPT-2. */
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { N_NAMES = 3, POOLS_MEAN = 1, POOLS_CLS = 2, POOLS_LAST = 3, POOLS_RANK = 4 };

/* A number under one of the names that files have for it. */
static enum status read_any_size(uint64_t *out, const struct hf_family *f, const json_t *config,
                                 const char *const names[N_NAMES], struct error *err)
{
    for (size_t i = 1; i < N_NAMES && names[i] != NULL; i++)
        if (json_object_get(config, names[i]) != NULL)
            return hf_config_size(out, f, config, names[i], HF_WIDTH_MAX, err);
    return hf_config_size(out, f, config, names[0], HF_WIDTH_MAX, err);
}

static enum status read_any_f64(double *out, const struct hf_family *f, const json_t *config,
                                const char *const names[N_NAMES], struct error *err)
{
    enum status rc = STATUS_NOT_FOUND;

    for (size_t i = N_NAMES; i-- > 0 && rc == STATUS_NOT_FOUND;)
        if (names[i] != NULL && (i == 0 || json_object_get(config, names[i]) != NULL))
            rc = hf_config_f64(out, f, config, names[i], err);
    return rc == STATUS_NOT_FOUND ? error_set(err, STATUS_DATA_LOSS, "key '%s' is absent", names[0])
                                  : rc;
}

/* What would change the result, and is not computed. */
static enum status check_encoder(const struct hf_family *f, const json_t *config, struct error *err)
{
    static const struct {
        const char *name, *only;
    } texts[] = {{"position_embedding_type", "absolute"}, {"activation_function", "swiglu"}};
    static const char *const falses[] = {"is_decoder", "add_cross_attention", "prenorm",
                                         "use_rms_norm", "parallel_block"};
    const char *is = hf_json_text(config, "hidden_activation");

    if (*is == '\0')
        is = hf_json_text(config, "hidden_act");
    if (*is != '\0' && strcmp(is, f->activation) != 0)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "key 'hidden_act' is '%.40s'; a model of type '%s' is supported only with '%s'", is,
            f->model_type, f->activation);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = hf_json_text(config, texts[i].name);

        if (*text != '\0' && strcmp(text, texts[i].only) != 0)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key '%s' is '%.40s'; only '%s' is supported", texts[i].name, text,
                             texts[i].only);
    }
    for (size_t i = 0; i < sizeof(falses) / sizeof(falses[0]); i++)
        if (hf_json_is_true(config, falses[i]))
            return error_set(err, STATUS_UNIMPLEMENTED, "key '%s' is true, which is not supported",
                             falses[i]);
    if (json_is_integer(json_object_get(config, "num_experts")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'num_experts' is not supported for a model of type '%s'",
                         f->model_type);
    return STATUS_OK;
}

/* The window and its layers, of ModernBERT. */
static enum status write_encoder_windows(const struct hf_model *m, struct hf_keys *keys,
                                         const json_t *config, struct error *err)
{
    const json_t *types = json_object_get(config, "layer_types"), *one;
    uint64_t window = 0, every = 3;
    bool has_window[HF_LAYERS_MAX];
    size_t i;

    if (hf_config_size(&window, m->family, config, "local_attention", HF_WIDTH_MAX, err) !=
        STATUS_OK)
        return err->status;
    if (hf_json_u64(config, "global_attn_every_n_layers", &every, err) == STATUS_DATA_LOSS ||
        every == 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'global_attn_every_n_layers' must be a number above 0");
    if (json_is_array(types) && json_array_size(types) != m->n_layers)
        return error_set(err, STATUS_DATA_LOSS, "key 'layer_types' has %zu entries, not %llu",
                         json_array_size(types), (unsigned long long)m->n_layers);
    for (i = 0; i < m->n_layers; i++)
        has_window[i] = i % every != 0;
    json_array_foreach(types, i, one) has_window[i] =
        json_is_string(one) && strcmp(json_string_value(one), "sliding_attention") == 0;
    hf_key_u64(keys, ".attention.sliding_window", window);
    hf_key_bools(keys, ".attention.sliding_window_pattern", has_window, m->n_layers);
    return STATUS_OK;
}

/* The bases of rope: of all layers, and of those with a window. */
static enum status write_encoder_rope(const struct hf_model *m, struct hf_keys *keys,
                                      const json_t *config, struct error *err)
{
    const json_t *both = hf_json_object(config, "rope_parameters");
    const json_t *full = hf_json_object(both, "full_attention");
    const json_t *local = hf_json_object(both, "sliding_attention");
    double base = 0, window_base = 0, part = 1;

    (void)hf_family_default(&base, m->family, "rope_theta");
    (void)hf_family_default(&window_base, m->family, "local_rope_theta");
    if (hf_json_f64(config, "rotary_emb_base", &base, err) == STATUS_DATA_LOSS ||
        hf_json_f64(config, "global_rope_theta", &base, err) == STATUS_DATA_LOSS ||
        hf_json_f64(config, "local_rope_theta", &window_base, err) == STATUS_DATA_LOSS ||
        hf_json_f64(full != NULL ? full : both, "rope_theta", &base, err) == STATUS_DATA_LOSS ||
        hf_json_f64(local, "rope_theta", &window_base, err) == STATUS_DATA_LOSS ||
        hf_json_f64(config, "rotary_emb_fraction", &part, err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (part != 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'rotary_emb_fraction' is %g; only 1 is supported", part);
    hf_key_f32(keys, ".rope.freq_base", base);
    if (window_base > 0)
        hf_key_f32(keys, ".rope.freq_base_swa", window_base);
    return STATUS_OK;
}

/* How states become one. Of vectors that get the length 1 the sum by the root of a text's length is
 * the mean. */
static const struct hf_pooling {
    const char *name, *older; /* a truth value of each, in files of older sentence-transformers */
    uint64_t type;            /* 0: not computed here */
} poolings[] = {{"cls", "pooling_mode_cls_token", POOLS_CLS},
                {"lasttoken", "pooling_mode_lasttoken", POOLS_LAST},
                {"mean", "pooling_mode_mean_tokens", POOLS_MEAN},
                {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOLS_MEAN},
                {"max", "pooling_mode_max_tokens", 0},
                {"weightedmean", "pooling_mode_weightedmean_tokens", 0}};

enum { N_POOLINGS = sizeof(poolings) / sizeof(poolings[0]) };

/* How often the mode, a text or a list of such, names the pooling. */
static size_t n_named(const json_t *mode, const char *name)
{
    const json_t *one;
    size_t i, n = 0;

    if (json_is_string(mode))
        return strcmp(json_string_value(mode), name) == 0;
    json_array_foreach(mode, i, one) n +=
        json_is_string(one) && strcmp(json_string_value(one), name) == 0;
    return n;
}

/* As sentence-transformers says beside the model, or by what the model is for. */
enum status hf_pooling_write(const struct hf_model *m, struct hf_keys *keys, const json_t *pooling,
                             struct error *err)
{
    const json_t *mode = json_object_get(pooling, "pooling_mode");
    uint64_t type = mode == NULL ? POOLS_MEAN : 0;
    size_t n = 0;

    for (size_t i = 0; i < N_POOLINGS; i++) {
        const size_t is = mode != NULL ? n_named(mode, poolings[i].name)
                                       : hf_json_is_true(pooling, poolings[i].older);

        type = is > 0 ? poolings[i].type : type;
        n += is;
    }
    if (pooling != NULL && !m->is_ranker && (n > 1 || type == 0 || json_array_size(mode) > 1))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the pooling that 1_Pooling/config.json names is not supported; 'cls', "
                         "'lasttoken' or 'mean' alone is");
    if (m->is_ranker || pooling != NULL)
        hf_key_u64(keys, ".pooling_type", m->is_ranker ? POOLS_RANK : type);
    return STATUS_OK;
}

enum status hf_encoder_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                            const json_t *pooling, struct error *err)
{
    static const char *const eps_names[N_NAMES] = {"layer_norm_eps", "norm_eps",
                                                   "layer_norm_epsilon"};
    const struct hf_family *f = m->family;
    uint64_t ffn_width = 0;
    const struct {
        const char *names[N_NAMES];
        uint64_t *out;
    } sizes[] = {
        {{"num_hidden_layers", "n_layer"}, &m->n_layers},
        {{"hidden_size", "n_embd"}, &m->width},
        {{"num_attention_heads", "n_head"}, &m->n_heads},
        {{"intermediate_size", "n_inner"}, &ffn_width},
        {{"max_position_embeddings", "n_positions", "max_trained_positions"}, &m->context},
    };
    double eps = 0;
    enum status rc = check_encoder(f, config, err);

    if (rc == STATUS_OK && json_object_get(pooling, "true_token_id") != NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "a score by logits (1_LogitScore) is not supported for an encoder");
    for (size_t i = 0; rc == STATUS_OK && i < sizeof(sizes) / sizeof(sizes[0]); i++)
        rc = read_any_size(sizes[i].out, f, config, sizes[i].names, err);
    if (rc == STATUS_OK)
        rc = read_any_f64(&eps, f, config, eps_names, err);
    if (rc != STATUS_OK)
        return rc;
    if (m->n_layers > HF_LAYERS_MAX || m->context <= f->n_unused_positions)
        return error_set(err, STATUS_DATA_LOSS,
                         "keys 'num_hidden_layers' and 'max_position_embeddings' are %llu and %llu",
                         (unsigned long long)m->n_layers, (unsigned long long)m->context);
    m->head_dim = m->width / m->n_heads;
    m->context -= f->n_unused_positions;
    m->is_ranker = hf_ranks(config);
    hf_key_u64(keys, ".block_count", m->n_layers);
    hf_key_u64(keys, ".embedding_length", m->width);
    hf_key_u64(keys, ".feed_forward_length", ffn_width);
    hf_key_u64(keys, ".context_length", m->context);
    hf_key_u64(keys, ".attention.head_count", m->n_heads);
    hf_key_f32(keys, ".attention.layer_norm_epsilon", eps);
    rc = hf_pooling_write(m, keys, pooling, err);
    if (rc == STATUS_OK && f->window == HF_WINDOW_KEY)
        rc = write_encoder_windows(m, keys, config, err);
    return rc == STATUS_OK && f->rotates ? write_encoder_rope(m, keys, config, err) : rc;
}
