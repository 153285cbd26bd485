#include "agents/constraint/gbnf.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

struct written {
    const char *text, *expected;
};

/* Each element in the engine's form: what GBNF means otherwise than the engine, or says in a form
 * of its own, too. */
static const struct written written[] = {
    {"root ::= \"a\"", "root ::= \"a\"\n"},
    {"root ::= a-b\na-b::=[a-z]+ # why\n\n", "root ::= g-a-b\ng-a-b ::= [a-z]+\n"},
    {"root ::= .", "root ::= [\\u0000-\\ud7ff\\ue000-\\U0010ffff]\n"},
    {"root ::= .* \".\" [.]",
     "root ::= [\\u0000-\\ud7ff\\ue000-\\U0010ffff]* \"\\u002e\" [\\u002e]\n"},
    {"root ::=", "root ::= \"\"\n"},
    {"root ::= | \"a\" | \nb ::= (|\"a\"|)? ()", "root ::= \"\" | \"a\" | \"\"\n"
                                                 "g-b ::= ( \"\" | \"a\" | \"\")? ( \"\")\n"},
    {"root ::= \"a\"{,3} \"b\"{2} \"c\"{2,} \"d\"{ 0 , 3 }",
     "root ::= \"a\"{0,3} \"b\"{2} \"c\"{2,} \"d\"{0,3}\n"},
    {"root ::= [a]{0,} (\"b\"){1,}", "root ::= [a]* ( \"b\")+\n"},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\\[\\]é\"",
     "root ::= \"A\\u00e9\\U0001f600\\u0009\\u0022\\u005c\\u005b\\u005d\\u00e9\"\n"},
    {"root ::= [^\"\\\\\\x7F\\x00-\\x1F]", "root ::= [^\\u0022\\u005c\\u007f\\u0000-\\u001f]\n"},
    {"root ::= [-a] [a-] [^^] [a\\]b]", "root ::= [\\u002da] [a\\u002d] [^\\u005e] [a\\u005db]\n"},
    {"root ::= \"# not | a ( comment\" [#|(] # a ) comment",
     "root ::= \"\\u0023\\u0020not\\u0020\\u007c\\u0020a\\u0020\\u0028\\u0020comment\" "
     "[\\u0023\\u007c\\u0028]\n"},
    {"# first\r\nroot ::= (\r\n  \"a\" # one\r\n | true\r\n)\r\ntrue ::= \"b\"\r\n",
     "root ::= ( \"a\" | g-true)\ng-true ::= \"b\"\n"},
    {"root ::= \"a\"\n  \"b\" |\n  Token\nToken ::= \"\n\"",
     "root ::= \"a\" \"b\" | g-Token\ng-Token ::= \"\\u000a\"\n"},
    {"root ::= 1x [max_tokens] _y\n1x ::= \"1\"\n  _y ::= \"2\"",
     "root ::= g-1x [max\\u005ftokens] g-_y\ng-1x ::= \"1\"\ng-_y ::= \"2\"\n"},
};

START_TEST(test_written)
{
    for (size_t i = 0; i < sizeof(written) / sizeof(*written); i++) {
        struct error err;
        struct buf out;

        buf_init(&out, 1 << 20);
        ck_assert_msg(gbnf_read(&out, written[i].text, strlen(written[i].text), &err) == STATUS_OK,
                      "%s\n%s", written[i].text, err.text);
        ck_assert_str_eq(out.data, written[i].expected);
        buf_deinit(&out);
    }
}
END_TEST

/* What is refused, and what the error says of it. */
static const struct written refused[] = {
    {"", "no rule root"},
    {"# nothing\n", "no rule root"},
    {"top ::= \"a\"", "no rule root"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2 defines again the rule 'root'"},
    {"root ::= \"a\"\n\n  | b c", "line 3 uses a rule that is not defined: 'b'"},
    {"root ::= \"a", "ends in a literal"},
    {"root ::= [a-", "ends in a class"},
    {"root ::= [z-a]", "a range whose end is before"},
    {"root ::= []", "a class of no characters"},
    {"root ::= (\"a\"", "ends in a group"},
    {"root ::= \"a\")", "closes a group"},
    {"root ::= * \"a\"", "a repetition of nothing"},
    {"root ::= \"a\"+*", "a repetition of nothing"},
    {"root ::= \"a\"{}", "none of {2}"},
    {"root ::= \"a\"{,}", "none of {2}"},
    {"root ::= \"a\"{3,2}", "below its beginning"},
    {"root ::= \"a\"{99999999}", "none of {2}"},
    {"root ::= \"\\q\"", "an escape that is none of"},
    {"root ::= \"\\x4\"", "an escape without its two"},
    {"root ::= \"\\uD800\"", "no character"},
    {"root ::= \"\\U00110000\"", "no character"},
    {"root ::= <think> [a-z]", "names a token; write its text, as a literal, instead of '<think>'"},
    {"root ::= \"a\"\n  !<[1000]>*",
     "line 2 names a token; write its text, as a literal, instead of "
     "'!<[1000]>'"},
    {"root ::= \"a\" b ::= \"c\"", "is no GBNF"},
    {"\nroot = \"a\"", "line 2 does not begin with a rule's name and ::="},
    {"start: \"a\" | B\nB: /[a-z]+/", "line 1 is Lark"},
    {"?start: x", "is Lark"},
    {"%llguidance {}\nstart: \"a\"", "is Lark"},
    {"// words\nstart: \"a\"", "does not begin"},
    {"root ::= /[a-z]+/", "is no GBNF"},
    {"root ::= ((((((((((((((((((((((((((((((((( \"a\"", "nests groups too deeply"},
};

START_TEST(test_refused)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        struct error err;
        struct buf out;

        buf_init(&out, 1 << 20);
        ck_assert_msg(gbnf_read(&out, refused[i].text, strlen(refused[i].text), &err) ==
                          STATUS_INVALID,
                      "%s", refused[i].text);
        ck_assert_msg(strstr(err.text, refused[i].expected) != NULL, "%s\n%s", refused[i].text,
                      err.text);
        buf_deinit(&out);
    }
}
END_TEST

/* A grammar that would become too long is refused. */
START_TEST(test_too_long)
{
    static const char text[] = "root ::= \"........................................\"";
    struct error err;
    struct buf out;

    buf_init(&out, 100);
    ck_assert_int_eq(gbnf_read(&out, text, sizeof(text) - 1, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.text, "makes it too long") != NULL, "%s", err.text);
    buf_deinit(&out);
}
END_TEST

SUITE_MAIN("gbnf", test_written, test_refused, test_too_long)
