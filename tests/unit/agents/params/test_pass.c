/* The pass against its formulas, written out one number at a time. */
#include "agents/params/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "tests/unit/base/suite.h"

/* More than a chunk, not a multiple of a block. */
enum { N = SNAPSHOT_CHUNK_BYTES / 4 + 5001, N_GRADIENTS = 6 };

struct bench {
    struct params_budget budget;
    struct params_memory *memory;
    struct snapshot *out;
    struct sha256 *sha;
    float *values, *m, *v, *gradients[N_GRADIENTS];
};

/* Numbers that differ, in (-1, 1). */
static float number(size_t stream, size_t i)
{
    uint64_t x = (stream * 1000003 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 31;
    return (float)((double)(x & 0xffffff) / 0x800000 - 1.0);
}

static float *numbers(size_t stream)
{
    float *out = xalloc(N * sizeof(float));

    for (size_t i = 0; i < N; i++)
        out[i] = number(stream, i);
    return out;
}

static void bench_open(struct bench *b)
{
    struct error err;

    *b = (struct bench){0};
    params_budget_init(&b->budget, SIZE_MAX, NULL);
    ck_assert_int_eq(params_memory_open(&b->memory, &b->budget, N, 2, &err), STATUS_OK);
    ck_assert_int_eq(snapshot_make(&b->out, b->memory, N, 0, &err), STATUS_OK);
    ck_assert_int_eq(sha256_open(&b->sha, &err), STATUS_OK);
    for (size_t i = 0; i < N_GRADIENTS; i++)
        b->gradients[i] = numbers(i + 1);
    ck_assert_int_eq(params_memory_take(&b->out->values, b->memory, &err), STATUS_OK);
    b->values = numbers(0);
    b->m = xalloc(N * sizeof(float));
    b->v = xalloc(N * sizeof(float));
}

static void bench_close(struct bench *b)
{
    for (size_t i = 0; i < N_GRADIENTS; i++)
        free(b->gradients[i]);
    snapshot_unref(b->out);
    params_memory_unref(b->memory);
    sha256_close(b->sha);
    free(b->values);
    free(b->m);
    free(b->v);
}

static void check_sums(const struct bench *b)
{
    uint8_t hash[SHA256_BYTES];
    struct sha256 *s;
    struct error err;

    ck_assert_int_eq(sha256_open(&s, &err), STATUS_OK);
    sha256_add(s, b->out->values, N * sizeof(float));
    sha256_take(s, hash);
    ck_assert_mem_eq(b->out->sha256, hash, sizeof(hash));
    sha256_close(s);
    ck_assert_uint_eq(b->out->n_chunks, 2);
    for (size_t i = 0; i < 2; i++)
        ck_assert_uint_eq(b->out->crcs[i],
                          crc32c(0, (const char *)b->out->values + i * SNAPSHOT_CHUNK_BYTES,
                                 snapshot_chunk_bytes(b->out, i)));
}

/* Gradients 0, 1 + 2 and 3 + 4 + 5 as groups: the reduction is exact, in order. */
static void check_reduce(bool is_sum)
{
    const struct optim plain = {.kind = OPTIM_SGD};
    struct params_group groups[3];
    struct params_pass pass = {.optim = &plain,
                               .step = optim_ref_step,
                               .round = 1,
                               .rate = 1.0f,
                               .is_sum = is_sum,
                               .groups = groups,
                               .n_groups = 3};
    struct bench b;

    bench_open(&b);
    groups[0] = (struct params_group){&b.gradients[0], 1};
    groups[1] = (struct params_group){&b.gradients[1], 2};
    groups[2] = (struct params_group){&b.gradients[3], 3};
    pass.values = b.values;
    params_pass_run(&pass, b.out, b.sha);
    for (size_t i = 0; i < N; i++) {
        float two = b.gradients[1][i] + b.gradients[2][i];
        float three = b.gradients[3][i] + b.gradients[4][i] + b.gradients[5][i];
        float all = is_sum ? b.gradients[0][i] + two + three
                           : (b.gradients[0][i] + two / 2.0f + three / 3.0f) / 3.0f;

        ck_assert(b.out->values[i] == b.values[i] - all);
    }
    check_sums(&b);
    bench_close(&b);
}

START_TEST(test_sum)
{
    check_reduce(true);
}
END_TEST

START_TEST(test_mean)
{
    check_reduce(false);
}
END_TEST

/* The result may be written to the first gradient's block. */
START_TEST(test_in_place)
{
    const struct optim o = {.kind = OPTIM_SGD, .momentum = 0.9f};
    struct params_group groups[2];
    struct params_pass pass = {.optim = &o,
                               .step = optim_ref_step,
                               .round = 1,
                               .rate = 0.1f,
                               .groups = groups,
                               .n_groups = 2};
    struct bench b;
    float *apart;

    bench_open(&b);
    groups[0] = (struct params_group){&b.gradients[0], 1};
    groups[1] = (struct params_group){&b.gradients[1], 1};
    pass.values = b.values;
    pass.m = b.m;
    params_pass_run(&pass, b.out, b.sha);
    apart = b.out->values;
    b.out->values = b.gradients[0];
    memset(b.out->crcs, 0, b.out->n_chunks * sizeof(b.out->crcs[0]));
    memset(b.m, 0, N * sizeof(float));
    params_pass_run(&pass, b.out, b.sha);
    ck_assert_mem_eq(b.gradients[0], apart, N * sizeof(float));
    check_sums(&b);
    b.out->values = apart;
    bench_close(&b);
}
END_TEST

/* Skipped ranges, inside blocks and over their borders, keep their bits and their moments; all
 * other numbers have the bits of a pass without skips. */
START_TEST(test_skips)
{
    const struct optim o = {.kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    const struct params_range skips[] = {
        {0, 1, 0}, {100, 4096, 0}, {4096, 4097, 0}, {8000, 30001, 0}, {N - 2, N, 0}};
    struct params_group group;
    struct params_pass pass = {.optim = &o,
                               .step = optim_ref_step,
                               .round = 1,
                               .rate = 0.1f,
                               .groups = &group,
                               .n_groups = 1};
    float *whole, *m, *v;
    struct bench b;

    bench_open(&b);
    group = (struct params_group){&b.gradients[0], 1};
    pass.values = b.values;
    pass.m = b.m;
    pass.v = b.v;
    params_pass_run(&pass, b.out, b.sha);
    whole = xalloc(N * sizeof(float));
    memcpy(whole, b.out->values, N * sizeof(float));
    m = b.m;
    v = b.v;
    b.m = pass.m = xalloc(N * sizeof(float));
    b.v = pass.v = xalloc(N * sizeof(float));
    pass.ranges = skips;
    pass.n_ranges = sizeof(skips) / sizeof(skips[0]);
    memset(b.out->crcs, 0, b.out->n_chunks * sizeof(b.out->crcs[0]));
    params_pass_run(&pass, b.out, b.sha);
    for (size_t i = 0, s = 0; i < N; i++) {
        bool is_skipped;

        while (s < pass.n_ranges && skips[s].end <= i)
            s++;
        is_skipped = s < pass.n_ranges && skips[s].first <= i;
        ck_assert(b.out->values[i] == (is_skipped ? b.values[i] : whole[i]));
        ck_assert(b.m[i] == (is_skipped ? 0.0f : m[i]) && b.v[i] == (is_skipped ? 0.0f : v[i]));
    }
    check_sums(&b);
    free(whole);
    free(m);
    free(v);
    bench_close(&b);
}
END_TEST

/* Three steps of each optimiser match its formula in double within f32 precision. */
static void check_optim(const struct optim *o)
{
    struct params_group group;
    struct params_pass pass = {
        .optim = o, .step = optim_ref_step, .rate = 0.01f, .groups = &group, .n_groups = 1};
    /* adam divides by a root that may be small */
    const double tolerance = o->kind == OPTIM_SGD ? 2e-6 : 2e-5;
    double *p, *m, *v;
    struct bench b;

    bench_open(&b);
    p = xalloc(N * sizeof(double));
    m = xalloc(N * sizeof(double));
    v = xalloc(N * sizeof(double));
    for (size_t i = 0; i < N; i++)
        p[i] = (double)b.values[i];
    pass.m = b.m;
    pass.v = b.v;
    pass.values = b.values;
    for (uint64_t round = 1; round <= 3; round++) {
        float *old = b.out->values;
        const double lr = (double)pass.rate, wd = (double)o->weight_decay;
        const double mu = (double)o->momentum, b1 = (double)o->beta1, b2 = (double)o->beta2;

        group = (struct params_group){&b.gradients[round], 1};
        pass.round = round;
        memset(b.out->crcs, 0, b.out->n_chunks * sizeof(b.out->crcs[0]));
        params_pass_run(&pass, b.out, b.sha);
        for (size_t i = 0; i < N; i++) {
            double g = (double)b.gradients[round][i];

            if (o->kind == OPTIM_ADAMW)
                p[i] -= lr * wd * p[i];
            else
                g += wd * p[i];
            if (o->kind == OPTIM_SGD) {
                m[i] = round == 1 ? g : mu * m[i] + (1.0 - (double)o->dampening) * g;
                p[i] -= lr * (o->nesterov ? g + mu * m[i] : m[i]);
            } else {
                m[i] = b1 * m[i] + (1.0 - b1) * g;
                v[i] = b2 * v[i] + (1.0 - b2) * g * g;
                p[i] -= lr * (m[i] / (1.0 - pow(b1, (double)round))) /
                        (sqrt(v[i] / (1.0 - pow(b2, (double)round))) + (double)o->epsilon);
            }
            ck_assert_double_eq_tol((double)b.out->values[i], p[i], tolerance);
        }
        b.out->values = b.values; /* the result is the next step's input */
        b.values = old;
        pass.values = b.values;
    }
    free(p);
    free(m);
    free(v);
    {
        float *block = b.out->values;

        /* the two blocks were swapped: returns the snapshot's own */
        b.out->values = b.values;
        b.values = block;
    }
    bench_close(&b);
}

START_TEST(test_optimisers)
{
    check_optim(&(struct optim){.kind = OPTIM_SGD, .weight_decay = 0.1f, .momentum = 0.9f});
    check_optim(&(struct optim){.kind = OPTIM_SGD, .momentum = 0.9f, .dampening = 0.5f});
    check_optim(&(struct optim){.kind = OPTIM_SGD, .momentum = 0.9f, .nesterov = true});
    check_optim(&(struct optim){.kind = OPTIM_ADAM,
                                .weight_decay = 0.1f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .epsilon = 1e-8f});
    check_optim(&(struct optim){.kind = OPTIM_ADAMW,
                                .weight_decay = 0.1f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .epsilon = 1e-8f});
}
END_TEST

START_TEST(test_follow)
{
    const float taus[] = {0, 0.005f, 0.5f, 1};

    for (size_t t = 0; t < sizeof(taus) / sizeof(taus[0]); t++) {
        uint8_t whole[SHA256_BYTES];
        struct bench b;

        bench_open(&b);
        params_pass_follow(b.values, b.gradients[0], taus[t], b.out, b.sha);
        for (size_t i = 0; i < N; i++) {
            float want = b.values[i] + taus[t] * (b.gradients[0][i] - b.values[i]);

            if (taus[t] == 1)
                want = b.gradients[0][i];
            ck_assert_mem_eq(&b.out->values[i], &want, sizeof(want));
        }
        sha256_add(b.sha, b.out->values, N * sizeof(float));
        sha256_take(b.sha, whole);
        ck_assert_mem_eq(b.out->sha256, whole, sizeof(whole));
        for (size_t i = 0; i < b.out->n_chunks; i++)
            ck_assert_uint_eq(b.out->crcs[i],
                              crc32c(0, (const char *)b.out->values + i * SNAPSHOT_CHUNK_BYTES,
                                     snapshot_chunk_bytes(b.out, i)));
        bench_close(&b);
    }
}
END_TEST

SUITE_MAIN("agents/params/pass", test_sum, test_mean, test_in_place, test_skips, test_optimisers,
           test_follow)
