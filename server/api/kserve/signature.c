#include "server/api/kserve/signature.h"

#include <string.h>

static const struct kserve_signature speaking = {
    .inputs =
        {
            {"text_input", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, false},
            {"stream", "BOOL", INFERENCE__DATA_TYPE__TYPE_BOOL, 1, true},
            {"sampling_parameters", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, true},
        },
    .n_inputs = 3,
    .outputs = {{"text_output", "BYTES", INFERENCE__DATA_TYPE__TYPE_STRING, 1, false}},
    .n_outputs = 1,
};

static const struct kserve_signature acting = {
    .is_policy = true,
    .inputs = {{"observation", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 0, false}},
    .n_inputs = 1,
    .outputs =
        {
            {"action", "INT64", INFERENCE__DATA_TYPE__TYPE_INT64, 1, false},
            {"logp", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 1, false},
            {"value", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32, 1, false},
        },
};

void kserve_signature(struct kserve_signature *out, const struct agent_info *info)
{
    bool is_lm = strcmp(info->kind, "lm") == 0;

    *out = info->n_observations > 0 ? acting : speaking;
    out->n_declared = is_lm ? out->n_inputs : 1;
    if (out->is_policy) {
        out->inputs[0].dim = (int64_t)info->n_observations;
        if (info->n_action_numbers > 0)
            out->outputs[0] =
                (struct kserve_tensor){"action", "FP32", INFERENCE__DATA_TYPE__TYPE_FP32,
                                       (int64_t)info->n_action_numbers, false};
        out->n_outputs = 1;
        if (info->has_logp)
            out->outputs[out->n_outputs++] = acting.outputs[1];
        if (info->has_value)
            out->outputs[out->n_outputs++] = acting.outputs[2];
    }
    out->platform = out->is_policy ? "parley_policy" : is_lm ? "parley_lm" : "parley_agent";
    out->backend = info->backend[0] != '\0' ? info->backend : "none";
    out->is_decoupled = is_lm;
    out->is_stateful = is_lm || strcmp(info->architecture, "lstm") == 0;
}
