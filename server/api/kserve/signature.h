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
    bool is_policy;    /* observations to actions; else texts to texts */
    bool is_embedding; /* texts to their embeddings; else likewise */
    const char *platform, *backend;
    struct kserve_tensor inputs[KSERVE_MAX_INPUTS]; /* [n_inputs] */
    size_t n_inputs;
    size_t n_declared; /* of them, in the metadata: load testers fill every declared input */
    struct kserve_tensor outputs[KSERVE_MAX_OUTPUTS]; /* [n_outputs] */
    size_t n_outputs;
    bool is_decoupled; /* a request may have several responses on a stream */
    bool is_stateful;  /* answers depend on earlier requests */
};

/* Indices of the inputs of models that speak. */
enum { KSERVE_TEXT_INPUT, KSERVE_STREAM, KSERVE_SAMPLING };

/* What the model shows, and serves unless a request asks for another output. Points into info's
 * constant texts. */
void kserve_signature(struct kserve_signature *out, const struct agent_info *info);
/* What it serves to a request for these outputs. */
void kserve_signature_for(struct kserve_signature *out, const struct agent_info *info,
                          const Inference__ModelInferRequest *r);

/* The shape, in 2 numbers; returns how many are used. */
size_t kserve_tensor_shape(int64_t out[2], const struct kserve_tensor *t);

#endif
