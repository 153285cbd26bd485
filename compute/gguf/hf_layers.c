/* Layers of config.json that are not of the common kind: latent keys and values (DeepSeek), a state
 * in the place of attention (Qwen3.5, Granite 4), heads of two widths (Gemma 4). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/real.h"
#include "compute/gguf/hf_parts.h"

enum { HEADS_MAX = 1 << 12 };

static bool is_layer_of(const json_t *types, size_t layer, const char *type)
{
    const json_t *one = json_array_get(types, layer);

    return json_is_string(one) && strcmp(json_string_value(one), type) == 0;
}

/* The list of the layers' types, one for each; NULL where config.json has none. */
static enum status layer_types_of(const json_t **out, const struct hf_model *m,
                                  const json_t *config, struct error *err)
{
    const json_t *types = json_object_get(config, "layer_types");

    *out = json_is_array(types) ? types : NULL;
    if (*out != NULL && json_array_size(types) != m->n_layers)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'layer_types' has %zu entries, it must have %llu, one for each layer",
                         json_array_size(types), (unsigned long long)m->n_layers);
    return STATUS_OK;
}

/* --- latent keys and values --- */

enum status hf_latent_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                           struct error *err)
{
    const struct hf_family *f = m->family;
    const char *method = hf_json_text(config, "topk_method");
    double query_rank = 0, value_dim;
    enum status rc;

