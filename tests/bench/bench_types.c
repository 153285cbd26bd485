/* How fast weights of each type are multiplied with one row and with many, and how much memory they
 * take, compared with Q4_1 in the same minute: the median of pairs taken in turns, and the least
 * and greatest ratio of one pair.
 *
 *     bench_types [BACKEND [THREADS [TYPE]]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "tests/support/numbers.h"

enum {
    N_ROWS = 16384, /* all together more than a core's caches hold, as in a model */
    N_COLS = 1536,
    MANY = 64,
    PAIRS = 15,
};

/* One type's weight, and what its products read and write. */
struct subject {
    struct backend *b;
    struct weight *w;
    struct buffer *in, *out;
    double file_bytes, resident_bytes;
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

static void subject_open(struct subject *s, struct backend *b, enum dtype type)
{
    struct tensor t = random_tensor(type, N_ROWS, N_COLS, 1);
    float *x = xalloc(MANY * N_COLS * sizeof(*x));
    double before = resident_bytes();
    struct error err;

    s->b = b;
    if (b->type->weight_open(b, &t, &s->w, &err) != STATUS_OK)
        abort();
    s->file_bytes = (double)t.size_bytes;
    s->resident_bytes = resident_bytes() - before;
    s->in = b->type->buffer_open(b, MANY * N_COLS * sizeof(float));
    s->out = b->type->buffer_open(b, MANY * N_ROWS * sizeof(float));
    fill(x, MANY * N_COLS, 2);
    b->type->upload(b, s->in, x, MANY * N_COLS * sizeof(*x));
    free(x);
    free((void *)t.data);
}

static void subject_close(struct subject *s)
{
    s->b->type->buffer_close(s->b, s->in);
    s->b->type->buffer_close(s->b, s->out);
    s->b->type->weight_close(s->b, s->w);
}

/* Seconds of one product with n rows. */
static double time_product(const struct subject *s, size_t n)
{
    const struct input in = {.x = s->in};
    const struct product product = {s->w, s->out};
    struct error err;
    double start = clock_s();

    s->b->type->matmul(s->b, &in, n, &product, 1);
    if (s->b->type->sync(s->b, &err) != STATUS_OK)
        abort();
    return clock_s() - start;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_ratio(const struct subject *s, const struct subject *reference, size_t n)
{
    double ratios[PAIRS], best = 1e9;

    for (size_t i = 0; i < PAIRS; i++) {
        double took = time_product(s, n);

        ratios[i] = took / time_product(reference, n);
        best = took < best ? took : best;
    }
    qsort(ratios, PAIRS, sizeof(*ratios), compare);
    printf(" %9.3f %6.2f (%.2f-%.2f)", best * 1e3, ratios[PAIRS / 2], ratios[0], ratios[PAIRS - 1]);
}

static void bench_type(struct backend *b, const struct subject *reference, enum dtype type)
{
    struct subject s;

    subject_open(&s, b, type);
    printf("%-7s %6.2f %9.2f", dtype_name(type), s.file_bytes * 8 / N_ROWS / N_COLS,
           s.resident_bytes * 8 / N_ROWS / N_COLS);
    print_ratio(&s, reference, 1);
    print_ratio(&s, reference, MANY);
    printf("\n");
    subject_close(&s);
}

int main(int argc, char **argv)
{
    const struct backend_config config = {.n_threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1};
    struct subject reference;
    struct backend *b = NULL;
    struct error err;

    if (backend_open(&b, argc > 1 ? argv[1] : "cpu", &config, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    subject_open(&reference, b, DTYPE_Q4_1);
    printf("%-7s %6s %9s %9s %6s %20s %6s\n", "type", "bits", "in memory", "1 row, ms", "ratio",
           "64 rows, ms", "ratio");
    for (unsigned t = 0; t < 64; t++)
        if (dtype_name((enum dtype)t) != NULL &&
            (argc <= 3 || strcmp(argv[3], dtype_name((enum dtype)t)) == 0))
            bench_type(b, &reference, (enum dtype)t);
    subject_close(&reference);
    backend_close(b);
    return 0;
}
