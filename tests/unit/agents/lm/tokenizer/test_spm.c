#include "agents/lm/tokenizer/spm.h"

#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uninorm.h>

#include "agents/lm/tokenizer/vocab.h"
#include "tests/support/tiny_spm.h"
#include "tests/unit/base/suite.h"

enum { CONTROL = 3, DEFINED = 4 };

/* "ab" has the better score than "bc", so "abc" is "ab c"; "Ωm" is a token though Ω is none. */
static const struct tiny_spm_token tokens[] = {
    {"\u2581", -5, 0},
    {"a", -6, 0},
    {"b", -7, 0},
    {"c", -8, 0},
    {"m", -9, 0},
    {"ab", -1, 0},
    {"bc", -2, 0},
    {"\u2581a", -3, 0},
    {"\u2581ab", -4, 0},
    {"\u03a9m", -2, 0},
    {"aa", -2.5f, 0},
    {"<tool>", 0, DEFINED},
    {"<start_of_turn>", 0, CONTROL},
    {"aaaa", -2.6f, 0},
    {"\u2581\u2581", -1, 0},
};
enum {
    SPACE = TS_TOKEN,
    A,
    B,
    C,
    M,
    AB,
    BC,
    SPACE_A,
    SPACE_AB,
    OHM,
    AA,
    TOOL,
    START,
    AAAA,
    SPACES
};
enum { N_TOKENS = sizeof(tokens) / sizeof(tokens[0]) };

static struct error err;
static struct tiny_vocab file;

static struct vocab *open_config(struct tiny_spm_config config)
{
    struct vocab *v;

    if (config.tokens == NULL) {
        config.tokens = tokens;
        config.n_tokens = N_TOKENS;
    }
    tiny_spm_open(&file, &config);
    ck_assert_msg(vocab_open(&v, file.gguf, &err) == STATUS_OK, "%s", err.text);
    tiny_vocab_close(&file);
    return v;
}

static struct vocab *open_bare(void)
{
    return open_config((struct tiny_spm_config){.bool_key = "tokenizer.ggml.add_space_prefix"});
}

