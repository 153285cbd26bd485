/* Operators on weights. They stay as they lie in the file and are decoded on the way, a few rows at
 * a time and once a call, however many rows of activations there are. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/ref_parts.h"
#include "compute/scalar.h"

enum status ref_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                            struct error *err)
{
    struct ref *r = to_ref(b);
    struct weight *w;

    if (t->n_cols > r->decoded_width) {
        float *decoded = try_realloc(r->decoded, t->n_cols, REF_WEIGHT_ROWS * sizeof *decoded);

        if (decoded == NULL)
            return error_no_memory(err, t->n_cols * REF_WEIGHT_ROWS * sizeof *decoded, t->name);
        r->decoded = decoded;
        r->decoded_width = t->n_cols;
    }
    w = try_alloc(1, sizeof *w);
    if (w == NULL)
        return error_no_memory(err, sizeof *w, t->name);
    w->tensor = *t;
    *out = w;
    return STATUS_OK;
}

void ref_weight_close(struct backend *b, struct weight *w)
{
    (void)b;
    free(w);
}

static void decode_row(const struct weight *w, size_t row, float *out /* [n_cols] */)
{
    const struct tensor *t = &w->tensor;
    const unsigned char *rows = t->data;

    assert(row < t->n_rows);
    dtype_decode(t->type, rows + row * dtype_row_bytes(t->type, t->n_cols), t->n_cols, out);
}

float ref_dot(const float *a, const float *b, size_t n)
{
    float lanes[SCALAR_LANES] = {0};
    size_t i, l;

    for (i = 0; i + SCALAR_LANES <= n; i += SCALAR_LANES)
        for (l = 0; l < SCALAR_LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    for (l = 0; i + l < n; l++)
        lanes[l] += a[i + l] * b[i + l];
    return scalar_sum_lanes(lanes);
}

void ref_embed(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
               struct buffer *out)
{
    size_t width = table->tensor.n_cols;
    float *to = ref_floats(out, n, width);

    (void)b;
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] >= 0);
        decode_row(table, (size_t)ids[i], to + i * width);
    }
}

void ref_matmul(struct backend *b, const struct weight *w, const struct buffer *in, size_t n,
                struct buffer *out)
{
    size_t n_rows = w->tensor.n_rows, n_cols = w->tensor.n_cols;
    const float *from = ref_const_floats(in, n, n_cols);
    float *to = ref_floats(out, n, n_rows), *decoded = to_ref(b)->decoded;

    for (size_t first = 0; first < n_rows; first += REF_WEIGHT_ROWS) {
        size_t n_block = n_rows - first < REF_WEIGHT_ROWS ? n_rows - first : REF_WEIGHT_ROWS;

        for (size_t j = 0; j < n_block; j++)
            decode_row(w, first + j, decoded + j * n_cols);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n_block; j++)
                to[i * n_rows + first + j] =
                    ref_dot(decoded + j * n_cols, from + i * n_cols, n_cols);
    }
}

void ref_rms_norm(struct backend *b, const struct buffer *in, const struct weight *gain, float eps,
                  size_t n, size_t width, struct buffer *out)
{
    const float *x = ref_const_floats(in, n, width);
    float *y = ref_floats(out, n, width), *g = to_ref(b)->decoded;

    assert(gain->tensor.n_cols == width);
    decode_row(gain, 0, g);
    for (size_t i = 0; i < n; i++, x += width, y += width) {
        float scale = 1.0f / sqrtf(ref_dot(x, x, width) / (float)width + eps);

        for (size_t c = 0; c < width; c++)
            y[c] = x[c] * scale * g[c];
    }
}
