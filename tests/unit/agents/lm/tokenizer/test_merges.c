#include "agents/lm/tokenizer/merges.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static struct error err;

/* A small generator, so that a failure can be repeated. */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

struct rule {
    int32_t left, right, result;
};

/* Merging by definition: the lowest rank first, the leftmost among equals. */
static size_t merge_plainly(const struct rule *rules, size_t n_rules, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n_rules, at = 0;

        for (size_t i = 0; i + 1 < n; i++)
            for (size_t r = 0; r < best; r++)
                if (rules[r].left == ids[i] && rules[r].right == ids[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == n_rules)
            return n;
        ids[at] = rules[best].result;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof(*ids));
        n--;
    }
}

static void open_rules(struct merges *m, const struct rule *rules, size_t n)
{
    ck_assert_int_eq(merges_open(m, n, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++)
        merges_add(m, rules[i].left, rules[i].right, rules[i].result);
}

/* Any merges over any symbols give what merging one pair at a time gives. */
START_TEST(merging_is_what_it_is_plainly)
{
    struct merge_work work = {0};

    for (uint32_t seed = 1; seed <= 100; seed++) {
        struct rule rules[24];
        struct merges m;
        uint32_t state = seed;
        size_t n_rules = 0;

        /* pairs of symbols made so far, each pair once, as a trained vocabulary has them */
        for (size_t tries = 0; tries < 24; tries++) {
            uint32_t n_symbols = 3 + (uint32_t)n_rules;
            struct rule r = {(int32_t)(next_random(&state) % n_symbols),
                             (int32_t)(next_random(&state) % n_symbols), (int32_t)n_symbols};
            size_t i = 0;

            while (i < n_rules && (rules[i].left != r.left || rules[i].right != r.right))
                i++;
            if (i == n_rules)
                rules[n_rules++] = r;
        }
        open_rules(&m, rules, n_rules);
        for (size_t text = 0; text < 30; text++) {
            int32_t ids[200], plain[200];
            size_t n = next_random(&state) % 200, n_left;

            for (size_t i = 0; i < n; i++)
                plain[i] = ids[i] =
                    (int32_t)(next_random(&state) % 4) - (next_random(&state) % 50 == 0);
            ck_assert_int_eq(merges_apply(&m, &work, ids, n, &n_left, &err), STATUS_OK);
            n = merge_plainly(rules, n_rules, plain, n);
            ck_assert_msg(n_left == n && memcmp(ids, plain, n * sizeof(*ids)) == 0, "seed %u",
                          seed);
        }
        merges_close(&m);
    }
    merge_work_deinit(&work);
}
END_TEST

/* A pair that is added twice keeps its first rank. */
START_TEST(first_rank_counts)
{
    const struct rule rules[] = {{0, 1, 3}, {1, 2, 4}, {0, 1, 5}};
    int32_t ids[] = {0, 1, 2};
    struct merge_work work = {0};
    struct merges m;
    size_t n;

    open_rules(&m, rules, 3);
    ck_assert_int_eq(merges_apply(&m, &work, ids, 3, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(ids[0], 3);
    ck_assert_int_eq(ids[1], 2);
    merges_close(&m);
    merge_work_deinit(&work);
}
END_TEST

/* A million equal symbols, with pairs of pairs to merge, end long before the time-out. */
START_TEST(long_runs_are_quick)
{
    enum { N = 1 << 20 };
    const struct rule rules[] = {{0, 0, 1}, {1, 1, 2}, {2, 2, 3}, {3, 3, 4}};
    int32_t *ids = calloc(N + 3, sizeof(*ids));
    struct merge_work work = {0};
    struct merges m;
    size_t n;

    ck_assert_ptr_nonnull(ids);
    open_rules(&m, rules, 4);
    ck_assert_int_eq(merges_apply(&m, &work, ids, N + 3, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, N / 16 + 2); /* three are left: two and one */
    ck_assert_int_eq(ids[0], 4);
    ck_assert_int_eq(ids[n - 2], 1);
    ck_assert_int_eq(ids[n - 1], 0);
    merges_close(&m);
    merge_work_deinit(&work);
    free(ids);
}
END_TEST

/* More merges than ranks can count are refused before memory is asked for. */
START_TEST(too_many_are_refused)
{
    struct merges m;

    ck_assert_int_eq(merges_open(&m, SIZE_MAX / 8, &err), STATUS_UNIMPLEMENTED);
}
END_TEST

SUITE_MAIN("agents/lm/merges", merging_is_what_it_is_plainly, first_rank_counts,
           long_runs_are_quick, too_many_are_refused)
