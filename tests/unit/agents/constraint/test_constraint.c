#include <check.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "agents/constraint/guard.h"
#include "base/buf.h"
#include "tests/unit/base/suite.h"

static struct arena arena;

static enum status grammar(const char *text)
{
    const struct constraint *c;
    struct error err;

    return constraint_of_grammar(&c, text, strlen(text), &arena, &err);
}

/* Choices become one rule, with each character as itself. */
START_TEST(test_choices)
{
    static const struct text texts[] = {{"yes", 3}, {"n\"o\\", 4}, {"a\nb", 3}};
    const struct constraint *c;
    struct error err;

    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(constraint_of_choices(&c, texts, 3, &arena, &err), STATUS_OK);
    ck_assert_int_eq(c->form, CONSTRAINT_EBNF);
    ck_assert_str_eq(c->text, "root ::= \"yes\" | \"n\\u0022o\\u005c\" | \"a\\u000ab\"");
    ck_assert_int_eq(constraint_of_choices(&c, texts, 0, &arena, &err), STATUS_INVALID);
    arena_deinit(&arena);
}
END_TEST

/* A grammar is kept in the engine's form. What cannot be read, or repeats too much, is refused;
 * within literals anything stands. */
START_TEST(test_grammar)
{
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(grammar("root ::= \"a.|\" | [.|)] # .|)\n"), STATUS_OK);
    ck_assert_int_eq(grammar("root ::= | (\"a\" | ) .{,3}"), STATUS_OK);
    ck_assert_int_eq(grammar("root ::= \"{5000}((((((((((((((((((((((((((((((((((((\""), STATUS_OK);
    ck_assert_int_eq(grammar("root ::= \"a\"{5000}"), STATUS_INVALID);
    ck_assert_int_eq(grammar("root ::= (\"a\"{50}){50}"), STATUS_INVALID);
    ck_assert_int_eq(grammar("start: \"a\""), STATUS_INVALID);
    ck_assert_int_eq(grammar(""), STATUS_INVALID);
    arena_deinit(&arena);
}
END_TEST

/* A schema of many values is refused by their number, whether they are alike or not, before any is
 * made; an enumeration of few more than the guard takes is refused by it. */
START_TEST(test_many_values)
{
    static const size_t n_values[] = {CONSTRAINT_MAX_SCHEMA_VALUES + 1, GUARD_MAX_NODES + 1};
    static const char *const says[] = {"too many values", "at #: 'enum' has too many"};

    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < 2; i++) {
        const struct constraint *c;
        const char *left_out;
        struct error err;
        struct buf text;

        buf_init(&text, CONSTRAINT_MAX_SCHEMA_BYTES);
        ck_assert_int_eq(buf_append_text(&text, "{\"enum\":[1"), STATUS_OK);
        for (size_t k = 1; k < n_values[i]; k++)
            ck_assert_int_eq(buf_append_text(&text, ",1"), STATUS_OK);
        ck_assert_int_eq(buf_append_text(&text, "]}"), STATUS_OK);
        ck_assert_int_eq(
            constraint_of_schema_text(&c, text.data, text.len, true, &left_out, &arena, &err),
            STATUS_INVALID);
        ck_assert_msg(strstr(err.text, says[i]) != NULL, "%s", err.text);
        buf_deinit(&text);
    }
    arena_deinit(&arena);
}
END_TEST

/* A schema that is no JSON says where it is not, and keywords that are left out are listed. A bound
 * may have more than 63 bits, a value may not. */
START_TEST(test_schema)
{
    static const char text[] = "{\"type\":\"string\",\"not\":{\"format\":\"date\"}}",
                      wide[] = "{\"type\":\"integer\",\"maximum\":18446744073709551615}",
                      one[] = "{\"const\":18446744073709551615}";
    const struct constraint *c;
    const char *left_out;
    struct error err;

    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(constraint_of_schema_text(&c, "{", 1, true, &left_out, &arena, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "line 1"));
    ck_assert_int_eq(
        constraint_of_schema_text(&c, text, sizeof(text) - 1, false, &left_out, &arena, &err),
        STATUS_OK);
    ck_assert_str_eq(left_out, "# not");
    ck_assert_int_eq(
        constraint_of_schema_text(&c, wide, sizeof(wide) - 1, true, &left_out, &arena, &err),
        STATUS_OK);
    ck_assert_int_eq(
        constraint_of_schema_text(&c, one, sizeof(one) - 1, true, &left_out, &arena, &err),
        STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "'const' has a number beyond 64 bits"));
    arena_deinit(&arena);
}
END_TEST

/* A pattern that is too large beside one that can be counted: both are narrowed, whether or not
 * what cannot be enforced may be left out. */
START_TEST(test_narrow_when_lax)
{
    static const char text[] = "{\"type\":\"string\",\"maxLength\":600,\"allOf\":["
                               "{\"pattern\":\"a.{14}$\"},{\"pattern\":\"^a[a-z]*$\"}]}";
    const struct constraint *strict, *lax;
    const char *left_out;
    struct error err;

    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(
        constraint_of_schema_text(&strict, text, sizeof(text) - 1, true, &left_out, &arena, &err),
        STATUS_OK);
    ck_assert_int_eq(
        constraint_of_schema_text(&lax, text, sizeof(text) - 1, false, &left_out, &arena, &err),
        STATUS_OK);
    ck_assert_str_eq(left_out, "");
    ck_assert_uint_eq(lax->len, strict->len);
    ck_assert_mem_eq(lax->text, strict->text, lax->len);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("constraint", test_choices, test_grammar, test_many_values, test_schema,
           test_narrow_when_lax)
