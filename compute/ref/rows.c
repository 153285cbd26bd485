/* Operators on rows of activations. */
#include <string.h>

#include "compute/numerics/scalar.h"
#include "compute/ref/parts.h"

void ref_norm(struct backend *b, const struct input *in, size_t n, size_t width, struct buffer *out)
{
    const float *rows = ref_input_rows(to_ref(b), in, n, width);
    float *to = ref_floats(out, n, width);

    if (rows != NULL)
        memmove(to, rows, n * width * sizeof(*to));
}

void ref_add(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
             struct buffer *out)
{
    const float *from = ref_const_floats(in, n, width);
    float *to = ref_floats(out, n, width);

    for (size_t i = 0; i < n * width; i++)
        to[i] += factor * from[i];
}

void ref_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x)
{
    size_t width = bias->tensor.n_cols;
    float *row = ref_scratch_of(to_ref(b), &to_ref(b)->decoded, width);
    float *to = ref_floats(x, n, width);

    if (row == NULL)
        return;
    ref_decode_row(bias, 0, row);
    for (size_t i = 0; i < n * width; i++)
        to[i] += row[i % width];
}

void ref_scale(struct backend *b, float factor, float cap, size_t n, size_t width, struct buffer *x)
{
    float *to = ref_floats(x, n, width), inverse = cap > 0.0f ? 1.0f / cap : 0.0f;

    for (size_t i = 0; i < n * width; i++)
        to[i] = scalar_scaled(to[i], factor, cap, inverse);
}

void ref_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                     const float *factors, size_t n, size_t width, struct buffer *out)
{
    const float *from = ref_const_floats(in, n, width);

    for (size_t i = 0; i < n; i++) {
        float *to = ref_floats(out, rows[i] + (size_t)1, width) + rows[i] * width;

        for (size_t c = 0; c < width; c++)
            to[c] += factors[i] * from[i * width + c];
    }
}

void ref_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                    struct buffer *x)
{
    float *to = ref_floats(x, n, width);

    for (size_t i = 0; i < n * width; i++)
        to[i] *= factors[i / width];
}
