/* The cpu backend: every operator against `ref`, every instruction set that this machine has
 * against every other bit for bit, and rows that do not depend on the batch, the threads or the
 * chunks. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/cpu/block_read.h"
#include "compute/cpu/panels.h"
#include "compute/numerics/scalar.h"
#include "tests/support/numbers.h"
#include "tests/support/stride.h"

enum { MAX_ROWS = 65, N_COLS = 512, N_OUT = 40 /* not a multiple of a panel's 16 */ };

static const char *const sets[] = {"generic", "avx2",    "vnni256", "avx512",
                                   "neon",    "dotprod", "i8mm"};
/* The first five reach every tile of 64-bit Arm's kernels, and a second block of rows. */
static const size_t row_counts[] = {1,  2,  3,  7,  17, 8,  12,
                                    15, 16, 23, 33, 64, 65, 63 /* by rows, of two threads */};
static const enum dtype block_types[] = {
    DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,   DTYPE_Q8_0,   DTYPE_Q4_K, DTYPE_Q5_K,
    DTYPE_Q6_K, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
static const enum dtype float_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

enum {
    N_SETS = sizeof(sets) / sizeof(sets[0]),
    N_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]),
    N_COUNTS_OF_TILES = 5,
    N_BLOCK_TYPES = sizeof(block_types) / sizeof(block_types[0]),
    N_FLOAT_TYPES = sizeof(float_types) / sizeof(float_types[0]),
};

/* Where a stride is set (stride.h), as under qemu: each set multiplies these numbers of rows with
 * weights of each type, and one of `stride` cases is tried of attention, whose kernels are the same
 * in all of Arm's sets. */
static size_t n_counts(void)
{
    return test_stride() > 1 ? N_COUNTS_OF_TILES : N_COUNTS;
}

static bool is_tried(size_t *n_cases)
{
    return (*n_cases)++ % (size_t)test_stride() == 0;
}

/* NULL when this machine does not have the set. */
static struct backend *open_set(const char *set, size_t n_threads)
{
    struct backend_config config = {.n_threads = n_threads};
    struct backend *b = NULL;
    struct error err;
    enum status rc;

    ck_assert_int_eq(setenv("PARLEY_CPU", set, 1), 0);
    rc = backend_open(&b, "cpu", &config, &err);
    ck_assert_int_eq(unsetenv("PARLEY_CPU"), 0);
    ck_assert(rc == STATUS_OK || rc == STATUS_PRECONDITION);
    return b;
}

/* NULL, too, where the case is not tried. */
static struct backend *open_case(const char *set, size_t n_threads, size_t *n_cases)
{
    struct backend *b = open_set(set, n_threads);

    if (b == NULL || is_tried(n_cases))
        return b;
    backend_close(b);
    return NULL;
}

static struct backend *open_ref(void)
{
    struct backend_config config = {0};
    struct backend *b = NULL;
    struct error err;

    ck_assert_int_eq(backend_open(&b, "ref", &config, &err), STATUS_OK);
    return b;
}

static void must_sync(struct backend *b)
{
    struct error err;

    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
}

static struct buffer *buffer_of(struct backend *b, const float *x, size_t n)
{
    struct buffer *m = b->type->buffer_open(b, n * sizeof(float));

    ck_assert_ptr_nonnull(m);
    if (x != NULL)
        b->type->upload(b, m, x, n * sizeof(*x));
    return m;
}

/* Reads the buffer and closes it. */
static void read_buffer(struct backend *b, struct buffer *m, float *x, size_t n)
{
    b->type->download(b, x, m, n * sizeof(*x));
    must_sync(b);
    b->type->buffer_close(b, m);
}

static struct weight *open_weight(struct backend *b, const struct tensor *t)
{
    struct weight *w = NULL;
    struct error err;

    ck_assert_int_eq(b->type->weight_open(b, t, &w, &err), STATUS_OK);
    return w;
}

static void product_of(struct backend *b, const struct weight *w, const struct buffer *from,
                       size_t n, struct buffer *to)
{
    const struct input in = {.x = from};
    const struct product product = {w, to};

    b->type->matmul(b, &in, n, &product, 1);
}

/* rows [n][n_cols] of in → out [n][n_rows] */
static void multiply(struct backend *b, const struct tensor *t, const float *in, size_t n,
                     float *out)
{
    struct weight *w = open_weight(b, t);
    struct buffer *from = buffer_of(b, in, n * t->n_cols);
    struct buffer *to = buffer_of(b, NULL, n * t->n_rows);

    product_of(b, w, from, n, to);
    read_buffer(b, to, out, n * t->n_rows);
    b->type->buffer_close(b, from);
    b->type->weight_close(b, w);
}

/* The scales and mins of a group by halves, as numbers. */
static void scales_of(const struct block_form *form, const struct block_group *w, float scale[2],
                      float min[2])
{
    bool steps = form->scale == SCALE_STEPS;

    for (size_t h = 0; h < 2; h++) {
        scale[h] = form->scale == SCALE_POWER
                       ? ldexpf(1.0f, w->scale - 128)
                       : f16_to_f32(w->scale) * (steps ? (float)w->steps[h] : 1.0f);
        min[h] = f16_to_f32(w->min) * (steps ? (float)w->min_steps[h] : 1.0f);
    }
}

/* The integer form, implemented again in the simplest way. */
static float exact_output(const struct tensor *t, size_t output, const float *in)
{
    const uint8_t *row = (const uint8_t *)t->data + output * dtype_row_bytes(t->type, t->n_cols);
    const size_t block_groups = dtype_block_values(t->type) / GROUP_VALUES;
    struct block_form form;
    struct {
        float value;
        size_t column;
    } outliers[N_COLS / 32];
    float y = 0.0f, decoded[N_COLS];
    size_t n_outliers = 0;

    ck_assert(block_form_of(&form, t->type));
    for (size_t g = 0; g < t->n_cols / 32; g++, in += 32) {
        struct block_group w;
        float amax = 0.0f, second = 0.0f, scale, scales[2], mins[2];
        size_t at = 0;
        uint32_t bits;
        int a[32], dots[2] = {0}, sums[2] = {0};

        block_group_read(&w, t->type, row + g / block_groups * dtype_block_bytes(t->type),
                         g % block_groups);
        scales_of(&form, &w, scales, mins);
        for (size_t i = 0; i < 32; i++)
            at = fabsf(in[i]) > fabsf(in[at]) ? i : at;
        for (size_t i = 0; i < 32; i++)
            second = i != at ? fmaxf(second, fabsf(in[i])) : second;
        amax = fabsf(in[at]);
        if (amax > 3.0f * second) {
            outliers[n_outliers].value = in[at];
            outliers[n_outliers++].column = g * 32 + at;
            amax = second;
        } else {
            at = 32;
        }
        scale = amax / 127.0f;
        memcpy(&bits, &scale, sizeof(bits));
        bits = (bits + 255) / 256 * 256;
        memcpy(&scale, &bits, sizeof(bits));
        for (size_t i = 0; i < 32; i++) {
            a[i] = amax == 0.0f || i == at ? 0 : (int)rintf(in[i] * (1.0f / scale));
            sums[i / 16] += a[i];
            dots[i / 16] += a[i] * block_value(&form, w.code[i]);
        }
        if (form.halves) {
            y = fmaf((float)dots[0] * scale, scales[0], y);
            y = fmaf((float)dots[1] * scale, scales[1], y);
        } else {
            y = fmaf((float)(dots[0] + dots[1]) * scale, scales[0], y);
        }
        if (form.has_min && form.halves) {
            y = fmaf(mins[0], scale * (float)sums[0], y);
            y = fmaf(mins[1], scale * (float)sums[1], y);
        } else if (form.has_min) {
            y = fmaf(mins[0], scale * (float)(sums[0] + sums[1]), y);
        }
    }
    dtype_decode(t->type, row, t->n_cols, decoded);
    for (size_t i = 0; i < n_outliers; i++)
        y = fmaf(outliers[i].value, decoded[outliers[i].column], y);
    return y;
}

/* A quantised product has the bits of the integer form for any set, number of rows and of threads,
 * and is within 2 % of the largest output of the f32 product. */