/* Asserts the ids of text, of which [trusted, len) is trusted. */
static void check_spans(const struct vocab *v, const char *text, size_t trusted, bool at_start,
                        const int32_t *ids, size_t n)
{
    const struct text_span spans[] = {{trusted, false}, {strlen(text), true}};
    struct buf out;

    buf_init(&out, SIZE_MAX);
    ck_assert_int_eq(vocab_encode_spans(v, text, strlen(text), spans, 2, at_start, &out, &err),
                     STATUS_OK);
    ck_assert_msg(out.len == n * sizeof(*ids) && (n == 0 || memcmp(out.data, ids, out.len) == 0),
                  "'%s' has %zu tokens, the first %d", text, out.len / sizeof(*ids),
                  out.len == 0 ? -1 : *(const int32_t *)(const void *)out.data);
    buf_deinit(&out);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4
#define CHECK_IDS(v, text, ...) check_spans(v, text, strlen(text), true, IDS(__VA_ARGS__))
#define BYTE(b) (TS_BYTE + (b))

/* The pair of the best score merges first, the leftmost of equals; parts need not be tokens. */
START_TEST(pairs_merge_by_score)
{
    struct vocab *v = open_bare();

    CHECK_IDS(v, "abc", AB, C);
    CHECK_IDS(v, "bc", BC);
    CHECK_IDS(v, "aaa", AA, A);
    CHECK_IDS(v, "aaaaa", AAAA, A);
    CHECK_IDS(v, "\u03a9m", OHM);
    CHECK_IDS(v, " ab", SPACE_AB);
    CHECK_IDS(v, "   ab", SPACES, SPACE_AB);
    CHECK_IDS(v, "\u2581ab", SPACE_AB); /* U+2581 is a space */
    check_spans(v, "", 0, true, NULL, 0);
    vocab_close(v);
}
END_TEST

/* What is no token becomes its bytes, and they are text again. */
START_TEST(characters_fall_back_to_bytes)
{
    struct vocab *v = open_bare();
    static const int32_t ids[] = {A, BYTE(0xCE), BYTE(0xA9), BYTE('\n'), SPACE_A};
    struct buf text;

    CHECK_IDS(v, "a\u03a9\n a", A, BYTE(0xCE), BYTE(0xA9), BYTE('\n'), SPACE_A);
    CHECK_IDS(v, "<0x41>", BYTE('<'), BYTE('0'), BYTE('x'), BYTE('4'), BYTE('1'), BYTE('>'));
    buf_init(&text, SIZE_MAX);
    ck_assert_int_eq(vocab_decode(v, ids, 5, &text, &err), STATUS_OK);
    ck_assert_str_eq(text.data, "a\u03a9\n a");
    buf_deinit(&text);
    vocab_close(v);
}
END_TEST

/* A space is put before text at the start and behind special tokens, and nowhere else. */
START_TEST(spaces_are_put_before_text)
{
    struct vocab *v = open_config((struct tiny_spm_config){0});

    CHECK_IDS(v, "ab", SPACE_AB);
    CHECK_IDS(v, "ab<tool>ab", SPACE_AB, TOOL, SPACE_AB);
    check_spans(v, "ab", 2, false, IDS(AB));
    check_spans(v, "<start_of_turn>ab", 0, false, IDS(START, SPACE_AB));
    check_spans(v, "abab", 2, true, IDS(SPACE_AB, AB)); /* nothing merges across the border */
    check_spans(v, "", 0, true, NULL, 0);
    vocab_close(v);
}
END_TEST

/* Decoding leaves out the space that encoding put there, once; also behind bos. */
START_TEST(texts_come_back)
{
    static const int32_t ids[] = {TS_BOS, SPACE_AB, SPACE_AB}, spaces[] = {SPACES, A};
    struct vocab *v = open_config((struct tiny_spm_config){0});
    struct buf text;

    buf_init(&text, SIZE_MAX);
    ck_assert_int_eq(vocab_decode(v, ids, 3, &text, &err), STATUS_OK);
    ck_assert_str_eq(text.data, "<s>ab ab");
    buf_clear(&text);
    ck_assert_int_eq(vocab_decode(v, spaces, 2, &text, &err), STATUS_OK);
    ck_assert_str_eq(text.data, " a");
    vocab_close(v);
    v = open_bare();
    buf_clear(&text);
    ck_assert_int_eq(vocab_decode(v, spaces, 2, &text, &err), STATUS_OK);
    ck_assert_str_eq(text.data, "  a");
    vocab_close(v);
    buf_deinit(&text);
}
END_TEST

/* Text of a user never becomes a control token. */
START_TEST(control_tokens_need_trust)
{
    static const struct tiny_spm_token some[] = {
        {"<", -1, 0}, {"s", -1, 0}, {">", -1, 0}, {"s>", -1, 0}, {"<s", -1, 0}};
    struct vocab *v = open_config((struct tiny_spm_config){
        .tokens = some, .n_tokens = 5, .bool_key = "tokenizer.ggml.add_space_prefix"});

    CHECK_IDS(v, "<s>", TS_TOKEN + 4, TS_TOKEN + 2);
    check_spans(v, "<s>", 0, true, IDS(TS_BOS));
    vocab_close(v);
}
END_TEST

/* Bos, eos and whether bos is added have SPM's defaults. */
START_TEST(ids_have_defaults)
{
    struct vocab *v = open_bare();

    ck_assert_int_eq(vocab_bos(v), TS_BOS);
    ck_assert_int_eq(vocab_eos(v), TS_EOS);
    ck_assert(vocab_adds_bos(v));
    ck_assert(vocab_is_stop_token(v, TS_EOS));
    vocab_close(v);
    v = open_config((struct tiny_spm_config){.bool_key = "tokenizer.ggml.add_bos_token"});
    ck_assert(!vocab_adds_bos(v));
    vocab_close(v);
}
END_TEST

/* A megabyte of one word ends long before the time-out. */
START_TEST(long_texts_are_quick)
{
    enum { N = 1 << 20 };
    static const char *const units[] = {"a", "ab", "\n", " ", "\u03a9", "<", "<tool"};
    struct vocab *v = open_config((struct tiny_spm_config){0});
    char *text = malloc(N);
    struct buf ids;

    ck_assert_ptr_nonnull(text);
    buf_init(&ids, SIZE_MAX);
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t unit_len = strlen(units[u]), len = N / unit_len * unit_len;

        for (size_t i = 0; i < len; i += unit_len)
            memcpy(text + i, units[u], unit_len);
        buf_clear(&ids);
        ck_assert_int_eq(vocab_encode(v, text, len, &ids, &err), STATUS_OK);
        ck_assert_uint_ge(ids.len, N);
    }
    buf_deinit(&ids);
    free(text);
    vocab_close(v);
}
END_TEST

/* gemma4: merges of characters by rank, within a line; a run of line ends that is a token is whole.
 */
