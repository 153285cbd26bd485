/* All architectures that are run here. */
#include <stdio.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"

#define NEMOTRON                                                                               \
    .recurrence = RECURRENCE_SUM, .has_halves = true, .names_other_epsilon = true,             \
    .network = NETWORK_PLAIN, .activation = ACTIVATION_SQUARE, .unrotated = UNROTATED_ALL,     \
    .routing = ROUTING_SIGMOID,                                                                \
    .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_SHARED_EXPERT | KEYS_STATE | KEYS_NEXT_TOKENS | \
            KEYS_ATTENTION_SCALE

static const struct arch archs[] = {
    {.name = "llama", .keys = KEYS_ATTENTION_SCALE | KEYS_EXPERTS, .rotates_whole_heads = true},
    {.name = "mistral3",
     .keys = KEYS_QUERY_TEMPERATURE | KEYS_YARN_BETAS,
     .rotates_whole_heads = true},
    {.name = "qwen2", .rope_halves = true},
    {.name = "qwen3", .head_norms = HEAD_NORMS_EACH, .rope_halves = true},
    {.name = "qwen3moe", .head_norms = HEAD_NORMS_EACH, .keys = KEYS_EXPERTS, .rope_halves = true},
    {.name = "qwen35",
     .head_norms = HEAD_NORMS_EACH,
     .names_ffn_norm_post = true,
     .recurrence = RECURRENCE_DELTA,
     .tiles_heads = true,
     .gates_attention = true,
     .keys = KEYS_STATE | KEYS_RECURRENT_LAYERS | KEYS_NEXT_TOKENS,
     .rope_halves = true},
    {.name = "qwen35moe",
     .head_norms = HEAD_NORMS_EACH,
     .names_ffn_norm_post = true,
     .recurrence = RECURRENCE_DELTA,
     .tiles_heads = true,
     .gates_attention = true,
     .keys =
         KEYS_STATE | KEYS_RECURRENT_LAYERS | KEYS_NEXT_TOKENS | KEYS_EXPERTS | KEYS_SHARED_EXPERT,
     .rope_halves = true},
    {.name = "qwen3next",
     .head_norms = HEAD_NORMS_EACH,
     .names_ffn_norm_post = true,
     .recurrence = RECURRENCE_DELTA,
     .gates_attention = true,
     .keys =
         KEYS_STATE | KEYS_RECURRENT_LAYERS | KEYS_NEXT_TOKENS | KEYS_EXPERTS | KEYS_SHARED_EXPERT,
     .rope_halves = true},
    {.name = "gemma2",
     .norms = NORMS_AROUND,
     .activation = ACTIVATION_GELU,
     .keys = KEYS_ATTENTION_SCALE | KEYS_WINDOW | KEYS_ATTENTION_CAP | KEYS_LOGIT_CAP,
     .rope_halves = true,
     .window = 4096,
     .window_pattern = 2,
     .embeds_by_width = true,
     .attention_cap = 50.0f,
     .logit_cap = 30.0f,
     .layers_scaled_by_width = 46},
    {.name = "gemma3",
     .norms = NORMS_AROUND,
     .head_norms = HEAD_NORMS_EACH,
     .activation = ACTIVATION_GELU,
     .keys = KEYS_ATTENTION_SCALE | KEYS_WINDOW | KEYS_LOGIT_CAP,
     .rope_halves = true,
     .window_rope = WINDOW_ROPE_LOCAL,
     .window_pattern = 6,
     .embeds_by_width = true,
     .layers_scaled_by_width = 62},
    {.name = "gemma4",
     .norms = NORMS_AROUND,
     .head_norms = HEAD_NORMS_EACH,
     .norms_values = true,
     .values_may_be_keys = true,
     .scores_unscaled = true,
     .pairs_may_stand = true,
     .has_layer_scales = true,
     .experts_beside_network = true,
     .activation = ACTIVATION_GELU,
     .keys = KEYS_WINDOW | KEYS_LOGIT_CAP | KEYS_EXPERTS | KEYS_WINDOW_HEADS | KEYS_SHARED_KV |
             KEYS_LAYER_EMBEDDINGS,
     .rope_halves = true,
     .window_rope = WINDOW_ROPE_LOCAL,
     .window_pattern = 6,
     .embeds_by_width = true},
    {.name = "gemma3n",
     .norms = NORMS_AROUND,
     .head_norms = HEAD_NORMS_EACH,
     .norms_values = true,
     .scores_unscaled = true,
     .activation = ACTIVATION_GELU,
     .keys = KEYS_WINDOW | KEYS_LOGIT_CAP | KEYS_SHARED_KV | KEYS_LAYER_EMBEDDINGS | KEYS_STREAMS,
     .rope_halves = true,
     .window_rope = WINDOW_ROPE_LOCAL,
     .window_pattern = 5,
     .embeds_by_width = true},
    {.name = "lfm2",
     .head_norms = HEAD_NORMS_EACH,
     .names_norm_embedding = true,
     .keys = KEYS_CONVOLUTION,
     .rope_halves = true},
    {.name = "lfm2moe",
     .head_norms = HEAD_NORMS_EACH,
     .names_norm_embedding = true,
     .keys = KEYS_CONVOLUTION | KEYS_EXPERTS | KEYS_ROUTING | KEYS_DENSE_LEAD,
     .routing = ROUTING_SIGMOID,
     .norms_shares = true,
     .shares_least = 1e-6f,
     .rope_halves = true},
    {.name = "phi3",
     .keys = KEYS_WINDOW_IGNORED,
     .rope_halves = true,

     .has_length_factors = true,
     .gate_is_in_up = true},
    {.name = "phimoe",
     .norm_kind = NORM_KIND_LAYER,
     .names_other_epsilon = true,
     .keys = KEYS_EXPERTS | KEYS_WINDOW_IGNORED,
     .routing = ROUTING_ONE_BY_ONE,
     .rope_halves = true,
     .has_length_factors = true},
    {.name = "smollm3", .unrotated = UNROTATED_EVERY_FOURTH},
    {.name = "olmo2",
     .norms = NORMS_AFTER,
     .head_norms = HEAD_NORMS_ALL,
     .keys = KEYS_WINDOW,
     .rope_halves = true,

     .window_rope = WINDOW_ROPE_UNSCALED,
     .window_pattern = 4},
    {.name = "llama4",
     .keys = KEYS_EXPERTS | KEYS_EXPERT_STEP | KEYS_SHARED_EXPERT | KEYS_WINDOW |
             KEYS_QUERY_TEMPERATURE | KEYS_TEMPERATURE_LENGTH,
     .routing = ROUTING_TOP_SIGMOID,
     .weighs_inputs = true,
     .norms_rotated = true,
     .experts_unnormed = 128,
     .unrotated = UNROTATED_GLOBAL,
     .unrotated_rise = 0.1f,
     .unrotated_every = 8192,
     .window = 8192,
     .window_is_chunk = true,
     .window_pattern = 4},
    {.name = "granite", .keys = KEYS_ATTENTION_SCALE | KEYS_SCALES, .may_be_unrotated = true},
    {.name = "granitemoe",
     .keys = KEYS_ATTENTION_SCALE | KEYS_SCALES | KEYS_EXPERTS | KEYS_SHARED_EXPERT,
     .may_be_unrotated = true},
    {.name = "granitehybrid",
     .recurrence = RECURRENCE_SUM,
     .keys = KEYS_ATTENTION_SCALE | KEYS_SCALES | KEYS_EXPERTS | KEYS_SHARED_EXPERT | KEYS_STATE,
     .may_be_unrotated = true},
    {.name = "falcon-h1",
     .recurrence = RECURRENCE_SUM,
     .recurs_beside = true,
     .keys = KEYS_STATE,
     .rope_halves = true},
    {.name = "mamba2",
     .recurrence = RECURRENCE_SUM,
     .has_halves = true,
     .never_attends = true,
     .keys = KEYS_STATE,
     .unrotated = UNROTATED_ALL},
    {.name = "nemotron_h", NEMOTRON},
    {.name = "nemotron_h_moe", NEMOTRON},
    {.name = "minicpm", .keys = KEYS_SCALES, .requires_scales = true},
    {.name = "minicpm3",
     .keys = KEYS_SCALES | KEYS_LATENT,
     .rope_halves = true,
     .has_length_factors = true,
     .yarn_scales_scores = true,
     .scale_embedding = 12.0f,
     .scale_depth = 1.4f,
     .scale_base_width = 256},
    {.name = "seed_oss", .rope_halves = true, .names_ffn_norm_post = true},
    {.name = "qwen2moe",
     .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_SHARED_EXPERT,
     .routing = ROUTING_SOFTMAX,
     .rope_halves = true},
    {.name = "gpt-oss",
     .keys = KEYS_EXPERTS | KEYS_WINDOW,
     .names_ffn_norm_post = true,
     .network = NETWORK_CLAMPED,
     .has_sinks = true,
     .rope_halves = true,
     .yarn_is_exact = true,
     .window_pattern = 2},
    {.name = "glm4", .norms = NORMS_AROUND, .keys = KEYS_NEXT_TOKENS, .gate_is_in_up = true},
    {.name = "glm4moe",
     .head_norms = HEAD_NORMS_EACH,
     .head_norms_optional = true,
     .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_DENSE_LEAD | KEYS_SHARED_EXPERT | KEYS_NEXT_TOKENS,
     .names_ffn_norm_post = true,
     .routing = ROUTING_SIGMOID,
     .rope_halves = true},
    /* GLM-4.7-Flash is a model of this architecture whose files lack the key of its routing. */
    {.name = "deepseek2",
     .keys = KEYS_EXPERTS | KEYS_ROUTING | KEYS_DENSE_LEAD | KEYS_SHARED_EXPERT | KEYS_NEXT_TOKENS |
             KEYS_LATENT,
     .routing = ROUTING_SOFTMAX,
     .sigmoid_vocab = 154880,
     .yarn_scales_scores = true},
    {.name = "ernie4_5"},
    {.name = "ernie4_5-moe",
     .keys = KEYS_EXPERTS | KEYS_DENSE_LEAD | KEYS_EXPERT_STEP | KEYS_SHARED_EXPERT,
     .routing = ROUTING_SOFTMAX_BIAS},
    {.name = "hunyuan-dense",
     .head_norms = HEAD_NORMS_EACH,
     .head_norms_after_rope = true,
     .rope_halves = true},
    {.name = "hunyuan-moe",
     .head_norms = HEAD_NORMS_EACH,
     .head_norms_after_rope = true,
     .keys = KEYS_EXPERTS | KEYS_SHARED_EXPERT,
     .rope_halves = true},
    {.name = "exaone4",
     .norms = NORMS_AFTER,
     .head_norms = HEAD_NORMS_EACH,
     .keys = KEYS_WINDOW,
     .rope_halves = true,
     .unrotated = UNROTATED_GLOBAL,
     .window = 4096,
     .window_layers = 64,
     .window_pattern = 4},
    {.name = "command-r",
     .norm_kind = NORM_KIND_LAYER,
     .keys = KEYS_LOGIT_FACTOR,
     .is_parallel = true},
    {.name = "cohere2",
     .norm_kind = NORM_KIND_LAYER,
     .keys = KEYS_WINDOW | KEYS_LOGIT_FACTOR,
     .is_parallel = true,
     .unrotated = UNROTATED_GLOBAL,
     .window_pattern = 4},
    {.name = "starcoder2",
     .norm_kind = NORM_KIND_LAYER,
     .activation = ACTIVATION_GELU,
     .keys = KEYS_WINDOW_IGNORED,
     .network = NETWORK_PLAIN,
     .rope_halves = true},
    {.name = "stablelm",
     .norm_kind = NORM_KIND_LAYER,
     .may_be_parallel = true,
     .rope_halves = true},
};

