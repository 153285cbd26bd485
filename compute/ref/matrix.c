/* Operators on weights. Weights are kept in the file's format and decoded during a call, a few rows
 * at a time, once for all rows of activations. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/numerics/scalar.h"
#include "compute/ref/parts.h"

enum status ref_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                            struct error *err)
{
    struct weight *w = try_alloc(1, sizeof(*w));
    void *rows = try_alloc(t->size_bytes, 1);
    enum status rc;

    rc = w == NULL || rows == NULL ? error_no_memory(err, sizeof(*w) + t->size_bytes, t->name)
                                   : tensor_read(t, 0, t->n_rows, rows, err);
    if (rc != STATUS_OK) {
        free(rows);
        free(w);
        return rc;
    }
    w->tensor = *t;
    w->tensor.data = w->rows = rows;
    *out = w;
    return STATUS_OK;
}

void ref_weight_close(struct backend *b, struct weight *w)
{
    if (w == NULL)
        return;
    free(w->rows);
    free(w);
}

void ref_decode_row(const struct weight *w, size_t row, float *out /* [n_cols] */)
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

    for (size_t i = 0; i < n; i++) {
        assert(ids[i] >= 0);
        ref_decode_row(table, (size_t)ids[i], to + i * width);
    }
}

float *ref_scratch_of(struct ref *r, struct ref_scratch *s, size_t n)
{
    float *more;
    struct error err;

    if (n <= s->cap)
        return s->at;
    more = try_realloc(s->at, n, sizeof(*more));
    if (more == NULL) {
        (void)error_no_memory(&err, (uint64_t)n * sizeof(*more), "activations");
        ref_fail(r, &err);
        return NULL;
    }
    s->at = more;
    s->cap = n;
    return more;
}

static void rms_norm(const float *x, const float *gain, float eps, size_t width, float *y)
{
    float scale = 1.0f / sqrtf(ref_dot(x, x, width) / (float)width + eps);

    for (size_t c = 0; c < width; c++)
        y[c] = x[c] * scale * gain[c];
}

const float *ref_input_rows(struct ref *r, const struct input *in, size_t n, size_t width)
{
    const float *x = ref_const_floats(in->x, n, width);
    float *normed, *gain;

    if (in->gain == NULL)
        return x;
    assert(in->gain->tensor.n_cols == width);
    normed = ref_scratch_of(r, &r->normed, n * width);
    gain = ref_scratch_of(r, &r->decoded, width);
    if (normed == NULL || gain == NULL)
        return NULL;
    ref_decode_row(in->gain, 0, gain);
    for (size_t i = 0; i < n; i++)
        rms_norm(x + i * width, gain, in->eps, width, normed + i * width);
    return normed;
}

/* to[i][r] = w's row r · in's row i; without memory it does nothing */
static void ref_matrix_multiply(struct ref *r, const struct weight *w, const float *in, size_t n,
                                float *to)
{
    size_t n_rows = w->tensor.n_rows, n_cols = w->tensor.n_cols;
    float *decoded = ref_scratch_of(r, &r->decoded, REF_WEIGHT_ROWS * n_cols);

    for (size_t first = 0; first < n_rows && decoded != NULL; first += REF_WEIGHT_ROWS) {
        size_t n_block = n_rows - first < REF_WEIGHT_ROWS ? n_rows - first : REF_WEIGHT_ROWS;

        for (size_t j = 0; j < n_block; j++)
            ref_decode_row(w, first + j, decoded + j * n_cols);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n_block; j++)
                to[i * n_rows + first + j] = ref_dot(decoded + j * n_cols, in + i * n_cols, n_cols);
    }
}

void ref_matmul(struct backend *b, const struct input *in, size_t n, const struct product *products,
                size_t n_products)
{
    for (const struct product *p = products; p < products + n_products; p++) {
        const float *rows = ref_input_rows(to_ref(b), in, n, p->w->tensor.n_cols);

        if (rows != NULL)
            ref_matrix_multiply(to_ref(b), p->w, rows, n,
                                ref_floats(p->out, n, p->w->tensor.n_rows));
    }
}

void ref_matmul_add(struct backend *b, const struct input *in, size_t n,
                    const struct product *product)
{
    struct ref *r = to_ref(b);
    size_t n_rows = product->w->tensor.n_rows;
    const float *rows = ref_input_rows(r, in, n, product->w->tensor.n_cols);
    float *to = ref_floats(product->out, n, n_rows);
    float *y = ref_scratch_of(r, &r->product, n * n_rows);

    if (rows == NULL || y == NULL)
        return;
    ref_matrix_multiply(r, product->w, rows, n, y);
    for (size_t i = 0; i < n * n_rows; i++)
        to[i] += y[i];
}

void ref_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
             struct buffer *out)
{
    struct ref *r = to_ref(b);
    size_t hidden = f->gate->tensor.n_rows, width = f->down->tensor.n_rows;
    const float *rows = ref_input_rows(r, in, n, f->gate->tensor.n_cols);
    float *g = ref_scratch_of(r, &r->gated, n * hidden), *to = ref_floats(out, n, width);
    float *u = ref_scratch_of(r, &r->product, n * (hidden > width ? hidden : width));

    assert(f->up->tensor.n_rows == hidden && f->down->tensor.n_cols == hidden);
    if (rows == NULL || g == NULL || u == NULL)
        return;
    ref_matrix_multiply(r, f->gate, rows, n, g);
    ref_matrix_multiply(r, f->up, rows, n, u);
    for (size_t i = 0; i < n * hidden; i++)
        g[i] = (f->activation == ACTIVATION_GELU ? scalar_gelu(g[i]) : scalar_silu(g[i])) * u[i];
    ref_matrix_multiply(r, f->down, g, n, u);
    for (size_t i = 0; i < n * width; i++)
        to[i] = f->stores ? u[i] : to[i] + u[i];
}
