/* The CUDA kernels of products and of the operators between them, on fibres: bit for bit the
 * results of the cpu backend, or with float weights of `ref`; for any number of rows, in any order
 * of threads. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "tests/cuda/rig.h"

enum { MAX_ROWS = 65, N_COLS = 768, N_OUT = 83 /* no whole panel, tile or block */ };

static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                   DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
                                   DTYPE_F32,  DTYPE_F16,  DTYPE_BF16};
enum { N_BLOCK_TYPES = 8, N_TYPES = sizeof(types) / sizeof(types[0]) };

static const uint32_t row_counts[] = {1, 2, 3, 8, 17, MAX_ROWS};
enum { N_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]) };

/* rows of in → out, by a backend */
static void multiply(struct backend *b, const struct tensor *t, const float *in,
                     const struct tensor *gain, size_t n, const float *to_add, float *out)
{
    struct weight *w = host_weight(b, t), *g = gain != NULL ? host_weight(b, gain) : NULL;
    struct buffer *from = host_buffer(b, in, n * t->n_cols);
    struct buffer *to = host_buffer(b, to_add, n * t->n_rows);
    const struct input input = {from, g, 1e-5f};
    const struct product product = {w, to};

    if (to_add != NULL)
        b->type->matmul_add(b, &input, n, &product);
    else
        b->type->matmul(b, &input, n, &product, 1);
    host_read(b, to, out, n * t->n_rows);
    b->type->buffer_close(b, from);
    b->type->weight_close(b, w);
    b->type->weight_close(b, g);
}

struct device_acts {
    struct cuda_acts acts;
    float *floats, *gain;
};

/* Allocates rows on the device and fills them: normed if there is a gain, in int8 and as floats. */
static struct device_acts hold_rows(const float *x, const float *gain, size_t n, size_t width)
{
    struct device_acts a = {.floats = to_device(x, n * width * sizeof(*x))};
    struct cuda_count count = {NULL, (uint32_t)n};

    a.gain = gain != NULL ? to_device(gain, width * sizeof(*gain)) : NULL;
    if (width % 32 == 0) {
        a.acts.values = rig_alloc(n * width);
        a.acts.groups = rig_alloc(n * width / 32 * sizeof(*a.acts.groups));
        a.acts.outliers = rig_alloc(n * width / 32 * sizeof(*a.acts.outliers));
        cuda_norm_quantise(a.floats, a.gain, 1e-5f, count, (uint32_t)width, &a.acts, NULL);
    }
    cuda_norm(a.floats, a.gain, 1e-5f, count, (uint32_t)width, a.floats, NULL);
    must_be_well();
    return a;
}

static void let_go(struct device_acts *a)
{
    rig_free(a->acts.values);
    rig_free(a->acts.groups);
    rig_free(a->acts.outliers);
    rig_free(a->floats);
    rig_free(a->gain);
}

enum how { FEW, MANY, FLOATS };

static void launch_products(enum how how, const struct cuda_product *products, size_t n_products,
                            const struct device_acts *in, struct cuda_count n, bool adds)
{
    if (how == FEW)
        cuda_products_few(products, n_products, &in->acts, n, adds, NULL);
    else if (how == MANY)
        cuda_products_many(products, n_products, &in->acts, n, adds, NULL);
    else
        cuda_products_float(products, n_products, in->floats, n, adds, NULL);
    must_be_well();
}

/* Computes n rows in a grid for `most`, added to the output or stored; compares with want
 * [n][n_rows]. */
static void check_product(enum how how, const struct cuda_matrix *m, const struct device_acts *in,
                          uint32_t n, uint32_t most, const float *to_add, const float *want)
{
    size_t n_values = (size_t)n * m->n_rows;
    struct cuda_product product = {*m, rig_alloc(n_values * sizeof(*want))};
    struct cuda_count count = count_of(n, most);

    if (to_add != NULL)
        device_copy(product.out, to_add, n_values * sizeof(*want));
    launch_products(how, &product, 1, in, count, to_add != NULL);
    assert_same_bits(product.out, want, n_values);
    rig_free(product.out);
    rig_free((void *)count.n);
}

/* Products of every type and any number of rows, stored or added, also in a larger grid. Both
 * kernels of quantised weights give the same. */
