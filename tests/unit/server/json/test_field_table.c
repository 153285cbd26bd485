#include "server/json/field_table.h"

#include "tests/support/request_case.h"
#include "tests/unit/base/suite.h"

struct told {
    const char *text;
    const json_t *any, *list, *object;
    uint32_t number;
    bool flag, is_given;
};

#define TO(member) offsetof(struct told, member)

static const struct field_row rows[] = {
    {"any", FIELD_ANY, .to = TO(any)},
    {"beams", FIELD_ANY, .refused = "is not served", .is_off = field_is_empty},
    {"flag", FIELD_BOOL, .to = TO(flag)},
    {"list", FIELD_LIST, .to = TO(list)},
    {"number", FIELD_WHOLE, .to = TO(number), .least = 2, .most = 9, .given = TO(is_given)},
    {"object", FIELD_OBJECT, .to = TO(object)},
    {"suffix", FIELD_TEXT, .refused = "is not served", .is_off = field_is_empty},
    {"text", FIELD_TEXT, .to = TO(text)},
};
static const struct field_table table = {rows, sizeof(rows) / sizeof(rows[0])};

static enum status told_read(struct told *out, struct request_case *c, const char *text)
{
    *out = (struct told){.text = "kept", .number = 5};
    ck_assert_int_eq(request_case_open(c, text), STATUS_OK);
    return field_table_read(&table, out, c->body, &c->err);
}

/* Each value goes where its row says; values that are off, and unknown fields, change nothing. */
START_TEST(test_taken)
{
    struct request_case c;
    struct told told;

    ck_assert_int_eq(told_read(&told, &c,
                               "{\"text\":\"x\",\"any\":[1],\"list\":[2],\"object\":{\"a\":1},"
                               "\"number\":9,\"flag\":true,\"beams\":0,\"suffix\":\"\",\"new\":1}"),
                     STATUS_OK);
    ck_assert_str_eq(told.text, "x");
    ck_assert_uint_eq(json_array_size(told.any), 1);
    ck_assert_uint_eq(json_array_size(told.list), 1);
    ck_assert_uint_eq(json_object_size(told.object), 1);
    ck_assert_uint_eq(told.number, 9);
    ck_assert(told.flag && told.is_given);
    request_case_close(&c);
}
END_TEST

/* What is absent or null keeps its default. */
START_TEST(test_kept)
{
    struct request_case c;
    struct told told;

    ck_assert_int_eq(
        told_read(&told, &c, "{\"text\":null,\"number\":null,\"beams\":null,\"suffix\":null}"),
        STATUS_OK);
    ck_assert_str_eq(told.text, "kept");
    ck_assert_uint_eq(told.number, 5);
    ck_assert(!told.is_given);
    request_case_close(&c);
}
END_TEST

/* A value of another kind, out of its bounds, or refused is named with what is wrong. */
static const struct told_wrong {
    const char *body, *says;
} wrongs[] = {
    {"{\"text\":1}", "text must be a string, not a number"},
    {"{\"flag\":0}", "flag must be true or false, not a number"},
    {"{\"list\":{}}", "list must be a list, not an object"},
    {"{\"object\":[]}", "object must be an object, not a list"},
    {"{\"number\":2.5}", "number is 2.5, it must be a whole number"},
    {"{\"number\":10}", "number is 10, it must be from 2 to 9"},
    {"{\"number\":1}", "number is 1, it must be from 2 to 9"},
    {"{\"beams\":true}", "beams is not served"},
    {"{\"suffix\":false}", "suffix must be a string, not a boolean"},
    {"{\"suffix\":\"x\"}", "suffix is not served"},
    {"{\"suffix\":\"x\",\"text\":1}", "suffix is not served"},
};

START_TEST(test_told_wrong)
{
    struct request_case c;
    struct told told;

    ck_assert_int_eq(told_read(&told, &c, wrongs[_i].body), STATUS_INVALID);
    ck_assert_str_eq(c.err.text, wrongs[_i].says);
    request_case_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/json/field_table");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(tc, test_taken);
    tcase_add_test(tc, test_kept);
    tcase_add_loop_test(tc, test_told_wrong, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}