START_TEST(quantised_products_are_exact)
{
    struct tensor t = random_tensor(block_types[_i], N_OUT, N_COLS, 7);
    static float in[MAX_ROWS * N_COLS], want[MAX_ROWS * N_OUT], got[MAX_ROWS * N_OUT];
    struct backend *ref = open_ref();

    fill_spiked(in, MAX_ROWS, N_COLS, 11);
    memset(in + 3 * N_COLS, 0, N_COLS * sizeof(*in) / 2); /* groups of zeros */
    in[3 * N_COLS + 40] = 1.5f;                           /* and one number */
    for (size_t i = 0; i < MAX_ROWS; i++)
        for (size_t j = 0; j < N_OUT; j++)
            want[i * N_OUT + j] = exact_output(&t, j, in + i * N_COLS);
    multiply(ref, &t, in, MAX_ROWS, got);
    assert_near(want, got, MAX_ROWS * N_OUT, 0.02f);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        struct backend *b = open_set(sets[i / 2], i % 2 + 1);

        for (size_t j = 0; b != NULL && j < n_counts(); j++) {
            size_t n = row_counts[j];

            multiply(b, &t, in, n, got);
            assert_same_bits(got, want, n * N_OUT);
            multiply(b, &t, in + (MAX_ROWS - n) * N_COLS, n, got);
            assert_same_bits(got, want + (MAX_ROWS - n) * N_OUT, n * N_OUT);
        }
        backend_close(b);
    }
    backend_close(ref);
    free((void *)t.data);
}
END_TEST

/* Packed, a weight takes at most a fifth more memory than in its file: scales of fewer than 8 bits
 * have a byte, and a super block fills lines. */
START_TEST(packed_weights_are_no_larger_than_files)
{
    const struct tensor t = {.type = block_types[_i], .n_rows = PANEL_COLUMNS, .n_cols = N_COLS};
    size_t file_bytes = PANEL_COLUMNS * dtype_row_bytes(t.type, t.n_cols);

    ck_assert_uint_ge(panel_bytes(&t), file_bytes);
    ck_assert_uint_le(panel_bytes(&t), file_bytes + file_bytes / 5);
}
END_TEST

/* A product with float weights has the same bits in all sets and batches, within 1e-5 of ref. */
START_TEST(float_products_agree)
{
    struct tensor t = random_tensor(float_types[_i], 5 * 16 + 3, 200, 5);
    static float in[MAX_ROWS * 200], near[MAX_ROWS * 83], want[MAX_ROWS * 83], got[MAX_ROWS * 83];
    struct backend *b = open_ref();

    fill(in, MAX_ROWS * 200, 3);
    multiply(b, &t, in, MAX_ROWS, near);
    backend_close(b);
    b = open_set("generic", 1);
    multiply(b, &t, in, MAX_ROWS, want);
    backend_close(b);
    assert_near(want, near, MAX_ROWS * 83, 1e-5f);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        b = open_set(sets[i / 2], i % 2 + 1);
        for (size_t j = 0; b != NULL && j < n_counts(); j++) {
            multiply(b, &t, in, row_counts[j], got);
            assert_same_bits(got, want, row_counts[j] * 83);
        }
        backend_close(b);
    }
    free((void *)t.data);
}
END_TEST

/* Two products of one input, and one after the input has changed: the prepared input of the second
 * product is not used for the third, nor for a product of another form. */
START_TEST(a_changed_input_is_read_again)
{
    struct tensor q4 = random_tensor(DTYPE_Q4_1, N_OUT, N_COLS, 1);
    struct tensor q8 = random_tensor(DTYPE_Q8_0, N_OUT, N_COLS, 2);
    struct backend *b = open_set("generic", 1);
    struct weight *w4 = open_weight(b, &q4), *w8 = open_weight(b, &q8);
    float in[N_COLS], got[N_OUT], again[N_OUT];
    struct buffer *from = buffer_of(b, NULL, N_COLS), *to = buffer_of(b, NULL, N_OUT);

    fill(in, N_COLS, 21);
    b->type->upload(b, from, in, sizeof(in));
    product_of(b, w4, from, 1, to);
    product_of(b, w8, from, 1, to);
    b->type->download(b, got, to, sizeof(got));
    for (size_t i = 0; i < N_OUT; i++)
        ck_assert(got[i] == exact_output(&q8, i, in));
    product_of(b, w8, from, 1, to);
    b->type->download(b, again, to, sizeof(again));
    assert_same_bits(again, got, N_OUT);
    for (size_t i = 0; i < N_COLS; i++)
        in[i] += in[i];
    b->type->upload(b, from, in, sizeof(in));
    product_of(b, w8, from, 1, to);
    read_buffer(b, to, got, N_OUT);
    for (size_t i = 0; i < N_OUT; i++)
        ck_assert(got[i] == exact_output(&q8, i, in));
    b->type->buffer_close(b, from);
    b->type->weight_close(b, w4);
    b->type->weight_close(b, w8);
    backend_close(b);
    free((void *)q4.data);
    free((void *)q8.data);
}
END_TEST

/* A row with infinities and NaN makes its own outputs NaN; other rows' are unchanged. */
START_TEST(a_broken_row_breaks_alone)
{
    struct tensor t = random_tensor(block_types[_i], N_OUT, N_COLS, 9);
    static float in[17 * N_COLS], want[17 * N_OUT], got[17 * N_OUT];

    fill(in, 17 * N_COLS, 13);
    for (size_t i = 0; i < N_SETS; i++) {
        struct backend *b = open_set(sets[i], 1);

        if (b == NULL)
            continue;
        multiply(b, &t, in, 17, want);
        in[5 * N_COLS + 40] = NAN;
        in[6 * N_COLS + 70] = -INFINITY;
        in[7 * N_COLS + 70] = FLT_MAX;
        multiply(b, &t, in, 17, got);
        assert_same_bits(got, want, 5 * N_OUT);
        assert_same_bits(got + 8 * N_OUT, want + 8 * N_OUT, 9 * N_OUT);
        for (size_t j = 5 * N_OUT; j < 8 * N_OUT; j++)
            ck_assert(isnan(got[j]));
        fill(in, 17 * N_COLS, 13);
        backend_close(b);
    }
    free((void *)t.data);
}
END_TEST

/* Runs the row-wise operators of one backend, one after the other. Norm and sums are observed
 * through a product with the identity. */
static void run_rows(struct backend *b, size_t n, size_t width, const struct rope *rope,
                     float *out /* [4][n][width] */)
{
    struct tensor gains = random_tensor(DTYPE_F32, 1, width, 31);
    struct tensor table = random_tensor(DTYPE_Q8_0, 64, width, 32);
    struct tensor unit = random_tensor(DTYPE_F32, width, width, 33);
    struct weight *gain = open_weight(b, &gains), *ids = open_weight(b, &table), *same;
    struct buffer *x = buffer_of(b, NULL, n * width), *y = buffer_of(b, NULL, n * width);
    const struct input normed = {x, gain, 1e-5f}, plain = {.x = y};
    struct product to_y, to_x;
    size_t size_bytes = n * width * sizeof(*out);
    uint32_t positions[MAX_ROWS], rows[MAX_ROWS];
    int32_t tokens[MAX_ROWS];

    for (size_t i = 0; i < width * width; i++)
        ((float *)(void *)unit.data)[i] = i % (width + 1) == 0 ? 1.0f : 0.0f;
    same = open_weight(b, &unit);
    to_y = (struct product){same, y};
    to_x = (struct product){same, x};
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(i * 37 % 64);
        positions[i] = (uint32_t)(i * 97);
        rows[i] = (uint32_t)(n - 1 - i);
    }
    b->type->embed(b, ids, tokens, n, x);
    b->type->matmul(b, &normed, n, &to_y, 1);
    b->type->download(b, out, y, size_bytes);
    b->type->rope(b, rope, positions, n, y);
    b->type->download(b, out + n * width, y, size_bytes);
    b->type->matmul_add(b, &plain, n, &to_x);
    b->type->gather(b, x, rows, n, width, y);
    b->type->download(b, out + 2 * n * width, y, size_bytes);
    b->type->ffn(b, &plain, n, &(struct ffn){.gate = same, .up = same, .down = same}, x);
    b->type->download(b, out + 3 * n * width, x, size_bytes);
    must_sync(b);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, gain);
    b->type->weight_close(b, ids);
    b->type->weight_close(b, same);
    free((void *)gains.data);
    free((void *)table.data);
    free((void *)unit.data);
}