START_TEST(products_have_the_bits_of_the_host)
{
    enum dtype type = types[_i];
    bool quantised = _i < N_BLOCK_TYPES;
    size_t n_cols = quantised ? N_COLS : 203;
    struct tensor t = random_tensor(type, N_OUT, n_cols, 7);
    static float in[MAX_ROWS * N_COLS], put[MAX_ROWS * N_OUT], added[MAX_ROWS * N_OUT],
        to_add[MAX_ROWS * N_OUT];
    struct backend *b = open_backend(quantised ? "cpu" : "ref");
    struct device_acts acts;
    struct cuda_matrix m;
    void *room;

    fill_spiked(in, MAX_ROWS, n_cols, 11);
    fill(to_add, MAX_ROWS * N_OUT, 12);
    memset(in + 3 * n_cols, 0, n_cols * sizeof(*in) / 2); /* groups of zeros */
    multiply(b, &t, in, NULL, MAX_ROWS, NULL, put);
    multiply(b, &t, in, NULL, MAX_ROWS, to_add, added);
    backend_close(b);
    m = device_matrix(&t, &room);
    rig_set_orders(1, 0);
    acts = hold_rows(in, NULL, MAX_ROWS, n_cols);
    for (size_t i = 0; i < N_COUNTS; i++)
        for (int how = quantised ? FEW : FLOATS; how <= (quantised ? MANY : FLOATS); how++) {
            uint32_t n = row_counts[i];

            rig_set_orders(n == 3 || n == 17 ? rig_orders() : 1, 5);
            if (i % 2 == 0)
                check_product(how, &m, &acts, n, n, NULL, put);
            else
                check_product(how, &m, &acts, n, n == 8 ? 33 : n, to_add, added);
        }
    let_go(&acts);
    rig_free(room);
    free((void *)t.data);
}
END_TEST

/* A row with infinities makes its own outputs NaN, and leaves other rows unchanged. */
START_TEST(a_broken_row_breaks_alone)
{
    struct tensor t = random_tensor(types[_i], N_OUT, N_COLS, 9);
    static float in[17 * N_COLS], want[17 * N_OUT];
    struct backend *b = open_backend("cpu");
    struct cuda_product product;
    struct device_acts acts;
    void *room;

    fill(in, 17 * N_COLS, 13);
    multiply(b, &t, in, NULL, 17, NULL, want);
    backend_close(b);
    in[2 * N_COLS + 40] = INFINITY;
    in[2 * N_COLS + 700] = -NAN;
    rig_set_orders(1, 0);
    product = (struct cuda_product){device_matrix(&t, &room), rig_alloc(sizeof(want))};
    acts = hold_rows(in, NULL, 17, N_COLS);
    for (int how = FEW; how <= MANY; how++) {
        launch_products(how, &product, 1, &acts, (struct cuda_count){NULL, 17}, false);
        assert_same_bits(product.out, want, 2 * N_OUT);
        for (size_t i = 2 * N_OUT; i < 3 * N_OUT; i++)
            ck_assert(isnan(product.out[i]));
        assert_same_bits(product.out + 3 * N_OUT, want + 3 * N_OUT, 14 * N_OUT);
    }
    let_go(&acts);
    rig_free(room);
    rig_free(product.out);
    free((void *)t.data);
}
END_TEST

/* Products of one input in one launch, of weights of different sizes, go each to its place. */
START_TEST(products_share_a_launch)
{
    static const size_t sizes[] = {64, 8, 20};
    static float in[9 * N_COLS], want[3][9 * 64];
    struct cuda_product products[3];
    struct device_acts acts;
    void *rooms[3];

    fill_spiked(in, 9, N_COLS, 3);
    rig_set_orders(1, 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct tensor t = random_tensor(_i == 0 ? DTYPE_F16 : DTYPE_Q5_1, sizes[i], N_COLS, i + 1);
        struct backend *b = open_backend(_i == 0 ? "ref" : "cpu");

        multiply(b, &t, in, NULL, 9, NULL, want[i]);
        backend_close(b);
        products[i].w = device_matrix(&t, &rooms[i]);
        products[i].out = rig_alloc(9 * sizes[i] * sizeof(float));
        free((void *)t.data);
    }
    acts = hold_rows(in, NULL, 9, N_COLS);
    rig_set_orders(rig_orders(), 2);
    for (int how = _i == 0 ? FLOATS : FEW; how <= (_i == 0 ? FLOATS : MANY); how++)
        for (size_t n = 1; n <= 3; n++) {
            launch_products(how, products, n, &acts, (struct cuda_count){NULL, 9}, false);
            for (size_t i = 0; i < n; i++) {
                assert_same_bits(products[i].out, want[i], 9 * sizes[i]);
                device_fill(products[i].out, 0x55, 9 * sizes[i] * sizeof(float));
            }
        }
    for (size_t i = 0; i < 3; i++) {
        rig_free(rooms[i]);
        rig_free(products[i].out);
    }
    let_go(&acts);
}
END_TEST

