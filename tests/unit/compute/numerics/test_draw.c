/* The kernel that draws tokens, on fibres, compared with ref. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/cuda/net_kernels.h"
#include "tests/cuda/rig_device.h"
#include "tests/unit/base/suite.h"

enum { MOST_VOCAB = 49152, ROWS = 5, ENDS = 3 };

static uint32_t state;

static uint32_t next_random(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Rows of logits on ref and on the device, and their draws. */
struct rig {
    struct backend *ref;
    struct buffer *known_logits;
    float *host, *logits; /* [ROWS][n] */
    size_t n;
    int32_t *ends; /* device */
    struct draw *draws;
    struct drawn *drawn;
    uint32_t *count;
};

static const int32_t ends[ENDS] = {0, 2, 17};

static void rig_open(struct rig *r, size_t n)
{
    struct error err;

    memset(r, 0, sizeof(*r));
    ck_assert_int_eq(backend_open(&r->ref, "ref", &(struct backend_config){0}, &err), STATUS_OK);
    r->n = n;
    r->known_logits = r->ref->type->buffer_open(r->ref, ROWS * n * sizeof(float));
    r->host = malloc(ROWS * n * sizeof(float));
    r->logits = rig_alloc(ROWS * n * sizeof(float));
    r->ends = rig_alloc(sizeof(ends));
    r->draws = rig_alloc(ROWS * sizeof(*r->draws));
    r->drawn = rig_alloc(ROWS * sizeof(*r->drawn));
    r->count = rig_alloc(sizeof(*r->count));
    ck_assert(r->known_logits != NULL && r->host != NULL && r->logits != NULL && r->ends != NULL &&
              r->draws != NULL && r->drawn != NULL && r->count != NULL);
    memcpy(r->ends, ends, sizeof(ends));
    rig_written(r->ends, sizeof(ends));
}

static void rig_close(struct rig *r)
{
    r->ref->type->buffer_close(r->ref, r->known_logits);
    backend_close(r->ref);
    free(r->host);
    rig_free(r->logits);
    rig_free(r->ends);
    rig_free(r->draws);
    rig_free(r->drawn);
    rig_free(r->count);
}

/* Fills in logits like a language model's: few high ones, and a long tail; many are equal. */
static void fill(struct rig *r, float spread)
{
    for (size_t i = 0; i < ROWS * r->n; i++) {
        float u = (float)(next_random() % 4096) / 4096.0f;

        r->host[i] = spread * (u * u * u * 4.0f - 3.0f);
    }
    r->host[r->n - 1] = -0.0f;
}

/* Draws from the rows, in reverse order; returns how many draws the device left to the host. */
static size_t compare(struct rig *r, const struct draw *draws, size_t n)
{
    const struct draw_list list = {.draws = draws, .n = n, .ends = ends, .n_ends = ENDS};
    const struct cuda_count count = {r->count, ROWS};
    struct drawn known[ROWS];
    const char *error;
    struct error err;
    size_t n_left = 0;

    r->ref->type->upload(r->ref, r->known_logits, r->host, ROWS * r->n * sizeof(float));
    r->ref->type->sample(r->ref, r->known_logits, r->n, &list, known);
    ck_assert_int_eq(r->ref->type->sync(r->ref, &err), STATUS_OK);
    memcpy(r->logits, r->host, ROWS * r->n * sizeof(float));
    memcpy(r->draws, draws, n * sizeof(*draws));
    *r->count = (uint32_t)n;
    rig_written(r->logits, ROWS * r->n * sizeof(float));
    rig_written(r->draws, n * sizeof(*draws));
    rig_written(r->count, sizeof(*r->count));
    cuda_draw(r->logits, (uint32_t)r->n, r->draws, count, r->ends, ENDS, r->drawn, NULL);
    error = rig_error();
    ck_assert_msg(error == NULL, "%s", error);
    for (size_t i = 0; i < n; i++) {
        if (r->drawn[i].id < 0) {
            n_left++;
            continue;
        }
        ck_assert_int_eq(r->drawn[i].id, known[i].id);
        ck_assert_mem_eq(&r->drawn[i].logit, &known[i].logit, sizeof(float));
        ck_assert(r->drawn[i].top == known[i].top);
        ck_assert_mem_eq(&r->drawn[i].sum, &known[i].sum, sizeof(double));
    }
    return n_left;
}