/* Norm, rope, embedding, sums, gates and gathering have ref's bits in all sets; a width of 96 in
 * heads of 24 is no multiple of sixteen lanes per head. */
START_TEST(row_operators_have_the_bits_of_ref)
{
    static const double scale[12] = {1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8};
    static float want[4 * MAX_ROWS * 96], got[4 * MAX_ROWS * 96];
    struct rope rope = {
        .n_heads = 4, .head_dim = 24, .base = 10000.0f, .scale = _i == 0 ? NULL : scale};
    struct backend *b = open_ref();

    run_rows(b, MAX_ROWS, 96, &rope, want);
    backend_close(b);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        b = open_set(sets[i / 2], i % 2 + 1);
        if (b == NULL)
            continue;
        run_rows(b, MAX_ROWS, 96, &rope, got);
        assert_same_bits(got, want, 4 * MAX_ROWS * 96);
        backend_close(b);
    }
}
END_TEST

/* Runs the operators on rows that only some architectures need, one after the other, on n rows of
 * heads of 24. */
static void run_more_rows(struct backend *b, size_t n, float *out /* [13][n][96] */)
{
    enum { WIDTH = 96, HEAD = 24 };
    static const uint32_t places[] = {2, 0, 1};
    const double divisors[5] = {1, 1.5, 2, 4, 8};
    const struct rope rope = {.n_heads = 4,
                              .head_dim = HEAD,
                              .base = 500.0f,
                              .scale = divisors,
                              .n_rotated = 10,
                              .halves = true,
                              .amplitude = 1.25f};
    struct tensor row = random_tensor(DTYPE_F32, 1, WIDTH, 41);
    struct tensor head = random_tensor(DTYPE_F32, 1, HEAD, 42);
    struct weight *bias = open_weight(b, &row), *gain = open_weight(b, &head);
    const struct layer_norm centred = {bias, NULL, 1e-5f}, shifted = {bias, bias, 1e-3f};
    float in[MAX_ROWS * WIDTH], factors[MAX_ROWS];
    uint32_t positions[MAX_ROWS];
    struct buffer *x, *y;
    size_t size_bytes = n * WIDTH * sizeof(*out), step = n * WIDTH;

    fill(in, step, 43);
    for (size_t i = 0; i < n; i++) {
        factors[i] = 0.5f + (float)i;
        positions[i] = (uint32_t)(i * 97);
    }
    x = buffer_of(b, in, step);
    y = buffer_of(b, in, step);
    b->type->norm(b, &(struct input){x, gain, 1e-5f}, n * 4, HEAD, x);
    b->type->download(b, out, x, size_bytes);
    b->type->rope(b, &rope, positions, n, x);
    b->type->download(b, out + step, x, size_bytes);
    b->type->add(b, x, 0.3f, n, WIDTH, y);
    b->type->download(b, out + 2 * step, y, size_bytes);
    b->type->add_bias(b, bias, n, y);
    b->type->download(b, out + 3 * step, y, size_bytes);
    b->type->scale(b, 1.7f, 0.0f, n, WIDTH, y);
    b->type->download(b, out + 4 * step, y, size_bytes);
    b->type->scale(b, 1.7f, 2.0f, n, WIDTH, y);
    b->type->download(b, out + 5 * step, y, size_bytes);
    b->type->scale_rows(b, factors, n, WIDTH, y);
    b->type->download(b, out + 6 * step, y, size_bytes);
    b->type->scatter_add(b, x, places, factors, sizeof(places) / sizeof(places[0]), WIDTH, y);
    b->type->download(b, out + 7 * step, y, size_bytes);
    b->type->layer_norm(b, &centred, y, n, WIDTH, x);
    b->type->download(b, out + 8 * step, x, size_bytes);
    b->type->layer_norm(b, &shifted, x, n, WIDTH, x);
    b->type->scale(b, 5.0f, 0.0f, n, WIDTH, x); /* beyond the clamps */
    b->type->activate(b, ACTIVATION_CLAMPED, y, n, WIDTH, x);
    b->type->download(b, out + 9 * step, x, size_bytes);
    b->type->activate(b, ACTIVATION_GELU, NULL, n, WIDTH, x);
    b->type->activate(b, ACTIVATION_GELU_ERF, y, n, WIDTH, x);
    b->type->activate(b, ACTIVATION_GELU_ERF, NULL, n, WIDTH, x);
    b->type->download(b, out + 10 * step, x, size_bytes);
    b->type->copy_columns(b, x, HEAD, 5, n * 4, 7, y, HEAD, 11);
    b->type->activate(b, ACTIVATION_SILU, x, n, WIDTH, y);
    b->type->download(b, out + 11 * step, y, size_bytes);
    b->type->fill(b, -2.5f, n, WIDTH, y);
    b->type->download(b, out + 12 * step, y, size_bytes);
    must_sync(b);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, bias);
    b->type->weight_close(b, gain);
    free((void *)row.data);
    free((void *)head.data);
}

/* They have ref's bits in all sets. */
START_TEST(operators_of_some_architectures_have_the_bits_of_ref)
{
    static float want[13 * MAX_ROWS * 96], got[13 * MAX_ROWS * 96];
    struct backend *b = open_ref();

    run_more_rows(b, MAX_ROWS, want);
    backend_close(b);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        b = open_set(sets[i / 2], i % 2 + 1);
        if (b == NULL)
            continue;
        run_more_rows(b, MAX_ROWS, got);
        assert_same_bits(got, want, 13 * MAX_ROWS * 96);
        backend_close(b);
    }
}
END_TEST

enum { HIDDEN = 256 };

/* The types of a gated network's weights; some read their input in different forms. */
static const enum dtype ffn_types[][3] = {
    {DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1},    {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
    {DTYPE_Q8_0, DTYPE_Q4_1, DTYPE_Q5_0},    {DTYPE_F16, DTYPE_F16, DTYPE_Q6_K},
    {DTYPE_Q5_K, DTYPE_F32, DTYPE_BF16},     {DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ4_XS},
    {DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_Q2_K},
};

/* x += a gated network of x, by the products, gates and sums that define it: one at a time, through
 * memory. */
static void ffn_by_parts(struct backend *b, struct weight *const w[3], size_t n, bool gelu,
                         const float *in, float *out)
{
    static float gate[MAX_ROWS * HIDDEN], up[MAX_ROWS * HIDDEN];
    struct buffer *x = buffer_of(b, in, n * N_COLS), *y = buffer_of(b, NULL, n * HIDDEN), *z;

    product_of(b, w[0], x, n, y);
    b->type->download(b, gate, y, n * HIDDEN * sizeof(*gate));
    product_of(b, w[1], x, n, y);
    read_buffer(b, y, up, n * HIDDEN);
    for (size_t i = 0; i < n * HIDDEN; i++)
        gate[i] = (gelu ? scalar_gelu(gate[i]) : scalar_silu(gate[i])) * up[i];
    y = buffer_of(b, gate, n * HIDDEN);
    z = buffer_of(b, in, n * N_COLS);
    b->type->matmul_add(b, &(struct input){.x = y}, n, &(struct product){w[2], z});
    read_buffer(b, z, out, n * N_COLS);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
}

/* A gated network has the bits of its parts, in all sets, for any number of rows and threads. */
START_TEST(a_gated_network_is_its_parts)
{
    static float in[MAX_ROWS * N_COLS], want[MAX_ROWS * N_COLS], got[MAX_ROWS * N_COLS];
    const enum dtype *types = ffn_types[_i];
    struct tensor t[3] = {random_tensor(types[0], HIDDEN, N_COLS, 81),
                          random_tensor(types[1], HIDDEN, N_COLS, 82),
                          random_tensor(types[2], N_COLS, HIDDEN, 83)};

    fill_spiked(in, MAX_ROWS, N_COLS, 84);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        struct backend *b = open_set(sets[i / 2], i % 2 + 1);
        struct weight *w[3];
        struct ffn ffn;

        if (b == NULL)
            continue;
        for (size_t j = 0; j < 3; j++)
            w[j] = open_weight(b, &t[j]);
        ffn = (struct ffn){.gate = w[0], .up = w[1], .down = w[2]};
        ffn.activation = _i % 2 == 0 ? ACTIVATION_SILU : ACTIVATION_GELU;
        if (i == 0)
            ffn_by_parts(b, w, MAX_ROWS, ffn.activation == ACTIVATION_GELU, in, want);
        for (size_t j = 0; j < n_counts(); j++) {
            struct buffer *x = buffer_of(b, in, row_counts[j] * N_COLS);
            struct buffer *y = buffer_of(b, in, row_counts[j] * N_COLS);

            b->type->ffn(b, &(struct input){.x = x}, row_counts[j], &ffn, y);
            read_buffer(b, y, got, row_counts[j] * N_COLS);
            assert_same_bits(got, want, row_counts[j] * N_COLS);
            b->type->buffer_close(b, x);
        }
        for (size_t j = 0; j < 3; j++)
            b->type->weight_close(b, w[j]);
        backend_close(b);
    }
    for (size_t j = 0; j < 3; j++)
        free((void *)t[j].data);
}
END_TEST

