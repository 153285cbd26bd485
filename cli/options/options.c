/* Turns the tables of a verb into a list for getopt_long, reads argv by it, and stores each value
 * where the value's row says. The help is printed from the same tables, and a wrong name is
 * answered with the nearest one. */
#include "cli/options/options.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "cli/output/console.h"

enum { MAX_OPTIONS = 128, MAX_NAME = 32, HELP_COLUMN = 30, HELP_WIDTH = 100, USAGE_INDENT = 8 };

/* The rows of all groups, in getopt's order; a row with two names appears twice. */
struct all_options {
    const struct option_row *rows[MAX_OPTIONS];
    const struct option_group *groups[MAX_OPTIONS];
    char names[MAX_OPTIONS][MAX_NAME];
    bool is_short[MAX_OPTIONS];           /* the second name has one dash */
    struct option longs[MAX_OPTIONS + 2]; /* plus help and the end of the list */
    int n;
    bool has_short;
};

static int long_len(const struct option_row *row)
{
    return (int)strcspn(row->name, "|");
}

static void add_name(struct all_options *all, const struct option_group *group,
                     const struct option_row *row, const char *name, int len, bool is_short)
{
    assert(all->n < MAX_OPTIONS && len > 0 && len < MAX_NAME);
    memcpy(all->names[all->n], name, (size_t)len);
    all->rows[all->n] = row;
    all->groups[all->n] = group;
    all->is_short[all->n] = is_short;
    all->longs[all->n] = (struct option){
        all->names[all->n], row->value == NULL ? no_argument : required_argument, NULL, 0};
    all->n++;
    all->has_short = all->has_short || is_short;
}

static void all_options_gather(struct all_options *all, const struct option_group *groups,
                               size_t n_groups)
{
    *all = (struct all_options){0};
    for (size_t g = 0; g < n_groups; g++)
        for (const struct option_row *row = groups[g].rows; row->name != NULL; row++) {
            const char *bar = strchr(row->name, '|');

            add_name(all, &groups[g], row, row->name, long_len(row), false);
            if (bar != NULL)
                add_name(all, &groups[g], row, bar + 1, (int)strlen(bar + 1), true);
        }
    all->longs[all->n] = (struct option){"help", no_argument, NULL, 'h'};
}

static enum status wrong_value(const struct option_row *row, const char *wants, const char *value,
                               struct error *err)
{
    return error_set(err, STATUS_INVALID, "--%.*s must be %s, not '%s'", long_len(row), row->name,
                     wants, value);
}

static enum status read_whole(uint64_t *out, const struct option_row *row, uint64_t max,
                              const char *value, struct error *err)
{
    if (number_read(out, value, max))
        return STATUS_OK;
    if (value[0] == '\0' || value[strspn(value, "0123456789")] != '\0')
        return wrong_value(row, *value == '-' ? "a whole number of 0 or above" : "a whole number",
                           value, err);
    return error_set(err, STATUS_INVALID, "--%.*s is at most %llu, not '%s'", long_len(row),
                     row->name, (unsigned long long)max, value);
}

static enum status read_real(double *out, const struct option_row *row, const char *value,
                             struct error *err)
{
    const bool is_from_0 = row->kind == OPTION_FLOAT_FROM_0 || row->kind == OPTION_DOUBLE_FROM_0;

    if (!number_read_real(out, value))
        return wrong_value(row, "a number", value, err);
    return !is_from_0 || *out >= 0
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "--%.*s is %g, it must be 0 or above",
                           long_len(row), row->name, *out);
}

static enum status options_read_more(struct option_texts *texts, const struct option_row *row,
                                     const char *value, struct error *err)
{
    if (texts->n == OPTION_TEXTS_MAX)
        return error_set(err, STATUS_INVALID, "--%.*s may be given %d times", long_len(row),
                         row->name, OPTION_TEXTS_MAX);
    texts->texts[texts->n++] = value;
    return STATUS_OK;
}