START_TEST(characters_merge_by_rank)
{
    static const char *const merges[] = {"b c", "a b", "\u2581 a"};
    static const struct tiny_spm_token some[] = {{"\u2581", 0, 0},  {"a", 0, 0},   {"b", 0, 0},
                                                 {"c", 0, 0},       {"bc", 0, 0},  {"ab", 0, 0},
                                                 {"\u2581a", 0, 0}, {"\n\n", 0, 0}};
    struct vocab *v = open_config((struct tiny_spm_config){.tokens = some,
                                                           .n_tokens = 8,
                                                           .merges = merges,
                                                           .n_merges = 3,
                                                           .model = "gemma4",
                                                           .id_key = "tokenizer.ggml.bos_token_id",
                                                           .id = TS_BOS});

    CHECK_IDS(v, "abc", TS_TOKEN + 1, TS_TOKEN + 4);
    CHECK_IDS(v, "ab a", TS_TOKEN + 5, TS_TOKEN + 6);
    CHECK_IDS(v, "b\n\nc\n", TS_TOKEN + 2, TS_TOKEN + 7, TS_TOKEN + 3, BYTE('\n'));
    CHECK_IDS(v, "\u03a9", BYTE(0xCE), BYTE(0xA9));
    ck_assert(vocab_adds_bos(v));
    vocab_close(v);
}
END_TEST

/* text-bpe: merges of characters by rank in the whole text; a file says how spaces are put. */
START_TEST(characters_merge_across_lines)
{
    static const char *const merges[] = {"\n \n", "\u2581 a", "<tool> a", "a b"};
    static const struct tiny_spm_token some[] = {
        {"\u2581", 0, 0}, {"a", 0, 0},  {"b", 0, 0},       {"\n", 0, 0},
        {"\n\n", 0, 0},   {"ab", 0, 0}, {"\u2581a", 0, 0}, {"<tool>", 0, DEFINED}};
    static const char *const rules[] = {"tokenizer.ggml.add_bos_token",
                                        "tokenizer.ggml.add_space_prefix",
                                        "tokenizer.parley.ignore_merges"};
    struct tiny_spm_config config = {
        .tokens = some, .n_tokens = 8, .merges = merges, .n_merges = 4, .model = "text-bpe"};
    struct vocab *v;

    config.bool_value = true;
    config.bool_key = rules[0];
    v = open_config(config);
    CHECK_IDS(v, "a\n\n a", TS_TOKEN + 1, TS_TOKEN + 4, TS_TOKEN + 6);
    CHECK_IDS(v, "a<tool>a\u03a9", TS_TOKEN + 1, TS_TOKEN + 7, TS_TOKEN + 1, BYTE(0xCE),
              BYTE(0xA9));
    vocab_close(v);
    config.bool_key = rules[1];
    v = open_config(config);
    CHECK_IDS(v, "a<tool>a", TS_TOKEN + 6, TS_TOKEN + 7, TS_TOKEN + 6);
    CHECK_IDS(v, "ab", TS_TOKEN + 6, TS_TOKEN + 2);
    vocab_close(v);
    config.bool_key = rules[2];
    config.n_merges = 3;
    v = open_config(config);
    CHECK_IDS(v, "ab", TS_TOKEN + 5);
    CHECK_IDS(v, "aba", TS_TOKEN + 1, TS_TOKEN + 2, TS_TOKEN + 1);
    vocab_close(v);
}
END_TEST

static bool composing_fails;

/* In the library's place, to fail as it does without memory: its allocations are its own. */
uint8_t *u8_normalize(uninorm_t form, const uint8_t *s, size_t n, uint8_t *to, size_t *ret_n)
{
    uint8_t *(*found)(uninorm_t, const uint8_t *, size_t, uint8_t *, size_t *);
    void *symbol = dlsym(RTLD_NEXT, "u8_normalize");

    memcpy(&found, &symbol, sizeof(found));
    return composing_fails ? NULL : found(form, s, n, to, ret_n);
}

/* A tokenizer.json with NFC: e and U+0301 are composed, but not over a token. */
START_TEST(text_is_composed)
{
    static const struct tiny_spm_token some[] = {
        {"e", 0, 0}, {"\u00e9", 0, 0}, {"<tool>", 0, DEFINED}};
    static const char *const merges[] = {"e e"};
    struct tiny_spm_config config = {.tokens = some,
                                     .n_tokens = 3,
                                     .merges = merges,
                                     .n_merges = 0,
                                     .model = "text-bpe",
                                     .bool_value = true};
    struct vocab *v = open_config(config);
    struct buf ids;

    CHECK_IDS(v, "e\u0301", TS_TOKEN, BYTE(0xCC), BYTE(0x81));
    vocab_close(v);
    config.bool_key = "tokenizer.parley.nfc";
    v = open_config(config);
    CHECK_IDS(v, "e\u0301", TS_TOKEN + 1);
    CHECK_IDS(v, "\u00e9e", TS_TOKEN + 1, TS_TOKEN);
    CHECK_IDS(v, "e<tool>\u0301", TS_TOKEN, TS_TOKEN + 2, BYTE(0xCC), BYTE(0x81));
    buf_init(&ids, SIZE_MAX);
    composing_fails = true;
    ck_assert_int_eq(vocab_encode(v, "e<tool>e\u0301", 10, &ids, &err), STATUS_EXHAUSTED);
    composing_fails = false;
    ck_assert_uint_eq(ids.len, 0);
    buf_deinit(&ids);
    vocab_close(v);
}
END_TEST

