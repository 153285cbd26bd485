#include "agents/lm/tokenizer/vocab.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/tiny_vocab.h"
#include "tests/unit/base/suite.h"

static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\u0120 h", "a a", "aa aa"};
enum { HE = TV_MERGED, LL, HELL, HELLO, SPACE_H, AA, AAAA, EXTRA, N_MERGES = 7 };

static const char *const kinds[] = {
    "default", "gpt-2",  "smollm", "falcon", "llama-bpe",   "chatglm-bpe",   "smaug-bpe",
    "qwen2",   "qwen35", "tekken", "gpt-4o", "deepseek-v3", "deepseek-coder"};
static struct error err;

struct opened {
    struct tiny_vocab file;
    struct vocab *v;
};

static struct opened open_good(struct tiny_vocab_config config)
{
    struct opened o;

    config.merges = merges;
    config.n_merges = N_MERGES;
    tiny_vocab_open(&o.file, &config);
    ck_assert_msg(vocab_open(&o.v, o.file.gguf, &err) == STATUS_OK, "%s", err.text);
    return o;
}

static void close_good(struct opened *o)
{
    vocab_close(o->v);
    tiny_vocab_close(&o->file);
}

/* Asserts the ids of text; a negative one ends the list. */
static void check_ids(const struct vocab *v, const char *text, const int32_t *ids)
{
    struct buf out;
    size_t n = 0;

    while (ids[n] >= 0)
        n++;
    buf_init(&out, SIZE_MAX);
    ck_assert_msg(vocab_encode(v, text, strlen(text), &out, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(out.len == n * sizeof(*ids) && (n == 0 || memcmp(out.data, ids, out.len) == 0),
                  "'%s' has %zu tokens", text, out.len / sizeof(*ids));
    buf_deinit(&out);
}

#define CHECK_IDS(v, text, ...) check_ids(v, text, (const int32_t[]){__VA_ARGS__, -1})
#define B(c) (TV_BYTE + (unsigned char)(c))

/* Appends the text of ids. */
static void decode(const struct vocab *v, const struct buf *ids, struct buf *text)
{
    ck_assert_int_eq(vocab_decode(v, (const int32_t *)(const void *)ids->data,
                                  ids->len / sizeof(int32_t), text, &err),
                     STATUS_OK);
}

/* Pieces are merged by rank, and never across pieces. */
START_TEST(text_is_merged)
{
    struct opened o = open_good((struct tiny_vocab_config){0});

    CHECK_IDS(o.v, "hello", HELLO);
    CHECK_IDS(o.v, "hell", HELL);
    CHECK_IDS(o.v, "he llo", HE, B(' '), LL, B('o'));
    CHECK_IDS(o.v, " hello", B(' '), HELLO); /* the lower rank takes the h */
    CHECK_IDS(o.v, " ha", SPACE_H, B('a'));
    CHECK_IDS(o.v, "aaaaaaa", AAAA, AA, B('a'));
    check_ids(o.v, "", (const int32_t[]){-1});
    close_good(&o);
}
END_TEST

/* Every Unicode character is encoded and decoded byte for byte, under every family. */
START_TEST(texts_come_back)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct opened o = open_good((struct tiny_vocab_config){.pre = kinds[k]});
        struct buf text, ids, back;

        buf_init(&text, SIZE_MAX);
        buf_init(&ids, SIZE_MAX);
        buf_init(&back, SIZE_MAX);
        for (uint32_t c = 0; c < 0x110000; c += c < 0x3100 ? 1 : 37) {
            char bytes[4];

            if (buf_append(&text, bytes, utf8_encode(c, bytes)) != STATUS_OK ||
                (c % 3 == 0 && buf_append_text(&text, " hell") != STATUS_OK))
                ck_abort_msg("no memory"); /* an assertion each would take seconds */
        }
        ck_assert_int_eq(vocab_encode(o.v, text.data, text.len, &ids, &err), STATUS_OK);
        decode(o.v, &ids, &back);
        ck_assert_uint_eq(back.len, text.len);
        ck_assert_mem_eq(back.data, text.data, text.len);
        buf_deinit(&text);
        buf_deinit(&ids);
        buf_deinit(&back);
        close_good(&o);
    }
}
END_TEST

