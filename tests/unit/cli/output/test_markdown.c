#include "cli/output/markdown.h"

#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter_rng.h"

enum { LIMIT_BYTES = 1 << 20 };

struct screen {
    struct buf bytes;
    size_t n_writes; /* until one fails */
};

static bool screen_write(void *arg, const char *text, size_t len)
{
    struct screen *s = arg;

    if (s->n_writes-- == 0)
        return false;
    return buf_append(&s->bytes, text, len) == STATUS_OK;
}

/* Shows a text that comes in pieces of up to n_piece bytes, cut between characters. The escape
 * "\033[0;1m" becomes "<1>", and "\033[0m" "<>". */
static char *render(const char *text, size_t width, size_t n_piece)
{
    struct screen s = {.n_writes = SIZE_MAX};
    struct markdown m;
    char *out, *to;

    buf_init(&s.bytes, LIMIT_BYTES);
    markdown_init(&m, width, screen_write, &s);
    for (size_t at = 0, n; at < strlen(text); at += n) {
        n = n_piece;
        while (at + n < strlen(text) && ((unsigned char)text[at + n] & 0xc0) == 0x80)
            n++;
        n = n > strlen(text + at) ? strlen(text + at) : n;
        ck_assert(markdown_write(&m, text + at, n));
    }
    ck_assert(markdown_end(&m));
    markdown_deinit(&m);
    out = to = calloc(1, s.bytes.len + 1);
    for (size_t i = 0; i < s.bytes.len; i++)
        if (s.bytes.data[i] != '\033') {
            *to++ = s.bytes.data[i];
        } else {
            *to++ = '<';
            for (i += s.bytes.data[i + 3] == ';' ? 4 : 3; s.bytes.data[i] != 'm'; i++)
                *to++ = s.bytes.data[i];
            *to++ = '>';
        }
    *to = '\0';
    buf_deinit(&s.bytes);
    return out;
}

static void check_shown(const char *text, size_t width, const char *wanted)
{
    for (size_t n_piece = 1; n_piece < 8; n_piece += 3) {
        char *out = render(text, width, n_piece);

        ck_assert_str_eq(out, wanted);
        free(out);
    }
}

START_TEST(marks_set_styles)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain", "plain"},
        {"", ""},
        {"\n\n", "\n\n"},
        {"a **b c** d", "a <1>**b c** <>d"},
        {"a *b* _c_ d", "a <3>*b* _c_ <>d"},
        {"***a***", "<1;3>***a***<>"},
        {"**a *b* c**", "<1>**a <1;3>*b* <1>c**<>"},
        {"2 * 3 * 4", "2 * 3 * 4"},
        {"a snake_case_name", "a snake_case_name"},
        {"\\*no\\* `a*b*`", "\\*no\\* <36>`a*b*`<>"},
        {"``a`b`` c", "<36>``a`b`` <>c"},
        {"open **bold\nnext", "open <1>**bold<>\nnext"},
        {"open `code\nnext", "open <36>`code<>\nnext"},
        {"# Head *x*\ntext", "<1># Head *x*<>\ntext"},
        {"#hash", "#hash"},
        {"####### seven", "####### seven"},
        {"> quote\nend", "<2>> <3>quote<>\nend"},
        {"- a\n  * b\n12. c\n+d", "<1>- <>a\n  <1>* <>b\n<1>12. <>c\n+d"},
        {"-", "-"},
        {"12", "12"},
        {"```c\nint *a; // _x_\n```\n*i*", "<2>```c<>\n<36>int *a; // _x_<>\n<2>```<>\n<3>*i*<>"},
        {"~~~\n```\n~~~\n*i*", "<2>~~~<>\n<36>```<>\n<2>~~~<>\n<3>*i*<>"},
        {"````\n```\n````\n*i*", "<2>````<>\n<36>```<>\n<2>````<>\n<3>*i*<>"},
        {"```\n  a  b\n\tc", "<2>```<>\n  <36>a  b<>\n<36>\tc<>"},
        {"```a``` b\n*i*", "<2>```a``` b<>\n<3>*i*<>"},
        {"`` ` ``", "<36>`` ` ``<>"},
        {"a\033[31mb\a", "a\uFFFD[31mb\uFFFD"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_shown(cases[i].text, 80, cases[i].shown);
}
END_TEST

START_TEST(words_wrap)
{
    check_shown("one two three four", 9, "one two\nthree\nfour");
    check_shown("one two three four", 18, "one two three four");
    check_shown("one two three four", 17, "one two three\nfour");
    check_shown("- one two three", 9, "<1>- <>one two\n  three");
    check_shown("10. one two", 10, "<1>10. <>one\n    two");
    check_shown("a **bc de** f", 7, "a <1>**bc\nde** <>f");
    check_shown("abcdefghijkl mn", 5, "abcdefghijkl mn"); /* the terminal breaks the word */
    check_shown("abcdefghijkl mno", 5, "abcdefghijkl\nmno");
    check_shown("| one | two three |", 9, "| one | two three |");
    check_shown("```\none two three\n```", 9, "<2>```<>\n<36>one two three<>\n<2>```<>");
    check_shown("a\tb\tc", 80, "a\tb\tc");
    check_shown("a \tb c", 10, "a \tb\nc");
    check_shown("ab\tcd\tef", 9, "ab\t\ncd\t\nef");
    check_shown("ab\tc\te", 12, "ab\tc\t\ne");
    check_shown("\tab cd", 12, "\tab\ncd");
    check_shown("世界世界世界", 5, "世界\n世界\n世界");
    check_shown("grüße мир", 9, "grüße мир");
    check_shown("grüße мир", 8, "grüße\nмир");
}
END_TEST

