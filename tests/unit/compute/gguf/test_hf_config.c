/* What config.json says of a model, beyond what tests/arch/test_safetensors.py computes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/gguf/hf_parts.h"
#include "tests/unit/base/suite.h"

#define SIZES                                                                         \
    "\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":2,"              \
    "\"num_attention_heads\":2,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5," \
    "\"vocab_size\":6,\"hidden_act\":\"silu\""

static struct error err;

/* The context of a model of which config.json says this. */
static uint64_t context_of(const char *text)
{
    struct hf_model model = {0};
    struct hf_keys keys;
    json_t *config;

    ck_assert_int_eq(hf_json_parse(&config, text, strlen(text), &err), STATUS_OK);
    hf_keys_init(&keys);
    ck_assert_int_eq(hf_config_read(&model, &keys, config, NULL, &err), STATUS_OK);
    hf_keys_deinit(&keys);
    json_decref(config);
    return model.context;
}

/* A window that the layers are not run with ends the context where it would begin, and one that no
 * layer has does not. */
START_TEST(windows_end_contexts)
{
    ck_assert_uint_eq(context_of("{\"model_type\":\"mistral\"," SIZES "}"), 64);
    ck_assert_uint_eq(context_of("{\"model_type\":\"mistral\",\"sliding_window\":32," SIZES "}"),
                      32);
    ck_assert_uint_eq(context_of("{\"model_type\":\"mistral\",\"sliding_window\":null," SIZES "}"),
                      64);
    ck_assert_uint_eq(context_of("{\"model_type\":\"qwen2\",\"sliding_window\":32,"
                                 "\"use_sliding_window\":false," SIZES "}"),
                      64);
    ck_assert_uint_eq(context_of("{\"model_type\":\"qwen3\",\"sliding_window\":32,"
                                 "\"layer_types\":[\"full_attention\",\"full_attention\"]," SIZES
                                 "}"),
                      64);
    ck_assert_uint_eq(context_of("{\"model_type\":\"qwen3\",\"sliding_window\":32,"
                                 "\"layer_types\":[\"full_attention\",\"sliding_attention\"]," SIZES
                                 "}"),
                      32);
}
END_TEST

/* Whether the text is read, and its key "a" is then this number. */
static void reads_number(const char *text, double want)
{
    json_t *json;
    double is = 0;

    ck_assert_msg(hf_json_parse(&json, text, strlen(text), &err) == STATUS_OK, "%s: %s", text,
                  err.text);
    ck_assert_int_eq(hf_json_f64(json, "a", &is, &err), STATUS_OK);
    ck_assert_msg(is == want || (want > 1e300 && is > 1e300), "%s: %g", text, is);
    json_decref(json);
}

/* Valid JSON is read whatever its numbers, and so is Python's Infinity. Texts stay as they are. */
START_TEST(numbers_of_any_size)
{
    static const char texts[] = "{\"t\":\"x\\\\\",\"a\":1e999,\"u\":\"1e999 Infinity\"}";
    static const char *const wrong[] = {"{\"a\":-}",      "{\"a\":1e999",      "{\"a\":NaN}",
                                        "{\"1e999",       "{\"a\":1e999,\"\\", "{\"a\":-Infinit}",
                                        "{\"a\":1e999 5}"};
    json_t *json;

    reads_number("{\"a\":1000000000000000019884624838656}", 1e30);
    reads_number("{\"a\": -1000000000000000019884624838656 , \"b\":1}", -1e30);
    reads_number("{\"a\":9223372036854775807,\"b\":99999999999999999999}", 9223372036854775807.0);
    reads_number("{\"a\":1e999}", INFINITY);
    reads_number("{\"b\":[0.0, Infinity, -Infinity],\"a\":99999999999999999999}", 1e20);
    reads_number("{\"b\":\"\\\"99999999999999999999 Infinity\",\"a\":5,\"c\":1e400}", 5);
    ck_assert_int_eq(hf_json_parse(&json, texts, strlen(texts), &err), STATUS_OK);
    ck_assert_str_eq(hf_json_text(json, "t"), "x\\");
    ck_assert_str_eq(hf_json_text(json, "u"), "1e999 Infinity");
    json_decref(json);
    reads_number("{\"a\":1,\"b\":2,\"a\":3}", 3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(hf_json_parse(&json, wrong[i], strlen(wrong[i]), &err) == STATUS_DATA_LOSS,
                      "%s", wrong[i]);
}
END_TEST

/* Head counts and widths of a model of which config.json says this. */
static struct hf_model model_of(const char *text)
{
    struct hf_model model = {0};
    struct hf_keys keys;
    json_t *config;

    ck_assert_int_eq(hf_json_parse(&config, text, strlen(text), &err), STATUS_OK);
    hf_keys_init(&keys);
    ck_assert_msg(hf_config_read(&model, &keys, config, NULL, &err) == STATUS_OK, "%s", err.text);
    hf_keys_deinit(&keys);
    json_decref(config);
    return model;
}

/* A key that is absent has transformers' default of the family; one that is null has none. */
START_TEST(null_is_not_absent)
{
    static const char without[] =
        "{\"model_type\":\"gemma2\",\"hidden_size\":64,\"intermediate_size\":8,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"vocab_size\":6%s}";
    static const struct {
        const char *more;
        uint64_t kv_heads, head_dim;
    } cases[] = {
        {"", 4, 256},
        {",\"num_key_value_heads\":null", 8, 256},
        {",\"head_dim\":null", 4, 8},
        {",\"head_dim\":16,\"num_key_value_heads\":2", 2, 16},
    };
    char text[512];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hf_model m;

        (void)snprintf(text, sizeof(text), without, cases[i].more);
        m = model_of(text);
        ck_assert_uint_eq(m.n_kv_heads, cases[i].kv_heads);
        ck_assert_uint_eq(m.head_dim, cases[i].head_dim);
    }
    ck_assert_uint_eq(context_of("{\"model_type\":\"mistral\"," SIZES "}"), 64);
    ck_assert_uint_eq(model_of("{\"model_type\":\"mistral3\",\"text_config\":{"
                               "\"model_type\":\"ministral3\"," SIZES "}}")
                          .head_dim,
                      128);
}
END_TEST