/* Products of one normed input with weights of all types and of odd heights, together and each
 * alone, stored and added: the same bits. */
START_TEST(products_together_are_products_alone)
{
    enum { N = 19, HEIGHT = 37 };
    static float in[N * N_COLS], alone[N_BLOCK_TYPES][N * HEIGHT], twice[N_BLOCK_TYPES][N * HEIGHT],
        got[N * HEIGHT];
    struct tensor gains = random_tensor(DTYPE_F32, 1, N_COLS, 91);

    fill_spiked(in, N, N_COLS, 92);
    for (size_t i = 0; i < (size_t)N_SETS * 2; i++) {
        struct backend *b = open_set(sets[i / 2], i % 2 + 1);
        struct product products[N_BLOCK_TYPES];
        struct weight *w[N_BLOCK_TYPES], *gain;
        struct tensor t[N_BLOCK_TYPES];
        struct input input = {.eps = 1e-5f};
        struct buffer *x;

        if (b == NULL)
            continue;
        gain = open_weight(b, &gains);
        x = buffer_of(b, in, N * N_COLS);
        input.x = x;
        input.gain = gain;
        for (size_t j = 0; j < N_BLOCK_TYPES; j++) {
            t[j] = random_tensor(block_types[j], HEIGHT, N_COLS, 93 + (uint32_t)j);
            w[j] = open_weight(b, &t[j]);
            products[j] = (struct product){w[j], buffer_of(b, NULL, N * HEIGHT)};
            if (i == 0) {
                b->type->matmul(b, &input, N, &products[j], 1);
                b->type->download(b, alone[j], products[j].out, sizeof(alone[j]));
                b->type->matmul_add(b, &input, N, &products[j]);
                b->type->download(b, twice[j], products[j].out, sizeof(twice[j]));
            }
        }
        b->type->matmul(b, &input, N, products, N_BLOCK_TYPES);
        for (size_t j = 0; j < N_BLOCK_TYPES; j++) {
            b->type->download(b, got, products[j].out, sizeof(got));
            assert_same_bits(got, alone[j], N * HEIGHT);
            b->type->matmul_add(b, &input, N, &products[j]);
            read_buffer(b, products[j].out, got, N * HEIGHT);
            assert_same_bits(got, twice[j], N * HEIGHT);
            for (size_t k = 0; k < N * HEIGHT; k++)
                ck_assert_float_le(fabsf(got[k] - 2.0f * alone[j][k]),
                                   1e-5f * fabsf(got[k]) + 1e-3f);
            b->type->weight_close(b, w[j]);
            free((void *)t[j].data);
        }
        b->type->buffer_close(b, x);
        b->type->weight_close(b, gain);
        backend_close(b);
    }
    free((void *)gains.data);
}
END_TEST

enum { N_POSITIONS = 300, MAX_WIDTH = 40 * 24 };

struct shape {
    size_t n_heads, n_kv_heads, head_dim;
    enum kv_type type;
};

static const struct shape shapes[] = {
    {9, 3, 64, KV_F16},  {9, 3, 64, KV_F32}, {9, 3, 64, KV_Q8}, {4, 4, 24, KV_F16},
    {40, 2, 24, KV_F32}, {5, 1, 80, KV_F16}, {6, 2, 24, KV_Q8},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* Runs two sequences of N_POSITIONS and of half as many, chunk tokens of each at a time, both in
 * one call or the second only when the first is done; outputs by sequence and position. */
static void run_attention(struct backend *b, const struct shape *shape, size_t chunk, bool together,
                          float *out /* [2][N_POSITIONS][width] */)
{
    struct kv_shape pages = {2, shape->n_kv_heads, shape->head_dim, 64, shape->type, 0, NULL};
    size_t width = shape->n_heads * shape->head_dim, lengths[2] = {N_POSITIONS, N_POSITIONS / 2};
    size_t kv_width = shape->n_kv_heads * shape->head_dim;
    static float q[2][N_POSITIONS * MAX_WIDTH], k[2][N_POSITIONS * MAX_WIDTH],
        v[2][N_POSITIONS * MAX_WIDTH];
    int32_t tables[2][N_POSITIONS / KV_PAGE_TOKENS + 1];
    struct buffer *qs = buffer_of(b, NULL, 2 * chunk * width);
    struct buffer *ks = buffer_of(b, NULL, 2 * chunk * kv_width);
    struct buffer *vs = buffer_of(b, NULL, 2 * chunk * kv_width);
    struct buffer *outs = buffer_of(b, NULL, 2 * chunk * width);
    static float some[4][2 * N_POSITIONS * MAX_WIDTH];
    struct kv *kv = NULL;
    struct error err;
    size_t pos[2] = {0};

    ck_assert_int_eq(b->type->kv_open(b, &pages, &kv, &err), STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        fill(q[i], N_POSITIONS * width, 41 + (uint32_t)i);
        fill(k[i], N_POSITIONS * kv_width, 51 + (uint32_t)i);
        fill(v[i], N_POSITIONS * kv_width, 61 + (uint32_t)i);
    }
    for (size_t j = 0; j < sizeof(tables[0]) / sizeof(tables[0][0]); j++) {
        tables[0][j] = (int32_t)(j * 7 % 31);
        tables[1][j] = 63 - (int32_t)j;
    }
    while (pos[0] < lengths[0] || pos[1] < lengths[1]) {
        struct attend_row rows[2];
        size_t n_rows = 0, n = 0, of[2];

        for (size_t i = 0; i < 2; i++) {
            size_t left = lengths[i] - pos[i];

            if (left == 0 || (i == 1 && !together && n_rows > 0))
                continue;
            of[n_rows] = i;
            rows[n_rows] =
                (struct attend_row){n, left < chunk ? left : chunk, pos[i], tables[i], 0};
            memcpy(some[0] + n * width, q[i] + pos[i] * width,
                   rows[n_rows].n_tokens * width * sizeof(float));
            memcpy(some[1] + n * kv_width, k[i] + pos[i] * kv_width,
                   rows[n_rows].n_tokens * kv_width * sizeof(float));
            memcpy(some[2] + n * kv_width, v[i] + pos[i] * kv_width,
                   rows[n_rows].n_tokens * kv_width * sizeof(float));
            n += rows[n_rows].n_tokens;
            pos[i] += rows[n_rows++].n_tokens;
        }
        b->type->upload(b, qs, some[0], n * width * sizeof(float));
        b->type->upload(b, ks, some[1], n * kv_width * sizeof(float));
        b->type->upload(b, vs, some[2], n * kv_width * sizeof(float));
        b->type->kv_store(b, kv, 1, ks, vs, rows, n_rows);
        b->type->attend(b, kv, 1, &(struct attention){.n_heads = shape->n_heads}, qs, rows, n_rows,
                        outs);
        b->type->download(b, some[3], outs, n * width * sizeof(float));
        must_sync(b);
        for (size_t i = 0; i < n_rows; i++)
            memcpy(out + (of[i] * N_POSITIONS + rows[i].pos) * width,
                   some[3] + rows[i].first * width, rows[i].n_tokens * width * sizeof(float));
    }
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, qs);
    b->type->buffer_close(b, ks);
    b->type->buffer_close(b, vs);
    b->type->buffer_close(b, outs);
}