/* The special tokens of Phi-3 take the white space behind them, <s> does not. */
START_TEST(special_tokens_take_white_space)
{
    struct vocab *v = open_config((struct tiny_spm_config){
        .name = "Phi-3 mini", .bool_key = "tokenizer.ggml.add_space_prefix"});

    check_spans(v, "<start_of_turn>\n \u3000a <s> a", 0, true,
                IDS(START, A, SPACE, TS_BOS, SPACE_A));
    check_spans(v, " a", 0, true, IDS(SPACE_A));
    check_spans(v, "<tool> a", 8, true, IDS(TOOL, A));
    vocab_close(v);
    v = open_bare();
    check_spans(v, "<start_of_turn> a", 0, true, IDS(START, SPACE_A));
    vocab_close(v);
}
END_TEST

/* What ends a turn: known texts whatever their type, and the exceptions of harmony and gemma4. */
START_TEST(ends_of_turns)
{
    static const struct tiny_spm_token harmony[] = {{"<|return|>", 0, CONTROL},
                                                    {"<|call|>", 0, CONTROL},
                                                    {"<|end|>", 0, CONTROL},
                                                    {"<|fim_pad|>", 0, CONTROL},
                                                    {"<|file_sep|>", 0, CONTROL}};
    static const struct tiny_spm_token gemma4[] = {
        {"<|tool_response>", 0, DEFINED}, {"<turn|>", 0, CONTROL}, {"<|end|>", 0, CONTROL}};
    struct vocab *v = open_config((struct tiny_spm_config){.tokens = harmony, .n_tokens = 5});

    ck_assert(vocab_is_stop_token(v, TS_TOKEN));
    ck_assert(vocab_is_stop_token(v, TS_TOKEN + 1));
    ck_assert(!vocab_is_stop_token(v, TS_TOKEN + 2));
    ck_assert(vocab_is_stop_token(v, TS_TOKEN + 3));
    ck_assert(vocab_is_stop_token(v, TS_TOKEN + 4));
    vocab_close(v);
    v = open_config((struct tiny_spm_config){.tokens = gemma4,
                                             .n_tokens = 3,
                                             .id_key = "tokenizer.ggml.eos_token_id",
                                             .id = TS_TOKEN + 1});
    ck_assert(vocab_is_stop_token(v, TS_TOKEN));
    ck_assert(vocab_is_control(v, TS_TOKEN));
    ck_assert(vocab_is_stop_token(v, TS_TOKEN + 1));
    ck_assert(vocab_is_stop_token(v, TS_TOKEN + 2));
    ck_assert(!vocab_is_stop_token(v, TS_EOS));
    vocab_close(v);
}
END_TEST

/* Inconsistent files are refused by the name of what is wrong. */
START_TEST(bad_vocabularies_are_refused)
{
    static const struct tiny_spm_token infinite[] = {{"a", INFINITY, 0}};
    static const struct {
        struct tiny_spm_config config;
        enum status status;
        const char *text;
    } all[] = {
        {{.model = "plamo2"}, STATUS_UNIMPLEMENTED, "tokenizer 'plamo2' is unknown; known: gpt2"},
        {{.n_scores_less = 1},
         STATUS_DATA_LOSS,
         "tokenizer.ggml.tokens has 259 entries, tokenizer.ggml.scores has 258"},
        {{.tokens = infinite, .n_tokens = 1}, STATUS_DATA_LOSS, "entry 259 is not a finite number"},
        {{.first_byte = "<0xG0>"}, STATUS_DATA_LOSS, "entry 3, '<0xG0>', is not a byte"},
        {{.first_byte = "<0x000>"}, STATUS_DATA_LOSS, "entry 3, '<0x000>', is not a byte"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct vocab *v = NULL;

        tiny_spm_open(&file, &all[i].config);
        ck_assert_int_eq(vocab_open(&v, file.gguf, &err), all[i].status);
        ck_assert_msg(strstr(err.text, all[i].text) != NULL, "%zu: %s", i, err.text);
        tiny_vocab_close(&file);
    }
}
END_TEST

SUITE_MAIN("agents/lm/spm", pairs_merge_by_score, characters_fall_back_to_bytes,
           spaces_are_put_before_text, texts_come_back, control_tokens_need_trust,
           ids_have_defaults, long_texts_are_quick, characters_merge_by_rank,
           characters_merge_across_lines, text_is_composed, special_tokens_take_white_space,
           ends_of_turns, bad_vocabularies_are_refused)
