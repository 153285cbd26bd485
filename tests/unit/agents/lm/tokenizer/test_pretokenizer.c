#include "agents/lm/tokenizer/pretokenizer.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/unit/base/suite.h"

static struct error err;
static const char *const kinds[] = {
    "default",   "gpt-2", "gpt2",   "smollm", "falcon", "llama-bpe",   "chatglm-bpe",
    "smaug-bpe", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3", "deepseek-coder"};

static struct pretokenizer *open_kind(const char *name)
{
    struct pretokenizer *p;

    ck_assert_int_eq(pretokenizer_open(&p, name, strlen(name), &err), STATUS_OK);
    return p;
}

static enum status join(void *arg, const char *piece, size_t len)
{
    struct buf *out = arg;

    ck_assert_uint_gt(len, 0);
    if (out->len > 0)
        ck_assert_int_eq(buf_append(out, "|", 1), STATUS_OK);
    return buf_append(out, piece, len);
}

struct split {
    const char *kind, *text, *pieces;
};

/* Each family splits by its pattern: contractions, the space before a word, digits, runs of
 * punctuation and of space, line ends. */
START_TEST(families_cut_as_they_do)
{
    static const struct split splits[] = {
        {"gpt-2", "Hello world", "Hello| world"},
        {"gpt-2", "it's DON'T we'll", "it|'s| DON|'|T| we|'ll"},
        {"gpt-2", "x 123456 4", "x| 123456| 4"},
        {"gpt-2", "a   b \n\n c", "a|  | b| \n\n| c"},
        {"gpt-2", "a\tb  ", "a|\t|b|  "},
        {"gpt-2", "?! ... a1_b", "?!| ...| a|1|_|b"},
        {"gpt-2", "na\u00efve \u4f60\u597d\u3002 \u00bd",
         "na\u00efve| \u4f60\u597d|\u3002| \u00bd"},
        {"gpt-2", "a\u00a0\u3000b",
         "a|\u00a0|\u3000|b"}, /* both are spaces, the first is a piece of its own */
        {"gpt-2", "a\xC2\x85\u2028b", "a|\xC2\x85|\u2028|b"},
        {"gpt-2", "a \u180eb", "a| \u180e|b"}, /* not a space since Unicode 6.3 */
        {"smollm", "x 123 4", "x| |1|2|3| |4"},
        {"smollm", "a  12", "a|  |1|2"}, /* the spaces end their piece: none is left to the next */
        {"smollm", "\u0663\u00b2v2.0", "\u0663|\u00b2|v|2|.|0"},
        {"llama-bpe", "it's DON'T we'LL", "it|'s| DON|'T| we|'LL"},
        {"llama-bpe", "x 123456 4", "x| |123|456| |4"},
        {"llama-bpe", "a.b (c)\n\nd", "a|.b| (|c|)\n\n|d"},
        {"llama-bpe", "a  \n \n  b", "a|  \n \n| | b"},
        {"llama-bpe", "\tif x", "\tif| x"},
        {"qwen2", "x 123 it'S", "x| |1|2|3| it|'S"},
        {"qwen2", "a\r\n\r\nb!!\n", "a|\r\n\r\n|b|!!\n"},
        {"default", "a+b (1234567)", "a|+|b| |(|123|456|7|)"},
        {"default", "x\u3002y  12", "x|\u3002|y| | |12"},
        {"falcon", "`a` 12345", "`|a|`| |123|45"},
        {"chatglm-bpe", "x 123456 4", "x| |123|456| |4"},
        {"smaug-bpe", "it's 1234", "it|'s| |123|4"},
        {"qwen35", "a\u0301b \u0915\u093f 12", "a\u0301b| \u0915\u093f| |1|2"},
        {"qwen2", "\u0915\u093f", "\u0915|\u093f"},
        {"tekken", "HelloWorld ABCdef 12/3", "Hello|World| ABCdef| |1|2|/|3"},
        {"tekken", "\u041f\u0440\u0438\u0412\u0435 a/\n/",
         "\u041f\u0440\u0438|\u0412\u0435| a|/\n/"},
        {"tekken", "it's", "it|'s"},
        {"gpt-4o", "it's DON'T we'LL", "it's| DON'T| we'LL"},
        {"gpt-4o", "camelCase 1234", "camel|Case| |123|4"},
        {"deepseek-v3", "x=\u4e2d\u6587a 1234", "x|=|\u4e2d\u6587|a| |123|4"},
        {"deepseek-v3", "(foo) \u00a3\u00a3!", "(foo|)| \u00a3\u00a3!"},
        {"deepseek-coder", "a\n\nb 12\u4e2d", "a|\n|\n|b| |1|2|\u4e2d"},
        {"deepseek-coder", "f (x)", "f| (|x|)"},
    };

    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        const struct split *s = &splits[i];
        struct pretokenizer *p = open_kind(s->kind);
        struct buf out;

        buf_init(&out, SIZE_MAX);
        ck_assert_int_eq(pretokenizer_run(p, s->text, strlen(s->text), join, &out, &err),
                         STATUS_OK);
        ck_assert_str_eq(out.data, s->pieces);
        buf_deinit(&out);
        pretokenizer_close(p);
    }
}
END_TEST

