#include "base/number.h"

#include "tests/unit/base/suite.h"
#include <check.h>

/* Digits are read up to the first other byte, the given length, or the end. */
START_TEST(digits_are_taken)
{
    uint64_t n = 7;

    ck_assert_uint_eq(number_take(&n, "120x9", SIZE_MAX, UINT64_MAX), 3);
    ck_assert_uint_eq(n, 120);
    ck_assert_uint_eq(number_take(&n, "120", 2, UINT64_MAX), 2);
    ck_assert_uint_eq(n, 12);
    ck_assert_uint_eq(number_take(&n, "00031", SIZE_MAX, 31), 5);
    ck_assert_uint_eq(n, 31);
    ck_assert_uint_eq(number_take(&n, "5", 0, UINT64_MAX), 0);
    ck_assert_uint_eq(n, 31);
}
END_TEST

/* The greatest number is read, and the next one is not. */
START_TEST(bounds_hold)
{
    uint64_t n = 7;

    ck_assert(!number_read(&n, "18446744073709551616", UINT64_MAX));
    ck_assert(!number_read(&n, "99999999999999999999999", UINT64_MAX));
    ck_assert(!number_read(&n, "101", 100));
    ck_assert(!number_read(&n, "6", 5));
    ck_assert(!number_read(&n, "1", 0));
    ck_assert_uint_eq(n, 7);
    ck_assert(number_read(&n, "18446744073709551615", UINT64_MAX));
    ck_assert_uint_eq(n, UINT64_MAX);
    ck_assert(number_read(&n, "100", 100));
    ck_assert_uint_eq(n, 100);
    ck_assert(number_read(&n, "0", 0));
    ck_assert_uint_eq(n, 0);
}
END_TEST

/* A sign, white space, another base and bytes behind the digits are no part of a whole number. */
START_TEST(other_texts_are_refused)
{
    static const char *const texts[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0", "1e3", "x"};
    uint64_t n = 7;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(!number_read(&n, texts[i], UINT64_MAX), "'%s'", texts[i]);
    ck_assert_uint_eq(n, 7);
}
END_TEST

/* A real number is finite, and is the whole text or its beginning. */
START_TEST(reals_are_finite)
{
    static const char *const texts[] = {"", "x", "inf", "-inf", "nan", "1e999"};
    double x = 7;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_msg(!number_read_real(&x, texts[i]), "'%s'", texts[i]);
        ck_assert_uint_eq(number_take_real(&x, texts[i]), 0);
    }
    ck_assert(!number_read_real(&x, "1.5,"));
    ck_assert_double_eq(x, 7);
    ck_assert_uint_eq(number_take_real(&x, "1.5,2"), 3);
    ck_assert_double_eq(x, 1.5);
    ck_assert(number_read_real(&x, "-2e-3"));
    ck_assert_double_eq(x, -2e-3);
}
END_TEST

SUITE_MAIN("base/number", digits_are_taken, bounds_hold, other_texts_are_refused, reals_are_finite)