    if (!f->has_latent)
        return STATUS_OK;
    if ((rc = hf_config_size(&m->latent_rank, f, config, "kv_lora_rank", HF_WIDTH_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&m->plain_dim, f, config, "qk_nope_head_dim", HF_WIDTH_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&m->head_dim, f, config, "qk_rope_head_dim", HF_WIDTH_MAX, err)) !=
            STATUS_OK)
        return rc;
    m->value_dim = m->width / m->n_heads;
    if (hf_config_f64(&value_dim, f, config, "v_head_dim", err) != STATUS_NOT_FOUND &&
        (rc = hf_config_size(&m->value_dim, f, config, "v_head_dim", HF_WIDTH_MAX, err)) !=
            STATUS_OK)
        return rc;
    rc = hf_config_f64(&query_rank, f, config, "q_lora_rank", err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if (json_is_false(json_object_get(config, "rope_interleave")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'rope_interleave' is false, which is not supported");
    if (strcmp(method, "group_limited_greedy") == 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'topk_method' is 'group_limited_greedy', which is not supported; "
                         "'greedy' and 'noaux_tc' are");
    if (query_rank >= 1)
        hf_key_u64(keys, ".attention.q_lora_rank", (uint64_t)query_rank);
    hf_key_u64(keys, ".attention.kv_lora_rank", m->latent_rank);
    hf_key_u64(keys, ".attention.key_length_mla", m->plain_dim + m->head_dim);
    hf_key_u64(keys, ".attention.value_length_mla", m->value_dim);
    m->n_kv_heads = 1;
    return STATUS_OK;
}

/* --- state --- */

/* Which layers carry a state: the list, else all but each so many. */
static enum status write_state_layers(const struct hf_model *m, struct hf_keys *keys,
                                      const json_t *config, struct error *err)
{
    bool recurs[HF_LAYERS_MAX];
    uint64_t interval = 4;
    const json_t *types;
    enum status rc = layer_types_of(&types, m, config, err);

    if (rc != STATUS_OK)
        return rc;
    rc = hf_json_u64(config, "full_attention_interval", &interval, err);
    if (rc == STATUS_DATA_LOSS || interval == 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'full_attention_interval' must be a number above 0");
    for (size_t i = 0; i < m->n_layers; i++) {
        recurs[i] =
            types == NULL ? (i + 1) % interval != 0 : is_layer_of(types, i, "linear_attention");
        if (types != NULL && !recurs[i] && !is_layer_of(types, i, "full_attention"))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'layer_types' has an unsupported type of layer %zu", i);
    }
    hf_key_bools(keys, ".attention.recurrent_layers", recurs, m->n_layers);
    return STATUS_OK;
}

enum status hf_state_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                          struct error *err)
{
    const struct hf_family *f = m->family;
    uint64_t value_dim = 0, n_taps = 0;
    enum status rc;

    if (!f->has_state)
        return STATUS_OK;
    if ((rc = hf_config_size(&m->n_key_heads, f, config, "linear_num_key_heads", HEADS_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&m->n_state_heads, f, config, "linear_num_value_heads", HEADS_MAX,
                             err)) != STATUS_OK ||
        (rc = hf_config_size(&m->state_dim, f, config, "linear_key_head_dim", HEADS_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&value_dim, f, config, "linear_value_head_dim", HEADS_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&n_taps, f, config, "linear_conv_kernel_dim", HEADS_MAX, err)) !=
            STATUS_OK)
        return rc;
    if (value_dim != m->state_dim || m->n_state_heads % m->n_key_heads != 0 ||
        json_is_false(json_object_get(config, "attn_output_gate")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "heads of state with keys of %llu numbers and values of %llu, %llu of "
                         "values for %llu of keys, or attention without a gate of its output: not "
                         "supported",
                         (unsigned long long)m->state_dim, (unsigned long long)value_dim,
                         (unsigned long long)m->n_state_heads, (unsigned long long)m->n_key_heads);
    hf_key_u64(keys, ".ssm.conv_kernel", n_taps);
    hf_key_u64(keys, ".ssm.state_size", m->state_dim);
    hf_key_u64(keys, ".ssm.group_count", m->n_key_heads);
    hf_key_u64(keys, ".ssm.time_step_rank", m->n_state_heads);
    hf_key_u64(keys, ".ssm.inner_size", m->n_state_heads * value_dim);
    hf_key_bool(keys, ".ssm.groups_values", true);
    return write_state_layers(m, keys, config, err);
}

/* --- Mamba-2 --- */

/* A layer's kind by the names that transformers 4 and 5 have for it, and by that of a pattern; 0
 * for another. */
static char layer_kind(const char *name, bool has_halves)
{
    static const struct {
        const char *name;
        char kind;
        bool of_halves;
    } kinds[] = {{"linear_attention", 'M', false},
                 {"mamba", 'M', false},
                 {"M", 'M', true},
                 {"full_attention", '*', false},
                 {"attention", '*', false},
                 {"*", '*', true},
                 {"mlp", '-', true},
                 {"-", '-', true},
                 {"moe", 'E', true},
                 {"E", 'E', true}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0 && (has_halves || !kinds[i].of_halves))
            return kinds[i].kind;
    return 0;
}

/* The list of the layers' kinds, under the name that the file has for it. */
static const json_t *layer_kinds_of(const json_t *config)
{
    const json_t *types = json_object_get(config, "layers_block_type");

    return json_is_array(types) ? types : json_object_get(config, "layer_types");
}

size_t hf_mamba_n_layers(const json_t *config)
{
    const size_t n = json_array_size(layer_kinds_of(config));

    return n > 0 ? n : strlen(hf_json_text(config, "hybrid_override_pattern"));
}

static enum status read_layer_kinds(struct hf_model *m, const json_t *config, struct error *err)
{
    const json_t *types = layer_kinds_of(config);
    const char *pattern = hf_json_text(config, "hybrid_override_pattern");
    const bool has_halves = m->family->mamba == HF_MAMBA_HALVES;

    if (hf_mamba_n_layers(config) != m->n_layers)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'layer_types' has %zu entries, it must have %llu, one for each layer",
                         hf_mamba_n_layers(config), (unsigned long long)m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++) {
        const json_t *one = json_array_get(types, i);
        const char text[] = {pattern[json_is_array(types) ? 0 : i], '\0'};
        const char *name = json_is_string(one) ? json_string_value(one) : text;

        m->kinds[i] = layer_kind(json_is_array(types) && one == NULL ? "" : name, has_halves);
        if (m->kinds[i] == 0)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'layer_types' has a layer of the unsupported type '%.40s'", name);
    }
    return STATUS_OK;
}

/* Limits of a step's length, which Mamba-2's definition does not have. */
static bool limits_steps(const json_t *config)
{
    const json_t *limit = json_object_get(config, "time_step_limit");
    const json_t *least = json_array_get(limit, 0), *most = json_array_get(limit, 1);

    return (json_is_number(least) && json_number_value(least) > 0) ||
           (json_is_number(most) && json_number_value(most) < 1e30); /* above: Infinity */
}

enum status hf_mamba_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                          struct error *err)
{
    static const char *const names[3][5] = {
        {"mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"},
        {"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"},
        {"num_heads", "head_dim", "state_size", "n_groups", "conv_kernel"}};
    const struct hf_family *f = m->family;
    const char *const *name = names[f->mamba == HF_MAMBA_HALVES  ? 1
                                    : f->mamba == HF_MAMBA_ALONE ? 2
                                                                 : 0];
    uint64_t width = 0, n_taps = 0;
    enum status rc;

    if (f->mamba == HF_NO_MAMBA)
        return STATUS_OK;
    if ((rc = hf_config_size(&m->n_state_heads, f, config, name[0], HEADS_MAX, err)) != STATUS_OK ||
        (rc = hf_config_size(&m->state_dim, f, config, name[2], HEADS_MAX, err)) != STATUS_OK ||
        (rc = hf_config_size(&m->n_key_heads, f, config, name[3], HEADS_MAX, err)) != STATUS_OK ||
        (rc = hf_config_size(&n_taps, f, config, name[4], HEADS_MAX, err)) != STATUS_OK)
        return rc;
    if (f->mamba == HF_MAMBA_BESIDE) {
        if ((rc = hf_config_size(&width, f, config, "mamba_d_ssm", HF_WIDTH_MAX, err)) != STATUS_OK)
            return rc;
        width /= m->n_state_heads;
    } else if (json_is_string(json_object_get(config, name[1]))) /* auto */
        width = 2 * m->width / m->n_state_heads;
    else if ((rc = hf_config_size(&width, f, config, name[1], HEADS_MAX, err)) != STATUS_OK)
        return rc;
    if (json_is_integer(json_object_get(config, "moe_latent_size")) || limits_steps(config))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "keys 'moe_latent_size' and 'time_step_limit' are not supported: experts "
                         "of a latent width, limits of a step");
    if (hf_json_is_true(config, "mamba_rms_norm") &&
        !json_is_false(json_object_get(config, "mamba_norm_before_gate")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'mamba_norm_before_gate' is not false, which is not supported");
    m->state_width = width;
    hf_key_u64(keys, ".ssm.conv_kernel", n_taps);
    hf_key_u64(keys, ".ssm.state_size", m->state_dim);
    hf_key_u64(keys, ".ssm.group_count", m->n_key_heads);
    hf_key_u64(keys, ".ssm.time_step_rank", m->n_state_heads);
    hf_key_u64(keys, ".ssm.inner_size", m->n_state_heads * width);
    if (f->mamba == HF_MAMBA &&
        strcmp(hf_json_text(config, "position_embedding_type"), "rope") != 0)
        hf_key_bool(keys, ".rope.scaling.finetuned", false); /* as GGUF says that none is rotated */
    return f->mamba == HF_MAMBA_BESIDE || f->mamba == HF_MAMBA_ALONE
               ? STATUS_OK
               : read_layer_kinds(m, config, err);
}

/* --- attention in chunks --- */

/* Experts are in each so many layers, as GGUF says it. */
static enum status check_moe_layers(const json_t *config, const struct hf_model *m, uint64_t step,
                                    struct error *err)
{
    const json_t *layers = json_object_get(config, "moe_layers"), *one;
    size_t i;

    json_array_foreach(
        layers, i,
        one) if (json_integer_value(one) !=
                 (json_int_t)((i + 1) * step - 1)) return error_set(err, STATUS_UNIMPLEMENTED,
                                                                    "key 'moe_layers' is not every "
                                                                    "'interleave_moe_layer_step' "
                                                                    "layers (%llu), which "
                                                                    "is not supported",
                                                                    (unsigned long long)step);
    if (json_is_array(layers) && json_array_size(layers) != m->n_layers / step)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'moe_layers' has %zu layers with experts, but of %llu each %llu",
                         json_array_size(layers), (unsigned long long)m->n_layers,
                         (unsigned long long)step);
    return STATUS_OK;
}

/* The layers that are rotated are those in chunks. */
static enum status read_chunked(bool *out, const struct hf_model *m, const json_t *config,
                                struct error *err)
{
    const json_t *rotated = json_object_get(config, "no_rope_layers"), *types;
    uint64_t every = 4;
    enum status rc = layer_types_of(&types, m, config, err);

    if (rc != STATUS_OK)
        return rc;
    if (hf_json_u64(config, "no_rope_layer_interval", &every, err) == STATUS_DATA_LOSS ||
        every == 0 || (json_array_size(rotated) > 0 && json_array_size(rotated) < m->n_layers))
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'no_rope_layers' has %zu entries, it must have %llu, one for each "
                         "layer, or 'no_rope_layer_interval' must be above 0",
                         json_array_size(rotated), (unsigned long long)m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++) {
        const json_t *one = json_array_get(rotated, i);

        out[i] =
            one != NULL ? json_integer_value(one) != 0 || json_is_true(one) : (i + 1) % every != 0;
        if (types != NULL &&
            !is_layer_of(types, i, out[i] ? "chunked_attention" : "full_attention"))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "keys 'layer_types' and 'no_rope_layers' do not say of layer %zu that "
                             "it is rotated and in chunks, or neither, which is not supported",
                             i);
    }
    return STATUS_OK;
}

