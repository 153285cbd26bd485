/* Automata of numbers against the rules that they are made of, digit by digit. */
#include "agents/constraint/number_automaton.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "tests/unit/base/suite.h"

static struct decimal decimal(int64_t value, size_t n_places)
{
    struct decimal out = {.is_negative = value < 0, .n_places = n_places};
    char text[24];
    size_t len, n_zeros;

    len = (size_t)snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)(value < 0 ? -value : value));
    n_zeros = len > n_places ? 0 : n_places + 1 - len;
    out.n_digits = n_zeros + len;
    memset(out.digits, '0', n_zeros);
    memcpy(out.digits + n_zeros, text, len);
    return out;
}

/* Whether the automaton takes value / 10^n_places, written with all its places. */
static bool takes(const struct automaton *a, int64_t value, size_t n_places)
{
    const struct decimal d = decimal(value, n_places);
    char text[64];

    (void)snprintf(text, sizeof(text), "%s%.*s%s%.*s", d.is_negative ? "-" : "",
                   (int)(d.n_digits - n_places), d.digits, n_places > 0 ? "." : "", (int)n_places,
                   d.digits + d.n_digits - n_places);
    return automaton_matches(a, text, strlen(text));
}

static void check(const struct automaton *a, const struct number_rules *r, int64_t value,
                  size_t n_places)
{
    const struct decimal d = decimal(value, n_places);

    ck_assert_msg(takes(a, value, n_places) == number_rules_allow(r, &d),
                  "%" PRId64 "/10^%zu of %" PRIu64 "/10^%zu", value, n_places, r->divisor,
                  r->divisor_places);
}

/* Small numbers, numbers beside multiples, and any of up to 17 digits. */
static void check_all(const struct automaton *a, const struct number_rules *r)
{
    const size_t most_places = r->is_integer ? 0 : r->divisor_places + 1;
    uint64_t drawn = 1;

    for (size_t n_places = 0; n_places <= most_places; n_places++)
        for (int64_t i = -300; i <= 300; i++) {
            const int64_t near = i * (int64_t)(r->divisor < 300000 ? r->divisor * 999
                                               : r->divisor < UINT64_C(100000000000000) ? r->divisor
                                                                                        : 1);

            drawn = drawn * 6364136223846793005 + 1442695040888963407;
            check(a, r, i, n_places);
            check(a, r, near, n_places);
            check(a, r, near + 1, n_places);
            check(a, r, (int64_t)(drawn % 100000000000000000), n_places);
        }
}

START_TEST(test_multiples)
{
    static const uint64_t divisors[] = {1,
                                        2,
                                        3,
                                        5,
                                        6,
                                        7,
                                        8,
                                        10,
                                        12,
                                        13,
                                        25,
                                        60,
                                        64,
                                        97,
                                        100,
                                        125,
                                        128,
                                        200,
                                        360,
                                        375,
                                        500,
                                        999,
                                        1000,
                                        1024,
                                        2000,
                                        2500,
                                        3600,
                                        86400,
                                        100000,
                                        1000000,
                                        UINT64_C(1000000000000),
                                        NUMBER_MAX_DIVISOR};
    size_t n_made = 0;

    for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]); i++)
        for (size_t k = 0; k < 8; k++) {
            const bool is_bounded = k % 2 == 1;
            struct number_rules r = {.is_integer = k < 2,
                                     .divisor = divisors[i],
                                     .divisor_places = k < 4 ? 0 : k / 2 - 1};
            size_t work = GUARD_MAX_WORK;
            struct automaton a;
            struct arena arena;
            struct error err;
            enum status rc;

            if (is_bounded) {
                r.least = (struct number_bound){true, false, decimal(-700, 0)};
                r.most = (struct number_bound){true, true, decimal(90000, 0)};
            }
            arena_init(&arena, SIZE_MAX);
            rc = number_to_json(&a, &r, &work, &arena, &err);
            if (rc == STATUS_OK && a.n_states > 0) {
                check_all(&a, &r);
                n_made++;
            } else if (rc != STATUS_OK) {
                ck_assert_int_eq(rc, STATUS_UNIMPLEMENTED);
                ck_assert_msg(divisors[i] == 999, "%" PRIu64, divisors[i]);
            }
            arena_deinit(&arena);
        }
    ck_assert_uint_gt(n_made, 200);
}
END_TEST

SUITE_MAIN("agents/constraint/number", test_multiples)