static float attended[3][2 * N_POSITIONS * MAX_WIDTH];

/* Attention rounds values to 2^-11 of their greatest magnitude, which is at most 1 here, and
 * weights more finely. */
#define ATTEND_OFF 5e-4f

/* Attention is near ref's, and has the same bits in all sets. */
START_TEST(attention_agrees)
{
    const struct shape *shape = &shapes[_i];
    size_t n = 2 * N_POSITIONS * shape->n_heads * shape->head_dim, n_cases = 0;
    struct backend *b = open_ref();

    memset(attended, 0, sizeof(attended));
    run_attention(b, shape, N_POSITIONS, true, attended[0]);
    backend_close(b);
    b = open_set("generic", 1);
    run_attention(b, shape, N_POSITIONS, true, attended[1]);
    backend_close(b);
    assert_near(attended[1], attended[0], n, ATTEND_OFF);
    for (size_t i = 1; i < N_SETS; i++) {
        b = open_case(sets[i], 2, &n_cases);
        if (b == NULL)
            continue;
        run_attention(b, shape, N_POSITIONS, true, attended[2]);
        assert_same_bits(attended[2], attended[1], n);
        backend_close(b);
    }
}
END_TEST

/* The bits of attention do not depend on how a prompt is cut, on what else is in the step, or on
 * threads. */
START_TEST(attention_forgets_chunks_and_batches)
{
    static const size_t chunks[] = {1, 5, 16, 64};
    const struct shape *shape = &shapes[_i];
    size_t n = 2 * N_POSITIONS * shape->n_heads * shape->head_dim, n_cases = 0;
    struct backend_config config = {.n_threads = 1};
    struct backend *one = NULL, *two = NULL;
    struct error err;

    ck_assert_int_eq(backend_open(&one, "cpu", &config, &err), STATUS_OK);
    config.n_threads = 2;
    ck_assert_int_eq(backend_open(&two, "cpu", &config, &err), STATUS_OK);
    memset(attended, 0, sizeof(attended));
    run_attention(one, shape, N_POSITIONS, true, attended[0]);
    for (size_t j = 0; j < 2; j++)
        for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
            if (!is_tried(&n_cases))
                continue;
            run_attention(i % 2 == 0 ? one : two, shape, chunks[i], j == 0, attended[1]);
            assert_same_bits(attended[1], attended[0], n);
        }
    backend_close(one);
    backend_close(two);
}
END_TEST

/* Contexts about the edges of pages, chunks and spans; all sequences share their first SHARED
 * positions, as far as they have so many. */
static const size_t contexts[] = {1, 15, 16, 17, 64, 65, 255, 256, 257, 258, 300, 1000};

enum {
    N_CONTEXTS = sizeof(contexts) / sizeof(contexts[0]),
    SHARED = 240,
    LONGEST = 1000,
    TABLE = LONGEST / KV_PAGE_TOKENS + 1,
};

/* The last token of each sequence, or the last three, all in one call or each alone, in rising or
 * falling order of sequences; outputs by sequence. */
static void run_sharers(struct backend *b, const struct shape *shape, bool together, bool falling,
                        float *out /* [N_CONTEXTS][3][width] */)
{
    size_t kv_width = shape->n_kv_heads * shape->head_dim;
    size_t width = shape->n_heads * shape->head_dim;
    struct kv_shape pages = {
        1, shape->n_kv_heads, shape->head_dim, N_CONTEXTS * TABLE, shape->type, 0, NULL};
    static int32_t tables[N_CONTEXTS][TABLE];
    static float x[LONGEST * MAX_WIDTH];
    struct attend_row rows[N_CONTEXTS];
    struct buffer *m = buffer_of(b, NULL, LONGEST * kv_width), *q, *before, *outs;
    struct kv *kv = NULL;
    struct error err;

    ck_assert_int_eq(b->type->kv_open(b, &pages, &kv, &err), STATUS_OK);
    for (size_t i = 0; i < N_CONTEXTS; i++) {
        size_t n = contexts[i], n_tokens = i % 2 == 0 || n < 3 ? 1 : 3;
        struct attend_row store = {0, n, 0, tables[i], 0};

        for (size_t p = 0; p < TABLE; p++)
            tables[i][p] = (int32_t)(n >= SHARED && p < SHARED / KV_PAGE_TOKENS
                                         ? (N_CONTEXTS - 1) * TABLE + p
                                         : (i * 5 % N_CONTEXTS) * TABLE + (TABLE - 1 - p));
        rows[i] = (struct attend_row){i * 3, n_tokens, n - n_tokens, tables[i], i % 4};
        fill(x, n * kv_width, 81 + (uint32_t)i);
        fill(x, (n < SHARED ? n : SHARED) * kv_width, 80);
        b->type->upload(b, m, x, n * kv_width * sizeof(*x));
        b->type->kv_store(b, kv, 0, m, m, &store, 1);
        must_sync(b);
    }
    fill(x, N_CONTEXTS * 3 * width, 79);
    q = buffer_of(b, x, N_CONTEXTS * 3 * width);
    outs = buffer_of(b, NULL, N_CONTEXTS * 3 * width);
    memset(x, 0, N_CONTEXTS * 3 * width * sizeof(*x));
    b->type->upload(b, outs, x, N_CONTEXTS * 3 * width * sizeof(*x));
    for (size_t i = 0; falling && i < N_CONTEXTS / 2; i++) {
        struct attend_row row = rows[i];

        rows[i] = rows[N_CONTEXTS - 1 - i];
        rows[N_CONTEXTS - 1 - i] = row;
    }
    before = buffer_of(b, NULL, N_CONTEXTS * 3 * width);
    for (size_t i = 0; i < (together ? 1 : N_CONTEXTS); i++) { /* twice, as by two layers */
        size_t n_rows = together ? N_CONTEXTS : 1;

        b->type->attend(b, kv, 0, &(struct attention){.n_heads = shape->n_heads}, q, rows + i,
                        n_rows, before);
        b->type->attend(b, kv, 0, &(struct attention){.n_heads = shape->n_heads}, q, rows + i,
                        n_rows, outs);
    }
    read_buffer(b, outs, out, N_CONTEXTS * 3 * width);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, m);
    b->type->buffer_close(b, q);
    b->type->buffer_close(b, before);
}

/* Sequences that share pages, of which some see tokens ahead, are computed together, and few long
 * ones by several threads: the bits are those of each alone, in every set, in any order, with any
 * threads; and near ref's. */
START_TEST(attention_forgets_sharers)
{
    static const size_t threads[] = {1, 2, 5};
    const struct shape *shape = &shapes[_i];
    size_t n = N_CONTEXTS * 3 * shape->n_heads * shape->head_dim, n_cases = 0;
    struct backend *b = open_ref();

    run_sharers(b, shape, false, false, attended[0]);
    backend_close(b);
    b = open_set("generic", 1);
    run_sharers(b, shape, false, false, attended[1]);
    backend_close(b);
    assert_near(attended[1], attended[0], n, ATTEND_OFF);
    for (size_t i = 0; i < (size_t)N_SETS * 3; i++) {
        b = open_case(sets[i / 3], threads[i % 3], &n_cases);
        if (b == NULL)
            continue;
        for (int way = 0; way < 3; way++) {
            run_sharers(b, shape, way < 2, way == 1, attended[2]);
            assert_same_bits(attended[2], attended[1], n);
        }
        backend_close(b);
    }
}
END_TEST

/* Opens the best set, with keys and values. */
static struct backend *open_with_kv(size_t n_threads, const struct kv_shape *pages, struct kv **out)
{
    struct backend_config config = {.n_threads = n_threads};
    struct backend *b = NULL;
    struct error err;

