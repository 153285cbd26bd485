#include "server/api/kserve/signature.h"

#include <string.h>

static const struct kserve_signature speaking = {
    .inputs =
        {
            {"text_input", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, false, false},
            {"stream", "BOOL", INFERENCE__DATA_TYPE__TYPE_BOOL, 1, true, false},
            {"sampling_parameters", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, true, false},
        },
    .n_inputs = 3,
    .outputs = {{"text_output", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, false, false}},
    .n_outputs = 1,
};

static const struct kserve_signature acting = {
    .is_policy = true,
    .inputs = {{"observation", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 0, false, false}},
    .n_inputs = 1,
    .outputs =
        {
            {"action", "INT64", INFERENCE__DATA_TYPE__TYPE_INT64, 1, false, false},
            {"logp", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 1, false, false},
            {"value", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 1, false, false},
        },
};

#define EMBEDDING "embedding"

static const struct kserve_signature embedding = {
    .is_embedding = true,
    .inputs = {{"text_input", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, -1, false, false}},
    .n_inputs = 1,
    .outputs = {{EMBEDDING, "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 0, false, true}},
    .n_outputs = 1,
};

static void signature_embed(struct kserve_signature *out, const struct agent_info *info)
{
    *out = embedding;
    out->n_declared = out->n_inputs;
    out->outputs[0].dim = (int64_t)info->text.n_embedding;
    out->platform = "parley_lm";
    out->backend = info->backend[0] != '\0' ? info->backend : "none";
}

static void signature_of_kind(struct kserve_signature *out, const struct agent_info *info)
{
    bool is_lm = strcmp(info->kind, "lm") == 0;

    *out = info->acting.n_observations > 0 ? acting : speaking;
    out->n_declared = is_lm ? out->n_inputs : 1;
    if (out->is_policy) {
        out->inputs[0].dim = (int64_t)info->acting.n_observations;
        if (info->acting.n_action_numbers > 0)
            out->outputs[0] = (struct kserve_tensor){"action",
                                                     "FP32",
                                                     INFERENCE__DATA_TYPE__TYPE_FP32,
                                                     (int64_t)info->acting.n_action_numbers,
                                                     false,
                                                     false};
        out->n_outputs = 1;
        if (info->acting.has_logp)
            out->outputs[out->n_outputs++] = acting.outputs[1];
        if (info->acting.has_value)
            out->outputs[out->n_outputs++] = acting.outputs[2];
    }
    out->platform = out->is_policy ? "parley_policy" : is_lm ? "parley_lm" : "parley_agent";
    out->backend = info->backend[0] != '\0' ? info->backend : "none";
    out->is_decoupled = is_lm;
    out->is_stateful = is_lm || strcmp(info->architecture, "lstm") == 0;
}

void kserve_signature(struct kserve_signature *out, const struct agent_info *info)
{
    if (info->text.is_embedder)
        signature_embed(out, info);
    else
        signature_of_kind(out, info);
}

/* A model that speaks does not list its embedding, since load testers ask for all that is listed.
 */
void kserve_signature_for(struct kserve_signature *out, const struct agent_info *info,
                          const Inference__ModelInferRequest *r)
{
    bool names_embedding = false;

    for (size_t i = 0; i < r->n_outputs; i++)
        names_embedding = names_embedding || strcmp(r->outputs[i]->name, EMBEDDING) == 0;
    if (info->text.n_embedding > 0 &&
        (names_embedding || (info->text.is_embedder && r->n_outputs == 0)))
        signature_embed(out, info);
    else
        signature_of_kind(out, info);
}

size_t kserve_tensor_shape(int64_t out[2], const struct kserve_tensor *t)
{
    out[0] = t->has_rows ? -1 : t->dim;
    out[1] = t->dim;
    return t->has_rows ? 2 : 1;
}
