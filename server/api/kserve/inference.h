/* One ModelInferRequest in flight: a turn of a model that speaks, or a step of one that acts, in a
 * sequence or alone, or the embeddings of texts. Its caller writes the responses when notified.
 * Loop. */
#ifndef SERVER_API_KSERVE_INFERENCE_H
#define SERVER_API_KSERVE_INFERENCE_H

#include "server/act/session.h"
#include "server/api/kserve/request.h"
#include "server/api/kserve/sequences.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"

enum { INFERENCE_MAX_PARAMETERS = 6 };

/* The caller's memory, zeroed, from inference_begin to inference_end. */
struct inference {
    struct server *server;
    uint32_t principal;                   /* whose it is */
    void (*notify)(struct inference *in); /* a response is ready, or it is over; only notes it */
    struct kserve_signature signature;
    struct kserve_request request;
    const char *id, *model_name; /* the message's, also for errors, as far as they are known */
    uint64_t deadline_us;
    bool has_begun, is_over; /* the turn or step */
    struct sequence_slot slot;
    struct turn_reader reader;
    uint32_t generation;        /* of the turn, once it is accepted */
    uint64_t next_index;        /* of the cursor behind what was sent */
    char cursor[48];            /* in the response that is being written */
    struct conversation_id own; /* valid if has_own: a conversation for this request alone */
    bool has_own;
    struct embeddings *embeddings; /* NULL: none are asked for */
    int64_t shape[2];              /* of them */
    struct step_wait step;
    struct step_reply *reply; /* NULL: none yet, or it failed */
    char own_env[40];         /* "": none; a session for this step alone */
    struct model *model;      /* valid with own_env; else only while it begins */
    struct error err;
};

/* message, what it points to, and its arena are kept until inference_end. After a refusal nothing
 * has begun, yet inference_end must be called. NOT_FOUND for an unknown model or version; other
 * errors as of kserve_request_read, sequences_enter, conversation_turn, sessions_step. */
enum status inference_begin(struct inference *in, struct server *server, uint32_t principal,
                            const Inference__ModelInferRequest *message, uint64_t deadline_us,
                            struct arena *arena, void (*notify)(struct inference *in),
                            struct error *err) MUST_CHECK;

/* A response and its memory. */
struct inference_response {
    Inference__ModelInferResponse message;
    Inference__ModelInferResponse__InferOutputTensor outputs[KSERVE_MAX_OUTPUTS];
    Inference__ModelInferResponse__InferOutputTensor *output_list[KSERVE_MAX_OUTPUTS];
    ProtobufCBinaryData raw[KSERVE_MAX_OUTPUTS];
    Inference__ModelInferResponse__ParametersEntry parameters[INFERENCE_MAX_PARAMETERS];
    Inference__ModelInferResponse__ParametersEntry *parameter_list[INFERENCE_MAX_PARAMETERS];
    Inference__InferParameter values[INFERENCE_MAX_PARAMETERS];
};

enum inference_said {
    INFERENCE_NOTHING, /* notify will be called */
    INFERENCE_PART,
    INFERENCE_LAST,
    INFERENCE_FAILED, /* in->err; out has no outputs */
};

/* The next response, or the only one. is_stream: adds the flag that says whether it is the last,
 * and sends parts if requested. out points into in, arena and what in holds. */
enum inference_said inference_next(struct inference *in, bool is_stream,
                                   struct inference_response *out, struct arena *arena);
bool inference_has_more(const struct inference *in);

/* The request was abandoned or answered. */
void inference_end(struct inference *in, enum status why);

#endif