/* Rows are normed as on the host, whatever their width. */
START_TEST(norms_have_the_bits_of_the_host)
{
    static const size_t widths[] = {32, 576, 8224};
    size_t width = widths[_i];
    float *in = xalloc(3 * width * sizeof(*in)), want[3 * 16],
          *gain = xalloc(width * sizeof(*gain));
    struct tensor blocks = random_tensor(DTYPE_Q8_0, 16, width, 4);
    struct tensor floats = random_tensor(DTYPE_F32, 16, width, 4);
    struct tensor row = {.name = "gain",
                         .type = DTYPE_F32,
                         .n_rows = 1,
                         .n_cols = width,
                         .data = (void *)gain,
                         .size_bytes = width * sizeof(*gain)};
    struct backend *b;
    struct cuda_matrix m;
    struct device_acts acts;
    void *room;

    fill_spiked(in, 3, width, 17);
    fill(gain, width, 18);
    rig_set_orders(rig_orders(), 1);
    acts = hold_rows(in, gain, 3, width);
    for (int quantised = 0; quantised < 2; quantised++) {
        b = open_backend(quantised ? "cpu" : "ref");
        multiply(b, quantised ? &blocks : &floats, in, &row, 3, NULL, want);
        backend_close(b);
        m = device_matrix(quantised ? &blocks : &floats, &room);
        check_product(quantised ? FEW : FLOATS, &m, &acts, 3, 3, NULL, want);
        rig_free(room);
    }
    let_go(&acts);
    free(in);
    free(gain);
    free((void *)blocks.data);
    free((void *)floats.data);
}
END_TEST

/* The gated network, of quantised weights and of float ones. */
START_TEST(gates_have_the_bits_of_the_host)
{
    enum { WIDTH = 256, HIDDEN = 512, N = 5 };
    enum dtype type = _i == 0 ? DTYPE_F16 : types[_i - 1];
    enum how how = _i == 0 ? FLOATS : FEW;
    struct tensor t[3] = {random_tensor(type, HIDDEN, WIDTH, 1),
                          random_tensor(type, HIDDEN, WIDTH, 2),
                          random_tensor(type, WIDTH, HIDDEN, 3)};
    static float in[N * WIDTH], want[N * WIDTH], x[N * WIDTH];
    struct backend *b = open_backend(_i == 0 ? "ref" : "cpu");
    struct weight *w[3] = {host_weight(b, &t[0]), host_weight(b, &t[1]), host_weight(b, &t[2])};
    struct buffer *from, *to;
    struct cuda_count n = {NULL, N};
    struct cuda_product products[3];
    struct cuda_gate_rows gated = {.n = n, .width = HIDDEN, .gelu = _i % 2 != 0};
    struct device_acts acts;
    void *rooms[3];

    fill_spiked(in, N, WIDTH, 5);
    fill(x, N * WIDTH, 6);
    from = host_buffer(b, in, N * WIDTH);
    to = host_buffer(b, x, N * WIDTH);
    b->type->ffn(b, &(struct input){.x = from}, N,
                 &(struct ffn){.gate = w[0],
                               .up = w[1],
                               .down = w[2],
                               .activation = gated.gelu ? ACTIVATION_GELU : ACTIVATION_SILU},
                 to);
    host_read(b, to, want, N * WIDTH);
    b->type->buffer_close(b, from);

    rig_set_orders(1, 0);
    acts = hold_rows(in, NULL, N, WIDTH);
    for (size_t i = 0; i < 3; i++) {
        products[i] = (struct cuda_product){device_matrix(&t[i], &rooms[i]),
                                            rig_alloc(N * HIDDEN * sizeof(float))};
        b->type->weight_close(b, w[i]);
    }
    device_copy(products[2].out, x, sizeof(x));
    launch_products(how, products, 2, &acts, n, false);
    let_go(&acts);
    acts = (struct device_acts){.floats = products[0].out,
                                .acts = {rig_alloc(N * HIDDEN),
                                         rig_alloc(N * HIDDEN / 32 * sizeof(struct cuda_group)),
                                         rig_alloc(N * HIDDEN / 32 * sizeof(struct cuda_outlier))}};
    rig_set_orders(rig_orders(), 3);
    gated.gate = products[0].out;
    gated.up = products[1].out;
    cuda_gate_quantise(&gated, &acts.acts, NULL);
    cuda_gate(&gated, products[0].out, NULL);
    launch_products(how, &products[2], 1, &acts, n, true);
    assert_same_bits(products[2].out, want, N * WIDTH);
    let_go(&acts);
    rig_free(products[1].out);
    rig_free(products[2].out);
    for (size_t i = 0; i < 3; i++) {
        rig_free(rooms[i]);
        free((void *)t[i].data);
    }
    backend_close(b);
}
END_TEST