    ck_assert_int_eq(backend_open(&b, "cpu", &config, &err), STATUS_OK);
    ck_assert_int_eq(b->type->kv_open(b, pages, out, &err), STATUS_OK);
    return b;
}

/* n tokens that end at position LONGEST. */
static void attend_end(size_t n_threads, size_t n, float *out /* [n][MAX_WIDTH] */)
{
    struct kv_shape pages = {1, 3, 64, TABLE, KV_F16, 0, NULL};
    struct attend_row all = {0, LONGEST, 0, NULL, 0}, last = {0, n, LONGEST - n, NULL, 0};
    int32_t table[TABLE];
    static float x[LONGEST * MAX_WIDTH];
    struct buffer *k, *q, *outs;
    struct kv *kv = NULL;
    struct backend *b = open_with_kv(n_threads, &pages, &kv);

    for (size_t p = 0; p < TABLE; p++)
        table[p] = (int32_t)p;
    all.pages = last.pages = table;
    fill(x, LONGEST * 3 * 64, 91);
    k = buffer_of(b, x, LONGEST * 3 * 64);
    fill(x, n * 9 * 64, 92);
    q = buffer_of(b, x, n * 9 * 64);
    outs = buffer_of(b, NULL, n * 9 * 64);
    b->type->kv_store(b, kv, 0, k, k, &all, 1);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = 9}, q, &last, 1, outs);
    read_buffer(b, outs, out, n * 9 * 64);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, k);
    b->type->buffer_close(b, q);
    backend_close(b);
}

/* To give all threads work, tokens are cut by positions: with few of them, and with so many that
 * not all spans' results are kept. The bits are those of one thread. */
START_TEST(attention_is_cut_by_positions)
{
    static const size_t lengths[] = {1, 2, 7, 64, 364};
    static const size_t threads[] = {2, 3, 5, 16};
    size_t n_cases = 0, known = 0;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (size_t j = 0; j < sizeof(threads) / sizeof(threads[0]); j++) {
            if (!is_tried(&n_cases))
                continue;
            if (known != lengths[i])
                attend_end(1, lengths[i], attended[0]);
            known = lengths[i];
            attend_end(threads[j], lengths[i], attended[1]);
            assert_same_bits(attended[1], attended[0], lengths[i] * 9 * 64);
        }
}
END_TEST

enum { N_LONG = 6, LONG = 1920, SHORT = 80, COMMON_PAGES = 4, LONG_PAGES = LONG / KV_PAGE_TOKENS };

/* The last token of N_LONG long sequences and of a short one, with a common prefix. */
static void attend_unlike(size_t n_threads, float *out /* [N_LONG + 1][9 * 64] */)
{
    struct kv_shape pages = {1, 3, 64, (N_LONG + 1) * LONG_PAGES, KV_F16, 0, NULL};
    static int32_t tables[N_LONG + 1][LONG_PAGES];
    static float x[LONG * 3 * 64];
    struct attend_row rows[N_LONG + 1];
    struct buffer *k, *q, *outs;
    struct kv *kv = NULL;
    struct backend *b = open_with_kv(n_threads, &pages, &kv);

    fill(x, LONG * 3 * 64, 93);
    k = buffer_of(b, x, LONG * 3 * 64);
    for (size_t i = 0; i <= N_LONG; i++) {
        size_t n = i < N_LONG ? LONG : SHORT;
        struct attend_row all = {0, n, 0, tables[i], 0};

        for (size_t p = 0; p < LONG_PAGES; p++)
            tables[i][p] = (int32_t)(p < COMMON_PAGES ? p : i * LONG_PAGES + p);
        rows[i] = (struct attend_row){i, 1, n - 1, tables[i], 0};
        b->type->kv_store(b, kv, 0, k, k, &all, 1);
        must_sync(b);
    }
    fill(x, (N_LONG + 1) * 9 * 64, 94);
    q = buffer_of(b, x, (N_LONG + 1) * 9 * 64);
    outs = buffer_of(b, NULL, (N_LONG + 1) * 9 * 64);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = 9}, q, rows, N_LONG + 1, outs);
    read_buffer(b, outs, out, (N_LONG + 1) * 9 * 64);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, k);
    b->type->buffer_close(b, q);
    backend_close(b);
}

/* Tokens of one block may have different lengths: all are cut at the same positions. */
START_TEST(attention_is_cut_for_the_longest)
{
    attend_unlike(1, attended[0]);
    for (size_t n_threads = 2; n_threads <= 9; n_threads += (size_t)test_stride()) {
        attend_unlike(n_threads, attended[1]);
        assert_same_bits(attended[1], attended[0], (N_LONG + 1) * 9 * 64);
    }
}
END_TEST

static const enum kv_type all_types[] = {KV_F16, KV_F32, KV_Q8};

/* Tokens with a common prefix, of which the first two and the last share a later page and one
 * between them does not: its page is not used for the last. */
START_TEST(attention_forgets_who_stood_between)
{
    enum { PAGES = 17, N = PAGES * KV_PAGE_TOKENS, HEADS = 4, DIM = 16, WIDTH = HEADS * DIM };
    enum { FIRST = 14, ALL = FIRST + 2 }; /* tokens: blocks of four, of which these are the last */
    const struct kv_shape shape = {1, 1, DIM, 64, all_types[_i], 0, NULL};
    static float x[N * DIM], together[ALL * WIDTH], alone[ALL * WIDTH];
    int32_t tables[3][PAGES];
    struct attend_row rows[3] = {{0, FIRST, N - FIRST, tables[0], 0},
                                 {FIRST, 1, N - 1, tables[1], 0},
                                 {FIRST + 1, 1, N - 1, tables[2], 0}};
    struct backend *b = open_set("generic", 1);
    struct buffer *m = buffer_of(b, NULL, N * DIM), *q, *out;
    struct kv *kv = NULL;
    struct error err;

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    for (size_t i = 0; i < 3; i++) {
        struct attend_row all = {0, N, 0, tables[i], 0};

        for (int32_t p = 0; p < PAGES; p++)
            tables[i][p] = p < 15 ? p : p == 15 ? 20 + (int32_t)i : i == 1 ? 40 : 30;
        fill(x, N * DIM, 101 + (uint32_t)i);
        for (size_t j = 0; j < N * DIM; j++)
            x[j] *= i == 1 ? 50.0f : 1.0f;
        b->type->upload(b, m, x, sizeof(x));
        b->type->kv_store(b, kv, 0, m, m, &all, 1);
    }
    fill(x, ALL * WIDTH, 104);
    q = buffer_of(b, x, ALL * WIDTH);
    out = buffer_of(b, NULL, ALL * WIDTH);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = HEADS}, q, rows, 3, out);
    b->type->download(b, together, out, sizeof(together));
    must_sync(b);
    for (size_t i = 0; i < 3; i++)
        b->type->attend(b, kv, 0, &(struct attention){.n_heads = HEADS}, q, &rows[i], 1, out);
    b->type->download(b, alone, out, sizeof(alone));
    must_sync(b);
    assert_same_bits(together, alone, ALL * WIDTH);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, m);
    b->type->buffer_close(b, q);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

enum { ODD_DIM = 21, ODD_HEADS = 2, N_ODD = 300 };

/* The last of n positions, of two query heads and one key head. */
static void attend_last(struct backend *b, enum kv_type type, size_t n, const float *q,
                        const float *k, const float *v, float *out)
{
    struct kv_shape pages = {1, 1, ODD_DIM, N_ODD / KV_PAGE_TOKENS + 1, type, 0, NULL};
    int32_t table[N_ODD / KV_PAGE_TOKENS + 1];
    struct attend_row all = {0, n, 0, table, 0}, last = {0, 1, n - 1, table, 0};
    struct buffer *qs = buffer_of(b, q, ODD_HEADS * ODD_DIM), *ks = buffer_of(b, k, n * ODD_DIM);
    struct buffer *vs = buffer_of(b, v, n * ODD_DIM);
    struct buffer *outs = buffer_of(b, NULL, ODD_HEADS * ODD_DIM);
    struct kv *kv = NULL;
    struct error err;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        table[i] = (int32_t)i;
    ck_assert_int_eq(b->type->kv_open(b, &pages, &kv, &err), STATUS_OK);
    b->type->kv_store(b, kv, 0, ks, vs, &all, 1);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = ODD_HEADS}, qs, &last, 1, outs);
    read_buffer(b, outs, out, ODD_HEADS * ODD_DIM);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, qs);
    b->type->buffer_close(b, ks);
    b->type->buffer_close(b, vs);
}