/* Families that are not run here: why, and of what family a model would do instead. */
#define RECURRENT "it keeps a recurrent state beside its keys and values"
#define NEWER "its operations are not implemented"
#define PROJECTOR "it is what reads images for a model (mmproj); give the model's own file"
#define IMAGES "it makes images"
static const struct {
    const char *name, *why;
    const char *instead; /* or NULL */
} refused[] = {
    {"mamba", RECURRENT, NULL},
    {"jamba", RECURRENT, NULL},
    {"plamo2", RECURRENT, NULL},
    {"rwkv6", RECURRENT, NULL},
    {"rwkv7", RECURRENT, NULL},
    {"kimi-linear", RECURRENT, NULL},
    {"bailingmoe3", RECURRENT, NULL},
    {"qwen4exp", RECURRENT, "qwen3"},
    {"gemma4-assistant", "it drafts tokens for another model, and is none by itself", "gemma3"},
    {"deepseek32", NEWER, NULL},
    {"deepseek4", NEWER, NULL},
    {"glm-dsa", NEWER, NULL},
    {"glm5-next", NEWER, NULL},
    {"kimi-k3", NEWER, NULL},
    {"minimax-m2", NEWER, NULL},
    {"minimax-m3", NEWER, NULL},
    {"mimo2", NEWER, NULL},
    {"step35", NEWER, NULL},
    {"hy_v3", NEWER, NULL},
    {"hy_v4", NEWER, NULL},
    {"mistral4", NEWER, NULL},
    {"bailingmoe2", NEWER, NULL},
    {"afmoe", NEWER, NULL},
    {"granite_swa", NEWER, NULL},
    {"cohere2moe", NEWER, NULL},
    {"exaone-moe", NEWER, NULL},
    {"clip", PROJECTOR, NULL},
    {"mmproj", PROJECTOR, NULL},
    {"adapter", "it is an adapter (LoRA); take a model that it is merged into", NULL},
    {"controlvector", "it steers another model, and is none by itself", NULL},
    {"imatrix", "it has statistics of a model, and no weights", NULL},
    {"whisper", "it writes down speech", NULL},
    {"flux", IMAGES, NULL},
    {"sd1", IMAGES, NULL},
    {"sdxl", IMAGES, NULL},
    {"sd3", IMAGES, NULL},
    {"qwen_image", IMAGES, NULL},
    {"lumina2", IMAGES, NULL},
    {"hidream", IMAGES, NULL},
    {"wan", IMAGES, NULL},
    {"ltxv", IMAGES, NULL},
};