/* A row of a table is decoded as the file's format defines, for every type; so is the whole table
 * in half precision. */
START_TEST(rows_are_decoded)
{
    enum { N_ROWS = 21, N_FIRST = 13, N = 4 };
    static const int32_t ids[N] = {20, 0, 7, 8};
    size_t width = _i < N_BLOCK_TYPES ? 256 : 75;
    struct tensor t = random_tensor(types[_i], N_ROWS, width, 31);
    float *want = xalloc(N_ROWS * width * sizeof(*want));
    float *out = rig_alloc(N * width * sizeof(*out));
    uint16_t *halves = rig_alloc(N_ROWS * width * sizeof(*halves));
    struct cuda_count count = count_of(N - 1, N);
    int32_t *on_device = to_device(ids, sizeof(ids));
    struct cuda_matrix m;
    void *room;

    dtype_decode(t.type, t.data, N_ROWS * width, want);
    rig_set_orders(rig_orders(), 4);
    m = device_matrix(&t, &room);
    device_fill(out, 0, N * width * sizeof(*out));
    cuda_embed(&m, on_device, count, out, NULL);
    cuda_matrix_f16(&m, 0, N_FIRST, halves, NULL);
    cuda_matrix_f16(&m, N_FIRST, N_ROWS - N_FIRST, halves + N_FIRST * width, NULL);
    must_be_well();
    for (size_t i = 0; i < N - 1; i++)
        assert_same_bits(out + i * width, want + (size_t)ids[i] * width, width);
    for (size_t i = 0; i < width; i++)
        ck_assert(out[(N - 1) * width + i] == 0.0f); /* beyond the count */
    for (size_t i = 0; i < N_ROWS * width; i++)
        ck_assert_uint_eq(halves[i], f32_to_f16(want[i]));
    rig_free((void *)count.n);
    rig_free(on_device);
    rig_free(room);
    rig_free(out);
    rig_free(halves);
    free(want);
    free((void *)t.data);
}
END_TEST

START_TEST(rows_are_gathered)
{
    enum { WIDTH = 77, N = 3 };
    static const uint32_t rows[N] = {4, 0, 4};
    float in[5 * WIDTH], *from, *out = rig_alloc(N * WIDTH * sizeof(*out));
    uint32_t *picks = to_device(rows, sizeof(rows));

    fill(in, 5 * WIDTH, 1);
    from = to_device(in, sizeof(in));
    rig_set_orders(rig_orders(), 4);
    cuda_gather(from, picks, (struct cuda_count){NULL, N}, WIDTH, out, NULL);
    must_be_well();
    for (size_t i = 0; i < N; i++)
        assert_same_bits(out + i * WIDTH, in + rows[i] * WIDTH, WIDTH);
    rig_free(from);
    rig_free(out);
    rig_free(picks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda/products");
    TCase *all = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int failed;

    denormals_are_zero();
    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, products_have_the_bits_of_the_host, 0, N_TYPES);
    tcase_add_loop_test(all, a_broken_row_breaks_alone, 0, N_BLOCK_TYPES);
    tcase_add_loop_test(all, products_share_a_launch, 0, 2);
    tcase_add_loop_test(all, norms_have_the_bits_of_the_host, 0, 3);
    tcase_add_loop_test(all, gates_have_the_bits_of_the_host, 0, 1 + N_BLOCK_TYPES);
    tcase_add_loop_test(all, rows_are_decoded, 0, N_TYPES);
    tcase_add_test(all, rows_are_gathered);
    suite_add_tcase(suite, all);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