/* The pooling_type that a file beside a model of that type makes, 0 for none, or -1: it is refused.
 */
static int pooling_of(const char *type, const char *architecture, const char *beside)
{
    struct hf_model model = {0};
    struct hf_keys keys;
    json_t *config, *pooling = NULL;
    char text[512];
    uint64_t is = 0;
    int rc;

    (void)snprintf(text, sizeof(text),
                   "{\"model_type\":\"%s\",\"architectures\":[\"%s\"]," SIZES "%s}", type,
                   architecture, strcmp(type, "bert") == 0 ? ",\"hidden_act\":\"gelu\"" : "");
    ck_assert_int_eq(hf_json_parse(&config, text, strlen(text), &err), STATUS_OK);
    if (*beside != '\0')
        ck_assert_int_eq(hf_json_parse(&pooling, beside, strlen(beside), &err), STATUS_OK);
    hf_keys_init(&keys);
    rc = hf_config_read(&model, &keys, config, pooling, &err);
    if (rc == STATUS_OK) {
        struct gguf *g;
        void *bytes;
        size_t len;

        (void)snprintf(text, sizeof(text), "%s.pooling_type", keys.prefix);
        ck_assert_int_eq(hf_keys_take(&keys, &bytes, &len, &err), STATUS_OK);
        ck_assert_int_eq(gguf_open_bytes(&g, bytes, len, "made", &err), STATUS_OK);
        (void)gguf_get_u64(g, text, &is, &err);
        gguf_close(g);
        free(bytes);
    }
    hf_keys_deinit(&keys);
    json_decref(config);
    json_decref(pooling);
    return rc == STATUS_OK ? (int)is : -1;
}

/* Pooling as sentence-transformers names it, in old and new files; what it has and we have not is
 * refused. */
