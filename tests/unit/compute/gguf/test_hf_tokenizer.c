/* Which pre-tokenizer a tokenizer.json asks for. */
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
           what_is_not_known_is_refused)
