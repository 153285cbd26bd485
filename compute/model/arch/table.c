/* All architectures that are run here. */
#include <stdio.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"

static const struct arch archs[] = {
    {.name = "llama", .keys = KEYS_ATTENTION_SCALE | KEYS_EXPERTS, .rotates_whole_heads = true},
    {.name = "mistral3",
     .keys = KEYS_QUERY_TEMPERATURE | KEYS_YARN_BETAS,
     .rotates_whole_heads = true},
    {.name = "qwen2", .rope_halves = true},
    {.name = "qwen3", .head_norms = HEAD_NORMS_EACH, .rope_halves = true},
    {.name = "qwen3moe", .head_norms = HEAD_NORMS_EACH, .keys = KEYS_EXPERTS, .rope_halves = true},
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
    {.name = "phi3",
     .keys = KEYS_WINDOW_IGNORED,
     .rope_halves = true,

     .has_length_factors = true,
     .gate_is_in_up = true},
    {.name = "smollm3", .unrotated_every = 4},
    {.name = "olmo2",
     .norms = NORMS_AFTER,
     .head_norms = HEAD_NORMS_ALL,
     .keys = KEYS_WINDOW,
     .rope_halves = true,

     .window_rope = WINDOW_ROPE_UNSCALED,
     .window_pattern = 4},
    {.name = "granite",
     .keys = KEYS_ATTENTION_SCALE | KEYS_SCALES,

     .may_be_unrotated = true},
};

/* Families that are not, for a reason that more work on descriptors would not change. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"mamba", "it keeps a recurrent state beside its keys and values"},
    {"mamba2", "it keeps a recurrent state beside its keys and values"},
    {"falcon-h1", "it keeps a recurrent state beside its keys and values"},
    {"granitehybrid", "it keeps a recurrent state beside its keys and values"},
    {"jamba", "it keeps a recurrent state beside its keys and values"},
    {"lfm2", "it keeps a recurrent state beside its keys and values"},
    {"lfm2moe", "it keeps a recurrent state beside its keys and values"},
    {"nemotron_h", "it keeps a recurrent state beside its keys and values"},
    {"plamo2", "it keeps a recurrent state beside its keys and values"},
    {"qwen35", "it keeps a recurrent state beside its keys and values"},
    {"qwen35moe", "it keeps a recurrent state beside its keys and values"},
    {"qwen3next", "it keeps a recurrent state beside its keys and values"},
    {"rwkv6", "it keeps a recurrent state beside its keys and values"},
    {"rwkv7", "it keeps a recurrent state beside its keys and values"},
    {"gemma3n", "its layers share keys and values, and have embeddings of their own"},
    {"gemma4", "its layers share keys and values, and have embeddings of their own"},
};

enum {
    N_ARCHS = sizeof(archs) / sizeof(archs[0]),
    N_REFUSED = sizeof(refused) / sizeof(refused[0]),
    SHOWN_MAX = 40,
    LIST_MAX = 256,
};

static bool arch_is_named(const char *name, const char *text, size_t len)
{
    return strlen(name) == len && memcmp(name, text, len) == 0;
}

static enum status arch_refuse(const struct gguf *g, const char *text, size_t len,
                               struct error *err)
{
    int shown = (int)(len < SHOWN_MAX ? len : SHOWN_MAX);
    char list[LIST_MAX] = "";
    size_t at = 0;

    for (size_t i = 0; i < N_REFUSED; i++)
        if (arch_is_named(refused[i].name, text, len))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: the architecture '%.*s' is not supported: %s", gguf_path(g),
                             shown, text, refused[i].why);
    for (size_t i = 0; i < N_ARCHS && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i > 0 ? ", " : "",
                               archs[i].name);
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: the architecture '%.*s' is not supported; supported are %s", gguf_path(g),
                     shown, text, list);
}

enum status arch_of_file(const struct arch **out, const struct gguf *g, struct error *err)
{
    const char *text;
    size_t len;
    enum status rc = gguf_get_text(g, "general.architecture", &text, &len, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < N_ARCHS; i++)
        if (arch_is_named(archs[i].name, text, len)) {
            *out = &archs[i];
            return STATUS_OK;
        }
    return arch_refuse(g, text, len, err);
}

const char *arch_key(char key[ARCH_KEY_MAX], const struct arch *a, const char *name)
{
    (void)snprintf(key, ARCH_KEY_MAX, "%s.%s", a->name, name);
    return key;
}