static enum status read_signed(int64_t *out, const struct option_row *row, const char *value,
                               struct error *err)
{
    const bool is_negative = value[0] == '-';
    uint64_t whole;
    enum status rc = read_whole(&whole, row, INT64_MAX, value + is_negative, err);

    if (rc == STATUS_OK)
        *out = is_negative ? -(int64_t)whole : (int64_t)whole;
    return rc;
}

static enum status read_bool(bool *out, const struct option_row *row, const char *value,
                             struct error *err)
{
    *out = strcmp(value, "true") == 0 || strcmp(value, "True") == 0;
    if (!*out && strcmp(value, "false") != 0 && strcmp(value, "False") != 0)
        return wrong_value(row, "true or false", value, err);
    return STATUS_OK;
}

static enum status options_read_value(const struct option_row *row,
                                      const struct option_group *group, const char *value,
                                      struct error *err)
{
    void *to = (char *)group->into + row->offset;
    uint64_t whole = 0;
    double real = 0.0;
    enum status rc = STATUS_OK;

    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)to = true;
        break;
    case OPTION_TEXT:
        *(const char **)to = value;
        break;
    case OPTION_TEXTS:
        rc = options_read_more(to, row, value, err);
        break;
    case OPTION_U32:
        if ((rc = read_whole(&whole, row, UINT32_MAX, value, err)) == STATUS_OK)
            *(uint32_t *)to = (uint32_t)whole;
        break;
    case OPTION_U64:
        if ((rc = read_whole(&whole, row, UINT64_MAX, value, err)) == STATUS_OK)
            *(uint64_t *)to = whole;
        break;
    case OPTION_I64:
        rc = read_signed(to, row, value, err);
        break;
    case OPTION_BOOL:
        rc = read_bool(to, row, value, err);
        break;
    case OPTION_FLOAT:
    case OPTION_FLOAT_FROM_0:
        if ((rc = read_real(&real, row, value, err)) == STATUS_OK)
            *(float *)to = (float)real;
        break;
    case OPTION_DOUBLE:
    case OPTION_DOUBLE_FROM_0:
        if ((rc = read_real(&real, row, value, err)) == STATUS_OK)
            *(double *)to = real;
        break;
    }
    if (rc == STATUS_OK && row->set != 0)
        *group->set |= row->set;
    return rc;
}

enum status options_set(const struct option_group *group, const char *name, const char *value,
                        struct error *err)
{
    struct suggest near;

    suggest_init(&near, name);
    for (const struct option_row *row = group->rows; row->name != NULL; row++) {
        if (strcmp(row->name, name) == 0 && row->value != NULL && value == NULL)
            return error_set(err, STATUS_INVALID, "%s needs a value: %s", name, row->value);
        if (strcmp(row->name, name) == 0)
            return options_read_value(row, group, value, err);
        suggest_try(&near, row->name);
    }
    return near.word == NULL
               ? error_set(err, STATUS_NOT_FOUND, "there is no option '%s'", name)
               : error_set(err, STATUS_NOT_FOUND, "there is no option '%s', did you mean '%s'?",
                           name, near.word);
}

void options_show(char *out, size_t size, const struct option_group *group,
                  const struct option_row *row)
{
    const void *at = (const char *)group->into + row->offset;
    const struct option_texts *texts = at;

    *out = '\0';
    if (row->kind != OPTION_TEXTS && (*group->set & row->set) == 0)
        return;
    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_BOOL:
        (void)snprintf(out, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    case OPTION_TEXT:
        (void)snprintf(out, size, "%s", *(const char *const *)at);
        break;
    case OPTION_TEXTS:
        for (size_t i = 0; i < texts->n; i++)
            (void)snprintf(out + strlen(out), size - strlen(out), "%s'%s'", i == 0 ? "" : " ",
                           texts->texts[i]); /* a long list is cut */
        break;
    case OPTION_U32:
        (void)snprintf(out, size, "%u", *(const uint32_t *)at);
        break;
    case OPTION_U64:
        (void)snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case OPTION_I64:
        (void)snprintf(out, size, "%lld", (long long)*(const int64_t *)at);
        break;
    case OPTION_FLOAT:
    case OPTION_FLOAT_FROM_0:
        (void)snprintf(out, size, "%g", (double)*(const float *)at);
        break;
    case OPTION_DOUBLE:
    case OPTION_DOUBLE_FROM_0:
        (void)snprintf(out, size, "%g", *(const double *)at);
        break;
    }
}