START_TEST(pooling_is_that_of_the_file)
{
    enum { MEAN = 1, CLS, LAST, RANK };
    static const struct {
        const char *type, *architecture, *beside;
        int want;
    } cases[] = {
        {"qwen3", "Qwen3ForCausalLM", "", 0},
        {"qwen3", "Qwen3Model", "{\"pooling_mode\":\"lasttoken\",\"include_prompt\":true}", LAST},
        {"qwen3", "Qwen3Model", "{\"pooling_mode\":[\"mean\"]}", MEAN},
        {"qwen3", "Qwen3Model",
         "{\"pooling_mode_mean_tokens\":false,\"pooling_mode_lasttoken\":true}", LAST},
        {"qwen3", "Qwen3Model", "{\"embedding_dimension\":8}", MEAN},
        {"qwen3", "Qwen3Model", "{\"pooling_mode\":\"mean_sqrt_len_tokens\"}", MEAN},
        {"bert", "BertModel", "{\"pooling_mode\":\"cls\"}", CLS},
        {"bert", "BertModel", "{\"pooling_mode\":\"max\"}", -1},
        {"bert", "BertModel", "{\"pooling_mode\":\"weightedmean\"}", -1},
        {"bert", "BertModel", "{\"pooling_mode\":[\"cls\",\"mean\"]}", -1},
        {"bert", "BertModel", "{\"pooling_mode\":[]}", -1},
        {"bert", "BertModel", "{\"pooling_mode\":\"other\"}", -1},
        {"bert", "BertModel", "{\"pooling_mode_max_tokens\":true}", -1},
        {"bert", "BertModel", "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}",
         -1},
        {"bert", "BertForSequenceClassification", "", RANK},
        {"qwen3", "Qwen3ForSequenceClassification", "", RANK},
        {"qwen3", "Qwen3ForCausalLM", "{\"true_token_id\":1,\"false_token_id\":2}", RANK},
        {"qwen2", "Qwen2ForSequenceClassification", "", -1},
        {"qwen2", "Qwen2ForCausalLM", "{\"true_token_id\":1}", -1},
        {"bert", "BertModel", "{\"true_token_id\":1}", -1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(
            pooling_of(cases[i].type, cases[i].architecture, cases[i].beside) == cases[i].want,
            "%zu: %d", i, pooling_of(cases[i].type, cases[i].architecture, cases[i].beside));
}
END_TEST

/* Whether a Qwen3 that was saved so is asked as Qwen3-Reranker is. */
static bool is_asked_as_judge(const char *architecture, const char *more, const char *beside,
                              const char *name, const char *card)
{
    static const char label[] = "qwen3.classifier.output_labels";
    struct hf_model model = {0};
    struct hf_keys keys;
    json_t *config, *pooling = NULL;
    char text[512];
    bool is;

    (void)snprintf(text, sizeof(text),
                   "{\"model_type\":\"qwen3\",\"architectures\":[\"%s\"]%s," SIZES "}",
                   architecture, more);
    ck_assert_int_eq(hf_json_parse(&config, text, strlen(text), &err), STATUS_OK);
    if (*beside != '\0')
        ck_assert_int_eq(hf_json_parse(&pooling, beside, strlen(beside), &err), STATUS_OK);
    hf_keys_init(&keys);
    ck_assert_int_eq(hf_config_read(&model, &keys, config, pooling, &err), STATUS_OK);
    hf_ranker_write(&model, &keys, config, name, card);
    is = memmem(keys.bytes.data, keys.bytes.len, label, sizeof(label) - 1) != NULL;
    hf_keys_deinit(&keys);
    json_decref(config);
    json_decref(pooling);
    return is;
}

/* A head of one score is a classifier's, unless something says that it was made of "yes" and "no".
 */
START_TEST(rankers_are_asked_as_they_were_made)
{
    static const char classifier[] = "Qwen3ForSequenceClassification";
    static const struct {
        const char *architecture, *more, *beside, *name, *card;
        bool want;
    } cases[] = {
        {classifier, "", "", "ranker", "", false},
        {classifier, "", "", "ranker", "---\nlicense: mit\n---\nBetter than Qwen3-Reranker.",
         false},
        {classifier, "", "", "ranker", "---\nbase_model: Qwen/Qwen3-0.6B\n---\n", false},
        {classifier, "", "", "ranker", "---\nbase_model: Qwen/Qwen3-Reranker-4B\n---\n", true},
        {classifier, "", "", "ranker", "---\nbase_model: Qwen/Qwen3-Reranker-4B\n", false},
        {classifier, "", "", "ranker", "---\r\nbase_model: Qwen/Qwen3-Reranker-4B\r\n---\r\n",
         true},
        {classifier, "", "", "ranker", "---\rbase_model: Qwen/Qwen3-Reranker-4B\n---\n", false},
        {classifier, "", "", "ranker", "---", false},
        {classifier, "", "", "ranker", "# Qwen3-Reranker-0.6B-seq-cls\n", true},
        {classifier, "", "", "ranker", "---\na: b\n---\n# Qwen3-Reranker\n", true},
        {classifier, "", "", "ranker", "Beside others\n## Qwen3-Reranker\n", false},
        {classifier, "", "", "qwen3-reranker-0.6b-seq-cls", "", true},
        {classifier, ",\"_name_or_path\":\"Qwen/Qwen3-Reranker-0.6B\"", "", "a", "", true},
        {classifier, ",\"is_original_qwen3_reranker\":true", "", "a", "", true},
        {classifier, ",\"is_original_qwen3_reranker\":false", "", "a", "", false},
        {classifier, ",\"classifier_from_token\":[\"no\",\"yes\"]", "", "a", "", true},
        {classifier, ",\"classifier_from_token\":[\"0\",\"1\"]", "", "a", "", false},
        {"Qwen3ForCausalLM", "", "{\"true_token_id\":1}", "a", "", true},
        {"Qwen3ForCausalLM", "", "", "Qwen3-Reranker", "# Qwen3-Reranker", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(is_asked_as_judge(cases[i].architecture, cases[i].more, cases[i].beside,
                                        cases[i].name, cases[i].card) == cases[i].want,
                      "%zu", i);
}
END_TEST

SUITE_MAIN("compute/hf_config", windows_end_contexts, numbers_of_any_size, null_is_not_absent,
           pooling_is_that_of_the_file, rankers_are_asked_as_they_were_made)