/* Takes escapes, spaces and newlines out of the text; at its end, no style may be left. */
static void strip(char *text)
{
    char *to = text;
    bool is_plain = true;

    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '<') {
            is_plain = c[1] == '>';
            c += strcspn(c, ">");
        } else if (*c != ' ' && *c != '\n') {
            *to++ = *c;
        }
    }
    ck_assert(is_plain);
    *to = '\0';
}

static size_t drawn(uint32_t *draw, size_t n)
{
    return (size_t)(counter_rng_uniform(1, (*draw)++, 0, 0) * (float)n) % n;
}

/* Random lines of marks: all characters are shown, in their order, however the text is cut, and no
 * style is left at the end. */
START_TEST(no_character_is_lost)
{
    static const char *const pieces[] = {"*",  "**", "_",  "`",    "```", "#", "-",
                                         " ",  "\n", "|",  "1.",   "~~~", "a", "b",
                                         "\\", "é",  "世", "word", "  ",  "\t"};
    uint32_t draw = 0;

    for (int round = 0; round < 2000; round++) {
        const size_t width = 1 + drawn(&draw, 40);
        struct buf text;
        char *whole, *cut;

        buf_init(&text, LIMIT_BYTES);
        ck_assert_int_eq(buf_append_text(&text, ""), STATUS_OK);
        for (size_t i = drawn(&draw, 60); i > 0; i--)
            ck_assert_int_eq(
                buf_append_text(&text, pieces[drawn(&draw, sizeof(pieces) / sizeof(pieces[0]))]),
                STATUS_OK);
        whole = render(text.data == NULL ? "" : text.data, width, LIMIT_BYTES);
        cut = render(text.data == NULL ? "" : text.data, width, 1);
        ck_assert_str_eq(whole, cut);
        strip(whole);
        strip(text.data == NULL ? cut : text.data);
        ck_assert_str_eq(whole, text.data == NULL ? "" : text.data);
        free(whole);
        free(cut);
        buf_deinit(&text);
    }
}
END_TEST

START_TEST(the_column_is_known)
{
    struct screen s = {.n_writes = SIZE_MAX};
    struct markdown m;

    buf_init(&s.bytes, LIMIT_BYTES);
    markdown_init(&m, 10, screen_write, &s);
    ck_assert(markdown_write(&m, "ab cd ef", 8));
    ck_assert_uint_eq(m.column, 5); /* a word that has not ended is held */
    ck_assert(markdown_write(&m, "gh ", 3));
    ck_assert_uint_eq(m.column, 10);
    ck_assert(markdown_write(&m, "ij ", 3));
    ck_assert_uint_eq(m.column, 2);
    ck_assert(markdown_write(&m, "\n", 1));
    ck_assert_uint_eq(m.column, 0);
    markdown_deinit(&m);
    buf_deinit(&s.bytes);
}
END_TEST

/* A terminal that becomes narrower during a text breaks lines at its own width from then on. */
START_TEST(the_width_changes)
{
    static const char text[] = "one two three four ";
    struct screen s = {.n_writes = SIZE_MAX};
    struct markdown m;

    buf_init(&s.bytes, LIMIT_BYTES);
    markdown_init(&m, 80, screen_write, &s);
    ck_assert(markdown_write(&m, text, strlen(text)));
    markdown_resize(&m, 12); /* the column was 18 */
    ck_assert_uint_eq(m.column, 6);
    ck_assert(markdown_write(&m, text, strlen(text)));
    ck_assert(markdown_end(&m));
    ck_assert_uint_eq(s.bytes.len, strlen("one two three four one\ntwo three\nfour"));
    ck_assert_mem_eq(s.bytes.data, "one two three four one\ntwo three\nfour", s.bytes.len);
    markdown_deinit(&m);
    buf_deinit(&s.bytes);
}
END_TEST

START_TEST(a_failed_write_ends_the_output)
{
    struct screen s = {.n_writes = 2};
    struct markdown m;

    buf_init(&s.bytes, LIMIT_BYTES);
    markdown_init(&m, 80, screen_write, &s);
    ck_assert(!markdown_write(&m, "a b c d e", 9));
    ck_assert(!markdown_write(&m, "f g", 3));
    ck_assert(!markdown_end(&m));
    markdown_deinit(&m);
    buf_deinit(&s.bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cli/output/markdown");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
    tcase_add_test(all, marks_set_styles);
    tcase_add_test(all, words_wrap);
    tcase_add_test(all, no_character_is_lost);
    tcase_add_test(all, the_column_is_known);
    tcase_add_test(all, the_width_changes);
    tcase_add_test(all, a_failed_write_ends_the_output);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
