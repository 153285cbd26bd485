#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/numerics/scalar.h"
#include "compute/ref/parts.h"

/* Pair j of one head. */
static void turn_pair(const struct rope *r, size_t j, float c, float s, float *head)
{
    float *first = head + (r->halves ? j : 2 * j);
    float *second = r->halves ? first + rope_width(r) / 2 : first + 1;
    float a = *first, b = *second;

    *first = a * c - b * s;
    *second = a * s + b * c;
}

void ref_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x)
{
    size_t width = r->n_heads * r->head_dim;
    float *rows = n > 0 ? ref_floats(x, n, width) : NULL;

    for (size_t j = 0; n > 0 && j < rope_width(r) / 2; j++) {
        double frequency = rope_frequency(r, j), amplitude = rope_amplitude(r);

        for (size_t i = 0; i < n; i++) {
            double angle = positions[i] * frequency;
            float c = real_cos_float(amplitude, angle), s = real_sin_float(amplitude, angle);

            for (size_t h = 0; h < r->n_heads; h++)
                turn_pair(r, j, c, s, rows + i * width + h * r->head_dim);
        }
    }
}

/* Scratch for the scores of n positions and, after them, for one key or value. */
static float *scores_for(struct ref *r, size_t n, size_t head_dim)
{
    struct error err;
    size_t need = n + head_dim;

    if (need > r->n_scores) {
        float *scores = try_realloc(r->scores, need, sizeof(*scores));

        if (scores == NULL) {
            (void)error_no_memory(&err, need * sizeof(*scores), "attention scores");
            ref_fail(r, &err);
            return NULL;
        }
        r->scores = scores;
        r->n_scores = need;
    }
    return r->scores;
}

/* x[i] = exp(x[i] - max), max being the greatest of x and sink, which may be NULL; returns the sum
 * of all, in sixteen lanes, and exp(sink - max). */
static float exponentials(float *x, size_t n, const float *sink)
{
    float max = x[0], lanes[SCALAR_LANES] = {0};

    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (sink != NULL)
        max = *sink > max ? *sink : max;
    for (size_t i = 0; i < n; i++) {
        x[i] = scalar_exp(x[i] - max);
        lanes[i % SCALAR_LANES] += x[i];
    }
    return scalar_sum_lanes(lanes) + (sink != NULL ? scalar_exp(*sink - max) : 0.0f);
}

/* cap tanh(score / cap) */
static float cap_score(float score, float cap)
{
    const double twice = 2.0 * (double)score / (double)cap;

    return cap > 0.0f ? (float)((double)cap * (1.0 - 2.0 / (1.0 + real_exp(twice)))) : score;
}

/* One head of one query that sees positions first … n - 1: q and out [head_dim]. sink is the
 * head's, or NULL. */
static void attend_head(const struct kv *kv, size_t layer, const struct attention *how,
                        const int32_t *pages, size_t head, size_t first, size_t n, const float *q,
                        const float *sink, float *scores /* [n + head_dim] */, float *out)
{
    size_t head_dim = kv->layers[layer].is.head_dim;
    float scale = how->scale > 0.0f ? how->scale : 1.0f / sqrtf((float)head_dim);
    float *scratch = scores + n, sum;

    for (size_t p = first; p < n; p++)
        scores[p] = cap_score(
            ref_dot(q, ref_kv_at(kv, layer, KV_KEYS, pages, p, head, scratch), head_dim) * scale,
            how->cap);
    sum = exponentials(scores + first, n - first, sink);
    memset(out, 0, head_dim * sizeof(*out));
    for (size_t p = first; p < n; p++) {
        const float *v = ref_kv_at(kv, layer, KV_VALUES, pages, p, head, scratch);

        for (size_t d = 0; d < head_dim; d++)
            out[d] += scores[p] * v[d];
    }
    for (size_t d = 0; d < head_dim; d++)
        out[d] /= sum;
}

void ref_attend(struct backend *b, const struct kv *kv, size_t layer, const struct attention *how,
                const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                struct buffer *out)
{
    size_t n_heads = how->n_heads;
    const struct kv_layer *is = &kv->layers[layer].is;
    size_t head_dim = is->head_dim, width = n_heads * head_dim;
    size_t n_sharing = n_heads / is->n_kv_heads; /* query heads of one key head */
    float *sinks = NULL;

    if (how->sinks != NULL) {
        sinks = ref_scratch_of(to_ref(b), &to_ref(b)->decoded, n_heads);
        if (sinks == NULL)
            return;
        ref_decode_row(how->sinks, 0, sinks);
    }
    for (const struct attend_row *row = rows; row < rows + n_rows; row++) {
        size_t skip = row->first * width;
        const float *from = ref_const_floats(q, row->first + row->n_tokens, width) + skip;
        float *to = ref_floats(out, row->first + row->n_tokens, width) + skip;
        float *scores = scores_for(to_ref(b), row->pos + row->n_tokens, head_dim);

        if (scores == NULL)
            return;
        for (size_t t = 0; t < row->n_tokens; t++)
            for (size_t h = 0; h < n_heads; h++)
                attend_head(kv, layer, how, row->pages, h / n_sharing,
                            attend_first(row->pos + t + 1, how->window, how->window_is_chunk),
                            attend_row_end(row, t), from + t * width + h * head_dim,
                            sinks != NULL ? sinks + h : NULL, scores,
                            to + t * width + h * head_dim);
    }
}
