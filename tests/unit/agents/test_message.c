#include "agents/message.h"

#include <math.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* A role's name parses to the role; any other is refused, naming them. */
START_TEST(test_roles)
{
    static const enum role roles[] = {ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL};
    static const char *const wrong[] = {"", "User", "user ", "tools", "assistan"};
    struct error err;
    enum role r = ROLE_ASSISTANT;

    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(role_parse(&r, role_name(roles[i]), &err), STATUS_OK);
        ck_assert_int_eq(r, roles[i]);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(role_parse(&r, wrong[i], &err), STATUS_INVALID);
        ck_assert_int_eq(r, ROLE_TOOL);
        ck_assert_str_eq(err.field, "role");
        ck_assert_ptr_nonnull(strstr(err.text, "system, user, assistant or tool"));
    }
}
END_TEST

/* The neutral values change nothing in a distribution, and pass the check. */
START_TEST(test_neutral)
{
    struct sampling s;
    struct error err;

    sampling_init(&s);
    ck_assert_int_eq(sampling_check(&s, 0, &err), STATUS_OK);
    ck_assert(s.temperature == 1 && s.top_p == 1 && s.min_p == 0 && s.repetition_penalty == 1);
    ck_assert(s.top_k == 0 && s.presence_penalty == 0 && s.frequency_penalty == 0);
    ck_assert(!s.has_seed && s.max_tokens == 0 && s.n_stops == 0 && s.n_biases == 0);
}
END_TEST

/* Checks one number: an allowed value passes, another is refused by name. */
static void check_number(float *in, const struct sampling *s, const char *field, float value,
                         bool is_right)
{
    float before = *in;
    struct error err = {0};
    enum status rc;

    *in = value;
    rc = sampling_check(s, 10, &err);
    *in = before;
    ck_assert_msg(rc == (is_right ? STATUS_OK : STATUS_INVALID), "%s %g: %s", field, (double)value,
                  err.text);
    if (!is_right)
        ck_assert_str_eq(err.field, field);
}

/* Each number has its range; the bounds are inclusive where the header says so. */
START_TEST(test_numbers)
{
    struct sampling s;

    sampling_init(&s);
    check_number(&s.temperature, &s, "temperature", 0, true);
    check_number(&s.temperature, &s, "temperature", 2.5f, true);
    check_number(&s.temperature, &s, "temperature", -0.01f, false);
    check_number(&s.temperature, &s, "temperature", NAN, false);
    check_number(&s.temperature, &s, "temperature", INFINITY, false);
    check_number(&s.top_p, &s, "top_p", 1, true);
    check_number(&s.top_p, &s, "top_p", 0.001f, true);
    check_number(&s.top_p, &s, "top_p", 0, true);
    check_number(&s.top_p, &s, "top_p", 1.001f, false);
    check_number(&s.top_p, &s, "top_p", -1, false);
    check_number(&s.top_p, &s, "top_p", NAN, false);
    check_number(&s.min_p, &s, "min_p", 0, true);
    check_number(&s.min_p, &s, "min_p", 1, true);
    check_number(&s.min_p, &s, "min_p", -0.1f, false);
    check_number(&s.min_p, &s, "min_p", 1.1f, false);
    check_number(&s.min_p, &s, "min_p", NAN, false);
    check_number(&s.repetition_penalty, &s, "repetition_penalty", 0.1f, true);
    check_number(&s.repetition_penalty, &s, "repetition_penalty", 0, false);
    check_number(&s.repetition_penalty, &s, "repetition_penalty", -1, false);
    check_number(&s.repetition_penalty, &s, "repetition_penalty", INFINITY, false);
    check_number(&s.repetition_penalty, &s, "repetition_penalty", NAN, false);
    check_number(&s.presence_penalty, &s, "presence_penalty", -2, true);
    check_number(&s.presence_penalty, &s, "presence_penalty", 2, true);
    check_number(&s.presence_penalty, &s, "presence_penalty", 2.1f, false);
    check_number(&s.presence_penalty, &s, "presence_penalty", NAN, false);
    check_number(&s.frequency_penalty, &s, "frequency_penalty", -2, true);
    check_number(&s.frequency_penalty, &s, "frequency_penalty", -2.1f, false);
    check_number(&s.frequency_penalty, &s, "frequency_penalty", NAN, false);
}
END_TEST

/* min_tokens stays below max_tokens, where there is one; alternatives are at most 20. */
START_TEST(test_counts)
{
    struct sampling s;
    struct error err;

    sampling_init(&s);
    s.min_tokens = 5;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    s.max_tokens = 5;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    s.max_tokens = 4;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "min_tokens");
    s.min_tokens = 0;
    s.n_logprobs = SAMPLING_MAX_LOGPROBS;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    s.n_logprobs++;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "logprobs");
}
END_TEST

/* Stop texts: not too many, none empty or too long, all UTF-8. */
START_TEST(test_stops)
{
    static char text[SAMPLING_MAX_STOP_BYTES + 1];
    struct text stops[SAMPLING_MAX_STOPS + 1];
    struct sampling s;
    struct error err;

    sampling_init(&s);
    for (size_t i = 0; i < SAMPLING_MAX_STOPS + 1; i++)
        stops[i] = (struct text){.text = "stop", .len = 4};
    s.stops = stops;
    s.n_stops = SAMPLING_MAX_STOPS;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    s.n_stops++;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "stop");
    s.n_stops = 2;
    stops[1].len = 0;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "stop");
    memset(text, 'x', sizeof(text));
    stops[1] = (struct text){.text = text, .len = SAMPLING_MAX_STOP_BYTES};
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    stops[1].len++;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "stop");
    stops[1] = (struct text){.text = "\xff", .len = 1};
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "stop");
}
END_TEST

/* Biases: existing tokens, and values that are finite or -inf. */
START_TEST(test_biases)
{
    struct logit_bias bias = {.id = 9, .bias = -INFINITY};
    struct sampling s;
    struct error err;

    sampling_init(&s);
    s.biases = &bias;
    s.n_biases = 1;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    bias.id = 10;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "logit_bias");
    bias.id = -1;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    bias = (struct logit_bias){.id = 0, .bias = INFINITY};
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    bias.bias = NAN;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
    bias.bias = 100;
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_OK);
    s.n_biases = SAMPLING_MAX_BIASES + 1; /* never read */
    ck_assert_int_eq(sampling_check(&s, 10, &err), STATUS_INVALID);
}
END_TEST

/* The protocols' names of finish reasons. */
START_TEST(test_finish_names)
{
    ck_assert_str_eq(finish_name(FINISH_STOP), "stop");
    ck_assert_str_eq(finish_name(FINISH_LENGTH), "length");
    ck_assert_str_eq(finish_name(FINISH_CANCELLED), "cancelled");
    ck_assert_str_eq(finish_name(FINISH_DEADLINE), "deadline");
    ck_assert_str_eq(finish_name(FINISH_ERROR), "error");
    ck_assert_str_eq(finish_name(FINISH_NONE), "none");
}
END_TEST

SUITE_MAIN("agents/message", test_roles, test_neutral, test_numbers, test_counts, test_stops,
           test_biases, test_finish_names)
