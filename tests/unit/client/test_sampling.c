#include "client/lib/parts.h"
#include "tests/support/sampling_message.h"
#include "tests/unit/base/suite.h"

/* Each number of Sampling's message has a member, and comes back unchanged. */
START_TEST(sampling_numbers)
{
    Parley__V1__Sampling message, back = PARLEY__V1__SAMPLING__INIT;
    struct parley_sampling sampling;
    struct arena arena;
    struct error err;

    arena_init(&arena, 1 << 16);
    sampling_message_set_numbers(&message);
    ck_assert_int_eq(sampling_take(&sampling, &message, &arena, &err), STATUS_OK);
    ck_assert_int_eq(sampling_fill(&back, &sampling, &arena, &err), STATUS_OK);
    sampling_message_check_equal(&back, &message);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("client/sampling", sampling_numbers)
