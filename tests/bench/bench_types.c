/* How near the products with weights of each type come to what bounds them: with one row the bytes
 * that are read, with many rows the multiplications. Both are shares of what the machine does in
 * the same run in a bare loop, reading as much memory or multiplying in registers; beside each,
 * that share over Q4_1's, as the median of pairs taken in turns. By one thread, times are of its
 * processor, so that other programs matter less.
 *
 *     bench_types [THREADS [SHAPE [TYPE]]]
 *
 * SHAPE: 135M, 1B, 8B, or all. PARLEY_CPU chooses the kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/cpu/parts.h"
#include "tests/bench/roof.h"
#include "tests/support/numbers.h"

enum {
    FILE_BYTES = 64 << 20, /* of a weight that is read for one row: more than caches hold */
    MANY_BYTES = 4 << 20,  /* of one that is multiplied with many */
    MANY = 64,
    PAIRS = 9,
};

/* Inputs of a product, by the model's size: of down projections in the first, whose width is no
 * multiple of 256. */
static const struct shape {
    const char *name;
    size_t n_cols;
} shapes[] = {{"135M", 1536}, {"1B", 2048}, {"8B", 4096}};

enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* The weights of one type, and what their products read and write. */
struct subject {
    struct backend *b;
    struct weight *large, *small;
    struct buffer *in, *out;
    double large_bytes;     /* in the file */
    double multiplications; /* instructions, of the small one with MANY rows */
    double resident_ratio;  /* memory over the file's bytes */
    bool is_float;
};

static double resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long all = 0, resident = 0;

    if (f == NULL || fscanf(f, "%lu %lu", &all, &resident) != 2)
        abort();
    (void)fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* Instructions that multiply, for as many columns as a register has lanes, a row and 32 inputs. */
static double instructions_of(enum dtype type, const struct roof *roof)
{
    struct block_form form;
    double halves, run;

    if (!block_form_of(&form, type))
        return GROUP_VALUES;
    halves = form.halves ? 2.0 : 1.0;
    /* by pairs of products in 16 bits: quads whose sums are widened at a time */
    run = form.bias == 128                    ? 1.0
          : form.bits == 6                    ? 2.0
          : form.bits == 4 && form.bias != 12 ? 8.0
                                              : 4.0;
    return GROUP_VALUES / 4 + (roof->has_dots ? 0.0 : GROUP_VALUES / 4 / run) +
           halves * (form.has_min ? 3.0 : 2.0);
}

static struct weight *open_weight(struct backend *b, enum dtype type, size_t n_cols,
                                  size_t size_bytes, double *ret_bytes, double *ret_rows)
{
    size_t n_rows = size_bytes / dtype_row_bytes(type, n_cols) / 16 * 16;
    struct tensor t = random_tensor(type, n_rows, n_cols, 1);
    struct weight *w = NULL;
    struct error err;

    if (b->type->weight_open(b, &t, &w, &err) != STATUS_OK)
        abort();
    *ret_bytes = (double)t.size_bytes;
    *ret_rows = (double)n_rows;
    free((void *)t.data);
    return w;
}

static void subject_open(struct subject *s, struct backend *b, enum dtype type, size_t n_cols,
                         const struct roof *roof)
{
    float *x = xalloc(MANY * n_cols * sizeof(*x));
    double before = resident_bytes(), small_bytes, n_large, n_small;
    struct block_form form;

    *s = (struct subject){.b = b, .is_float = !block_form_of(&form, type)};
    s->large = open_weight(b, type, n_cols, FILE_BYTES, &s->large_bytes, &n_large);
    s->resident_ratio = (resident_bytes() - before) / s->large_bytes;
    s->small = open_weight(b, type, n_cols, MANY_BYTES, &small_bytes, &n_small);
    s->multiplications = n_small * MANY / (double)roof->n_lanes * (double)n_cols / GROUP_VALUES *
                         instructions_of(type, roof);
    s->in = b->type->buffer_open(b, MANY * n_cols * sizeof(float));
    n_small *= MANY;
    s->out =
        b->type->buffer_open(b, (size_t)(n_large > n_small ? n_large : n_small) * sizeof(float));
    if (s->in == NULL || s->out == NULL)
        abort();
    fill(x, MANY * n_cols, 2);
    b->type->upload(b, s->in, x, MANY * n_cols * sizeof(*x));
    free(x);
}