/* Each byte has its token, printable or not. */
START_TEST(bytes_have_tokens)
{
    struct opened o = open_good((struct tiny_vocab_config){0});

    for (int b = 0; b < 256; b++) {
        const char *bytes;
        size_t len;

        ck_assert_int_eq(vocab_bytes(o.v, TV_BYTE + b, false, &bytes, &len, &err), STATUS_OK);
        ck_assert_uint_eq(len, 1);
        ck_assert_int_eq((unsigned char)bytes[0], b);
    }
    close_good(&o);
}
END_TEST

/* A control token in a text is text; a user-defined one is found, the longest first. */
START_TEST(special_tokens_in_text)
{
    struct opened o = open_good((struct tiny_vocab_config){0});

    CHECK_IDS(o.v, "<|eot_id|>", B('<'), B('|'), B('e'), B('o'), B('t'), B('_'), B('i'), B('d'),
              B('|'), B('>'));
    CHECK_IDS(o.v, "he<tool>hell<tool>callo", HE, TV_TOOL, HELL, TV_TOOL_CALL, B('o'));
    CHECK_IDS(o.v, "<tool", B('<'), B('t'), B('o'), B('o'), B('l'));
    CHECK_IDS(o.v, "<tool><tool>cal", TV_TOOL, TV_TOOL, B('c'), B('a'), B('l'));
    close_good(&o);
}
END_TEST

/* Asserts the ids of a text whose part [from, end) is trusted. */
static void check_trusted(const struct vocab *v, const char *text, size_t from, size_t end,
                          const int32_t *ids, size_t n)
{
    size_t len = strlen(text);
    const struct text_span spans[] = {{from, false}, {end, true}, {len, false}};
    struct buf out;

    buf_init(&out, SIZE_MAX);
    ck_assert_int_eq(vocab_encode_spans(v, text, len, spans, 3, true, &out, &err), STATUS_OK);
    ck_assert_msg(out.len == n * sizeof(*ids) && memcmp(out.data, ids, out.len) == 0,
                  "'%s' [%zu, %zu) has %zu tokens", text, from, end, out.len / sizeof(*ids));
    buf_deinit(&out);
}

