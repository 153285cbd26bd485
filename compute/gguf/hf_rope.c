/* The rope of config.json: its base, and how it is scaled. transformers 5 writes all of it into
 * rope_parameters, that of layers with a window beside it; older files have rope_theta, and the
 * scaling in rope_scaling. */
#include <math.h>
#include <string.h>

#include "base/real.h"
#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 40 };

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

static enum status read_rope_number(double *out, const json_t *rope, const char *name,
                                    struct error *err)
{
    return hf_json_f64(rope, name, out, err) == STATUS_DATA_LOSS ? STATUS_DATA_LOSS : STATUS_OK;
}

/* The ends of YaRN's ramp: keys of some architectures, of others the usual ones. */
static enum status write_yarn_ends(const struct hf_model *m, struct hf_keys *keys,
                                   const json_t *rope, struct error *err)
{
    static const struct {
        const char *name, *key;
        double usual;
    } ends[] = {{"beta_fast", ".rope.scaling.yarn_beta_fast", 32},
                {"beta_slow", ".rope.scaling.yarn_beta_slow", 1}};
    const json_t *truncate = json_object_get(rope, "truncate");

    for (size_t i = 0; i < 2; i++) {
        double is = ends[i].usual;

        if (read_rope_number(&is, rope, ends[i].name, err) != STATUS_OK)
            return err->status;
        if (m->family->has_betas)
            hf_key_f32(keys, ends[i].key, is);
        else if (is != ends[i].usual)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "'rope_scaling' has a %s of %g; only %g is supported", ends[i].name,
                             is, ends[i].usual);
    }
    return json_is_false(truncate) == m->family->yarn_is_exact || truncate == NULL
               ? STATUS_OK
               : error_set(err, STATUS_UNIMPLEMENTED,
                           "'rope_scaling' has truncate: %s, which is not supported",
                           json_is_false(truncate) ? "false" : "true");
}

static double yarn_rise(double factor, double times)
{
    return factor <= 1 ? 1 : 1 + 0.1 * times * real_log(factor);
}

/* Queries and keys are multiplied by an amplitude: attention_factor, or what mscale and
 * mscale_all_dim say, or the usual one. GGUF has it as a multiple of the usual one. */
static enum status write_yarn_amplitude(const struct hf_model *m, struct hf_keys *keys,
                                        const json_t *rope, double factor, struct error *err)
{
    double amplitude = yarn_rise(factor, 1), scale = 0, scale_all = 0;

    if (read_rope_number(&scale, rope, "mscale", err) != STATUS_OK ||
        read_rope_number(&scale_all, rope, "mscale_all_dim", err) != STATUS_OK)
        return err->status;
    if (scale != 0 && scale_all != 0)
        amplitude = yarn_rise(factor, scale) / yarn_rise(factor, scale_all);
    if (read_rope_number(&amplitude, rope, "attention_factor", err) != STATUS_OK)
        return err->status;
    if (m->family->has_latent) { /* its scores are scaled by the other, and it by itself */
        hf_key_f32(keys, ".rope.scaling.yarn_log_multiplier", 0.1 * scale_all);
        hf_key_f32(keys, ".rope.scaling.attn_factor", amplitude);
    } else if (amplitude != yarn_rise(factor, 1)) {
        hf_key_f32(keys, ".rope.scaling.attn_factor", amplitude / (1 + 0.1 * real_log(factor)));
    }
    return STATUS_OK;
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
    if (rc == STATUS_OK && strcmp(type, "yarn") == 0) {
        rc = write_yarn_amplitude(m, keys, rope, factor, err);
        if (rc == STATUS_OK)
            rc = write_yarn_ends(m, keys, rope, err);
    }
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
    double amplitude, growth, short_amplitude;
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
    if (read_rope_number(&growth, rope, "factor", err) != STATUS_OK)
        return err->status;
    amplitude = growth > 1 ? sqrt(1 + real_log(growth) / real_log(m->original)) : 1;
    if (read_rope_number(&amplitude, rope, "attention_factor", err) != STATUS_OK ||
        read_rope_number(&amplitude, rope, "long_mscale", err) != STATUS_OK) /* Phi-3.5-MoE's */
        return err->status;
    short_amplitude = amplitude;
    if (read_rope_number(&short_amplitude, rope, "short_mscale", err) != STATUS_OK)
        return err->status;
    if (short_amplitude != amplitude)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "'rope_scaling' has a short_mscale (%g) that is not its long_mscale (%g), "
                         "which is not supported",
                         short_amplitude, amplitude);
    hf_key_text(keys, ".rope.scaling.type", "longrope", strlen("longrope"));
    hf_key_f32(keys, ".rope.scaling.attn_factor", amplitude);
    return STATUS_OK;
}

