/* The operators of small networks, and drawing: their bits are those of ref. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/backend/net.h"
#include "compute/verbs/selftest/selftest.h"

enum {
    N = 19, /* rows */
    IN = 37,
    OUT = 24,
    N_VOCAB = 3001,
    MOST = N * 4 * IN > N_VOCAB ? N * 4 * IN : N_VOCAB, /* numbers of a buffer */
    BUFFERS = 6,
};

struct network_bench {
    struct backend *b;
    struct buffer *at[BUFFERS];
};

static void bench_deinit(struct network_bench *n)
{
    for (size_t i = 0; i < BUFFERS; i++)
        n->b->type->buffer_close(n->b, n->at[i]);
}

/* Buffers of random numbers from -1 to 1. */
static enum status bench_init(struct network_bench *n, struct backend *b, uint64_t seed,
                              float *scratch, struct error *err)
{
    *n = (struct network_bench){.b = b};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        n->at[i] = b->type->buffer_open(b, MOST * sizeof(float));
        if (n->at[i] == NULL)
            return error_no_memory(err, MOST * sizeof(float), "numbers");
        for (uint32_t k = 0; k < MOST; k++)
            scratch[k] = counter_rng_uniform(seed, 1 + i, k, 0) * 2.0f - 1.0f;
        b->type->upload(b, n->at[i], scratch, MOST * sizeof(float));
    }
    return STATUS_OK;
}

static void run_linear(struct network_bench *n)
{
    n->b->type->net->linear(n->b, n->at[0], n->at[1], n->at[2], N, IN, OUT, n->at[3]);
}

static void run_linear_backward(struct network_bench *n)
{
    n->b->type->net->linear_backward(n->b, n->at[0], n->at[1], n->at[2], N, IN, OUT, n->at[3],
                                     n->at[4], n->at[5]);
}

static void run_lstm(struct network_bench *n)
{
    n->b->type->net->lstm(n->b, n->at[0], n->at[1], n->at[2], N, OUT, n->at[3], n->at[4]);
}

static void run_lstm_backward(struct network_bench *n)
{
    n->b->type->net->lstm_backward(n->b, n->at[0], n->at[1], n->at[2], n->at[3], N, OUT, n->at[4],
                                   n->at[5]);
}

static void run_softmax(struct network_bench *n)
{
    n->b->type->net->softmax(n->b, n->at[0], N, OUT, n->at[1]);
    n->b->type->net->log_softmax(n->b, n->at[0], N, OUT, n->at[2]);
}

static void run_adam(struct network_bench *n)
{
    const struct optim adam = {.kind = OPTIM_ADAMW,
                               .weight_decay = 0.1f,
                               .beta1 = 0.9f,
                               .beta2 = 0.999f,
                               .epsilon = 1e-8f};

    n->b->type->net->zero(n->b, n->at[2], 1, MOST);
    n->b->type->net->zero(n->b, n->at[3], 1, MOST);
    n->b->type->net->optim_step(n->b, &adam, 1, 0.01f, MOST, n->at[0], n->at[1], n->at[2],
                                n->at[3]);
}

static const struct {
    const char *name;
    void (*run)(struct network_bench *n);
} nets[] = {
    {"linear", run_linear},   {"linear_backward", run_linear_backward},
    {"lstm", run_lstm},       {"lstm_backward", run_lstm_backward},
    {"softmax", run_softmax}, {"adamw", run_adam},
};

/* Runs it from the same numbers; all buffers go to out [BUFFERS][MOST]. */
static enum status run_on(struct backend *b, uint64_t seed, void (*run)(struct network_bench *n),
                          float *out, struct error *err)
{
    struct network_bench n;
    enum status rc = bench_init(&n, b, seed, out, err);

    if (rc == STATUS_OK) {
        run(&n);
        for (size_t i = 0; i < BUFFERS; i++)
            b->type->download(b, out + i * MOST, n.at[i], MOST * sizeof(float));
        rc = b->type->sync(b, err);
    }
    bench_deinit(&n);
    return rc;
}

static double most_apart(const float *x, const float *y, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)x[i] - (double)y[i]);

        most = apart <= most ? most : apart; /* written so that a NaN becomes the largest */
    }
    return most;
}

/* Ids alone, as numbers. */
static void network_bench_run_draws(struct network_bench *n, struct drawn drawn[3])
{
    static const struct draw draws[] = {
        {.row = 0, .temperature = 0.0f, .top_p = 1.0f},
        {.row = 0, .seed = 5, .temperature = 0.1f, .top_p = 0.9f},
        {.row = 0, .seed = 6, .temperature = 0.7f, .top_p = 1.0f, .top_k = 40},
    };
    const struct draw_list list = {.draws = draws, .n = 3};

    n->b->type->sample(n->b, n->at[0], N_VOCAB, &list, drawn);
}

static enum status draw_on(struct backend *b, uint64_t seed, float *scratch, struct drawn drawn[3],
                           struct error *err)
{
    struct network_bench n;
    enum status rc = bench_init(&n, b, seed, scratch, err);

    if (rc == STATUS_OK) {
        network_bench_run_draws(&n, drawn);
        rc = b->type->sync(b, err);
    }
    bench_deinit(&n);
    return rc;
}

enum status selftest_networks(struct selftest *s, struct backend *ref, struct backend *b,
                              struct error *err)
{
    float *known = xalloc(BUFFERS * MOST * sizeof(*known));
    float *have = xalloc(BUFFERS * MOST * sizeof(*have));
    struct drawn tokens[2][3];
    enum status rc = STATUS_OK;

    for (size_t i = 0;
         rc == STATUS_OK && b->type->net != NULL && i < sizeof(nets) / sizeof(nets[0]); i++) {
        if ((rc = run_on(ref, s->seed, nets[i].run, known, err)) == STATUS_OK &&
            (rc = run_on(b, s->seed, nets[i].run, have, err)) == STATUS_OK)
            selftest_operator(s, nets[i].name, "", most_apart(known, have, BUFFERS * MOST), 0.0);
        else
            (void)error_prefix(err, "%s", nets[i].name);
    }
    if (rc == STATUS_OK && b->type->sample != NULL &&
        (rc = draw_on(ref, s->seed, known, tokens[0], err)) == STATUS_OK &&
        (rc = draw_on(b, s->seed, have, tokens[1], err)) == STATUS_OK)
        selftest_operator(s, "draw", "",
                          tokens[0][0].id == tokens[1][0].id &&
                                  tokens[0][1].id == tokens[1][1].id &&
                                  tokens[0][2].id == tokens[1][2].id
                              ? 0.0
                              : 1.0,
                          0.0);
    free(known);
    free(have);
    return rc;
}
