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
    /* For models that speak. */
    struct text text;
    bool wants_stream;
    /* For embeddings. */
    const struct prompt_input *texts; /* [n_texts] */
    size_t n_texts;
    size_t dimensions;                          /* 0: all */
    const struct sampling_overrides *overrides; /* NULL: the request gives none */
    /* For models that act. */
    const float *observation; /* as many numbers as the signature says */
    bool wants[KSERVE_MAX_OUTPUTS];
    const char
        *sequence;     /* NULL: in no sequence. "7" or "\"seven\"": a number differs from a text */
    bool starts, ends; /* the request starts, and ends, the sequence */
    uint32_t turn; /* the turn's number in the sequence, which makes a retry safe; 0: the next */
    struct turn_resume resume; /* the place behind which a broken stream goes on */
    bool wants_empty_final;
    int priority; /* as a batch_request's: 100 for level 1, the highest; 0 where none is given */
    uint64_t timeout_us; /* 0: no time-out */
};

/* Reads a message. INVALID names the tensor or the parameter; UNIMPLEMENTED for shared memory and
 * classification. Errors name the model by model_name. */
enum status kserve_request_read(struct kserve_request *out, const Inference__ModelInferRequest *r,
                                const struct kserve_signature *sig, const char *model_name,
                                struct arena *arena, struct error *err) MUST_CHECK;

#endif
