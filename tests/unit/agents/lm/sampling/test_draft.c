#include "agents/lm/sampling/draft.h"

#include <check.h>
#include <string.h>

#include "base/counter_rng.h"
#include "tests/unit/base/suite.h"

enum { MATCHES = DRAFT_MATCH_MAX - DRAFT_MATCH_MIN + 1 };

/* By definition: the longest match, and of those the latest. */
static size_t slow_find(const int32_t *ids, size_t n, size_t *ret_match)
{
    size_t best = 0;

    *ret_match = 0;
    for (size_t end = n - 1; end >= DRAFT_MATCH_MIN; end--) {
        size_t len = 0;

        while (len < DRAFT_MATCH_MAX && len < end && ids[end - 1 - len] == ids[n - 1 - len])
            len++;
        if (len >= DRAFT_MATCH_MIN && len > *ret_match) {
            *ret_match = len;
            best = end;
        }
    }
    return best;
}

/* On random ids of few kinds, draft tokens are the ids after the match that the definition finds.
 */
START_TEST(finds_the_longest_then_the_latest)
{
    enum { N = 700 };
    static int32_t ids[N + DRAFT_MAX], want[N + DRAFT_MAX];
    size_t n_found = 0;

    for (uint32_t round = 0; round < 400; round++) {
        size_t n = 1 + (size_t)(counter_rng_uniform(1, round, 0, 0) * (N - 1)), match, slow, got;
        float kinds = 2 + counter_rng_uniform(2, round, 0, 0) * 40;

        for (uint32_t i = 0; i < n; i++)
            ids[i] = (int32_t)(counter_rng_uniform(3, round, i, 0) * kinds);
        memcpy(want, ids, n * sizeof(*ids));
        got = draft_propose(ids, n, DRAFT_MAX, &match);
        ck_assert_mem_eq(ids, want, n * sizeof(*ids));
        if (got == 0) {
            ck_assert(n <= DRAFT_MATCH_MIN || slow_find(ids, n, &slow) == 0);
            continue;
        }
        n_found++;
        ck_assert_uint_eq(got, DRAFT_MAX);
        {
            size_t from = slow_find(want, n, &slow);

            ck_assert_uint_eq(match, slow);
            for (size_t i = 0; i < got; i++)
                want[n + i] = want[from + i];
        }
        ck_assert_mem_eq(ids + n, want + n, got * sizeof(*ids));
    }
    ck_assert_uint_gt(n_found, 100);
}
END_TEST

/* A draft that reaches its own start continues with itself; max 0 gives none. */
START_TEST(goes_on_with_a_period)
{
    int32_t ids[8 + 6] = {9, 9, 1, 2, 3, 1, 2, 3};
    static const int32_t on[6] = {1, 2, 3, 1, 2, 3};
    size_t match;

    ck_assert_uint_eq(draft_propose(ids, 8, 6, &match), 6);
    ck_assert_uint_eq(match, 3);
    ck_assert_mem_eq(ids + 8, on, sizeof(on));
    ck_assert_uint_eq(draft_propose(ids, 8, 0, &match), 0);
}
END_TEST

/* Matches before the window are not found. */
START_TEST(looks_no_further_than_the_window)
{
    enum { N = DRAFT_WINDOW + 100 };
    static int32_t ids[N + 1];
    size_t match;

    for (int32_t i = 0; i < N; i++)
        ids[i] = i;
    ids[N - 2] = ids[200];
    ids[N - 1] = ids[201];
    ck_assert_uint_eq(draft_propose(ids, N, 1, &match), 1);
    ck_assert_int_eq(ids[N], 202);
    ids[N - 2] = ids[20];
    ids[N - 1] = ids[21];
    ck_assert_uint_eq(draft_propose(ids, N, 1, &match), 0);
}
END_TEST

static double slope_of(double first_us, double each_us, size_t largest)
{
    struct draft_cost c = {0};

    for (size_t i = 0; i < 500; i++) {
        size_t n = 1 + i % largest;

        draft_cost_learn(&c, n, (uint64_t)(first_us + each_us * (double)n));
    }
    return draft_cost_slope(&c);
}

/* The slope is fitted to step times; without steps, or with steps of one size, it is the default;
 * steps of 0 us are ignored. */
START_TEST(slope_of_the_steps_times)
{
    struct draft_cost c = {0};
    double usual = draft_cost_slope(&c);

    ck_assert(usual > 0.1 && usual < 0.5);
    draft_cost_learn(&c, 1, 0);
    ck_assert(draft_cost_slope(&c) == usual);
    ck_assert_double_eq_tol(slope_of(1000, 500, 1), usual, 0.02);
    ck_assert_double_eq_tol(slope_of(2000, 500, 8), 0.25, 0.02);
    ck_assert_double_eq_tol(slope_of(2000, 100, 8), 0.05, 0.02);
    ck_assert_double_eq_tol(slope_of(1000, 2000, 8), 2.0, 0.2);
    ck_assert(slope_of(0, 1000, 8) > 10); /* no fixed time: each position costs its full time */
}
END_TEST

static size_t worth(const struct draft_acceptance *o, size_t n_rows, double slope)
{
    struct draft_load load = {(double)n_rows, (double)n_rows};
    size_t n = draft_length(o, DRAFT_MATCH_MAX, DRAFT_MAX, slope, &load);

    ck_assert_double_eq_tol(load.n_positions, (double)(n_rows + n), 1e-9);
    ck_assert(load.n_tokens <= load.n_positions);
    return n;
}

/* With a high acceptance rate steps of few rows get draft tokens, fewer the more rows; with a low
 * rate, or if a position costs its full time, none. If a position is free, all are computed. */
START_TEST(bets_on_what_pays)
{
    struct draft_acceptance o;
    size_t last = DRAFT_MAX;

    draft_acceptance_init(&o);
    for (int i = 0; i < 200; i++)
        draft_acceptance_learn(&o, DRAFT_MATCH_MAX, i % 20 != 0);
    ck_assert_uint_ge(worth(&o, 1, 0.25), 6);
    for (size_t n = 1; n <= 64; n *= 2) {
        ck_assert_uint_le(worth(&o, n, 0.25), last);
        last = worth(&o, n, 0.25);
    }
    ck_assert_uint_le(last, 2);
    ck_assert_uint_eq(worth(&o, 1, 100.0), 0);
    ck_assert_uint_eq(worth(&o, 1, 0.0), DRAFT_MAX);
    for (int i = 0; i < 200; i++)
        draft_acceptance_learn(&o, DRAFT_MATCH_MAX, i % 10 == 0);
    ck_assert_uint_eq(worth(&o, 1, 0.25), 0);
}
END_TEST

/* Each length of match has an acceptance rate of its own. */
START_TEST(rates_by_length)
{
    struct draft_acceptance o, before;

    draft_acceptance_init(&o);
    before = o;
    for (int i = 0; i < 100; i++)
        draft_acceptance_learn(&o, DRAFT_MATCH_MIN, 0);
    ck_assert(o.rates[0] < 0.01f);
    ck_assert_mem_eq(o.rates + 1, before.rates + 1, (MATCHES - 1) * sizeof(o.rates[0]));
    for (int i = 0; i < 100; i++)
        draft_acceptance_learn(&o, DRAFT_MATCH_MIN, 1);
    ck_assert(o.rates[0] > 0.99f && o.rates[0] <= 1.0f);
}
END_TEST

SUITE_MAIN("draft", finds_the_longest_then_the_latest, goes_on_with_a_period,
           looks_no_further_than_the_window, slope_of_the_steps_times, bets_on_what_pays,
           rates_by_length)
