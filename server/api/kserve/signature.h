/* A model's interface to KServe's clients: its input and output tensors, and how its requests
 * relate to each other. */
#ifndef SERVER_API_KSERVE_SIGNATURE_H
#define SERVER_API_KSERVE_SIGNATURE_H

#include <stdbool.h>

#include "agents/agent.h"
#include "inference/grpc_service.pb-c.h"

/* The version of every model. Clients want a whole number. */
#define KSERVE_VERSION "1"

enum { KSERVE_MAX_INPUTS = 3, KSERVE_MAX_OUTPUTS = 3 };

struct kserve_tensor {
    const char *name, *datatype; /* "BYTES", "FP32", … */
    Inference__DataType type;
    int64_t dim; /* the shape is [dim], -1: any number of rows */
    bool is_optional;
    bool has_rows; /* the shape is [-1, dim] */
};

struct kserve_signature {
    bool is_policy;    /* the model turns observations into actions */
    bool is_embedding; /* the model turns texts into embeddings; with neither, texts into texts */
    const char *platform, *backend;
    struct kserve_tensor inputs[KSERVE_MAX_INPUTS]; /* [n_inputs] */
    size_t n_inputs;
    size_t n_declared; /* inputs that the metadata names: load testers fill every one of these */
    struct kserve_tensor outputs[KSERVE_MAX_OUTPUTS]; /* [n_outputs] */
    size_t n_outputs;
    bool is_decoupled; /* a request may have several responses on a stream */
    bool is_stateful;  /* answers depend on earlier requests */
};

/* Indices of the inputs of models that speak. */
enum { KSERVE_TEXT_INPUT, KSERVE_STREAM, KSERVE_SAMPLING };

/* Makes the signature that a model shows, and has for a request that asks for no other output. The
 * texts are info's, which are constant. */
void kserve_signature(struct kserve_signature *out, const struct agent_info *info);
/* Makes the signature that the model has for this request, by the outputs that the request wants.
 */
void kserve_signature_for(struct kserve_signature *out, const struct agent_info *info,
                          const Inference__ModelInferRequest *r);

/* Writes a tensor's shape, and returns how many of the 2 numbers the shape has. */
size_t kserve_tensor_shape(int64_t out[2], const struct kserve_tensor *t);

#endif
