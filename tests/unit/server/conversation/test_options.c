#include "server/conversation/options.h"

#include <check.h>
#include <string.h>

#include "server/conversation/sampling.h"
#include "tests/unit/base/suite.h"

static struct conversation_options *open_options(const char *system)
{
    struct sampling_overrides warm = {.given = SAMPLING_TEMPERATURE, .values = {.temperature = 2}};
    struct limits limits = {.max_turns = 3};
    struct conversation_options *o;
    struct error err;

    ck_assert_int_eq(
        conversation_options_open(&o, system, strlen(system), &warm, &limits, 50, &err), STATUS_OK);
    return o;
}

/* A change makes options of its own, and shares the system prompt with those that it came from,
 * which stay as they are. */
START_TEST(test_change)
{
    struct sampling_overrides cold = {.given = SAMPLING_TOP_K, .values = {.top_k = 4}};
    struct conversation_options *o = open_options("be brief"), *changed;
    struct error err;

    ck_assert_int_eq(conversation_options_change(&changed, o, &cold, 70, &err), STATUS_OK);
    ck_assert_ptr_eq(changed->system, o->system);
    ck_assert_uint_eq(changed->system_len, 8);
    ck_assert_uint_eq(changed->limits.max_turns, 3);
    ck_assert_uint_eq(changed->ttl_ms, 70);
    ck_assert_uint_eq(changed->overrides->given, SAMPLING_TOP_K);
    ck_assert_uint_eq(o->ttl_ms, 50);
    ck_assert_uint_eq(o->overrides->given, SAMPLING_TEMPERATURE);
    conversation_options_unref(o);
    ck_assert_str_eq(changed->system, "be brief");
    conversation_options_unref(changed);
}
END_TEST

/* However often options are changed, only the first ones are kept for their text. */
START_TEST(test_changes)
{
    struct conversation_options *o = open_options("be brief"), *first = o, *changed;
    struct error err;

    for (uint64_t i = 0; i < 1000; i++) {
        ck_assert_int_eq(conversation_options_change(&changed, o, NULL, i, &err), STATUS_OK);
        conversation_options_unref(o);
        o = changed;
        ck_assert_ptr_eq(o->origin, first);
        ck_assert_uint_eq(first->n_refs, 1);
    }
    ck_assert_ptr_null(o->overrides);
    ck_assert_str_eq(o->system, "be brief");
    conversation_options_unref(o);
}
END_TEST

SUITE_MAIN("server/options", test_change, test_changes)
