#include "cli/options/options.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
    bool is_loud;
    const char *name;
    struct option_texts stops;
    uint32_t count;
    uint64_t seed;
    float warmth;
    double width, length;
    unsigned set;
};

enum { SET_COUNT = 1, SET_WARMTH = 2 };

static const struct option_row rows[] = {
    {"loud", NULL, "a flag", OPTION_FLAG, offsetof(struct wanted, is_loud), 0},
    {"name", "NAME", "a text", OPTION_TEXT, offsetof(struct wanted, name), 0},
    {"stop", "TEXT", "texts", OPTION_TEXTS, offsetof(struct wanted, stops), 0},
    {"count", "N", "a number", OPTION_U32, offsetof(struct wanted, count), SET_COUNT},
    {"seed", "N", "a long one", OPTION_U64, offsetof(struct wanted, seed), 0},
    {"warmth", "T", "a real one", OPTION_FLOAT, offsetof(struct wanted, warmth), SET_WARMTH},
    {"width", "X", "a long real one", OPTION_DOUBLE, offsetof(struct wanted, width), 0},
    {"length", "X", "0 or above", OPTION_DOUBLE_FROM_0, offsetof(struct wanted, length), 0},
    {0},
};

static const struct verb verb = {"try", "ARG", "Tries.", NULL};

static struct wanted wanted;
static struct error err;
static int first;
static char *args[64];

/* Parses the words of a line, which the caller keeps. */
static enum options_end parse(char *line)
{
    const struct option_group groups[] = {{rows, &wanted, &wanted.set}};
    int n = 0;

    wanted = (struct wanted){0};
    err = (struct error){0};
    for (char *rest = line, *word; (word = strsep(&rest, " ")) != NULL;)
        args[n++] = word;
    args[n] = NULL;
    return options_parse(&verb, groups, 1, n, args, &first, &err);
}

/* Every kind of option puts its value where the table says. */
START_TEST(values_arrive)
{
    char line[] = "try --loud --name ada --stop a --stop=b --count 7 --seed 18446744073709551615 "
                  "--warmth 0.5 --width -2e3";

    ck_assert_int_eq(parse(line), OPTIONS_RUN);
    ck_assert(wanted.is_loud);
    ck_assert_str_eq(wanted.name, "ada");
    ck_assert_uint_eq(wanted.stops.n, 2);
    ck_assert_str_eq(wanted.stops.texts[1], "b");
    ck_assert_uint_eq(wanted.count, 7);
    ck_assert_uint_eq(wanted.seed, UINT64_MAX);
    ck_assert_float_eq(wanted.warmth, 0.5f);
    ck_assert_double_eq(wanted.width, -2e3);
}
END_TEST

struct named_twice {
    uint32_t size;
    const char *task;
    int64_t length;
    bool sort, quiet;
};

static const struct option_row twice_rows[] = {
    {"batchsize|bs", "N", "a number", OPTION_U32, offsetof(struct named_twice, size), 0},
    {"task|t", "NAME", "a text", OPTION_TEXT, offsetof(struct named_twice, task), 0},
    {"context-length", "N", "may be negative", OPTION_I64, offsetof(struct named_twice, length), 0},
    {"batch-sort|bsrt", "BOOL", "said", OPTION_BOOL, offsetof(struct named_twice, sort), 0},
    {"quiet", NULL, "a flag", OPTION_FLAG, offsetof(struct named_twice, quiet), 0},
    {0},
};

static enum options_end parse_twice(struct named_twice *out, char *line)
{
    const struct option_group groups[] = {{twice_rows, out, NULL}};
    int n = 0;

    *out = (struct named_twice){.sort = true};
    for (char *rest = line, *word; (word = strsep(&rest, " ")) != NULL;)
        args[n++] = word;
    args[n] = NULL;
    return options_parse(&verb, groups, 1, n, args, &first, &err);
}

/* An option with a second name is written either way; numbers may be negative where that means
 * something, and true and false are said. */
START_TEST(second_names_have_one_dash)
{
    char both[] = "try -bs 7 --task a --context-length -1 -bsrt false --quiet";
    char other[] = "try --batchsize=8 -t b --context-length 9223372036854775807 --batch-sort True";
    char unknown[] = "try -bx 7", mistyped[] = "try --context-lenght 7",
         no_bool[] = "try --batch-sort perhaps", no_number[] = "try --context-length -",
         too_low[] = "try --context-length -9223372036854775809",
         dashed[] = "try x \u2014batchsize=7", apart[] = "try -- \u2013quiet",
         said[] = "try \u2013 \u2014Quiet \u2013quiet.";
    struct named_twice got;

    ck_assert_int_eq(parse_twice(&got, both), OPTIONS_RUN);
    ck_assert_uint_eq(got.size, 7);
    ck_assert_str_eq(got.task, "a");
    ck_assert_int_eq(got.length, -1);
    ck_assert(!got.sort && got.quiet);
    ck_assert_int_eq(parse_twice(&got, other), OPTIONS_RUN);
    ck_assert_uint_eq(got.size, 8);
    ck_assert_str_eq(got.task, "b");
    ck_assert_int_eq(got.length, INT64_MAX);
    ck_assert(got.sort);
    ck_assert_int_eq(parse_twice(&got, unknown), OPTIONS_WRONG);
    ck_assert_str_eq(err.text, "there is no option '-bx'");
    ck_assert_int_eq(parse_twice(&got, dashed), OPTIONS_WRONG);
    ck_assert(strstr(err.text, "begins with a dash that is not '-'") != NULL);
    ck_assert_int_eq(parse_twice(&got, apart), OPTIONS_RUN);
    ck_assert_int_eq(parse_twice(&got, said), OPTIONS_RUN);
    ck_assert_int_eq(parse_twice(&got, mistyped), OPTIONS_WRONG);
    ck_assert_str_eq(err.text,
                     "there is no option '--context-lenght', did you mean '--context-length'?");
    ck_assert_int_eq(parse_twice(&got, no_bool), OPTIONS_WRONG);
    ck_assert_str_eq(err.text, "--batch-sort must be true or false, not 'perhaps'");
    ck_assert_int_eq(parse_twice(&got, no_number), OPTIONS_WRONG);
    ck_assert_int_eq(parse_twice(&got, too_low), OPTIONS_WRONG);
}
END_TEST

