/* Reads a file's keys of rotation and computes the divisors of the frequencies by them. A kind of
 * scaling that is not known is refused by its name. */
#include "compute/model/ropes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/numbers.h"
#include "compute/model/shape.h"
#include "compute/model/tensors.h"

static const double PI = 3.14159265358979323846;
enum { SHOWN_MAX = 60 };

enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE };

/* rope.scaling of the file. */
struct rope_keys {
    enum rope_scaling type;
    double factor, attn_factor, log_multiplier, beta_fast, beta_slow, original, window_base;
};

static enum status read_scaling_type(struct rope_keys *k, const struct gguf *g,
                                     const struct arch *a, struct error *err)
{
    static const char *const names[] = {"none", "linear", "yarn", "longrope"};
    char key[ARCH_KEY_MAX];
    const char *text;
    size_t len;
    enum status rc = gguf_get_text(g, arch_key(key, a, "rope.scaling.type"), &text, &len, err);

    k->type = SCALING_LINEAR;
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    for (int i = 0; i < 4; i++)
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0) {
            k->type = (enum rope_scaling)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: key '%s' is '%.*s', it must be none, linear, yarn or longrope",
                     gguf_path(g), key, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
}

/* A factor of 0 means none. */
static enum status read_factor(struct rope_keys *k, const struct gguf *g, const struct arch *a,
                               struct error *err)
{
    double old = 0.0;
    enum status rc;

    k->factor = 0.0;
    if ((rc = numbers_read_optional(&old, g, a, "rope.scale_linear", 0.0, 1e6, err)) != STATUS_OK ||
        (rc = numbers_read_optional(&k->factor, g, a, "rope.scaling.factor", 0.0, 1e6, err)) !=
            STATUS_OK)
        return rc;
    k->factor = k->factor > 0.0 ? k->factor : old > 0.0 ? old : 1.0;
    if (k->type == SCALING_NONE)
        k->factor = 1.0;
    return STATUS_OK;
}

static enum status read_keys(struct rope_keys *k, const struct gguf *g,
                             const struct transformer_shape *s, struct error *err)
{
    const struct arch *a = s->arch;
    const bool has_betas = (a->keys & KEYS_YARN_BETAS) != 0;
    double fast = 32.0, slow = 1.0;
    enum status rc;

    *k = (struct rope_keys){
        .attn_factor = 1.0,
        .original = (double)s->context,
        .window_base = a->window_rope == WINDOW_ROPE_LOCAL ? 10000.0 : (double)s->rope_base};
    if ((rc = read_scaling_type(k, g, a, err)) != STATUS_OK ||
        (rc = read_factor(k, g, a, err)) != STATUS_OK ||
        (rc = numbers_read_optional(&k->attn_factor, g, a, "rope.scaling.attn_factor", 1e-6, 1e6,
                                    err)) != STATUS_OK ||
        (rc = numbers_read_optional(&k->log_multiplier, g, a, "rope.scaling.yarn_log_multiplier",
                                    -1e3, 1e3, err)) != STATUS_OK ||
        (rc = numbers_read_optional(&fast, g, a, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, err)) !=
            STATUS_OK ||
        (rc = numbers_read_optional(&slow, g, a, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, err)) !=
            STATUS_OK ||
        (rc = numbers_read_optional(&k->original, g, a, "rope.scaling.original_context_length", 1.0,
                                    1e9, err)) != STATUS_OK ||
        (rc = numbers_read_optional(&k->window_base, g, a, "rope.freq_base_swa", 1.0, 1e12, err)) !=
            STATUS_OK)
        return rc;
    k->beta_fast = has_betas ? fast : 32.0;
    k->beta_slow = has_betas ? slow : 1.0;
    return STATUS_OK;
}

/* The pair that turns `rotations` times within the original context. */
static double pair_of_rotations(const struct rope_keys *k, const struct transformer_shape *s,
                                double rotations)
{
    return (double)s->n_rotated * real_log(k->original / (rotations * 2.0 * PI)) /
           (2.0 * real_log((double)s->rope_base));
}

/* What YaRN multiplies the frequency of pair j by: that of fast pairs stays, slow ones are
 * interpolated. */
static double yarn_frequency(const struct rope_keys *k, const struct transformer_shape *s, size_t j)
{
    const bool rounds = !s->arch->yarn_is_exact;
    double fast = pair_of_rotations(k, s, k->beta_fast);
    double slow = pair_of_rotations(k, s, k->beta_slow);
    double low = fmax(0.0, rounds ? floor(fast) : fast);
    double high = fmin((double)s->n_rotated - 1.0, rounds ? ceil(slow) : slow);
    double place = ((double)j - low) / fmax(0.001, high - low);
    double ramp = 1.0 - fmin(1.0, fmax(0.0, place));

    return (1.0 - ramp) / k->factor + ramp;
}