enum status hf_chunks_read(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                           struct error *err)
{
    static const char tuning[] = "attn_temperature_tuning";
    const struct hf_family *f = m->family;
    const json_t *tunes = json_object_get(config, tuning);
    uint64_t chunk = 0, width = 0, every = 0, step = 1;
    bool chunked[HF_LAYERS_MAX];
    double rise = 0;
    enum status rc;

    if (!f->has_chunks)
        return STATUS_OK;
    if ((rc = hf_config_size(&chunk, f, config, "attention_chunk_size", HF_WIDTH_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&width, f, config, "intermediate_size", HF_WIDTH_MAX, err)) !=
            STATUS_OK ||
        (rc = hf_config_size(&every, f, config, "floor_scale", HF_WIDTH_MAX, err)) != STATUS_OK ||
        (rc = hf_config_f64(&rise, f, config, "attn_scale", err)) != STATUS_OK ||
        (rc = read_chunked(chunked, m, config, err)) != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? error_set(err, STATUS_DATA_LOSS, "key 'attn_scale' is null")
                                      : rc;
    if (hf_json_u64(config, "interleave_moe_layer_step", &step, err) == STATUS_DATA_LOSS ||
        step == 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'interleave_moe_layer_step' must be a number above 0");
    if ((rc = check_moe_layers(config, m, step, err)) != STATUS_OK)
        return rc;
    if (json_is_false(tunes) || (json_is_integer(tunes) && json_integer_value(tunes) == 0))
        rise = 0;
    hf_key_u64(keys, ".attention.sliding_window", chunk);
    hf_key_bools(keys, ".attention.sliding_window_pattern", chunked, m->n_layers);
    hf_key_bool(keys, ".attention.norms_heads",
                !json_is_false(json_object_get(config, "use_qk_norm")));
    hf_key_f32(keys, ".attention.temperature_scale", rise);
    hf_key_u64(keys, ".attention.temperature_length", every);
    hf_key_u64(keys, ".expert_feed_forward_length", width);
    return STATUS_OK;
}

/* --- streams --- */

/* So many standard deviations above the mean lie all but `part` of a normal distribution. */
static double deviations_of(double part)
{
    double low = -9, high = 9;

    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;

        if (real_normal_below(middle) < part)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A part of what networks' gates make that becomes 0, of each layer; 0: nothing is cut. */
static enum status write_cuts(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                              struct error *err)
{
    static const char name[] = "activation_sparsity_pattern";
    const json_t *parts = json_object_get(config, name), *one;
    const uint64_t n_cut = m->n_layers > 10 ? 10 : 0; /* where the key is absent */
    size_t i;

    if (json_is_array(parts) && json_array_size(parts) != m->n_layers)
        return error_set(err, STATUS_DATA_LOSS,
                         "key '%s' has %zu entries, it must have %llu, one for each layer", name,
                         json_array_size(parts), (unsigned long long)m->n_layers);
    for (i = 0; i < json_array_size(parts); i++) {
        one = json_array_get(parts, i);
        if (!json_is_number(one) || !(json_number_value(one) >= 0) || !(json_number_value(one) < 1))
            return error_set(err, STATUS_DATA_LOSS,
                             "key '%s' has an entry that is not a number from 0 to less than 1",
                             name);
    }
    hf_key_floats(keys, ".activation_sparsity_scale", m->n_layers);
    for (i = 0; i < m->n_layers; i++) {
        const double part = json_is_array(parts) ? json_number_value(json_array_get(parts, i))
                                                 : (i < n_cut ? 0.95 : 0);

        hf_item_float(keys, part > 0 ? deviations_of(part) : -INFINITY);
    }
    return STATUS_OK;
}

enum status hf_streams_read(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                            struct error *err)
{
    const struct hf_family *f = m->family;
    double n = 0, active = 0, n_sharing = 0, own = 0;

    if (!f->has_streams)
        return STATUS_OK;
    if (hf_config_f64(&n, f, config, "altup_num_inputs", err) == STATUS_DATA_LOSS ||
        hf_config_f64(&active, f, config, "altup_active_idx", err) == STATUS_DATA_LOSS ||
        hf_config_f64(&n_sharing, f, config, "num_kv_shared_layers", err) == STATUS_DATA_LOSS ||
        hf_config_f64(&own, f, config, "hidden_size_per_layer_input", err) == STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (!(n >= 2 && n <= 4) || active != 0 ||
        json_is_false(json_object_get(config, "altup_correct_scale")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "keys 'altup_num_inputs', 'altup_active_idx' and 'altup_correct_scale' "
                         "are not 2 to 4, 0 and true: not supported");
    if (!(n_sharing >= 0 && n_sharing < (double)m->n_layers) || !(own >= 1 && own <= HF_WIDTH_MAX))
        return error_set(err, STATUS_DATA_LOSS,
                         "keys 'num_kv_shared_layers' and 'hidden_size_per_layer_input' are %g "
                         "and %g",
                         n_sharing, own);
    hf_key_u64(keys, ".altup.num_inputs", (uint64_t)n);
    hf_key_u64(keys, ".altup.active_idx", 0);
    hf_key_u64(keys, ".attention.shared_kv_layers", (uint64_t)n_sharing);
    hf_key_u64(keys, ".embedding_length_per_layer_input", (uint64_t)own);
    return write_cuts(m, keys, config, err);
}

/* --- heads of two widths --- */

/* What one layer's entry of per_layer_config says of its heads. */
static enum status read_override(const json_t *entry, uint64_t *head_dim, uint64_t *n_kv_heads,
                                 struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)entry, name, value)
    {
        uint64_t *out = strcmp(name, "head_dim") == 0              ? head_dim
                        : strcmp(name, "num_key_value_heads") == 0 ? n_kv_heads
                                                                   : NULL;

        if (out == NULL || !json_is_integer(value) || json_integer_value(value) <= 0 ||
            json_integer_value(value) > HEADS_MAX)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'per_layer_config' has '%.40s', which is not supported", name);
        *out = (uint64_t)json_integer_value(value);
    }
    return STATUS_OK;
}

/* The heads of the layers without a window: transformers 5 writes into per_layer_config those that
 * differ from the others', older files have keys for all. */
static enum status read_wide_heads(struct hf_model *m, const bool *windows, const json_t *config,
                                   struct error *err)
{
    const json_t *each = hf_json_object(config, "per_layer_config");
    const bool by_key = json_is_true(json_object_get(config, "attention_k_eq_v"));
    uint64_t wide = each != NULL ? m->head_dim : 512, n_kv = m->n_kv_heads;
    const char *name;
    json_t *entry;
    bool has_any = false;

    if (each == NULL && (hf_json_u64(config, "global_head_dim", &wide, err) == STATUS_DATA_LOSS ||
                         (by_key && hf_json_u64(config, "num_global_key_value_heads", &n_kv, err) ==
                                        STATUS_DATA_LOSS)))
        return STATUS_DATA_LOSS;
    json_object_foreach((json_t *)each, name, entry)
    {
        uint64_t layer, dim = m->head_dim, n = m->n_kv_heads;
        const size_t len = number_take(&layer, name, SIZE_MAX, m->n_layers - 1);

        if (len == 0 || name[len] != '\0' || windows[layer] || !json_is_object(entry))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'per_layer_config' has '%.40s', which is no layer without a "
                             "window",
                             name);
        if (read_override(entry, &dim, &n, err) != STATUS_OK)
            return err->status;
        if (has_any && (dim != wide || n != n_kv))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "key 'per_layer_config' has different heads for layers without a "
                             "window, which is not supported");
        wide = dim;
        n_kv = n;
        has_any = true;
    }
    if (wide < 2 || wide > HEADS_MAX || wide % 2 != 0 || n_kv == 0 || n_kv > HEADS_MAX)
        return error_set(err, STATUS_DATA_LOSS,
                         "layers without a window have %llu heads of keys of %llu numbers",
                         (unsigned long long)n_kv, (unsigned long long)wide);
    m->head_dim = wide;
    m->n_kv_heads = n_kv;
    return STATUS_OK;
}

enum status hf_two_heads_read(struct hf_model *m, uint64_t *ret_window_dim, struct hf_keys *keys,
                              const json_t *config, uint64_t ffn_width, struct error *err)
{
    const uint64_t window_kv = m->n_kv_heads;
    bool windows[HF_LAYERS_MAX];
    uint64_t n_sharing = 0, embedding = 0;
    const bool is_double = hf_json_is_true(config, "use_double_wide_mlp");
    double own = 0;
    const json_t *types;
    enum status rc = layer_types_of(&types, m, config, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < m->n_layers; i++)
        windows[i] =
            i + 1 < m->n_layers &&
            (types == NULL ? (i + 1) % 6 != 0 : is_layer_of(types, i, "sliding_attention"));
    if (json_is_string(json_object_get(config, "use_bidirectional_attention")) &&
        strcmp(hf_json_text(config, "use_bidirectional_attention"), "all") == 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "key 'use_bidirectional_attention' is 'all', which is not supported");
    if (hf_json_u64(config, "num_kv_shared_layers", &n_sharing, err) == STATUS_DATA_LOSS ||
        hf_config_f64(&own, m->family, config, "hidden_size_per_layer_input", err) ==
            STATUS_DATA_LOSS)
        return STATUS_DATA_LOSS;
    if (n_sharing >= m->n_layers || !(own >= 0 && own <= HF_WIDTH_MAX))
        return error_set(err, STATUS_DATA_LOSS,
                         "keys 'num_kv_shared_layers' and 'hidden_size_per_layer_input' are %llu "
                         "and %g",
                         (unsigned long long)n_sharing, own);
    embedding = (uint64_t)own;
    *ret_window_dim = m->head_dim;
    if ((rc = read_wide_heads(m, windows, config, err)) != STATUS_OK)
        return rc;
    hf_key_bools(keys, ".attention.sliding_window_pattern", windows, m->n_layers);
    hf_key_u64(keys, ".attention.key_length_swa", *ret_window_dim);
    hf_key_u64(keys, ".attention.value_length_swa", *ret_window_dim);
    hf_key_u64(keys, ".rope.dimension_count_swa", *ret_window_dim);
    hf_key_u64(keys, ".attention.shared_kv_layers", n_sharing);
    hf_key_u64(keys, ".embedding_length_per_layer_input", embedding);
    hf_key_numbers(keys, ".attention.head_count_kv", m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++)
        hf_item_number(keys, (uint32_t)(windows[i] ? window_kv : m->n_kv_heads));
    hf_key_numbers(keys, ".feed_forward_length", m->n_layers);
    for (size_t i = 0; i < m->n_layers; i++)
        hf_item_number(keys,
                       (uint32_t)(ffn_width * (is_double && i + n_sharing >= m->n_layers ? 2 : 1)));
    return STATUS_OK;
}