#define CHECK_TRUSTED(v, text, from, end, ...)                        \
    check_trusted(v, text, from, end, (const int32_t[]){__VA_ARGS__}, \
                  sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* A control token is recognised only where it lies wholly in trusted text. */
START_TEST(control_tokens_of_trusted_text)
{
    struct opened o = open_good((struct tiny_vocab_config){0});

    CHECK_TRUSTED(o.v, "he<|eot_id|>he<|eot_id|>", 0, 12, HE, TV_EOT, HE, B('<'), B('|'), B('e'),
                  B('o'), B('t'), B('_'), B('i'), B('d'), B('|'), B('>'));
    CHECK_TRUSTED(o.v, "<|eot_id|>", 1, 10, B('<'), B('|'), B('e'), B('o'), B('t'), B('_'), B('i'),
                  B('d'), B('|'), B('>'));
    CHECK_TRUSTED(o.v, "<|eot_id|>", 0, 9, B('<'), B('|'), B('e'), B('o'), B('t'), B('_'), B('i'),
                  B('d'), B('|'), B('>'));
    CHECK_TRUSTED(o.v, "<|eot_id|><|eot_id|", 0, 19, TV_EOT, B('<'), B('|'), B('e'), B('o'), B('t'),
                  B('_'), B('i'), B('d'), B('|'));
    close_good(&o);
}
END_TEST

/* Nothing merges across a border of trust, while spans of one trust are one text; user-defined
 * tokens are found in both. */
START_TEST(merges_end_at_borders)
{
    static const struct text_span same[] = {{1, false}, {3, true}, {3, false}, {5, true}};
    struct opened o = open_good((struct tiny_vocab_config){0});
    struct buf out;

    CHECK_TRUSTED(o.v, "hello", 0, 5, HELLO);
    CHECK_TRUSTED(o.v, "hello", 2, 5, HE, LL, B('o'));
    CHECK_TRUSTED(o.v, "hello", 0, 4, HELL, B('o'));
    CHECK_TRUSTED(o.v, "<tool>he<tool>", 6, 14, TV_TOOL, HE, TV_TOOL);
    CHECK_TRUSTED(o.v, "<tool>call", 6, 10, TV_TOOL, B('c'), B('a'), LL);
    buf_init(&out, SIZE_MAX);
    ck_assert_int_eq(vocab_encode_spans(o.v, "xhell", 5, same, 4, true, &out, &err), STATUS_OK);
    ck_assert_uint_eq(out.len, 2 * sizeof(int32_t));
    ck_assert_int_eq(vocab_encode_spans(o.v, "", 0, same, 0, true, &out, &err), STATUS_OK);
    ck_assert_uint_eq(out.len, 2 * sizeof(int32_t));
    buf_deinit(&out);
    close_good(&o);
}
END_TEST

/* Control tokens and user-defined ones are found where they stand in a text. */
START_TEST(special_tokens_are_found)
{
    static const char text[] = "he<|eot_id|>llo<tool>call<|eot";
    const size_t len = sizeof(text) - 1;
    struct opened o = open_good((struct tiny_vocab_config){0});
    size_t end;

    ck_assert_uint_eq(vocab_find_special(o.v, text, len, 0, &end), 2);
    ck_assert_uint_eq(end, 12);
    ck_assert_uint_eq(vocab_find_special(o.v, text, len, end, &end), 15);
    ck_assert_uint_eq(end, 25);
    ck_assert_uint_eq(vocab_find_special(o.v, text, len, end, &end), len);
    ck_assert_uint_eq(end, len);
    close_good(&o);
}
END_TEST

/* Control tokens have bytes only with with_control; ids are checked. */
START_TEST(bytes_of_tokens)
{
    struct opened o = open_good((struct tiny_vocab_config){0});
    const char *bytes = "as before";
    size_t len = 7;

    ck_assert_int_eq(vocab_bytes(o.v, TV_EOT, false, &bytes, &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 0);
    ck_assert_int_eq(vocab_bytes(o.v, TV_EOT, true, &bytes, &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 10);
    ck_assert_mem_eq(bytes, "<|eot_id|>", 10);
    ck_assert_int_eq(vocab_bytes(o.v, TV_TOOL, false, &bytes, &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 6);
    ck_assert_int_eq(vocab_bytes(o.v, HELLO, false, &bytes, &len, &err), STATUS_OK);
    ck_assert_mem_eq(bytes, "hello", 5);
    ck_assert_int_eq(vocab_bytes(o.v, -1, true, &bytes, &len, &err), STATUS_INVALID);
    ck_assert_int_eq(vocab_bytes(o.v, EXTRA, true, &bytes, &len, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "token 272 is not in the vocabulary, which has 272 tokens");
    ck_assert_uint_eq(len, 5);
    close_good(&o);
}
END_TEST

/* A family that prefers whole words takes a token that no merge makes; the others do not. */
START_TEST(whole_words)
{
    struct opened o =
        open_good((struct tiny_vocab_config){.pre = "llama-bpe", .extra_token = "whole"});

    CHECK_IDS(o.v, "whole", EXTRA);
    close_good(&o);
    o = open_good((struct tiny_vocab_config){.pre = "qwen2", .extra_token = "whole"});
    CHECK_IDS(o.v, "whole", B('w'), B('h'), B('o'), B('l'), B('e'));
    close_good(&o);
}
END_TEST

/* A byte without a token is left out, and its neighbours do not merge. */
START_TEST(missing_bytes_are_left_out)
{
    struct opened o = open_good((struct tiny_vocab_config){.missing = 0xC2});

    CHECK_IDS(o.v, "h\u00abe", B('h'), B(0xAB), B('e'));
    CHECK_IDS(o.v, "\u00ab", B(0xAB));
    close_good(&o);
    o = open_good((struct tiny_vocab_config){.missing = 'x'});
    CHECK_IDS(o.v, "hxello", B('h'), B('e'), LL, B('o'));
    check_ids(o.v, "x", (const int32_t[]){-1});
    close_good(&o);
}
END_TEST

/* Text that is not UTF-8, and more tokens than have room, leave the ids unchanged. */
START_TEST(failures_leave_the_ids)
{
    static const char *const wrong[] = {"hello \x80", "\xC3",     "a\xED\xA0\x80",
                                        "\xFF",       "\xC0\x80", "\xF4\x90\x80\x80"};
    struct opened o = open_good((struct tiny_vocab_config){0});
    struct buf ids;

    buf_init(&ids, 5 * sizeof(int32_t));
    ck_assert_int_eq(vocab_encode(o.v, "he", 2, &ids, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(vocab_encode(o.v, wrong[i], strlen(wrong[i]), &ids, &err), STATUS_INVALID);
        ck_assert_uint_eq(ids.len, sizeof(int32_t));
    }
    ck_assert_int_eq(vocab_encode(o.v, "a b c d e f", 11, &ids, &err), STATUS_RANGE);
    ck_assert_str_eq(err.text, "the text has more than 5 tokens");
    ck_assert_uint_eq(ids.len, sizeof(int32_t));
    ck_assert_int_eq(vocab_encode(o.v, "bcde", 4, &ids, &err), STATUS_OK);
    ck_assert_uint_eq(ids.len, 5 * sizeof(int32_t));
    buf_deinit(&ids);
    close_good(&o);
}
END_TEST

/* A megabyte of one character ends long before the time-out, under every family. */
START_TEST(long_words_are_quick)
{
    enum { N = 1 << 20 };
    char *text = malloc(N);

    ck_assert_ptr_nonnull(text);
    memset(text, 'a', N);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct opened o = open_good((struct tiny_vocab_config){.pre = kinds[k]});
        struct buf ids;

        buf_init(&ids, SIZE_MAX);
        ck_assert_int_eq(vocab_encode(o.v, text, N, &ids, &err), STATUS_OK);
        ck_assert_uint_eq(ids.len, N / 4 * sizeof(int32_t));
        buf_deinit(&ids);
        close_good(&o);
    }
    free(text);
}
END_TEST

/* Bos, eos, stop and control tokens are those of the file, and those known by their text. */
START_TEST(special_ids)
{
    static const int32_t all_ends[] = {TV_END_OF_TEXT, TV_IM_END, TV_EOT};
    struct opened o = open_good((struct tiny_vocab_config){.pre = "llama-bpe"});
    const int32_t *ends;
    size_t n;

    ck_assert_uint_eq(vocab_n_tokens(o.v), TV_MERGED + N_MERGES);
    ck_assert_int_eq(vocab_bos(o.v), TV_BEGIN_OF_TEXT);
    ck_assert_int_eq(vocab_eos(o.v), TV_IM_END);
    ck_assert(vocab_adds_bos(o.v));
    ends = vocab_stop_tokens(o.v, &n);
    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(ends, all_ends, sizeof(all_ends));
    ck_assert(vocab_is_stop_token(o.v, TV_EOT));
    ck_assert(!vocab_is_stop_token(o.v, TV_IM_START));
    ck_assert(!vocab_is_stop_token(o.v, -1));
    ck_assert(!vocab_is_stop_token(o.v, 1 << 20));
    ck_assert(vocab_is_control(o.v, TV_IM_START));
    ck_assert(!vocab_is_control(o.v, TV_TOOL));
    ck_assert(!vocab_is_control(o.v, -1));
    ck_assert_int_eq(vocab_control(o.v, "<|im_start|>"), TV_IM_START);
    ck_assert_int_eq(vocab_control(o.v, "<|im_star"), -1);
    ck_assert_int_eq(vocab_control(o.v, "<tool>"), -1);
    close_good(&o);
    o = open_good(
        (struct tiny_vocab_config){.leave_out = "tokenizer.ggml.bos_token_id", .pre = "llama-bpe"});
    ck_assert_int_eq(vocab_bos(o.v), -1);
    ck_assert(!vocab_adds_bos(o.v));
    close_good(&o);
    o = open_good((struct tiny_vocab_config){0});
    ck_assert(!vocab_adds_bos(o.v)); /* the family does not, and the file has no key */
    close_good(&o);
}
END_TEST

struct bad {
    struct tiny_vocab_config config;
    enum status status;
    const char *text; /* in the error */
};

/* A file may call its special tokens unknown instead of control: they are found all the same. */
START_TEST(unknown_tokens_are_special)
{
    struct opened o = open_good((struct tiny_vocab_config){.control_type = 2});

    ck_assert(vocab_is_control(o.v, TV_IM_START));
    ck_assert_int_eq(vocab_control(o.v, "<|im_start|>"), TV_IM_START);
    close_good(&o);
}
END_TEST

/* An inconsistent vocabulary, or one of an unknown kind, is refused by name. */
START_TEST(bad_vocabularies_are_refused)
{
    static const struct bad all[] = {
        {{.model = "rwkv"}, STATUS_UNIMPLEMENTED, "tiny.gguf: tokenizer 'rwkv' is unknown"},
        {{.model = "t5"}, STATUS_NOT_FOUND, "tokenizer.ggml.scores"},
        {{.model = "llama"}, STATUS_NOT_FOUND, "tokenizer.ggml.scores"},
        {{.pre = "superbpe"},
         STATUS_UNIMPLEMENTED,
         "tiny.gguf: pre-tokenizer 'superbpe' is unknown"},
        {{.leave_out = "tokenizer.ggml.model"}, STATUS_NOT_FOUND, "tokenizer.ggml.model"},
        {{.leave_out = "tokenizer.ggml.tokens"}, STATUS_NOT_FOUND, "tokenizer.ggml.tokens"},
        {{.leave_out = "tokenizer.ggml.merges"}, STATUS_NOT_FOUND, "tokenizer.ggml.merges"},
        {{.n_types_less = 2},
         STATUS_DATA_LOSS,
         "tokenizer.ggml.tokens has 272 entries, tokenizer.ggml.token_type has 270"},
        {{.control_type = 7},
         STATUS_DATA_LOSS,
         "token_type: entry 0 is 7, which is not a token type"},
        {{.control_type = -1},
         STATUS_DATA_LOSS,
         "token_type: entry 0 is -1, which is not a token type"},
        {{.extra_token = "a b"}, STATUS_DATA_LOSS, "entry 272, 'a b', is not in the byte alphabet"},
        {{.extra_token = "\u20ac"}, STATUS_DATA_LOSS, "is not in the byte alphabet"},
        {{.extra_merge = "hello"}, STATUS_DATA_LOSS, "merges: entry 7, 'hello': has no space"},
        {{.extra_merge = ""}, STATUS_DATA_LOSS, "merges: entry 7, '': has no space"},
        {{.extra_merge = "b c"},
         STATUS_DATA_LOSS,
         "entry 7, 'b c': makes a text that is not a token"},
        {{.extra_merge = "zz a"},
         STATUS_DATA_LOSS,
         "entry 7, 'zz a': joins a text that is not a token"},
        {{.extra_merge = "a  "}, STATUS_DATA_LOSS, "is not in the byte alphabet"},
        {{.bos = 272},
         STATUS_DATA_LOSS,
         "bos_token_id is 272, but the vocabulary has only 272 tokens"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct tiny_vocab_config config = all[i].config;
        struct tiny_vocab file;
        struct vocab *v = NULL;

        config.merges = merges;
        config.n_merges = N_MERGES;
        tiny_vocab_open(&file, &config);
        ck_assert_int_eq(vocab_open(&v, file.gguf, &err), all[i].status);
        ck_assert_msg(strstr(err.text, all[i].text) != NULL, "%zu: %s", i, err.text);
        ck_assert_ptr_null(v);
        tiny_vocab_close(&file);
    }
}
END_TEST

/* Without types all tokens are normal: then none is a control token, and angle brackets and bars
 * are of the byte alphabet. */
START_TEST(types_may_be_absent)
{
    struct opened o =
        open_good((struct tiny_vocab_config){.leave_out = "tokenizer.ggml.token_type"});

    CHECK_IDS(o.v, "hello", HELLO);
    ck_assert_int_eq(vocab_control(o.v, "<|im_start|>"), -1);
    close_good(&o);
}
END_TEST

/* A file that names no pre-tokenizer has the default one, which cuts punctuation from words. */
START_TEST(pre_may_be_absent)
{
    struct opened o = open_good((struct tiny_vocab_config){.leave_out = "tokenizer.ggml.pre"});

    CHECK_IDS(o.v, "hello", HELLO);
    close_good(&o);
}
END_TEST

SUITE_MAIN("agents/lm/vocab", text_is_merged, texts_come_back, bytes_have_tokens,
           special_tokens_in_text, control_tokens_of_trusted_text, merges_end_at_borders,
           special_tokens_are_found, bytes_of_tokens, whole_words, missing_bytes_are_left_out,
           failures_leave_the_ids, long_words_are_quick, special_ids, unknown_tokens_are_special,
           bad_vocabularies_are_refused, types_may_be_absent, pre_may_be_absent)
