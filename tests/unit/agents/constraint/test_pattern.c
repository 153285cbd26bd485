#include <check.h>

#include "agents/constraint/pattern.h"
#include "tests/unit/base/suite.h"

/* Groups multiply the repetitions inside them, neighbours do not. */
START_TEST(test_bounds)
{
    struct error err;

    ck_assert_int_eq(pattern_check_bounds("a{900}b{900}", 12, &err), STATUS_OK);
    ck_assert_int_eq(pattern_check_bounds("(a{30}b{30}){30}", 16, &err), STATUS_OK);
    ck_assert_int_eq(pattern_check_bounds("(a{30}(b{5}){7}){30}", 20, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(pattern_check_bounds("(a){2,1001}", 11, &err), STATUS_UNIMPLEMENTED);
}
END_TEST

SUITE_MAIN("pattern", test_bounds)
