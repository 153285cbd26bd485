#include "compute/encoder/arch.h"

#include <string.h>

static const struct encoder_arch archs[] = {
    {.is = {.name = "bert"},
     .norms = ENCODER_NORMS_SUM,
     .activation = ACTIVATION_GELU_ERF,
     .norms_embedding = true,
     .has_positions = true,
     .has_types = true},
    {.is = {.name = "nomic-bert"},
     .norms = ENCODER_NORMS_SUM,
     .gate = ENCODER_GATED,
     .activation = ACTIVATION_SILU,
     .norms_embedding = true,
     .has_types = true,
     .rotates = true,
     .rope_base = 1000.0f},
    {.is = {.name = "modern-bert"},
     .norms = ENCODER_NORMS_BEFORE,
     .gate = ENCODER_GATE_IN_UP,
     .activation = ACTIVATION_GELU_ERF,
     .norms_embedding = true,
     .norms_output = true,
     .embedding_is_normed = true,
     .rotates = true,
     .full_is_first = true,
     .window_pattern = 3,
     .rope_base = 160000.0f,
     .window_rope_base = 10000.0f,
     .head_gelu = true},
    {.is = {.name = "gemma-embedding"},
     .norms = ENCODER_NORMS_AROUND,
     .gate = ENCODER_GATED,
     .activation = ACTIVATION_GELU,
     .norms_by_rms = true,
     .norms_heads = true,
     .norms_output = true,
     .embeds_by_width = true,
     .rotates = true,
     .window_pattern = 6,
     .rope_base = 1000000.0f,
     .window_rope_base = 10000.0f},
};

enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

const struct encoder_arch *encoder_arch_find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i].is.name) == len && memcmp(archs[i].is.name, name, len) == 0)
            return &archs[i];
    return NULL;
}