static enum status read_rope_scaling(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                                     const json_t *rope, struct error *err)
{
    const char *type = rope_type_of(rope);

    if (strcmp(type, "default") == 0 ||
        (strcmp(type, "proportional") == 0 && m->family->has_two_heads))
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

/* Queries grow with positions where rope says so (ministral3). */
static enum status write_query_growth(struct hf_keys *keys, const json_t *rope, struct error *err)
{
    double rise;
    enum status rc = hf_json_f64(rope, "llama_4_scaling_beta", &rise, err);

    if (rc == STATUS_OK)
        hf_key_f32(keys, ".attention.temperature_scale", rise);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* How much of a head is rotated. */
static enum status read_rotated_part(struct hf_model *m, const json_t *config, const json_t *rope,
                                     struct error *err)
{
    static const char name[] = "partial_rotary_factor";
    double part = 1;

    (void)hf_family_default(&part, m->family, name);
    if (read_rope_number(&part, config, name, err) != STATUS_OK ||
        read_rope_number(&part, rope, name, err) != STATUS_OK)
        return err->status;
    m->n_rotated = part > 0 && part <= 1 ? (uint64_t)((double)m->head_dim * part) : 0;
    if (strcmp(rope_type_of(rope), "proportional") == 0 && m->n_rotated != 0) {
        m->n_turning = m->n_rotated / 2;
        m->n_rotated = m->head_dim;
    }
    return m->n_rotated != 0 && m->n_rotated % 2 == 0
               ? STATUS_OK
               : error_set(err, STATUS_DATA_LOSS,
                           "key '%s' is %g, which rotates no pair of a head of width %llu", name,
                           part, (unsigned long long)m->head_dim);
}

static enum status read_rope_base(struct hf_model *m, const json_t *config, const json_t *rope,
                                  struct error *err)
{
    m->rope_base = 10000;
    (void)hf_family_default(&m->rope_base, m->family, "rope_theta");
    if (read_rope_number(&m->rope_base, config, "rope_theta", err) != STATUS_OK ||
        read_rope_number(&m->rope_base, rope, "rope_theta", err) != STATUS_OK)
        return err->status;
    return m->rope_base >= 1 ? STATUS_OK
                             : error_set(err, STATUS_DATA_LOSS, "key 'rope_theta' is less than 1");
}

enum status hf_rope_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                         struct error *err)
{
    const json_t *rope = hf_rope_of(config);
    enum status rc;

    if ((rc = read_rotated_part(m, config, rope, err)) != STATUS_OK ||
        (rc = read_rope_base(m, config, rope, err)) != STATUS_OK)
        return rc;
    hf_key_u64(keys, ".rope.dimension_count", m->n_rotated);
    hf_key_f32(keys, ".rope.freq_base", m->rope_base);
    rc = read_rope_scaling(m, keys, config, rope, err);
    return rc == STATUS_OK ? write_query_growth(keys, rope, err) : rc;
}

enum status hf_rope_write_window_base(struct hf_keys *keys, const json_t *config, struct error *err)
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
