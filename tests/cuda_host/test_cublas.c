/* --fast-math: many rows by cuBLAS, whose stand-in PARLEY_CUBLAS names. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "compute/cuda/module.h"
#include "compute/cuda/parts.h"
#include "tests/cuda/rig.h"
#include "tests/cuda_host/control.h"
#include "tests/cuda_host/cublas.h"
#include "tests/unit/base/suite.h"

extern const struct cuda_module parley_cuda_module;

enum { MAX_ROWS = 65, N_COLS = 512, N_OUT = 150 };

static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                   DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
                                   DTYPE_F32,  DTYPE_F16,  DTYPE_BF16};
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

static const size_t row_counts[] = {1, 3, 17, MAX_ROWS};
enum { N_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]) };

/* Both operands are rounded to 11 bits, and 512 such products summed: of the largest result. */
static const float tolerance = 2e-3f;

static const struct cublas_host *cublas(void)
{
    const char *path = getenv("PARLEY_CUBLAS");
    void *library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
    const struct cublas_host *found = library != NULL ? dlsym(library, "cublas_host") : NULL;

    ck_assert_msg(found != NULL, "the stand-in is not where PARLEY_CUBLAS says");
    return found;
}

/* from: the number of rows from which on cuBLAS multiplies; 0: the table's. */
static struct backend *open_cuda(bool fast, size_t from)
{
    const struct backend_config config = {.fast_math = fast, .fast_math_from = from};
    struct backend *b = NULL;
    struct error err;

    ck_assert_msg(backend_open_type(&b, parley_cuda_module.type, &config, &err) == STATUS_OK, "%s",
                  err.text);
    return b;
}

static void close_cuda(struct backend *b)
{
    backend_close(b);
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}

/* Multiplies n rows of in, normed where there is a gain; stores or adds. */
static void multiply(struct backend *b, const struct tensor *t, const float *in,
                     const struct tensor *gain, size_t n, const float *to_add, float *out)
{
    struct weight *w = host_weight(b, t), *g = gain != NULL ? host_weight(b, gain) : NULL;
    struct buffer *from = host_buffer(b, in, n * t->n_cols);
    struct buffer *to = host_buffer(b, to_add, n * t->n_rows);
    const struct input input = {from, g, 1e-5f};
    const struct product products[] = {{w, to}, {w, to}};

    if (to_add != NULL)
        b->type->matmul_add(b, &input, n, products);
    else
        b->type->matmul(b, &input, n, products, 2);
    host_read(b, to, out, n * t->n_rows);
    b->type->buffer_close(b, from);
    b->type->weight_close(b, w);
    b->type->weight_close(b, g);
}

static const char *products_of(struct backend *b)
{
    static struct backend_statistics figures;

    b->type->statistics(b, &figures);
    return figures.products;
}

/* The first test, because a library that was found stays loaded. Without the library the backend
 * works as without the option, and says so. */
START_TEST(without_it_our_kernels_do_all)
{
    struct tensor t = random_tensor(DTYPE_Q4_1, N_OUT, N_COLS, 7);
    static float in[MAX_ROWS * N_COLS], own[MAX_ROWS * N_OUT], got[MAX_ROWS * N_OUT];
    const char *given = getenv("PARLEY_CUBLAS");
    char *path;
    struct backend *b;

    ck_assert_ptr_nonnull(given);
    path = xstrdup(given);
    fill(in, MAX_ROWS * N_COLS, 11);
    b = open_cuda(false, 0);
    multiply(b, &t, in, NULL, MAX_ROWS, NULL, own);
    ck_assert_str_eq(products_of(b), "own kernels, the same bits in any batch");
    close_cuda(b);
    ck_assert_int_eq(setenv("PARLEY_CUBLAS", "/nowhere/libcublasLt.so.13", 1), 0);
    b = open_cuda(true, 1);
    ck_assert_msg(
        strstr(products_of(b), "own kernels, because cuBLAS is not available: /nowhere/") != NULL,
        "%s", products_of(b));
    ck_assert(!b->type->vendor_matmul(b, 16, 64, 64));
    multiply(b, &t, in, NULL, MAX_ROWS, NULL, got);
    assert_same_bits(got, own, MAX_ROWS * N_OUT);
    close_cuda(b);
    ck_assert_int_eq(setenv("PARLEY_CUBLAS", path, 1), 0);
    free(path);
    free((void *)t.data);
}
END_TEST

