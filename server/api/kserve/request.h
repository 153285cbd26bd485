/* A ModelInferRequest, decoded and checked against the model's signature. All data lies in the
 * message or in its arena. */
#ifndef SERVER_API_KSERVE_REQUEST_H
#define SERVER_API_KSERVE_REQUEST_H

#include "base/arena.h"
#include "inference/grpc_service.pb-c.h"
#include "server/api/kserve/signature.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/embeddings.h"

enum { SEQUENCE_ID_MAX_BYTES = 256 };

struct kserve_request {
    /* Of models that speak. */
    struct text text;
    bool wants_stream;
    /* Of embeddings. */
    const struct prompt_input *texts; /* [n_texts] */
    size_t n_texts;
    size_t dimensions;                          /* 0: all */
    const struct sampling_overrides *overrides; /* NULL: nothing given */
    /* Of models that act. */
    const float *observation; /* [n] by the signature */
    bool wants[KSERVE_MAX_OUTPUTS];
    const char
        *sequence;     /* NULL: in no sequence. "7" or "\"seven\"": a number differs from a text */
    bool starts, ends; /* the sequence */
    uint32_t turn;     /* of the sequence's conversation: makes a retry safe; 0: the next */
    struct turn_resume resume; /* from the place after which a broken stream goes on */
    bool wants_empty_final;
    int priority; /* as a batch_request's: 100 for level 1, the highest; 0 where none is given */
    uint64_t timeout_us; /* 0: none */
};

/* INVALID naming the tensor or the parameter; UNIMPLEMENTED for shared memory and classification.
 * model_name appears in messages. */
enum status kserve_request_read(struct kserve_request *out, const Inference__ModelInferRequest *r,
                                const struct kserve_signature *sig, const char *model_name,
                                struct arena *arena, struct error *err) MUST_CHECK;

#endif