/* Only what was given has its bit set. */
START_TEST(bits_say_what_was_given)
{
    char none[] = "try", one[] = "try --warmth 0";

    ck_assert_int_eq(parse(none), OPTIONS_RUN);
    ck_assert_uint_eq(wanted.set, 0);
    ck_assert_int_eq(parse(one), OPTIONS_RUN);
    ck_assert_uint_eq(wanted.set, SET_WARMTH);
}
END_TEST

/* Arguments may stand anywhere among the options; after "--" all are arguments. */
START_TEST(arguments_come_last)
{
    char line[] = "try one --count 1 two -- --loud";

    ck_assert_int_eq(parse(line), OPTIONS_RUN);
    ck_assert_str_eq(args[first], "one");
    ck_assert_str_eq(args[first + 1], "two");
    ck_assert_str_eq(args[first + 2], "--loud");
    ck_assert(!wanted.is_loud);
}
END_TEST

/* What is wrong is said with the option's name. */
START_TEST(wrong_ones_are_named)
{
    static const char *const lines[][2] = {
        {"try --nope", "'--nope'"},
        {"try -x", "'-x'"},
        {"try -x --loud", "'-x'"},
        {"try -xyz 9", "'-xyz'"},
        {"try --loud -xyz 9", "'-xyz'"},
        {"try --name - -xyz 9", "'-xyz'"},
        {"try one -xyz", "'-xyz'"},
        {"try --loud=1", "'--loud'"},
        {"try --count", "--count needs a value"},
        {"try --count -1", "--count must be a whole number"},
        {"try --count 7x", "--count must be a whole number, not '7x'"},
        {"try --count=", "--count must be a whole number, not ''"},
        {"try --count 4294967296", "--count is at most 4294967295"},
        {"try --seed 18446744073709551616", "--seed is at most"},
        {"try --warmth hot", "--warmth must be a number, not 'hot'"},
        {"try --warmth nan", "--warmth must be a number"},
        {"try --width inf", "--width must be a number"},
        {"try --length -0.5", "--length is -0.5, it must be 0 or above"},
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char *line = strdup(lines[i][0]);

        ck_assert_int_eq(parse(line), OPTIONS_WRONG);
        ck_assert_msg(strstr(err.text, lines[i][1]) != NULL, "%s: %s", lines[i][0], err.text);
        free(line);
    }
}
END_TEST

/* An option that may be given again has a bound, and says it. */
START_TEST(texts_are_bounded)
{
    char line[OPTION_TEXTS_MAX * 10 + 20] = "try";

    for (int i = 0; i < OPTION_TEXTS_MAX; i++)
        strncat(line, " --stop=x", sizeof(line) - strlen(line) - 1);
    {
        char *enough = strdup(line);

        ck_assert_int_eq(parse(enough), OPTIONS_RUN);
        free(enough);
    }
    strncat(line, " --stop=x", sizeof(line) - strlen(line) - 1);
    ck_assert_int_eq(parse(line), OPTIONS_WRONG);
    ck_assert_ptr_nonnull(strstr(err.text, "16 times"));
}
END_TEST

/* A verb gets as many arguments as it takes; else the program ends with EXIT_MISUSE. */
START_TEST(arguments_are_counted)
{
    const struct option_group groups[] = {{rows, &wanted, &wanted.set}};
    char words[][4] = {"try", "a", "b"};
    char *two[] = {words[0], words[1], words[2], NULL};
    enum exit_code code = EXIT_DONE;

    ck_assert(options_read(&verb, groups, 1, 3, two, 1, 2, &first, &code));
    ck_assert_int_eq(first, 1);
    ck_assert(!options_read(&verb, groups, 1, 3, two, 3, 4, &first, &code));
    ck_assert_int_eq(code, EXIT_MISUSE);
    code = EXIT_DONE;
    ck_assert(!options_read(&verb, groups, 1, 3, two, 0, 1, &first, &code));
    ck_assert_int_eq(code, EXIT_MISUSE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cli/options");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(all, values_arrive);
    tcase_add_test(all, second_names_have_one_dash);
    tcase_add_test(all, bits_say_what_was_given);
    tcase_add_test(all, arguments_come_last);
    tcase_add_test(all, wrong_ones_are_named);
    tcase_add_test(all, texts_are_bounded);
    tcase_add_test(all, arguments_are_counted);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
