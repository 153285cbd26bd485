/* Which experts a token uses: routing.c; and the weight that scores them: experts.c. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/model/experts.h"
#include "compute/model/routing.h"
#include "compute/model/shape.h"
#include "compute/model/state.h"
#include "tests/support/numbers.h"
#include "tests/unit/base/suite.h"

enum { N = 8, USED = 3 };

static uint32_t chosen[USED];
static float shares[USED];

static void choose(const struct transformer_shape *s, const float *bias, const float *scores)
{
    float own[N];

    for (size_t i = 0; i < N; i++)
        own[i] = scores[i];
    routing_choose(s, bias, own, chosen, shares);
}

static void check_chosen(uint32_t a, uint32_t b, uint32_t c)
{
    ck_assert_uint_eq(chosen[0], a);
    ck_assert_uint_eq(chosen[1], b);
    ck_assert_uint_eq(chosen[2], c);
}

/* Softmax over the chosen ones; of equal scores the first is chosen. */
START_TEST(top_softmax_weighs_the_chosen)
{
    const struct transformer_shape s = {.n_experts = N,
                                        .n_experts_used = USED,
                                        .routing = ROUTING_TOP_SOFTMAX,
                                        .norms_shares = true,
                                        .expert_scale = 2.0f};

    choose(&s, NULL, (const float[]){0, 1, 3, 3, -5, 2, 1, 0});
    check_chosen(2, 3, 5);
    ck_assert_float_eq_tol(shares[0] + shares[1] + shares[2], 2.0f, 1e-6f);
    ck_assert_float_eq_tol(shares[2] / shares[0], expf(-1.0f), 1e-6f);
}
END_TEST

/* The best scores, each by its own sigmoid, even where that is 1 for several. */
START_TEST(top_sigmoid_chooses_by_scores)
{
    const struct transformer_shape s = {.n_experts = N,
                                        .n_experts_used = USED,
                                        .routing = ROUTING_TOP_SIGMOID,
                                        .expert_scale = 1.0f};

    choose(&s, NULL, (const float[]){100, 1, 120, 110, -5, 2, 1, 0});
    check_chosen(2, 3, 0);
    ck_assert_float_eq_tol(shares[0], 1.0f, 1e-6f);
    choose(&s, NULL, (const float[]){-3, -1, -2, -9, -5, -2, -7, -8});
    check_chosen(1, 2, 5);
    ck_assert_float_eq_tol(shares[0], 1.0f / (1.0f + expf(1.0f)), 1e-6f);
    ck_assert_float_eq_tol(shares[2], 1.0f / (1.0f + expf(2.0f)), 1e-6f);
}
END_TEST

/* One by one: a share is by softmax over what is left and no more than a fiftieth below the best;
 * shares have no sum of their own. */
START_TEST(one_by_one_shares_among_the_near)
{
    const struct transformer_shape s = {
        .n_experts = N, .n_experts_used = 2, .routing = ROUTING_ONE_BY_ONE, .expert_scale = 1.0f};

    choose(&s, NULL, (const float[]){0, 1, 5, 4.95f, -5, 4, 1, 0});
    ck_assert_uint_eq(chosen[0], 2);
    ck_assert_uint_eq(chosen[1], 3);
    ck_assert_float_eq_tol(shares[0], 1.0f / (1.0f + expf(-0.05f)), 1e-6f);
    ck_assert_float_eq_tol(shares[1], 1.0f, 1e-6f);
    choose(&s, NULL, (const float[]){-3, -9, -9, -3.03f, -9, -9, -9, -9});
    ck_assert_uint_eq(chosen[0], 0);
    ck_assert_float_eq_tol(shares[0], 1.0f / (1.0f + expf(-0.03f)), 1e-6f);
    choose(&s, NULL, (const float[]){0, 0, 0, 0, 0, 0, 0, 0}); /* 0 / 0 is near */
    ck_assert_float_eq_tol(shares[0], 1.0f / N, 1e-6f);
    ck_assert_float_eq_tol(shares[1], 1.0f / (N - 1), 1e-6f);
}
END_TEST

