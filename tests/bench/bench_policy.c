/* What passes of a policy cost, forward and backward, at 1 … 64 rows: the tutorial's network of 128
 * and the heavy one of 2048 twice. The reference in the same run is the pass of 1 row, and for the
 * heavy network the time to read its weights. Times are processor time of all threads, so that
 * other load on the machine counts little; one thread by default.
 *
 * usage: bench_policy [threads] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agents/policy/network.h"
#include "compute/backends.h"

enum { MAX_ROWS = 64, ROUNDS = 40 };

static const size_t row_counts[] = {1, 4, 11, 64};

enum { N_COUNTS = sizeof(row_counts) / sizeof(row_counts[0]) };

struct bench {
    struct backend *backend;
    struct network net;
    struct net_draw draws[MAX_ROWS];
};

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* cannot fail for this clock */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(enum status rc, const struct error *err)
{
    if (rc == STATUS_OK)
        return;
    (void)fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void sync_all(struct bench *b)
{
    struct error err;

    must(b->backend->type->sync(b->backend, &err), &err);
}

/* Fills with numbers other than zero. */
static void fill(struct bench *b, struct buffer *m, size_t n)
{
    float *x = malloc(n * sizeof(*x));

    if (x == NULL)
        exit(1);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i * 2654435761u % 1021) / 51050.0f - 0.01f;
    b->backend->type->upload(b->backend, m, x, n * sizeof(*x));
    free(x);
}

static void open_bench(struct bench *b, const struct policy_spec *spec, size_t n_threads)
{
    const struct backend_config config = {.n_threads = n_threads};
    struct error err;

    *b = (struct bench){0};
    must(backend_open(&b->backend, "cpu", &config, &err), &err);
    network_shape(&b->net, spec);
    must(network_open(&b->net, b->backend, MAX_ROWS, &err), &err);
    must(network_prepare(&b->net, &err), &err);
    for (size_t i = 0; i < 2 * b->net.n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(&b->net, i / 2, (int)(i % 2), name);

        fill(b, p->value, p->n_rows * p->n_cols);
    }
    fill(b, b->net.in, MAX_ROWS * spec->n_observations);
    fill(b, b->net.dlogits, MAX_ROWS * spec->n_actions);
    for (uint32_t i = 0; i < MAX_ROWS; i++)
        b->draws[i] = (struct net_draw){.seed = 1, .row = i, .drops = true};
    network_zero_gradients(&b->net);
}

static void close_bench(struct bench *b)
{
    network_close(&b->net);
    backend_close(b->backend);
}

static void forward(struct bench *b, size_t n)
{
    network_forward(&b->net, b->draws, n);
}

static void backward(struct bench *b, size_t n)
{
    network_backward(&b->net, b->draws, n);
}

/* The least of many times, in microseconds a call; the numbers of rows are measured in turn. */
static void measure(struct bench *b, void (*pass)(struct bench *b, size_t n), size_t repeats,
                    double best[N_COUNTS])
{
    for (size_t k = 0; k < N_COUNTS; k++) {
        best[k] = 1e30;
        forward(b, row_counts[k]);
    }
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t k = 0; k < N_COUNTS; k++) {
            double from = now_us();
            double us;

            for (size_t i = 0; i < repeats; i++)
                pass(b, row_counts[k]);
            sync_all(b);
            us = (now_us() - from) / (double)repeats;
            best[k] = us < best[k] ? us : best[k];
        }
}

static void show(const char *name, const double best[N_COUNTS])
{
    (void)printf("%-22s", name);
    for (size_t k = 0; k < N_COUNTS; k++)
        (void)printf("  %2zu rows %8.2f us (%5.2f)", row_counts[k], best[k], best[k] / best[0]);
    (void)printf("\n");
}

/* One thread's sum over as many bytes as the weights have: the least time to read them. */
static double read_us(size_t n_bytes)
{
    size_t n = n_bytes / sizeof(uint64_t);
    uint64_t *x = calloc(n, sizeof(*x));
    double best = 1e30;
    volatile uint64_t sink;

    if (x == NULL)
        exit(1);
    memset(x, 1, n * sizeof(*x));
    for (size_t round = 0; round < ROUNDS; round++) {
        double from = now_us(), us;
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
            sum += x[i];
        sink = sum;
        us = (now_us() - from);
        best = us < best ? us : best;
    }
    (void)sink;
    free(x);
    return best;
}

static void bench_spec(const char *name, const struct policy_spec *spec, size_t n_threads,
                       size_t repeats)
{
    double best[N_COUNTS];
    struct bench b;
    char line[40];

    open_bench(&b, spec, n_threads);
    (void)snprintf(line, sizeof(line), "%s forward", name);
    measure(&b, forward, repeats, best);
    show(line, best);
    (void)snprintf(line, sizeof(line), "%s backward", name);
    measure(&b, backward, repeats, best);
    show(line, best);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    size_t n_threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    struct policy_spec spec;

    policy_spec_cartpole(&spec);
    bench_spec("128", &spec, n_threads, 200);
    spec.n_hidden = 2048;
    spec.n_layers = 2;
    bench_spec("2048 x 2", &spec, n_threads, 1);
    (void)printf("%-22s  %.0f us by one thread\n", "reading 16.8 MB", read_us(2048 * 2048 * 4));
    return 0;
}