/* Products of every type, of few rows and many, stored and added, normed and not, are near `ref`,
 * whether the weight is converted to f16 at once or a few rows at a time. */
START_TEST(products_are_near_the_reference)
{
    static float in[MAX_ROWS * N_COLS], to_add[MAX_ROWS * N_OUT], want[MAX_ROWS * N_OUT],
        got[MAX_ROWS * N_OUT], gains[N_COLS];
    const struct tensor gain = {.name = "gain",
                                .type = DTYPE_F32,
                                .n_rows = 1,
                                .n_cols = N_COLS,
                                .data = (void *)gains,
                                .size_bytes = sizeof(gains)};
    struct backend *ref = open_backend("ref"), *b = open_cuda(true, 1);

    ck_assert_msg(strstr(products_of(b), "libcublasLt.so.13 (13.0.2)") != NULL, "%s",
                  products_of(b));
    fill(in, MAX_ROWS * N_COLS, 11);
    fill(to_add, MAX_ROWS * N_OUT, 12);
    fill(gains, N_COLS, 13);
    for (size_t i = 0; i < N_TYPES * N_COUNTS; i++) {
        struct tensor t = random_tensor(types[i / N_COUNTS], N_OUT, N_COLS, 7);
        size_t n = row_counts[i % N_COUNTS];
        const struct tensor *g = i % 2 == 0 ? &gain : NULL;
        uint64_t before = cublas()->n_matmuls();

        to_cuda(b)->fast.weights.cap_bytes = (i % 3 == 0 ? 100 : 1000) * N_COLS * sizeof(uint16_t);
        multiply(ref, &t, in, g, n, NULL, want);
        multiply(b, &t, in, g, n, NULL, got);
        assert_near(got, want, n * N_OUT, tolerance);
        multiply(ref, &t, in, g, n, to_add, want);
        multiply(b, &t, in, g, n, to_add, got);
        assert_near(got, want, n * N_OUT, tolerance);
        ck_assert_uint_eq(cublas()->n_matmuls() - before, i % 3 == 0 ? 9 : 3);
        free((void *)t.data);
    }
    backend_close(ref);
    close_cuda(b);
    ck_assert_uint_eq(cublas()->n_objects(), 0);
}
END_TEST

static void run_ffn(struct backend *b, struct tensor t[3], const float *in, size_t n,
                    const float *to_add, float *out)
{
    struct weight *w[3] = {host_weight(b, &t[0]), host_weight(b, &t[1]), host_weight(b, &t[2])};
    struct buffer *from = host_buffer(b, in, n * t[0].n_cols);
    struct buffer *to = host_buffer(b, to_add, n * t[2].n_rows);

    b->type->ffn(b, &(struct input){.x = from}, n,
                 &(struct ffn){.gate = w[0], .up = w[1], .down = w[2]}, to);
    host_read(b, to, out, n * t[2].n_rows);
    b->type->buffer_close(b, from);
    for (size_t i = 0; i < 3; i++)
        b->type->weight_close(b, w[i]);
}