static double amplitude_of(const struct rope_keys *k, const struct transformer_shape *s)
{
    double rise = 0.1 * real_log(k->factor), m = k->log_multiplier;

    if (k->type != SCALING_YARN || s->arch->yarn_scales_scores)
        return k->attn_factor;
    return k->attn_factor * (1.0 + rise) / (m != 0.0 ? 1.0 + m * rise : 1.0);
}

static enum status check_divisors(const float *divisors, const struct tensor *t, bool may_stand,
                                  struct error *err)
{
    for (size_t i = 0; i < t->n_cols; i++)
        if (!(divisors[i] >= 1e-6f && divisors[i] <= 1e6f) &&
            !(may_stand && divisors[i] >= 1e29f && divisors[i] <= 1e31f))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: tensor '%s' has the value %g, it must be from 1e-6 to 1e6",
                             gguf_path(t->file), t->name, (double)divisors[i]);
    return STATUS_OK;
}

/* Multiplies scale [n] by a tensor of divisors; NOT_FOUND where there is none. */
static enum status take_divisors(double *scale, size_t n, bool may_stand, const struct gguf *g,
                                 const char *name, struct error *err)
{
    const struct tensor *t = NULL;
    float *divisors;
    enum status rc = transformer_tensor_of_shape(&t, g, name, 1, n, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->type != DTYPE_F32)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: tensor '%s' is %s, it must be F32",
                         gguf_path(g), t->name, dtype_name(t->type));
    divisors = try_alloc(n, sizeof(*divisors));
    if (divisors == NULL)
        return error_no_memory(err, t->size_bytes, t->name);
    rc = tensor_read(t, 0, 1, divisors, err);
    if (rc == STATUS_OK)
        rc = check_divisors(divisors, t, may_stand, err);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        scale[i] *= (double)divisors[i];
    free(divisors);
    return rc;
}

/* The tensor that holds divisors for this context: one is chosen for good, since keys in pages have
 * been rotated by it. */
static const char *divisors_name(const struct rope_keys *k, const struct transformer_shape *s,
                                 size_t context)
{
    if (k->type != SCALING_LONGROPE && !s->arch->has_length_factors)
        return "rope_freqs.weight";
    return (double)context > k->original ? "rope_factors_long.weight" : "rope_factors_short.weight";
}

/* Divisors of the frequencies; true in ret_any if any is not 1. */
static enum status fill_scale(double *scale, bool *ret_any, const struct rope_keys *k,
                              const struct gguf *g, const struct transformer_shape *s,
                              size_t context, struct error *err)
{
    size_t n = s->n_rotated / 2;
    enum status rc;

    for (size_t j = 0; j < n; j++)
        scale[j] = k->type == SCALING_YARN ? 1.0 / yarn_frequency(k, s, j) : k->factor;
    rc = take_divisors(scale, n, s->arch->pairs_may_stand, g, divisors_name(k, s, context), err);
    *ret_any = rc == STATUS_OK || k->factor != 1.0;
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

enum status model_ropes_init(struct model_ropes *out, const struct gguf *g,
                             const struct transformer_shape *s, size_t context, struct error *err)
{
    struct rope_keys k;
    bool is_scaled = false;
    enum status rc = read_keys(&k, g, s, err);

    *out = (struct model_ropes){0};
    if (rc != STATUS_OK || s->n_rotated == 0)
        return rc;
    out->scale = try_alloc(s->n_rotated / 2, sizeof(*out->scale));
    if (out->scale == NULL)
        return error_no_memory(err, s->n_rotated / 2 * sizeof(*out->scale), "rope");
    rc = fill_scale(out->scale, &is_scaled, &k, g, s, context, err);
    if (rc != STATUS_OK)
        return rc;
    out->score_factor = 1.0f;
    if (s->arch->yarn_scales_scores && k.type == SCALING_YARN) {
        double rise = 1.0 + k.log_multiplier * real_log(k.factor);

        out->score_factor = (float)(rise * rise);
    }
    out->all = (struct rope){.head_dim = s->latent_rank > 0 ? s->n_rotated : s->head_dim,
                             .base = s->rope_base,
                             .scale = is_scaled ? out->scale : NULL,
                             .n_rotated = s->n_rotated,
                             .halves = s->arch->rope_halves,
                             .amplitude = (float)amplitude_of(&k, s),
                             .n_positions = context};
    out->windowed = out->all;
    out->windowed.base = (float)k.window_base;
    if ((s->arch->keys & KEYS_WINDOW_HEADS) != 0) {
        out->windowed.n_rotated = s->window_rotated;
        for (size_t i = 0; i < s->n_layers; i++)
            if (transformer_is_windowed(s, i))
                out->windowed.head_dim = s->layers[i].head_dim;
    }
    if (s->arch->window_rope != WINDOW_ROPE_SAME) {
        out->windowed.scale = NULL;
        out->windowed.amplitude = 1.0f;
    }
    return STATUS_OK;
}

void model_ropes_deinit(struct model_ropes *r)
{
    free(r->scale);
    *r = (struct model_ropes){0};
}
