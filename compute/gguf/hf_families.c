/* The families of models that a folder may hold, by config.json's model_type: what each is in
 * GGUF's terms, and what transformers takes for a key that config.json leaves out. */
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 40 };

#define GEMMA_ACTIVATION "gelu_pytorch_tanh"
#define GEMMA                                                                                 \
    .activation = GEMMA_ACTIVATION, .names = hf_names_around, .is_tied = true, .norm_add = 1, \
    .window = HF_WINDOW_KEY
#define GEMMA3                                                                    \
    .architecture = "gemma3", GEMMA,                                              \
    .defaults = {{"rms_norm_eps", 1e-6},     {"head_dim", 256},                   \
                 {"num_attention_heads", 8}, {"num_key_value_heads", 4},          \
                 {"vocab_size", 262208},     {"max_position_embeddings", 131072}, \
                 {"rope_theta", 1e6},        {"query_pre_attn_scalar", 256},      \
                 {"sliding_window", 4096}}
#define MINISTRAL3                                                                          \
    .architecture = "mistral3", .activation = "silu", .has_pairs = true, .has_betas = true, \
    .defaults = {{"num_key_value_heads", 8}, {"head_dim", 128}, {"rms_norm_eps", 1e-5}}
#define NO_WINDOW_UNLESS_USED .window_is_optional = true

static const struct hf_family families[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"rms_norm_eps", 1e-6}, {"max_position_embeddings", 2048}}},
    {.model_type = "mistral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-6},
                  {"sliding_window", 4096},
                  {"max_position_embeddings", 131072}}},
    {.model_type = "mixtral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .has_experts = true,
     .defaults = {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 1e6},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2},
                  {"max_position_embeddings", 131072}}},
    {.model_type = "ministral3", MINISTRAL3},
    {.model_type = "mistral3", .nested_type = "ministral3", MINISTRAL3},
    {.model_type = "mistral3",
     .nested_type = "mistral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"num_key_value_heads", 8}, {"rms_norm_eps", 1e-6}, {"sliding_window", 4096}}},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .activation = "silu",
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"rms_norm_eps", 1e-6}, {"max_position_embeddings", 32768}}},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .activation = "silu",
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"rms_norm_eps", 1e-6}, {"head_dim", 128}, {"max_position_embeddings", 32768}}},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .activation = "silu",
     .has_experts = true,
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"num_key_value_heads", 4},
                  {"rms_norm_eps", 1e-6},
                  {"num_experts_per_tok", 8},
                  {"norm_topk_prob", 0},
                  {"max_position_embeddings", 32768}}},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     GEMMA,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"head_dim", 256},
                  {"num_key_value_heads", 4},
                  {"query_pre_attn_scalar", 256},
                  {"sliding_window", 4096},
                  {"max_position_embeddings", 8192}}},
    {.model_type = "gemma3_text", GEMMA3},
    {.model_type = "gemma3", .nested_type = "gemma3_text", GEMMA3},
    {.model_type = "phi3",
     .architecture = "phi3",
     .activation = "silu",
     .window = HF_WINDOW_ALL,
     .defaults = {{"rms_norm_eps", 1e-5}, {"max_position_embeddings", 4096}}},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .activation = "silu",
     .has_pairs = true,
     .is_tied = true,
     .unrotated_every = 4,
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"num_key_value_heads", 4}, {"rms_norm_eps", 1e-6}, {"rope_theta", 2e6}}},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .activation = "silu",
     .names = hf_names_around,
     .defaults = {{"rms_norm_eps", 1e-5}}},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .activation = "silu",
     .names = hf_names_around,
     .window = HF_WINDOW_KEY,
     .defaults = {{"rms_norm_eps", 1e-5}, {"rope_theta", 5e5}, {"sliding_window", 4096}}},
    {.model_type = "granite",
     .architecture = "granite",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"rms_norm_eps", 1e-6}}},
};

enum { N_HF_FAMILIES = sizeof(families) / sizeof(families[0]) };

enum status hf_family_find(const struct hf_family **out, const json_t *config, struct error *err)
{
    const char *type = hf_json_text(config, "model_type");
    const char *nested = hf_json_text(hf_json_object(config, "text_config"), "model_type");

    for (size_t i = 0; i < N_HF_FAMILIES; i++) {
        const struct hf_family *f = &families[i];

        if (strcmp(f->model_type, type) == 0 &&
            (f->nested_type == NULL || *nested == '\0' || strcmp(f->nested_type, nested) == 0)) {
            *out = f;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "key 'model_type' is '%.*s', which is not supported in safetensors; convert "
                     "the model to GGUF",
                     SHOWN_MAX, type);
}

enum status hf_family_default(double *out, const struct hf_family *f, const char *name)
{
    for (size_t i = 0; i < HF_DEFAULTS_MAX && f->defaults[i].name != NULL; i++)
        if (strcmp(f->defaults[i].name, name) == 0) {
            *out = f->defaults[i].value;
            return STATUS_OK;
        }
    return STATUS_NOT_FOUND;
}
