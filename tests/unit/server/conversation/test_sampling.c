#include "server/conversation/sampling.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdlib.h>

static const struct text stops[] = {{"\n\n", 2}, {"END", 3}};
static const struct text other_stops[] = {{"\n\n", 2}, {"END.", 4}};
static const struct logit_bias biases[] = {{1, -1.0f}, {7, 2.0f}};

/* Only given parameters are applied. */
START_TEST(test_lay)
{
    struct sampling_overrides p = {
        .given = SAMPLING_TOP_K | SAMPLING_STOPS | SAMPLING_IGNORE_EOS | SAMPLING_SEED,
        .values = {.temperature = 9,
                   .top_k = 5,
                   .stops = stops,
                   .n_stops = 2,
                   .seed = 3,
                   .ignore_eos = true},
    };
    struct sampling s;

    sampling_init(&s);
    sampling_overrides_apply(NULL, &s);
    ck_assert_uint_eq(s.top_k, 0);
    sampling_overrides_apply(&p, &s);
    ck_assert(s.temperature == 1.0f);
    ck_assert_uint_eq(s.top_k, 5);
    ck_assert_uint_eq(s.n_stops, 2);
    ck_assert(s.ignore_eos && s.has_seed);
    ck_assert_uint_eq(s.seed, 3);
}
END_TEST

/* A copy is equal and independent. Nothing given is stored as NULL. */
START_TEST(test_copy)
{
    struct sampling_overrides p = {
        .given = SAMPLING_STOPS | SAMPLING_BIASES,
        .values = {.stops = stops, .n_stops = 2, .biases = biases, .n_biases = 2},
    };
    struct sampling_overrides *copy;
    struct error err;

    ck_assert_int_eq(sampling_overrides_copy(&copy, &p, &err), STATUS_OK);
    ck_assert(sampling_overrides_is_equal(copy, &p));
    ck_assert_ptr_ne(copy->values.stops, stops);
    ck_assert_str_eq(copy->values.stops[1].text, "END");
    ck_assert_int_eq(copy->values.biases[1].id, 7);
    free(copy);
    p.given = 0;
    ck_assert_int_eq(sampling_overrides_copy(&copy, &p, &err), STATUS_OK);
    ck_assert_ptr_null(copy);
    ck_assert_int_eq(sampling_overrides_copy(&copy, NULL, &err), STATUS_OK);
    ck_assert_ptr_null(copy);
}
END_TEST

/* Equal means equal given parameters: values that are not given do not count. */
START_TEST(test_is_equal)
{
    struct sampling_overrides a = {.given = SAMPLING_TOP_P, .values = {.top_p = 0.5f, .top_k = 1}};
    struct sampling_overrides b = {.given = SAMPLING_TOP_P, .values = {.top_p = 0.5f, .top_k = 2}};
    struct sampling_overrides none = {0};

    ck_assert(sampling_overrides_is_equal(&a, &b));
    b.values.top_p = 0.25f;
    ck_assert(!sampling_overrides_is_equal(&a, &b));
    b = a;
    b.given |= SAMPLING_TOP_K;
    ck_assert(!sampling_overrides_is_equal(&a, &b));
    ck_assert(sampling_overrides_is_equal(NULL, &none));
    ck_assert(!sampling_overrides_is_equal(NULL, &a));
    a = (struct sampling_overrides){.given = SAMPLING_STOPS,
                                    .values = {.stops = stops, .n_stops = 2}};
    b = a;
    b.values.stops = other_stops;
    ck_assert(!sampling_overrides_is_equal(&a, &b));
    b.values.stops = stops;
    b.values.n_stops = 1;
    ck_assert(!sampling_overrides_is_equal(&a, &b));
}
END_TEST

SUITE_MAIN("server/sampling_overrides", test_lay, test_copy, test_is_equal)