/* Prints a text from a column on. Its words go on in the next line, behind indent spaces, where a
 * line would be longer than HELP_WIDTH. */
static void print_words(const char *text, int column, int indent)
{
    char word[ERROR_TEXT_MAX];

    while (*text != '\0') {
        int len = (int)strcspn(text, " "), width;

        (void)snprintf(word, sizeof(word), "%.*s", len, text); /* no word is so long */
        width = (int)utf8_count(word);
        if (column > indent && column + 1 + width > HELP_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (column > indent)
            column += printf(" ");
        printf("%s", word);
        column += width;
        text += len;
        text += strspn(text, " ");
    }
    printf("\n");
}

static void print_row(const char *name, const char *value, const char *help)
{
    const char *bar = strchr(name, '|');
    int width =
        printf("  --%.*s%s%s%s%s", (int)strcspn(name, "|"), name, bar == NULL ? "" : ", -",
               bar == NULL ? "" : bar + 1, value == NULL ? "" : " ", value == NULL ? "" : value);

    if (value != NULL)
        width -= (int)(strlen(value) - utf8_count(value)); /* printf returned bytes */
    if (width >= HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - width, "");
    print_words(help, HELP_COLUMN, HELP_COLUMN);
}

static void options_print_help(const struct verb *verb, const struct all_options *all)
{
    print_words(verb->args, printf("usage: parley %s", verb->name), USAGE_INDENT);
    printf("\n");
    print_words(verb->about, 0, 0);
    printf("\noptions:\n");
    for (int i = 0; i < all->n; i++)
        if (!all->is_short[i])
            print_row(all->rows[i]->name, all->rows[i]->value, all->rows[i]->help);
    print_row("help", NULL, "print this help");
    printf("\n'man parley' is the manual.\n");
}

/* "seed" for "--sed"; NULL: none is near, or what was given is a short name. */
static const char *options_near(const struct option *longs, const char *given)
{
    struct suggest near;

    if (strncmp(given, "--", 2) != 0)
        return NULL;
    suggest_init(&near, given + 2);
    for (; longs->name != NULL; longs++)
        suggest_try(&near, longs->name);
    return near.word;
}

static bool options_has(const struct option *longs, const char *name)
{
    while (longs->name != NULL && strcmp(longs->name, name) != 0)
        longs++;
    return longs->name != NULL;
}

/* What getopt answered '?' or ':' to. Of "-ngl" it has read the first letter, and stays there. */
static const char *options_given(int argc, char **argv)
{
    const char *before = argv[optind - 1];
    const char *at = optind < argc ? argv[optind] : "";

    return optopt != 0 && at[0] == '-' && at[1] == optopt && at[2] != '\0' ? at : before;
}

/* Whether an argument was meant as an option: editors make another dash of "--". */
static bool has_foreign_dash(const char *arg)
{
    static const char *const dashes[] = {"\u2013", "\u2014", "\u2212"};

    for (size_t i = 0; i < sizeof(dashes) / sizeof(dashes[0]); i++)
        if (strncmp(arg, dashes[i], strlen(dashes[i])) == 0) {
            arg += strlen(dashes[i]);
            arg += strspn(arg, "-");
            return *arg >= 'a' && *arg <= 'z' &&
                   strchr("=", arg[strspn(arg, "abcdefghijklmnopqrstuvwxyz-")]) != NULL;
        }
    return false;
}

/* getopt answered ':' or '?' to what was given. */
static void explain(const struct option *longs, int answer, const char *given, struct error *err)
{
    const char *near = options_near(longs, given);

    if (answer == ':')
        (void)error_set(err, STATUS_INVALID, "%s needs a value", given);
    else if (strcmp(given, "-m") == 0 && options_has(longs, "model"))
        (void)error_set(err, STATUS_INVALID, "there is no option '-m', did you mean '--model'?");
    else if (strchr(given, '=') != NULL)
        (void)error_set(err, STATUS_INVALID, "'%.*s' is not an option or takes no value",
                        (int)strcspn(given, "="), given);
    else if (near != NULL)
        (void)error_set(err, STATUS_INVALID, "there is no option '%s', did you mean '--%s'?", given,
                        near);
    else
        (void)error_set(err, STATUS_INVALID, "there is no option '%s'", given);
}

enum options_end options_parse(const struct verb *verb, const struct option_group *groups,
                               size_t n_groups, int argc, char **argv, int *ret_first,
                               struct error *err)
{
    struct all_options all;
    int c, i = 0;

    all_options_gather(&all, groups, n_groups);
    opterr = 0;
    optind = 0; /* 0 makes glibc start again */
    while ((c = all.has_short ? getopt_long_only(argc, argv, ":h", all.longs, &i)
                              : getopt_long(argc, argv, ":h", all.longs, &i)) != -1) {
        if (c == 'h') {
            options_print_help(verb, &all);
            return OPTIONS_HELP;
        }
        if (c == ':' || c == '?') {
            explain(all.longs, c, options_given(argc, argv), err);
            return OPTIONS_WRONG;
        }
        if (options_read_value(all.rows[i], all.groups[i], optarg, err) != STATUS_OK)
            return OPTIONS_WRONG;
    }
    for (int at = optind; at < argc && strcmp(argv[optind - 1], "--") != 0; at++)
        if (has_foreign_dash(argv[at])) {
            (void)error_set(err, STATUS_INVALID,
                            "'%s' begins with a dash that is not '-': options begin with '--', and "
                            "what stands behind a '--' alone is no option",
                            argv[at]);
            return OPTIONS_WRONG;
        }
    *ret_first = optind;
    return OPTIONS_RUN;
}

void options_write_command(char *out, size_t size, int argc, char **argv)
{
    size_t at = (size_t)snprintf(out, size, "parley");

    for (int i = 0; i < argc && at < size; i++) {
        bool is_plain = *argv[i] != '\0' && strpbrk(argv[i], " \t\"'\\$&;<>|(){}*?#!`") == NULL;

        at += (size_t)snprintf(out + at, size - at, is_plain ? " %s" : " '%s'", argv[i]);
    }
}

enum exit_code options_misuse(const struct verb *verb, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* a longer text is truncated */
    va_end(args);
    console_error("%s: %s ('parley %s --help' says how it is used)", verb->name, text, verb->name);
    return EXIT_MISUSE;
}

/* Names the first argument that is missing by the verb's usage: n were given. */
static enum exit_code complain_of_too_few(const struct verb *verb, int n)
{
    const char *at = verb->args;

    for (int i = 0; i < n; i++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return options_misuse(verb, "%.*s is missing; 'parley %s %s'",
                          *at == '\0' ? (int)sizeof("an argument") : (int)strcspn(at, " "),
                          *at == '\0' ? "an argument" : at, verb->name, verb->args);
}

bool options_read(const struct verb *verb, const struct option_group *groups, size_t n_groups,
                  int argc, char **argv, int n_min, int n_max, int *ret_first,
                  enum exit_code *ret_code)
{
    struct error err;
    int n;

    switch (options_parse(verb, groups, n_groups, argc, argv, ret_first, &err)) {
    case OPTIONS_HELP:
        *ret_code = EXIT_DONE;
        return false;
    case OPTIONS_WRONG:
        *ret_code = options_misuse(verb, "%s", err.text);
        return false;
    case OPTIONS_RUN:
        break;
    }
    n = argc - *ret_first;
    if (n < n_min)
        *ret_code = complain_of_too_few(verb, n);
    else if (n > n_max)
        *ret_code = options_misuse(verb, "'%s' is one argument too many", argv[*ret_first + n_max]);
    return n >= n_min && n <= n_max;
}
