/* One ModelInferRequest on its way: a turn of a model that speaks, a step of one that acts, in a
 * sequence or by itself. Whoever has it writes its responses when it says that there are some.
 * Loop. */
#ifndef SERVER_INFERENCE_H
#define SERVER_INFERENCE_H

#include "server/daemon.h"
#include "server/kserve_request.h"
#include "server/reader.h"
#include "server/sequences.h"

enum { INFERENCE_MAX_PARAMETERS = 6 };

/* The caller's memory, zeroed, from inference_begin to inference_end. */
struct inference {
    struct daemon *daemon;
    void (*wake)(struct inference *in); /* there is something to say, or it is over; only notes */
    struct kserve_signature signature;
    struct kserve_request request;
    const char *id, *model_name; /* the message's; an error's too, as far as they are known */
    uint64_t deadline_us;
    bool has_begun, is_over; /* its turn or step */
    struct sequence_item place;
    struct reader reader;
    struct conversation_id own; /* with has_own: a conversation for this request alone */
    bool has_own;
    struct step_wait step;
    struct step_reply *reply; /* NULL: none yet, or it failed */
    char own_env[40];         /* "": none; a session for this step alone */
    struct model *model;      /* with own_env; else only while it begins */
    struct error err;
};

/* message and what it points to are kept until inference_end; its arena too. A refusal has begun
 * nothing, yet inference_end is to be called. NOT_FOUND for a model or version that is none;
 * others as kserve_request_read, sequences_enter, conversation_turn, sessions_step. */
enum status inference_begin(struct inference *in, struct daemon *d,
                            const Inference__ModelInferRequest *message, uint64_t deadline_us,
                            struct arena *arena, void (*wake)(struct inference *in),
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
    int64_t dim;
};

enum inference_said {
    INFERENCE_NOTHING, /* it will wake */
    INFERENCE_PART,
    INFERENCE_LAST,
    INFERENCE_FAILED, /* in->err; out has no outputs */
};

/* The next response, or the only one. is_stream: with the flag that says whether it is the last,
 * and in parts if they are asked for. Points into in, arena and what in holds. */
enum inference_said inference_next(struct inference *in, bool is_stream,
                                   struct inference_response *out, struct arena *arena);
bool inference_has_more(const struct inference *in);

/* It is given up, or was answered. */
void inference_end(struct inference *in, enum status why);

#endif
