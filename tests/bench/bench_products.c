/* How fast a model's weights are multiplied with 512 rows, compared with oneDNN's integer matmul of
 * the same shapes in the same minute. Parley's has scales, mins, nibbles and the rounding of its
 * input; oneDNN's has none of these and shows what the instruction can do.
 *
 *     bench_products MODEL.gguf ONEDNN.so
 *
 * Each line: the median of pairs taken in turns, and the least and greatest ratio of one pair.
 *
 *     bench_products --backend NAME MODEL.gguf
 *
 * How fast a backend multiplies them with 1 to 512 rows, without a peer: a line for each number of
 * rows, by the median of calls. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/gguf/gguf.h"
#include "tests/bench/onednn.h"

enum { ROWS = 512 /* at most */, PAIRS = 21, CALLS = 4 /* timed together */, MAX_THREADS = 2 };

static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.ffn_up.weight",
                                    "blk.0.ffn_down.weight"};

struct onednn {
    onednn_open_fn *open;
    onednn_run_fn *run;
    onednn_close_fn *close;
};

/* One weight, multiplied by both. */
struct pair {
    const struct onednn *onednn;
    struct backend *b;
    struct weight *w;
    struct buffer *in, *out;
    struct onednn_product *peer;
};

static void put_rows(struct backend *b, struct buffer *to, size_t n)
{
    float *x = xalloc(n * sizeof(*x));

    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i * 7919 % 1009) / 504.5f - 1.0f;
    b->type->upload(b, to, x, n * sizeof(*x));
    free(x);
}

/* Seconds of one call with n rows; below 0: it failed. */
static double time_ours(struct pair *p, size_t n, struct error *err)
{
    struct input in = {.x = p->in};
    struct product product = {p->w, p->out};
    double start = clock_s();

    for (size_t i = 0; i < CALLS; i++)
        p->b->type->matmul(p->b, &in, n, &product, 1);
    return p->b->type->sync(p->b, err) == STATUS_OK ? (clock_s() - start) / CALLS : -1.0;
}

static double time_peer(struct pair *p, struct error *err)
{
    double start = clock_s();

    for (size_t i = 0; i < CALLS; i++)
        if (p->onednn->run(p->peer) != 0) {
            (void)error_set(err, STATUS_INTERNAL, "oneDNN failed");
            return -1.0;
        }
    return (clock_s() - start) / CALLS;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static enum status measure(struct pair *p, const struct tensor *t, size_t n_threads,
                           struct error *err)
{
    double ours[PAIRS], peers[PAIRS], ratios[PAIRS];
    double operations = 2.0 * ROWS * (double)t->n_rows * (double)t->n_cols;

    if (time_ours(p, ROWS, err) < 0.0 ||
        time_peer(p, err) < 0.0) /* the first call warms the caches */
        return STATUS_INTERNAL;
    for (size_t i = 0; i < PAIRS; i++) {
        ours[i] = time_ours(p, ROWS, err);
        peers[i] = time_peer(p, err);
        if (ours[i] < 0.0 || peers[i] < 0.0)
            return STATUS_INTERNAL;
        ratios[i] = peers[i] / ours[i];
    }
    qsort(ours, PAIRS, sizeof(*ours), compare);
    qsort(peers, PAIRS, sizeof(*peers), compare);
    qsort(ratios, PAIRS, sizeof(*ratios), compare);
    printf("%-24s %-5s %5zu x %-5zu %8zu %8.0f %8.0f %6.2f (%.2f-%.2f)\n", t->name,
           dtype_name(t->type), t->n_rows, t->n_cols, n_threads, operations / ours[PAIRS / 2] / 1e9,
           operations / peers[PAIRS / 2] / 1e9, ratios[PAIRS / 2], ratios[0], ratios[PAIRS - 1]);
    return STATUS_OK;
}

static enum status bench_weight(const struct onednn *onednn, struct backend *b,
                                const struct tensor *t, size_t n_threads, struct error *err)
{
    struct pair p = {.onednn = onednn, .b = b};
    enum status rc = b->type->weight_open(b, t, &p.w, err);

    if (rc != STATUS_OK)
        return rc;
    p.in = b->type->buffer_open(b, ROWS * t->n_cols * sizeof(float));
    p.out = b->type->buffer_open(b, ROWS * t->n_rows * sizeof(float));
    p.peer = onednn->open(n_threads, ROWS, t->n_cols, t->n_rows);
    if (p.in == NULL || p.out == NULL) {
        rc = error_set(err, STATUS_EXHAUSTED, "no memory for the rows");
    } else if (p.peer == NULL) {
        rc = error_set(err, STATUS_UNIMPLEMENTED, "oneDNN has no product of this shape");
    } else {
        put_rows(b, p.in, ROWS * t->n_cols);
        rc = measure(&p, t, n_threads, err);
    }
    if (p.peer != NULL)
        onednn->close(p.peer);
    b->type->buffer_close(b, p.out);
    b->type->buffer_close(b, p.in);
    b->type->weight_close(b, p.w);
    return rc;
}

static enum status bench_threads(const struct onednn *onednn, const struct gguf *g,
                                 size_t n_threads, struct error *err)
{
    struct backend_config config = {.n_threads = n_threads};
    struct backend *b = NULL;
    enum status rc = backend_open(&b, "cpu", &config, err);

    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && rc == STATUS_OK; i++) {
        const struct tensor *t;

        rc = gguf_tensor(g, names[i], &t, err);
        if (rc == STATUS_OK)
            rc = bench_weight(onednn, b, t, n_threads, err);
    }
    backend_close(b);
    return rc;
}

