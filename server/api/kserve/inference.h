/* One ModelInferRequest in flight: a turn of a model that speaks or a step of a model that acts, in
 * a sequence or alone, or the embeddings of texts. The caller writes the responses when it is
 * notified. All functions are called on the loop. */
#ifndef SERVER_API_KSERVE_INFERENCE_H
#define SERVER_API_KSERVE_INFERENCE_H

#include "server/act/session.h"
#include "server/api/kserve/request.h"
#include "server/api/kserve/sequences.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"

enum { INFERENCE_MAX_PARAMETERS = 6 };

/* A request in flight. It lies in the caller's memory, zeroed before inference_begin, until
 * inference_end. */
struct inference {
    struct server *server;
    uint32_t principal; /* the principal that asks */
    void (*notify)(
        struct inference *in); /* tells that a response is ready or the request is over */
    struct kserve_signature signature;
    struct kserve_request request;
    const char *id, *model_name; /* the message's, as far as they are known; for errors, too */
    uint64_t deadline_us;
    bool has_begun, is_over; /* of the turn or the step */
    struct sequence_slot slot;
    struct turn_reader reader;
    uint32_t generation;        /* the turn's, once it is accepted */
    uint64_t next_index;        /* the index of the cursor behind what was sent */
    char cursor[48];            /* the cursor of the response that is being written */
    struct conversation_id own; /* valid if has_own: a conversation for this request alone */
    bool has_own;
    struct embeddings *embeddings; /* NULL: the request asks for none */
    int64_t shape[2];              /* of the embeddings */
    struct step_wait step;
    struct step_reply *reply; /* NULL: the step is not done, or has failed */
    char own_env[40];         /* the name of a session for this step alone; "": there is none */
    struct model *model;      /* valid with own_env; else only inside inference_begin */
    struct error err;
};

/* Begins a request. The caller keeps message, what it points to, and arena until inference_end,
 * which must be called after a failure, too. NOT_FOUND for an unknown model or version; else the
 * errors of kserve_request_read, sequences_enter, conversation_turn and sessions_step. */
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
    INFERENCE_NOTHING, /* there is no response yet: notify will be called */
    INFERENCE_PART,
    INFERENCE_LAST,
    INFERENCE_FAILED, /* the request failed with in->err; out has no outputs */
};

/* Writes the next response, or the only one, to out, which points into in, arena and what in holds.
 * On a stream (is_stream) the response says whether it is the last one, and the reply comes in
 * parts if the request asks for them. */
enum inference_said inference_next(struct inference *in, bool is_stream,
                                   struct inference_response *out, struct arena *arena);
/* Returns whether inference_next has another response now. */
bool inference_has_more(const struct inference *in);

/* Ends a request that was answered or abandoned; why says which. */
void inference_end(struct inference *in, enum status why);

#endif