/* Keys, values and queries of all magnitudes, and of 0: each position has its own unit, so outputs
 * are as near ref's as with equal magnitudes. */
START_TEST(attention_takes_all_magnitudes)
{
    static const float sizes[] = {1.0f, 1e-3f, 0.0f, 30.0f, 3e-7f};
    static float k[N_ODD * ODD_DIM], v[N_ODD * ODD_DIM];
    float q[ODD_HEADS * ODD_DIM], want[ODD_HEADS * ODD_DIM], got[ODD_HEADS * ODD_DIM];
    enum kv_type type = all_types[_i];
    struct backend *ref = open_ref(), *b;

    fill(q, ODD_HEADS * ODD_DIM, 91);
    for (size_t query = 0; query < 4; query++) {
        fill(k, N_ODD * ODD_DIM, 92);
        fill(v, N_ODD * ODD_DIM, 93);
        for (size_t i = 0; i < N_ODD * ODD_DIM; i++) {
            k[i] *= sizes[i / ODD_DIM % 5] * 0.1f;
            v[i] *= sizes[i / ODD_DIM * 7 / 3 % 5];
        }
        attend_last(ref, type, N_ODD, q, k, v, want);
        for (size_t set = 0; set < N_SETS; set++) {
            b = open_set(sets[set], 1);
            if (b == NULL)
                continue;
            attend_last(b, type, N_ODD, q, k, v, got);
            assert_near(got, want, ODD_HEADS * ODD_DIM, 2.0f * ATTEND_OFF);
            backend_close(b);
        }
        for (size_t i = 0; i < ODD_HEADS * ODD_DIM; i++)
            q[i] *= query == 2 ? 0.0f : 0.01f;
    }
    for (size_t i = 0; i < N_ODD * ODD_DIM; i++)
        v[i] *= 1e-4f; /* all of them, or nearly all: small values are as exact */
    attend_last(ref, type, N_ODD, q, k, v, want);
    b = open_set("generic", 1);
    attend_last(b, type, N_ODD, q, k, v, got);
    assert_near(got, want, ODD_HEADS * ODD_DIM, 2.0f * ATTEND_OFF);
    backend_close(b);
    backend_close(ref);
}
END_TEST

/* A value that is not finite makes the outputs of all tokens that see it NaN, in every set; a token
 * that sees fewer positions of the same page is unchanged. */
START_TEST(attention_tells_what_is_not_finite)
{
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    static float x[3][N_ODD * ODD_DIM];
    float want[ODD_HEADS * ODD_DIM], got[ODD_HEADS * ODD_DIM];
    enum kv_type type = all_types[_i];

    for (size_t i = 0; i < (size_t)N_SETS * 3 * 3; i++) {
        struct backend *b = open_set(sets[i / 9], 1);
        size_t which = i % 3; /* q, k or v */

        if (b == NULL)
            continue;
        for (size_t j = 0; j < 3; j++)
            fill(x[j], N_ODD * ODD_DIM, 95 + (uint32_t)j);
        attend_last(b, type, N_ODD - 40, x[0], x[1], x[2], want);
        x[which][which == 0 ? 3 : (N_ODD - 3) * ODD_DIM + 20] = broken[i / 3 % 3];
        attend_last(b, type, N_ODD, x[0], x[1], x[2], got);
        for (size_t d = 0; d < ODD_DIM; d++)
            ck_assert(isnan(got[d]));
        attend_last(b, type, N_ODD - 40, x[0], x[1], x[2], got);
        assert_same_bits(got + (which == 0 ? ODD_DIM : 0), want + (which == 0 ? ODD_DIM : 0),
                         which == 0 ? ODD_DIM : ODD_HEADS * ODD_DIM);
        backend_close(b);
    }
}
END_TEST

/* A page that held a number that is not finite is clean for its next sequence. */
START_TEST(attention_forgets_what_a_page_held)
{
    struct kv_shape shape = {1, 1, ODD_DIM, 1, all_types[_i], 0, NULL};
    int32_t page = 0;
    struct attend_row full = {0, KV_PAGE_TOKENS, 0, &page, 0}, few = {0, 3, 0, &page, 0};
    float x[KV_PAGE_TOKENS * ODD_DIM], clean[3 * ODD_DIM], got[3 * ODD_DIM];

    for (size_t set = 0; set < N_SETS; set++) {
        struct backend *b = open_set(sets[set], 1);
        struct buffer *m, *broken, *out;
        struct kv *kv = NULL;
        struct error err;

        if (b == NULL)
            continue;
        fill(x, KV_PAGE_TOKENS * ODD_DIM, 97);
        m = buffer_of(b, x, KV_PAGE_TOKENS * ODD_DIM);
        for (size_t i = 0; i < KV_PAGE_TOKENS * ODD_DIM; i++)
            x[i] = i % 2 == 0 ? NAN : INFINITY;
        broken = buffer_of(b, x, KV_PAGE_TOKENS * ODD_DIM);
        out = buffer_of(b, NULL, 3 * ODD_DIM);
        ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
        b->type->kv_store(b, kv, 0, m, m, &few, 1);
        b->type->attend(b, kv, 0, &(struct attention){.n_heads = 1}, m, &few, 1, out);
        b->type->download(b, clean, out, sizeof(clean));
        b->type->kv_store(b, kv, 0, broken, broken, &full, 1);
        b->type->kv_store(b, kv, 0, m, m, &few, 1);
        b->type->attend(b, kv, 0, &(struct attention){.n_heads = 1}, m, &few, 1, out);
        b->type->download(b, got, out, sizeof(got));
        must_sync(b);
        assert_same_bits(got, clean, 3 * ODD_DIM);
        b->type->kv_close(b, kv);
        b->type->buffer_close(b, m);
        b->type->buffer_close(b, broken);
        b->type->buffer_close(b, out);
        backend_close(b);
    }
}
END_TEST

/* A copied page holds what the other held in every layer. */
START_TEST(a_page_is_copied_in_all_layers)
{
    struct kv_shape shape = {3, 2, 16, 4, KV_F32, 0, NULL};
    struct backend *b = open_set("generic", 1);
    int32_t pages[2] = {1, 3};
    struct attend_row row = {0, 1, 0, &pages[0], 0};
    float x[32], scaled[32], got[3][2][32];
    struct buffer *m, *out;
    struct kv *kv = NULL;
    struct error err;

    fill(x, 32, 71);
    m = buffer_of(b, x, 32);
    out = buffer_of(b, NULL, 32);
    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    for (size_t layer = 0; layer < 3; layer++) {
        b->type->kv_store(b, kv, layer, m, m, &row, 1);
        for (size_t i = 0; i < 32; i++)
            scaled[i] = x[i] * (float)(2 << layer);
        b->type->upload(b, m, scaled, sizeof(scaled));
    }
    b->type->kv_copy(b, kv, 1, 3);
    for (size_t layer = 0; layer < 3; layer++)
        for (size_t i = 0; i < 2; i++) {
            row.pages = &pages[i];
            b->type->attend(b, kv, layer, &(struct attention){.n_heads = 2}, m, &row, 1, out);
            b->type->download(b, got[layer][i], out, sizeof(got[0][0]));
        }
    for (size_t layer = 0; layer < 3; layer++) {
        assert_same_bits(got[layer][1], got[layer][0], 32);
        ck_assert(fabsf(got[layer][0][5] - x[5] * (float)(1 << layer)) <
                  ATTEND_OFF * (float)(1 << layer));
    }
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, m);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

static size_t n_prepared(struct backend *b, struct kv *kv, bool is_busy)
{
    size_t n = 1;

    while (b->type->kv_prepare(b, kv, is_busy))
        n++;
    return n;
}

