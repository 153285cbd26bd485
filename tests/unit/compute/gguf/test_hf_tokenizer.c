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

/* OLMo 2 splits as Llama 3 does, but merges the tokens that stand whole in the vocabulary, too. */
START_TEST(splits_are_told_by_merging)
{
    assert_pre(TOKENIZER(",\"ignore_merges\":true"), "llama-bpe");
    assert_pre(TOKENIZER(""), "dbrx");
}
END_TEST

SUITE_MAIN("compute/hf_tokenizer", splits_are_told_by_merging)