/* The gated network, of one type and of several. */
START_TEST(networks_are_near_the_reference)
{
    enum { WIDTH = 256, HIDDEN = 512, N = 17 };
    static const enum dtype of[][3] = {{DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1},
                                       {DTYPE_F16, DTYPE_F16, DTYPE_F16},
                                       {DTYPE_Q4_K, DTYPE_F32, DTYPE_Q6_K}};
    static float in[N * WIDTH], to_add[N * WIDTH], want[N * WIDTH], got[N * WIDTH];
    struct backend *ref = open_backend("ref"), *b = open_cuda(true, 9);

    fill(in, N * WIDTH, 5);
    fill(to_add, N * WIDTH, 6);
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        struct tensor t[] = {random_tensor(of[i][0], HIDDEN, WIDTH, 1),
                             random_tensor(of[i][1], HIDDEN, WIDTH, 2),
                             random_tensor(of[i][2], WIDTH, HIDDEN, 3)};
        uint64_t before = cublas()->n_matmuls();

        run_ffn(ref, t, in, N, to_add, want);
        run_ffn(b, t, in, N, to_add, got);
        assert_near(got, want, N * WIDTH, 2 * tolerance);
        ck_assert_uint_eq(cublas()->n_matmuls() - before, 3);
        for (size_t k = 0; k < 3; k++)
            free((void *)t[k].data);
    }
    backend_close(ref);
    close_cuda(b);
}
END_TEST

/* A number beyond the range of half is clamped; infinities and NaN are kept, in their own row. */
START_TEST(numbers_too_large_are_held)
{
    struct tensor t = random_tensor(DTYPE_F16, N_OUT, N_COLS, 3);
    static float in[3 * N_COLS], got[3 * N_OUT], want[3 * N_OUT];
    struct backend *b = open_cuda(true, 1);

    fill(in, 3 * N_COLS, 4);
    in[N_COLS + 7] = -65504.0f;
    multiply(b, &t, in, NULL, 3, NULL, want);
    in[N_COLS + 7] = -1e9f;
    multiply(b, &t, in, NULL, 3, NULL, got);
    assert_same_bits(got, want, 3 * N_OUT);
    in[N_COLS + 7] = NAN;
    in[2 * N_COLS + 7] = INFINITY;
    multiply(b, &t, in, NULL, 3, NULL, got);
    assert_same_bits(got, want, N_OUT);
    for (size_t i = N_OUT; i < 3 * N_OUT; i++)
        ck_assert(i < 2 * N_OUT ? isnan(got[i]) : !isfinite(got[i]));
    close_cuda(b);
    free((void *)t.data);
}
END_TEST

/* Few rows, and shapes for which cuBLAS has no algorithm, are computed by our kernels, bit for
 * bit. */
START_TEST(what_it_does_not_take_is_ours)
{
    struct tensor t = random_tensor(DTYPE_Q4_0, N_OUT, N_COLS, 7);
    static float in[MAX_ROWS * N_COLS], own[MAX_ROWS * N_OUT], got[MAX_ROWS * N_OUT];
    struct backend *b = open_cuda(false, 0);
    uint64_t before = cublas()->n_matmuls();

    fill(in, MAX_ROWS * N_COLS, 11);
    multiply(b, &t, in, NULL, MAX_ROWS, NULL, own);
    close_cuda(b);
    b = open_cuda(true, 18);
    multiply(b, &t, in, NULL, 17, NULL, got);
    assert_same_bits(got, own, 17 * N_OUT);
    close_cuda(b);
    b = open_cuda(true, 0); /* the table's least is 64 */
    multiply(b, &t, in, NULL, 63, NULL, got);
    assert_same_bits(got, own, 63 * N_OUT);
    close_cuda(b);
    cublas()->refuse(true);
    b = open_cuda(true, 1);
    multiply(b, &t, in, NULL, MAX_ROWS, NULL, got);
    assert_same_bits(got, own, MAX_ROWS * N_OUT);
    ck_assert(!b->type->vendor_matmul(b, 16, 64, 64));
    close_cuda(b);
    cublas()->refuse(false);
    ck_assert_uint_eq(cublas()->n_matmuls(), before);
    free((void *)t.data);
}
END_TEST

/* Steps of 17 to 24 rows look for one algorithm, and from the second on are one graph. A result
 * that has no room for rounded rows gets its own, and no more is written. */
