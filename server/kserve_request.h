/* What a ModelInferRequest asks, checked against what the model takes. Everything lies in the
 * message or in its arena. */
#ifndef SERVER_KSERVE_REQUEST_H
#define SERVER_KSERVE_REQUEST_H

#include "base/arena.h"
#include "inference/grpc_service.pb-c.h"
#include "server/kserve_signature.h"
#include "server/sampling_patch.h"

enum { SEQUENCE_ID_MAX_BYTES = 256 };

struct kserve_request {
    /* Of those that speak. */
    struct text text;
    bool wants_stream;
    const struct sampling_patch *patch; /* NULL: nothing given */
    /* Of those that act. */
    const float *observation; /* [n] as the signature says */
    bool wants[KSERVE_MAX_OUTPUTS];
    const char *sequence; /* NULL: it is of none. "7" or "\"seven\"": a number is no text */
    bool starts, ends;    /* its sequence */
    bool wants_empty_final;
    int priority;        /* as an ask's: 100 for level 1, the highest, 0 where none is given */
    uint64_t timeout_us; /* 0: none */
};

/* INVALID naming the tensor or the parameter; UNIMPLEMENTED for shared memory and classification.
 * model_name is for what is said. */
enum status kserve_request_read(struct kserve_request *out, const Inference__ModelInferRequest *r,
                                const struct kserve_signature *sig, const char *model_name,
                                struct arena *arena, struct error *err) MUST_CHECK;

#endif