/* A bias changes what is chosen, not the shares; without norming, these are the sigmoids. */
START_TEST(a_bias_selects_and_does_not_weigh)
{
    static const float bias[N] = {0, 0, -2, 0, 2, 0, 0, 0};
    const struct transformer_shape s = {
        .n_experts = N, .n_experts_used = USED, .routing = ROUTING_SIGMOID, .expert_scale = 1.0f};

    choose(&s, bias, (const float[]){0, 1, 3, 3, -5, 2, 1, 0});
    check_chosen(4, 3, 5);
    ck_assert_float_eq_tol(shares[0], 1.0f / (1.0f + expf(5.0f)), 1e-6f);
    ck_assert_float_eq_tol(shares[1], 1.0f / (1.0f + expf(-3.0f)), 1e-6f);
}
END_TEST

/* Softmax over all experts: shares are those, or these over their sum. */
START_TEST(softmax_over_all_may_be_normed)
{
    static const float scores[N] = {0, 1, 3, 3, -5, 2, 1, 0};
    struct transformer_shape s = {
        .n_experts = N, .n_experts_used = USED, .routing = ROUTING_SOFTMAX, .expert_scale = 1.0f};
    float sum = 0.0f, first;

    for (size_t i = 0; i < N; i++)
        sum += expf(scores[i]);
    choose(&s, NULL, scores);
    check_chosen(2, 3, 5);
    first = shares[0];
    ck_assert_float_eq_tol(first, expf(3.0f) / sum, 1e-6f);
    s.norms_shares = true;
    choose(&s, NULL, scores);
    ck_assert_float_eq_tol(shares[0] + shares[1] + shares[2], 1.0f, 1e-6f);
    ck_assert_float_gt(shares[0], first);
}
END_TEST

/* The best two of four groups, by their two best experts: the best expert is in neither. */
START_TEST(only_the_best_groups_are_chosen_from)
{
    const struct transformer_shape s = {.n_experts = N,
                                        .n_experts_used = USED,
                                        .n_expert_groups = 4,
                                        .n_groups_used = 2,
                                        .routing = ROUTING_SIGMOID,
                                        .norms_shares = true,
                                        .expert_scale = 1.0f};

    choose(&s, NULL, (const float[]){4, -9, 1, 1, 2, -9, 0.5f, 2.5f});
    check_chosen(7, 2, 3);
    choose(&s, NULL, (const float[]){0, 0, 0, 0, 0, 0, 0, 0}); /* all alike */
    check_chosen(0, 1, 2);
}
END_TEST

enum { ROUTER_WIDTH = 64 };
static float opened[N * ROUTER_WIDTH];

static enum status take_floats(struct backend *b, const struct tensor *t, struct weight **out,
                               struct error *err)
{
    (void)b;
    ck_assert_int_eq(t->type, DTYPE_F32);
    ck_assert_uint_eq(t->n_rows, N);
    ck_assert_uint_eq(t->n_cols, ROUTER_WIDTH);
    ck_assert_int_eq(tensor_read(t, 0, N, opened, err), STATUS_OK);
    *out = NULL;
    return STATUS_OK;
}

/* The backend gets a quantised router as the floats that it means, so that scores are not rounded.
 */
START_TEST(a_router_is_opened_as_floats)
{
    const struct backend_type type = {.weight_open = take_floats};
    struct backend backend = {.type = &type};
    struct transformer m = {.backend = &backend};
    struct tensor t = random_tensor(DTYPE_Q8_0, N, ROUTER_WIDTH, 5);
    float want[N * ROUTER_WIDTH];
    struct weight *w;
    struct error err;

    dtype_decode(t.type, t.data, N * ROUTER_WIDTH, want);
    ck_assert_int_eq(experts_open_router(&m, &w, &t, &err), STATUS_OK);
    ck_assert_mem_eq(opened, want, sizeof(want));
    ck_assert_uint_eq(m.weight_bytes, sizeof(want));
    free((void *)t.data);
}
END_TEST

SUITE_MAIN("compute/routing", a_router_is_opened_as_floats, top_softmax_weighs_the_chosen,
           a_bias_selects_and_does_not_weigh, softmax_over_all_may_be_normed,
           only_the_best_groups_are_chosen_from, one_by_one_shares_among_the_near,
           top_sigmoid_chooses_by_scores)
