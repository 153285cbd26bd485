/* What config.json says of a model, beyond what tests/arch/test_safetensors.py computes. */
#include <string.h>

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
    ck_assert_int_eq(hf_config_read(&model, &keys, config, &err), STATUS_OK);
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

SUITE_MAIN("compute/hf_config", windows_end_contexts)
