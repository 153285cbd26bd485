/* Which pre-tokenizer a tokenizer.json asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/gguf/hf_parts.h"
#include "tests/unit/base/suite.h"

#define CL100K                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}" \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TOKENIZER(merging)                                                                   \
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["                          \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" CL100K "\"},\"behavior\":\"Isolated\"}," \
    "{\"type\":\"ByteLevel\",\"use_regex\":false}]},"                                        \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]" merging "}}"

static struct error err;

/* Asserts that the file is translated to GGUF's pre-tokenizer of that name. */
static void assert_pre(const char *text, const char *name)
{
    static const char config[] = "{\"eos_token_id\":1}";
    struct hf_texts texts = {0};
    json_t *tokenizer, *of_model;
    struct hf_keys keys;
    struct gguf *g;
    const char *got;
    void *bytes;
    size_t len;

    ck_assert_int_eq(hf_json_parse(&tokenizer, text, strlen(text), &err), STATUS_OK);
    ck_assert_int_eq(hf_json_parse(&of_model, config, strlen(config), &err), STATUS_OK);
    texts.tokenizer = tokenizer;
    texts.config = of_model;
    hf_keys_init(&keys);
    if (hf_tokenizer_read(&keys, &texts, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    ck_assert_int_eq(hf_keys_take(&keys, &bytes, &len, &err), STATUS_OK);
    ck_assert_int_eq(gguf_open_bytes(&g, bytes, len, "made", &err), STATUS_OK);
    ck_assert_int_eq(gguf_get_text(g, "tokenizer.ggml.pre", &got, &len, &err), STATUS_OK);
    ck_assert(len == strlen(name) && memcmp(got, name, len) == 0);
    gguf_close(g);
    free(bytes);
    hf_keys_deinit(&keys);
    json_decref(tokenizer);
    json_decref(of_model);
}

/* Asserts that texts begin with a token, bos, and end with one, eos; -1: with none. */
static void assert_ends(const char *processor, const char *of_config, int bos, int eos)
{
    static const char config[] = "{\"eos_token_id\":2,\"bos_token_id\":0}";
    struct hf_texts texts = {0};
    json_t *tokenizer, *of_model, *of_tokenizer;
    struct hf_keys keys;
    struct gguf *g;
    bool adds_bos = false, adds_eos = false;
    uint64_t first = 0, last = 0;
    char text[2048];
    void *bytes;
    size_t len;

    (void)snprintf(text, sizeof(text),
                   "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                   "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"<e>\":1,\"</s>\":2},"
                   "\"merges\":[]},\"post_processor\":%s}",
                   processor);
    ck_assert_int_eq(hf_json_parse(&tokenizer, text, strlen(text), &err), STATUS_OK);
    ck_assert_int_eq(hf_json_parse(&of_model, config, strlen(config), &err), STATUS_OK);
    ck_assert_int_eq(hf_json_parse(&of_tokenizer, of_config, strlen(of_config), &err), STATUS_OK);
    texts.tokenizer = tokenizer;
    texts.config = of_model;
    texts.tokenizer_config = of_tokenizer;
    hf_keys_init(&keys);
    ck_assert_int_eq(hf_tokenizer_read(&keys, &texts, &err), STATUS_OK);
    ck_assert_int_eq(hf_keys_take(&keys, &bytes, &len, &err), STATUS_OK);
    ck_assert_int_eq(gguf_open_bytes(&g, bytes, len, "made", &err), STATUS_OK);
    (void)gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &adds_bos, &err);
    (void)gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &adds_eos, &err);
    (void)gguf_get_u64(g, "tokenizer.ggml.bos_token_id", &first, &err);
    (void)gguf_get_u64(g, "tokenizer.ggml.eos_token_id", &last, &err);
    ck_assert_msg((adds_bos ? (int)first : -1) == bos && (adds_eos ? (int)last : -1) == eos,
                  "%s %s: %d %d, %d %d", processor, of_config, adds_bos, (int)first, adds_eos,
                  (int)last);
    gguf_close(g);
    free(bytes);
    hf_keys_deinit(&keys);
    json_decref(tokenizer);
    json_decref(of_model);
    json_decref(of_tokenizer);
}

/* The file of its own comes first, then tokenizer_config.json's, then that of a processor. */
START_TEST(templates_have_an_order)
{
    static const char model[] =
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{"
        "\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    static const char *const wants[] = {"p", "c", "own"};
    json_t *tokenizer, *config, *processor;

    ck_assert_int_eq(hf_json_parse(&tokenizer, model, strlen(model), &err), STATUS_OK);
    config = json_pack("{s:i,s:s}", "eos_token_id", 0, "chat_template", "c");
    processor = json_pack("{s:s}", "chat_template", "p");
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
        struct hf_texts texts = {.tokenizer = tokenizer,
                                 .config = config,
                                 .processor_template = processor,
                                 .tokenizer_config = i > 0 ? config : NULL,
                                 .template_text = i > 1 ? "own" : NULL,
                                 .template_len = 3};
        struct hf_keys keys;
        struct gguf *g;
        const char *got;
        void *bytes;
        size_t len;

        hf_keys_init(&keys);
        ck_assert_int_eq(hf_tokenizer_read(&keys, &texts, &err), STATUS_OK);
        ck_assert_int_eq(hf_keys_take(&keys, &bytes, &len, &err), STATUS_OK);
        ck_assert_int_eq(gguf_open_bytes(&g, bytes, len, "made", &err), STATUS_OK);
        ck_assert_int_eq(gguf_get_text(g, "tokenizer.chat_template", &got, &len, &err), STATUS_OK);
        ck_assert(len == strlen(wants[i]) && memcmp(got, wants[i], len) == 0);
        gguf_close(g);
        free(bytes);
        hf_keys_deinit(&keys);
    }
    json_decref(tokenizer);
    json_decref(config);
    json_decref(processor);
}
END_TEST

