/* Operators on rows that only the newer architectures need. */
#include <assert.h>
#include <string.h>

#include "compute/backend/gates.h"
#include "compute/ref/parts.h"

void ref_layer_norm(struct backend *b, const struct layer_norm *how, const struct buffer *x,
                    size_t n, size_t width, struct buffer *out)
{
    const float *from = ref_const_floats(x, n, width);
    float *gain = ref_scratch_of(to_ref(b), &to_ref(b)->decoded, 2 * width), *bias = NULL;
    float *to = ref_floats(out, n, width);

    if (gain == NULL)
        return;
    ref_decode_row(how->gain, 0, gain);
    if (how->bias != NULL) {
        bias = gain + width;
        ref_decode_row(how->bias, 0, bias);
    }
    for (size_t i = 0; i < n * width; i += width)
        gates_layer_norm(from + i, gain, bias, how->eps, width, to + i);
}

void ref_activate(struct backend *b, enum activation kind, const struct buffer *by, size_t n,
                  size_t width, struct buffer *x)
{
    const float *up = by != NULL ? ref_const_floats(by, n, width) : NULL;
    float *to = ref_floats(x, n, width);

    for (size_t i = 0; i < n * width; i++)
        to[i] = gates_activated(kind, to[i], up != NULL ? up[i] : 1.0f);
}

void ref_copy_columns(struct backend *b, const struct buffer *in, size_t in_stride, size_t in_at,
                      size_t n, size_t width, struct buffer *out, size_t out_stride, size_t out_at)
{
    const float *from = ref_const_floats(in, n, in_stride) + in_at;
    float *to = ref_floats(out, n, out_stride) + out_at;

    assert(in_at + width <= in_stride && out_at + width <= out_stride);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * out_stride, from + i * in_stride, width * sizeof(*to));
}

void ref_cut(struct backend *b, float times, size_t n, size_t width, struct buffer *x)
{
    float *to = ref_floats(x, n, width);

    for (size_t i = 0; i < n; i++)
        gates_cut(times, width, to + i * width);
}

void ref_fill(struct backend *b, float value, size_t n, size_t width, struct buffer *x)
{
    float *to = ref_floats(x, n, width);

    for (size_t i = 0; i < n * width; i++)
        to[i] = value;
}