enum {
    N_ARCHS = sizeof(archs) / sizeof(archs[0]),
    N_REFUSED = sizeof(refused) / sizeof(refused[0]),
    SHOWN_MAX = 40,
};

static bool arch_is_named(const char *name, const char *text, size_t len)
{
    return strlen(name) == len && memcmp(name, text, len) == 0;
}

/* Refuses the name of an architecture, or of another kind of file, in the words of its row; OK:
 * there is none. */
static enum status arch_refuse(const struct gguf *g, const char *what, const char *text, size_t len,
                               struct error *err)
{
    for (size_t i = 0; i < N_REFUSED; i++)
        if (arch_is_named(refused[i].name, text, len))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: the %s '%.*s' is not supported: %s%s%s%s", gguf_path(g), what,
                             (int)len, text, refused[i].why,
                             refused[i].instead != NULL ? "; use a model of " : "",
                             refused[i].instead != NULL ? refused[i].instead : "",
                             refused[i].instead != NULL ? ", for example" : "");
    return STATUS_OK;
}

enum status arch_of_file(const struct arch **out, const struct gguf *g, struct error *err)
{
    const char *text;
    size_t len;
    enum status rc;

    if (gguf_get_text(g, "general.type", &text, &len, err) == STATUS_OK &&
        arch_refuse(g, "kind", text, len, err) != STATUS_OK)
        return err->status;
    rc = gguf_get_text(g, "general.architecture", &text, &len, err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < N_ARCHS; i++)
        if (arch_is_named(archs[i].name, text, len)) {
            *out = &archs[i];
            return STATUS_OK;
        }
    if (arch_refuse(g, "architecture", text, len, err) != STATUS_OK)
        return err->status;
    return error_set(err, STATUS_UNIMPLEMENTED, "%s: the architecture '%.*s' is not supported",
                     gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
}

const char *arch_key(char key[ARCH_KEY_MAX], const struct arch *a, const char *name)
{
    (void)snprintf(key, ARCH_KEY_MAX, "%s.%s", a->name, name);
    return key;
}