#define A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define SPECIAL(text) "{\"SpecialToken\":{\"id\":\"" text "\",\"type_id\":0}}"
#define PUTS(around) "{\"type\":\"TemplateProcessing\",\"single\":[" around "]}"

/* What the post_processor puts around a text, also where no tokenizer_config.json names it. */
START_TEST(texts_begin_and_end_as_the_file_says)
{
    assert_ends("null", "{}", -1, -1);
    assert_ends(PUTS(A), "{}", -1, -1);
    assert_ends(PUTS(SPECIAL("<s>") "," A), "{}", 0, -1);
    assert_ends(PUTS(SPECIAL("<s>") "," A), "{\"bos_token\":\"<s>\"}", 0, -1);
    assert_ends(PUTS(SPECIAL("<s>") "," A), "{\"add_bos_token\":false}", -1, -1);
    assert_ends(PUTS(SPECIAL("<e>") "," A), "{\"bos_token\":\"<s>\"}", -1, -1);
    assert_ends(PUTS(A "," SPECIAL("<e>")), "{\"eos_token\":\"</s>\"}", -1, 1);
    assert_ends("{\"processors\":[{\"type\":\"ByteLevel\"}," PUTS(A "," SPECIAL("<e>")) "]}", "{}",
                -1, 1);
    assert_ends("null", "{\"eos_token\":\"</s>\",\"add_eos_token\":true}", -1, 2);
    assert_ends("null", "{\"eos_token\":\"</s>\",\"add_eos_token\":false}", -1, -1);
    assert_ends(PUTS(SPECIAL("<s>") "," A "," SPECIAL("</s>")), "{\"sep_token\":\"</s>\"}", 0, -1);
}
END_TEST

/* Asserts that the file is refused, and how. */
static void assert_refused(const char *text, const char *why)
{
    struct hf_splitting splitting;
    json_t *tokenizer;

    ck_assert_int_eq(hf_json_parse(&tokenizer, text, strlen(text), &err), STATUS_OK);
    ck_assert_int_eq(hf_splitting_read(&splitting, tokenizer, &err), STATUS_UNIMPLEMENTED);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
    json_decref(tokenizer);
}

static struct hf_splitting splitting_of(const char *text)
{
    struct hf_splitting splitting;
    json_t *tokenizer;

    ck_assert_int_eq(hf_json_parse(&tokenizer, text, strlen(text), &err), STATUS_OK);
    if (hf_splitting_read(&splitting, tokenizer, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    json_decref(tokenizer);
    return splitting;
}

/* OLMo 2 splits as Llama 3 does, but merges the tokens that stand whole in the vocabulary, too. */
START_TEST(splits_are_told_by_expression)
{
    assert_pre(TOKENIZER(",\"ignore_merges\":true"), "llama-bpe");
    assert_pre(TOKENIZER(""), "llama-bpe");
    ck_assert(splitting_of(TOKENIZER(",\"ignore_merges\":true")).ignores_merges);
    ck_assert(!splitting_of(TOKENIZER("")).ignores_merges);
}
END_TEST

#define TEXT_MODEL "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}"
#define METASPACE(more) \
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"" more "}," TEXT_MODEL

START_TEST(spaces_are_put_as_the_file_says)
{
    struct hf_splitting s =
        splitting_of("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" PREPEND "," REPLACE
                     "]}," TEXT_MODEL);

    ck_assert_str_eq(s.model, "text-bpe");
    ck_assert_str_eq(s.pre, "whole");
    ck_assert(s.is_text && s.adds_space && !s.only_first && !s.only_missing);
    s = splitting_of("{\"normalizer\":" REPLACE "," TEXT_MODEL);
    ck_assert(s.is_text && !s.adds_space);
    s = splitting_of(METASPACE(",\"prepend_scheme\":\"first\",\"split\":false"));
    ck_assert_str_eq(s.pre, "whole");
    ck_assert(s.adds_space && s.only_first && s.only_missing);
    s = splitting_of(METASPACE(""));
    ck_assert_str_eq(s.pre, "spaces");
    ck_assert(s.adds_space && !s.only_first && s.only_missing);
    ck_assert(!splitting_of(METASPACE(",\"add_prefix_space\":false")).adds_space);
}
END_TEST

START_TEST(what_is_not_known_is_refused)
{
    assert_refused("{\"model\":{\"type\":\"WordLevel\"}}", "type 'WordLevel'");
    assert_refused("{\"model\":{\"type\":\"Unigram\"}}", "no unk_id");
    assert_refused("{\"model\":{\"type\":\"WordPiece\"}}", "its normalizer of type");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}}",
                   "end_of_word_suffix");
    assert_refused("{\"normalizer\":{\"type\":\"Lowercase\"}," TEXT_MODEL, "'Lowercase'");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," TEXT_MODEL,
                   "its pre_tokenizer is not supported");
    assert_refused(METASPACE(",\"prepend_scheme\":\"last\""), "its pre_tokenizer is not supported");
    assert_refused("{" TEXT_MODEL, "its pre_tokenizer is not supported");
}
END_TEST

SUITE_MAIN("compute/hf_tokenizer", splits_are_told_by_expression, spaces_are_put_as_the_file_says,
           what_is_not_known_is_refused, texts_begin_and_end_as_the_file_says,
           templates_have_an_order)