START_TEST(rows_of_a_bucket_share_a_plan)
{
    enum { BUCKET = 24, LEAST = 17, N_COUNTED = 4 };
    static float in[BUCKET * N_COLS], want[BUCKET * N_OUT], got[BUCKET * N_OUT];
    struct tensor t = random_tensor(DTYPE_Q4_1, N_OUT, N_COLS, 7);
    struct backend *ref = open_backend("ref"), *b = open_cuda(true, 1);
    struct weight *w = host_weight(b, &t);
    struct buffer *from, *to = host_buffer(b, NULL, BUCKET * N_OUT);
    const struct product product = {w, to};
    uint64_t n_looked_up = cublas()->n_looked_up(), n_graphs = cuda_host_n_graphs();
    struct error err;

    fill(in, BUCKET * N_COLS, 11);
    from = host_buffer(b, in, BUCKET * N_COLS);
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK); /* the copy is a list of its own */
    for (size_t n = LEAST; n < LEAST + N_COUNTED; n++) {
        b->type->matmul(b, &(struct input){.x = from}, n, &product, 1);
        b->type->download(b, got, to, n * N_OUT * sizeof(*got));
        ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
        multiply(ref, &t, in, NULL, n, NULL, want);
        assert_near(got, want, n * N_OUT, tolerance);
    }
    ck_assert_uint_eq(cublas()->n_looked_up() - n_looked_up, 1);
    ck_assert_uint_eq(cuda_host_n_graphs() - n_graphs, N_COUNTED - 1);
    multiply(b, &t, in, NULL, LEAST, NULL, got);
    assert_near(got, want, LEAST * N_OUT, tolerance);
    ck_assert_uint_eq(cublas()->n_looked_up() - n_looked_up, 2);
    b->type->buffer_close(b, from);
    b->type->buffer_close(b, to);
    b->type->weight_close(b, w);
    backend_close(ref);
    close_cuda(b);
    free((void *)t.data);
}
END_TEST

/* A rate can be measured with the option and without. */
START_TEST(the_vendors_products_run)
{
    for (int fast = 0; fast < 2; fast++) {
        struct backend *b = open_cuda(fast != 0, 0);
        uint64_t before = cublas()->n_matmuls();
        struct error err;

        ck_assert(b->type->vendor_matmul(b, 17, 65, 64));
        ck_assert(b->type->vendor_matmul(b, 3, 129, 40));
        ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
        ck_assert_uint_eq(cublas()->n_matmuls() - before, 2);
        close_cuda(b);
    }
}
END_TEST

static const struct backend_config fast_config = {.fast_math = true, .fast_math_from = 1};

/* Opens the device, multiplies three times, once as a graph, and closes it; after a failure the
 * device must work again, as it is or reopened. */
static enum status live(const struct tensor *t, bool *ret_opened, struct error *err)
{
    struct backend *b = NULL;
    struct weight *w = NULL;
    struct buffer *in = NULL, *out = NULL;
    enum status rc = backend_open_type(&b, parley_cuda_module.type, &fast_config, err);

    *ret_opened = rc == STATUS_OK;
    if (rc != STATUS_OK)
        return rc;
    rc = b->type->weight_open(b, t, &w, err);
    in = b->type->buffer_open(b, 3 * t->n_cols * sizeof(float));
    out = b->type->buffer_open(b, 3 * t->n_rows * sizeof(float));
    if (rc == STATUS_OK && (in == NULL || out == NULL) && (rc = b->type->sync(b, err)) == STATUS_OK)
        rc = error_set(err, STATUS_EXHAUSTED, "no buffer");
    for (int i = 0; i < 3 && rc == STATUS_OK; i++) {
        const struct product product = {w, out};

        b->type->matmul(b, &(struct input){.x = in}, 3, &product, 1);
        if (i == 0 && b->type->vendor_matmul(b, 3, 64, 64))
            b->type->matmul(b, &(struct input){.x = in}, 3, &product, 1);
        rc = b->type->sync(b, err);
    }
    if (rc == STATUS_EXHAUSTED && w != NULL && in != NULL && out != NULL) {
        struct error second;

        b->type->matmul(b, &(struct input){.x = in}, 3, &(struct product){w, out}, 1);
        ck_assert_msg(b->type->sync(b, &second) == STATUS_OK, "%s", second.text);
    }
    b->type->buffer_close(b, in);
    b->type->buffer_close(b, out);
    b->type->weight_close(b, w);
    if (rc == STATUS_INTERNAL) {
        struct error second;

        ck_assert_msg(backend_restart(b, &fast_config, &second) == STATUS_OK, "%s", second.text);
    }
    backend_close(b);
    return rc;
}