struct counter {
    size_t n_pieces, n_bytes, stop_at;
};

static enum status count(void *arg, const char *piece, size_t len)
{
    struct counter *c = arg;

    c->n_bytes += len;
    return ++c->n_pieces == c->stop_at ? STATUS_ABORTED : STATUS_OK;
}

/* Long runs that force backtracking are split correctly in linear time. */
START_TEST(long_runs_are_cut)
{
    static const char *const units[] = {" ",      "\n", "a",  "1",  "'",  " \n",     "\u3000",
                                        "\u4e2d", "=",  "'s", "a ", "\r", "\u00a0 ", "\U0001F642"};
    static const char *const ends[] = {"", "x", "\n", "=", "1"};
    enum { N = 400000 };
    char *text = malloc(N + 8);

    ck_assert_ptr_nonnull(text);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct pretokenizer *p = open_kind(kinds[k]);

        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            size_t unit_len = strlen(units[u]), len = N / unit_len * unit_len;
            const char *end = ends[u % (sizeof(ends) / sizeof(ends[0]))];
            struct counter c = {0};

            for (size_t i = 0; i < len; i += unit_len)
                memcpy(text + i, units[u], unit_len);
            memcpy(text + len, end, strlen(end));
            len += strlen(end);
            ck_assert_msg(pretokenizer_run(p, text, len, count, &c, &err) == STATUS_OK, "%s",
                          err.text);
            ck_assert_uint_eq(c.n_bytes, len);
        }
        pretokenizer_close(p);
    }
    free(text);
}
END_TEST

/* A status other than OK ends the run. */
START_TEST(callers_can_stop)
{
    struct pretokenizer *p = open_kind("smollm");
    struct counter c = {.stop_at = 2};

    ck_assert_int_eq(pretokenizer_run(p, "a b 1 2", 7, count, &c, &err), STATUS_ABORTED);
    ck_assert_uint_eq(c.n_pieces, 2);
    pretokenizer_close(p);
}
END_TEST

/* The error names an unknown family and the known ones. */
START_TEST(unknown_families_are_refused)
{
    struct pretokenizer *p = NULL;

    ck_assert_int_eq(pretokenizer_open(&p, "falco", 5, &err), STATUS_UNIMPLEMENTED);
    ck_assert_str_eq(err.text,
                     "pre-tokenizer 'falco' is unknown; known: default, gpt-2, smollm, falcon, "
                     "llama-bpe, glm4, smaug-bpe, qwen2, qwen35, tekken, gpt-4o, deepseek-v3, "
                     "deepseek-coder, gemma4, spaces, whole");
    ck_assert_int_eq(pretokenizer_open(&p, "gpt-2x", 6, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(pretokenizer_open(&p, "", 0, &err), STATUS_UNIMPLEMENTED);
    ck_assert_ptr_null(p);
}
END_TEST

SUITE_MAIN("agents/lm/pretokenizer", families_cut_as_they_do, long_runs_are_cut, callers_can_stop,
           unknown_families_are_refused)
