#include "client/cli/bench/kserve_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "client/cli/connection.h"
#include "inference/grpc_service.pb-c.h"

/* Bytes of an element; 0: it has no fixed size, or it is unknown. See Triton's data types. */
static size_t size_of_datatype(const char *datatype)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"BOOL", 1},  {"UINT8", 1},  {"INT8", 1},  {"UINT16", 2}, {"INT16", 2},
                 {"FP16", 2},  {"BF16", 2},   {"INT32", 4}, {"UINT32", 4}, {"FP32", 4},
                 {"INT64", 8}, {"UINT64", 8}, {"FP64", 8}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(sizes[i].name, datatype) == 0)
            return sizes[i].size;
    return 0;
}

/* One element: a real number below 1, or 0 or 1. */
static enum status draw_number(struct buf *out, const char *datatype, size_t size, uint32_t i)
{
    float u = counter_rng_uniform(1, 0, i, 0);
    double wide = (double)u;
    unsigned char small[8] = {u < 0.5F};

    if (strcmp(datatype, "FP32") == 0)
        return buf_append(out, &u, sizeof(u));
    if (strcmp(datatype, "FP64") == 0)
        return buf_append(out, &wide, sizeof(wide));
    if (strcmp(datatype, "FP16") == 0 || strcmp(datatype, "BF16") == 0)
        small[0] = 0; /* exponent 0: a number with a 1 here is tiny */
    return buf_append(out, small, size);
}

static enum status take_input(struct kserve_input *in,
                              const Inference__ModelMetadataResponse__TensorMetadata *said,
                              struct error *err)
{
    size_t size = size_of_datatype(said->datatype);
    enum status rc = STATUS_OK;

    in->name = xstrdup(said->name);
    in->datatype = xstrdup(said->datatype);
    in->is_text = strcmp(said->datatype, "BYTES") == 0;
    in->n = 1;
    buf_init(&in->values, KSERVE_MAX_INPUT_BYTES);
    if (said->n_shape > KSERVE_MAX_DIMS || (size == 0 && !in->is_text))
        return error_set(err, STATUS_UNIMPLEMENTED, "input '%s' with %zu dimensions of %s",
                         said->name, said->n_shape, said->datatype);
    for (size_t i = 0; i < said->n_shape; i++) {
        in->shape[in->n_dims++] = said->shape[i] < 1 ? 1 : said->shape[i];
        if (in->n > (size_t)KSERVE_MAX_INPUT_BYTES / 8 / (size_t)in->shape[i])
            return error_set(err, STATUS_RANGE, "input '%s' has too many elements", said->name);
        in->n *= (size_t)in->shape[i];
    }
    for (uint32_t i = 0; !in->is_text && rc == STATUS_OK && i < in->n; i++)
        rc = draw_number(&in->values, in->datatype, size, i);
    return rc == STATUS_OK ? rc : error_set(err, rc, "input '%s' is too large", said->name);
}

/* Whether the model's configuration says that it may be left out. */
static bool is_optional(const Inference__ModelConfigResponse *config, const char *name)
{
    for (size_t i = 0; config != NULL && config->config != NULL && i < config->config->n_input; i++)
        if (strcmp(config->config->input[i]->name, name) == 0)
            return config->config->input[i]->optional;
    return false;
}

/* NULL, with *err filled, after a failure. The caller frees it. */
static ProtobufCMessage *ask(struct parley_channel *channel, const char *method,
                             const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *descriptor, struct error *err)
{
    ProtobufCMessage *answer = NULL;
    struct parley_error why;

    if (connection_call(&answer, channel, method, request, descriptor, 0, &why) != PARLEY_OK)
        (void)error_set(err, (enum status)why.status, "%s", why.text);
    return answer;
}

static enum status take_described(struct kserve_inputs *in,
                                  const Inference__ModelMetadataResponse *metadata,
                                  const Inference__ModelConfigResponse *config, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < metadata->n_inputs; i++)
        if (!is_optional(config, metadata->inputs[i]->name)) {
            if (in->n == KSERVE_MAX_INPUTS)
                return error_set(err, STATUS_UNIMPLEMENTED, "it has more than %d inputs",
                                 (int)KSERVE_MAX_INPUTS);
            rc = take_input(&in->items[in->n++], metadata->inputs[i], err);
        }
    return rc;
}

enum status kserve_inputs_read(struct kserve_inputs *out, struct parley_channel *channel,
                               const char *model, struct error *err)
{
    Inference__ModelMetadataRequest what = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    Inference__ModelConfigRequest how = INFERENCE__MODEL_CONFIG_REQUEST__INIT;
    ProtobufCMessage *metadata, *config;
    struct error ignored; /* a server without configurations: no input is optional */
    enum status rc;

    *out = (struct kserve_inputs){0};
    what.name = how.name = (char *)(uintptr_t)model; /* only read */
    metadata = ask(channel, "/inference.GRPCInferenceService/ModelMetadata", &what.base,
                   &inference__model_metadata_response__descriptor, err);
    if (metadata == NULL)
        return err->status;
    config = ask(channel, "/inference.GRPCInferenceService/ModelConfig", &how.base,
                 &inference__model_config_response__descriptor, &ignored);
    rc = take_described(out, (const Inference__ModelMetadataResponse *)(const void *)metadata,
                        (const Inference__ModelConfigResponse *)(const void *)config, err);
    protobuf_c_message_free_unpacked(metadata, NULL);
    if (config != NULL)
        protobuf_c_message_free_unpacked(config, NULL);
    return rc;
}

void kserve_inputs_deinit(struct kserve_inputs *in)
{
    for (size_t i = 0; i < in->n; i++) {
        free(in->items[i].name);
        free(in->items[i].datatype);
        buf_deinit(&in->items[i].values);
    }
}