static struct draw draw_at_random(uint32_t row)
{
    static const float temperatures[] = {0.0f, 1e-30f, 0.2f, 0.7f, 1.0f, 2.5f};
    static const float top_ps[] = {1.0f, 1.0f, 0.1f, 0.5f, 0.9f, 0.99f};
    static const float min_ps[] = {0.0f, 0.0f, 0.02f, 0.3f};
    static const uint32_t top_ks[] = {0, 0, 0, 1, 7, 40, 150};

    return (struct draw){.row = row,
                         .turn = next_random() % 9,
                         .position = next_random() % 999,
                         .top_k = top_ks[next_random() % 7],
                         .seed = next_random(),
                         .temperature = temperatures[next_random() % 6],
                         .top_p = top_ps[next_random() % 6],
                         .min_p = min_ps[next_random() % 4],
                         .bans_ends = next_random() % 2 == 0,
                         .wants_sum = next_random() % 2 == 0};
}

/* With any options, and vocabularies that are no whole blocks, the device draws the same as ref, in
 * every order of threads. */
START_TEST(draws_are_refs)
{
    static const size_t sizes[] = {1, 21, 1024, 3149, 49152};
    static const unsigned n_trials[] = {20, 60, 40, 40, 6};

    const char *text = getenv("CUDA_HOST_ORDERS");
    const unsigned orders = text != NULL ? (unsigned)strtoul(text, NULL, 10) : 4;

    state = 3;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        struct rig r;

        rig_open(&r, sizes[k]);
        rig_set_orders(sizes[k] > 4096 ? 1 : orders, 11);
        for (unsigned i = 0; i < n_trials[k]; i++) {
            struct draw draws[ROWS];
            size_t n = 1 + next_random() % ROWS;

            fill(&r, 4.0f);
            for (size_t d = 0; d < n; d++)
                draws[d] = draw_at_random((uint32_t)(n - 1 - d));
            (void)compare(&r, draws, n);
        }
        rig_close(&r);
    }
    rig_set_orders(1, 0);
}
END_TEST

/* With a model's vocabulary and usual sampling nothing is left to the host. */
START_TEST(usual_draws_are_the_devices)
{
    static const struct draw usual[] = {
        {.temperature = 0.0f, .top_p = 1.0f},
        {.temperature = 0.2f, .top_p = 0.9f, .wants_sum = true},
        {.temperature = 0.7f, .top_p = 0.9f, .bans_ends = true},
        {.temperature = 1.0f, .top_p = 0.95f, .top_k = 50},
        {.temperature = 1.0f, .top_p = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 0.05f},
    };
    struct rig r;

    state = 9;
    rig_open(&r, MOST_VOCAB);
    for (size_t k = 0; k < sizeof(usual) / sizeof(usual[0]); k++) {
        struct draw draws[2] = {usual[k], usual[k]};

        fill(&r, 8.0f);
        draws[0].row = 3;
        draws[1].seed = 77;
        ck_assert_uint_eq(compare(&r, draws, 2), 0);
    }
    rig_close(&r);
}
END_TEST

/* Logits that are not finite, rows with every token banned, and cuts that leave more tokens than
 * the device sorts are left to the host. */
START_TEST(what_is_left_to_the_host)
{
    struct draw d = {.temperature = 1.0f, .top_p = 0.9f};
    struct rig r;

    state = 4;
    rig_open(&r, 5000);
    fill(&r, 4.0f);
    r.host[4711] = NAN;
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    r.host[4711] = -INFINITY;
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    d.temperature = 0.0f;
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    memset(r.host, 0, ROWS * r.n * sizeof(float));
    ck_assert_uint_eq(compare(&r, &d, 1), 0);
    d.temperature = 1.0f;
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    d.top_k = 5;
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    d.top_k = 0;
    d.top_p = 1.0f;
    ck_assert_uint_eq(compare(&r, &d, 1), 0);
    rig_close(&r);

    rig_open(&r, 1);
    r.host[0] = 3.0f;
    d.bans_ends = true; /* and the token is one of them */
    ck_assert_uint_eq(compare(&r, &d, 1), 1);
    d.bans_ends = false;
    ck_assert_uint_eq(compare(&r, &d, 1), 0);
    rig_close(&r);
}
END_TEST

SUITE_MAIN("compute/draw", draws_are_refs, usual_draws_are_the_devices, what_is_left_to_the_host)