/* Memory is prefaulted up to half of the pool beyond the highest page in use, 2 MiB at a time;
 * contents of pages stay; one refusal ends it. */
START_TEST(memory_of_pages_is_taken_ahead)
{
    struct kv_shape shape = {4, 4, 64, 256, KV_F16, 0, NULL}; /* 16.5 MiB */
    struct backend *b = open_set("generic", 1);
    int32_t page = 191;
    struct attend_row row = {0, 1, 0, &page, 0};
    float x[256], before[256], after[256];
    struct buffer *m, *out;
    struct kv *kv = NULL;
    struct error err;

    fill(x, 256, 5);
    m = buffer_of(b, x, 256);
    out = buffer_of(b, NULL, 256);
    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    ck_assert_uint_eq(n_prepared(b, kv, false), 5);
    ck_assert(!b->type->kv_prepare(b, kv, false));
    b->type->kv_store(b, kv, 0, m, m, &row, 1);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = 4}, m, &row, 1, out);
    b->type->download(b, before, out, sizeof(before));
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
    ck_assert_uint_eq(n_prepared(b, kv, true),
                      3); /* 12 MiB and more are below the highest written page */
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = 4}, m, &row, 1, out);
    b->type->download(b, after, out, sizeof(after));
    assert_same_bits(after, before, 256);
    b->type->kv_close(b, kv);

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    atomic_store(&fault_after, 1);
    ck_assert_uint_eq(n_prepared(b, kv, false), 2);
    atomic_store(&fault_after, -1);
    ck_assert(!b->type->kv_prepare(b, kv, false));
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, m);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* While steps run, 64 MiB are prefaulted. */
START_TEST(less_is_taken_ahead_while_others_compute)
{
    struct kv_shape shape = {4, 4, 64, 3000, KV_F16, 0, NULL}; /* 193 MiB */
    struct backend *b = open_set("generic", 1);
    struct kv *kv = NULL;
    struct error err;

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    ck_assert_uint_eq(n_prepared(b, kv, true), 32);
    ck_assert(!b->type->kv_prepare(b, kv, true));
    ck_assert(b->type->kv_prepare(b, kv, false));
    b->type->kv_close(b, kv);
    backend_close(b);
}
END_TEST

/* A pool of pages larger than most machines' memory opens, because untouched pages cost nothing. */
START_TEST(untouched_pages_cost_nothing)
{
    struct kv_shape shape = {32, 8, 128, 1 << 15, KV_F16, 0, NULL}; /* 64 GiB */
    struct backend *b = open_set("generic", 1);
    struct kv *kv = NULL;
    struct error err;

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    b->type->kv_close(b, kv);
    shape.n_pages = SIZE_MAX / 8;
    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_EXHAUSTED);
    backend_close(b);
}
END_TEST

/* PARLEY_CPU names a known set, or opening fails and lists them. */
START_TEST(an_unknown_set_is_refused)
{
    struct backend_config config = {0};
    struct backend *b = NULL;
    struct error err;

    ck_assert_int_eq(setenv("PARLEY_CPU", "sse9", 1), 0);
    ck_assert_int_eq(backend_open(&b, "cpu", &config, &err), STATUS_INVALID);
    ck_assert_int_eq(unsetenv("PARLEY_CPU"), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "sse9"));
    ck_assert_ptr_nonnull(strstr(err.text, "avx512"));
    ck_assert_ptr_null(b);
}
END_TEST

/* Each allocation of the backend fails in turn: an error and no leak, and the next attempt
 * succeeds. */
START_TEST(allocations_may_fail)
{
    struct tensor t = random_tensor(DTYPE_Q4_1, 1, N_COLS, 3);
    struct backend_config config = {.n_threads = 2};
    enum status rc = STATUS_EXHAUSTED;
    struct error err;

    for (long n = 0; rc != STATUS_OK; n++) {
        struct backend *b = NULL;
        struct weight *w = NULL;

        ck_assert_int_lt(n, 50);
        atomic_store(&fault_after, n);
        rc = backend_open(&b, "cpu", &config, &err);
        if (rc == STATUS_OK)
            rc = b->type->weight_open(b, &t, &w, &err);
        if (rc == STATUS_OK)
            b->type->weight_close(b, w);
        backend_close(b);
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
    atomic_store(&fault_after, -1);
    free((void *)t.data);
}
END_TEST

/* A step without memory fails at the next sync, once; the step after it works. */
START_TEST(a_failure_sticks_until_sync)
{
    struct tensor t = random_tensor(DTYPE_Q4_1, N_OUT, N_COLS, 3);
    struct backend *b = open_set("generic", 1);
    struct weight *w = open_weight(b, &t);
    struct rope rope = {.n_heads = 1, .head_dim = N_OUT, .base = 10000.0f};
    uint32_t position = 5;
    float in[N_COLS], got[N_OUT];
    struct buffer *from, *to = buffer_of(b, NULL, N_OUT);
    struct error err;

    fill(in, N_COLS, 23);
    from = buffer_of(b, in, N_COLS);
    atomic_store(&fault_after, 0);
    product_of(b, w, from, 1, to);
    product_of(b, w, from, 1, to);
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_EXHAUSTED);
    must_sync(b);
    for (long n = 0; n < 2; n++) {
        atomic_store(&fault_after, n);
        b->type->rope(b, &rope, &position, 1, to);
        ck_assert_int_eq(b->type->sync(b, &err), STATUS_EXHAUSTED);
    }
    atomic_store(&fault_after, -1);
    b->type->rope(b, &rope, &position, 1, to);
    product_of(b, w, from, 1, to);
    read_buffer(b, to, got, N_OUT);
    for (size_t i = 0; i < N_OUT; i++)
        ck_assert(got[i] == exact_output(&t, i, in));
    b->type->buffer_close(b, from);
    b->type->weight_close(b, w);
    backend_close(b);
    free((void *)t.data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu");
    TCase *tests = tcase_create("cpu");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, quantised_products_are_exact, 0, N_BLOCK_TYPES);
    tcase_add_loop_test(tests, packed_weights_are_no_larger_than_files, 0, N_BLOCK_TYPES);
    tcase_add_loop_test(tests, float_products_agree, 0, N_FLOAT_TYPES);
    tcase_add_test(tests, a_changed_input_is_read_again);
    tcase_add_loop_test(tests, a_broken_row_breaks_alone, 0, N_BLOCK_TYPES);
    tcase_add_loop_test(tests, row_operators_have_the_bits_of_ref, 0, 2);
    tcase_add_test(tests, operators_of_some_architectures_have_the_bits_of_ref);
    tcase_add_loop_test(tests, a_gated_network_is_its_parts, 0,
                        sizeof(ffn_types) / sizeof(ffn_types[0]));
    tcase_add_test(tests, products_together_are_products_alone);
    tcase_add_loop_test(tests, attention_agrees, 0, N_SHAPES);
    tcase_add_loop_test(tests, attention_forgets_chunks_and_batches, 0, N_SHAPES);
    tcase_add_loop_test(tests, attention_forgets_sharers, 0, N_SHAPES);
    tcase_add_test(tests, attention_is_cut_by_positions);
    tcase_add_test(tests, attention_is_cut_for_the_longest);
    tcase_add_loop_test(tests, attention_forgets_who_stood_between, 0, 3);
    tcase_add_loop_test(tests, attention_takes_all_magnitudes, 0, 3);
    tcase_add_loop_test(tests, attention_tells_what_is_not_finite, 0, 3);
    tcase_add_loop_test(tests, attention_forgets_what_a_page_held, 0, 3);
    tcase_add_test(tests, a_page_is_copied_in_all_layers);
    tcase_add_test(tests, memory_of_pages_is_taken_ahead);
    tcase_add_test(tests, less_is_taken_ahead_while_others_compute);
    tcase_add_test(tests, untouched_pages_cost_nothing);
    tcase_add_test(tests, an_unknown_set_is_refused);
    tcase_add_test(tests, allocations_may_fail);
    tcase_add_test(tests, a_failure_sticks_until_sync);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}