/* A weight's lines: each number of rows that kernels may treat in a way of their own. */
static enum status measure_rows(struct pair *p, const struct tensor *t, struct error *err)
{
    for (size_t n = 1; n <= ROWS; n *= 2) {
        double s[PAIRS], operations = 2.0 * (double)(n * t->n_rows) * (double)t->n_cols;

        if (time_ours(p, n, err) < 0.0) /* the first call warms the caches */
            return STATUS_INTERNAL;
        for (size_t i = 0; i < PAIRS; i++)
            if ((s[i] = time_ours(p, n, err)) < 0.0)
                return STATUS_INTERNAL;
        qsort(s, PAIRS, sizeof(*s), compare);
        printf("%-24s %-5s %5zu x %-5zu %5zu %10.1f %9.1f %9.0f\n", t->name, dtype_name(t->type),
               t->n_rows, t->n_cols, n, s[PAIRS / 2] * 1e6,
               (double)t->size_bytes / s[PAIRS / 2] / 1e9, operations / s[PAIRS / 2] / 1e9);
    }
    return STATUS_OK;
}

static enum status bench_rows(struct backend *b, const struct tensor *t, struct error *err)
{
    struct pair p = {.b = b};
    enum status rc = b->type->weight_open(b, t, &p.w, err);

    if (rc != STATUS_OK)
        return rc;
    p.in = b->type->buffer_open(b, ROWS * t->n_cols * sizeof(float));
    p.out = b->type->buffer_open(b, ROWS * t->n_rows * sizeof(float));
    if (p.in == NULL || p.out == NULL) {
        rc = error_set(err, STATUS_EXHAUSTED, "no memory for the rows");
    } else {
        put_rows(b, p.in, ROWS * t->n_cols);
        rc = measure_rows(&p, t, err);
    }
    b->type->buffer_close(b, p.out);
    b->type->buffer_close(b, p.in);
    b->type->weight_close(b, p.w);
    return rc;
}

static enum status bench_backend(const char *name, const struct gguf *g, struct error *err)
{
    struct backend_config config = {.n_threads = 1};
    struct backend *b = NULL;
    enum status rc = backend_open(&b, name, &config, err);

    if (rc == STATUS_OK)
        printf("%-24s %-5s %13s %5s %10s %9s %9s\n", name, "", "shape", "rows", "us", "GB/s",
               "GOP/s");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && rc == STATUS_OK; i++) {
        const struct tensor *t;

        rc = gguf_tensor(g, names[i], &t, err);
        if (rc == STATUS_OK)
            rc = bench_rows(b, t, err);
    }
    backend_close(b);
    return rc;
}

/* Finds a library's function; POSIX passes its address as an object's. */
static bool find(void *library, const char *name, void *out /* a pointer to a function */)
{
    *(void **)out = dlsym(library, name);
    return *(void **)out != NULL;
}

static enum status load(struct onednn *out, const char *path, struct error *err)
{
    void *library = dlopen(path, RTLD_NOW);

    if (library == NULL || !find(library, "onednn_open", &out->open) ||
        !find(library, "onednn_run", &out->run) || !find(library, "onednn_close", &out->close))
        return error_set(err, STATUS_NOT_FOUND, "%s", dlerror());
    return STATUS_OK;
}

static enum status bench_peer(const char *path, const struct gguf *g, struct error *err)
{
    struct onednn onednn;
    enum status rc = load(&onednn, path, err);

    if (rc == STATUS_OK)
        printf("%-24s %-5s %13s %8s %8s %8s %6s\n", "512 rows by", "", "shape", "threads", "GOP/s",
               "oneDNN's", "ratio");
    for (size_t n = 1; n <= MAX_THREADS && rc == STATUS_OK; n++)
        rc = bench_threads(&onednn, g, n, err);
    return rc;
}

int main(int argc, char **argv)
{
    bool is_alone = argc == 4 && strcmp(argv[1], "--backend") == 0;
    struct gguf *g = NULL;
    struct error err;
    enum status rc;

    if (!is_alone && argc != 3) {
        (void)fprintf(stderr, "usage: bench_products MODEL.gguf ONEDNN.so\n"
                              "       bench_products --backend NAME MODEL.gguf\n");
        return 2;
    }
    /* Otherwise oneDNN's threads spin while Parley's run. */
    if (setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        abort();
    rc = gguf_open(&g, argv[is_alone ? 3 : 1], &err);
    if (rc == STATUS_OK)
        rc = is_alone ? bench_backend(argv[2], g, &err) : bench_peer(argv[2], g, &err);
    if (rc != STATUS_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    gguf_close(g);
    return rc != STATUS_OK;
}