static void subject_close(struct subject *s)
{
    s->b->type->buffer_close(s->b, s->in);
    s->b->type->buffer_close(s->b, s->out);
    s->b->type->weight_close(s->b, s->large);
    s->b->type->weight_close(s->b, s->small);
}

/* Seconds of one product: of one row with the large weight, or of MANY with the small one. */
static double time_product(const struct subject *s, bool many, const struct roof *roof)
{
    const struct input in = {.x = s->in};
    const struct product product = {many ? s->small : s->large, s->out};
    struct error err;
    double start = roof_clock_s(roof);

    s->b->type->matmul(s->b, &in, many ? MANY : 1, &product, 1);
    if (s->b->type->sync(s->b, &err) != STATUS_OK)
        abort();
    return roof_clock_s(roof) - start;
}

/* The share of its bound that a product of took_s has. */
static double share_of(const struct subject *s, bool many, const struct roof *roof, double took_s)
{
    if (!many)
        return s->large_bytes / took_s / roof->read_rate;
    return s->multiplications / took_s / (s->is_float ? roof->fma_rate : roof->dot_rate);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_shares(const struct subject *s, const struct subject *reference, bool many,
                         const struct roof *roof)
{
    double ratios[PAIRS], best = 1e9;

    for (size_t i = 0; i < PAIRS; i++) {
        double took = time_product(s, many, roof);

        ratios[i] = share_of(s, many, roof, took) /
                    share_of(reference, many, roof, time_product(reference, many, roof));
        best = took < best ? took : best;
    }
    qsort(ratios, PAIRS, sizeof(*ratios), compare);
    printf(" %7.2f %5.2f (%.2f-%.2f)", share_of(s, many, roof, best), ratios[PAIRS / 2], ratios[0],
           ratios[PAIRS - 1]);
}

static void bench_shape(struct backend *b, const struct shape *shape, const struct roof *roof,
                        const char *only)
{
    struct subject reference;

    subject_open(&reference, b, DTYPE_Q4_1, shape->n_cols, roof);
    for (unsigned t = 0; t < 64; t++) {
        const char *name = dtype_name((enum dtype)t);
        struct subject s;

        if (name == NULL || (only != NULL && strcmp(only, name) != 0))
            continue;
        subject_open(&s, b, (enum dtype)t, shape->n_cols, roof);
        printf("%-5s %-7s %6.2f", shape->name, name, s.resident_ratio);
        print_shares(&s, &reference, false, roof);
        print_shares(&s, &reference, true, roof);
        printf("\n");
        (void)fflush(stdout);
        subject_close(&s);
    }
    subject_close(&reference);
}

int main(int argc, char **argv)
{
    const struct backend_config config = {.n_threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1};
    const char *shape = argc > 2 ? argv[2] : "all";
    struct backend *b = NULL;
    struct roof roof;
    struct error err;

    if (backend_open(&b, "cpu", &config, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    roof_measure(&roof, to_cpu(b)->kernels->name, FILE_BYTES, config.n_threads);
    printf(
        "%s kernels; %zu thread%s: %.1f GB/s read, %.1f G instructions/s multiply integers, %.1f "
        "floats\n",
        roof.set, config.n_threads, config.n_threads == 1 ? "" : "s", roof.read_rate / 1e9,
        roof.dot_rate / 1e9, roof.fma_rate / 1e9);
    printf("%-5s %-7s %6s %7s %17s %7s %17s\n", "shape", "type", "memory", "1 row", "of Q4_1's",
           "64 rows", "of Q4_1's");
    for (size_t i = 0; i < N_SHAPES; i++)
        if (strcmp(shape, "all") == 0 || strcmp(shape, shapes[i].name) == 0)
            bench_shape(b, &shapes[i], &roof, argc > 3 ? argv[3] : NULL);
    backend_close(b);
    return 0;
}