/* Each call of cuBLAS fails in turn. A failure while cuBLAS is opened leaves all products to our
 * kernels; a later one fails the step: EXHAUSTED for want of memory, else INTERNAL and a dead
 * device. */
START_TEST(its_calls_fail)
{
    static const int statuses[] = {CUBLAS_ALLOC_FAILED, CUBLAS_EXECUTION_FAILED};
    struct tensor t = random_tensor(DTYPE_Q4_1, 32, 64, 3);
    struct error err;
    bool opened;

    for (size_t i = 0; i < 2; i++) {
        uint64_t first = cublas()->n_calls(), n, n_failed = 0;

        ck_assert_int_eq(live(&t, &opened, &err), STATUS_OK);
        n = cublas()->n_calls() - first;
        ck_assert_uint_ge(n, 30);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t n_objects = cublas()->n_objects();
            enum status rc;

            cublas()->fail_after((long)k, statuses[i]);
            rc = live(&t, &opened, &err);
            cublas()->fail_after(-1, 0);
            n_failed += rc != STATUS_OK;
            ck_assert_msg(rc == STATUS_OK ||
                              (opened && rc == (i == 0 ? STATUS_EXHAUSTED : STATUS_INTERNAL)),
                          "call %d: %s", (int)k, err.text);
            ck_assert_msg(cuda_host_bytes_taken() == 0 && cuda_host_n_handles() == 0,
                          "call %d leaves %zu bytes, %zu handles", (int)k, cuda_host_bytes_taken(),
                          cuda_host_n_handles());
            /* a dead device's handle stays */
            ck_assert_uint_eq(cublas()->n_objects(), n_objects + (rc == STATUS_INTERNAL));
        }
        ck_assert_uint_ge(n_failed, 10);
    }
    free((void *)t.data);
}
END_TEST

/* Each call of the runtime fails in turn, too. */
START_TEST(calls_of_the_runtime_fail)
{
    static const cudaError_t codes[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress};
    struct tensor t = random_tensor(DTYPE_Q4_1, 32, 64, 3);
    struct error err;
    bool opened;

    for (size_t i = 0; i < 2; i++) {
        uint64_t first = cuda_host_n_calls(), n;

        ck_assert_int_eq(live(&t, &opened, &err), STATUS_OK);
        n = cuda_host_n_calls() - first;
        ck_assert_uint_ge(n, 30);
        for (uint64_t k = 0; k < n; k++) {
            enum status rc;

            cuda_host_fail((long)k, codes[i]);
            rc = live(&t, &opened, &err);
            cuda_host_fail(-1, cudaSuccess);
            ck_assert_msg(rc == STATUS_OK || rc == (i == 0 ? STATUS_EXHAUSTED : STATUS_INTERNAL) ||
                              (k == 0 && rc == STATUS_PRECONDITION), /* is there a device? */
                          "call %d: %s", (int)k, err.text);
            ck_assert_msg(cuda_host_bytes_taken() == 0 && cuda_host_n_handles() == 0,
                          "call %d leaves %zu bytes, %zu handles", (int)k, cuda_host_bytes_taken(),
                          cuda_host_n_handles());
        }
    }
    free((void *)t.data);
}
END_TEST

SUITE_MAIN("cuda_host/cublas", without_it_our_kernels_do_all, products_are_near_the_reference,
           networks_are_near_the_reference, numbers_too_large_are_held,
           what_it_does_not_take_is_ours, rows_of_a_bucket_share_a_plan, the_vendors_products_run,
           its_calls_fail, calls_of_the_runtime_fail)
