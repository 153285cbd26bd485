/* A completed turn: its request and its reply. Completed turns never change; they form a chain from
 * the newest back, which forks share. */
#ifndef SERVER_CONVERSATION_COMPLETED_TURN_H
#define SERVER_CONVERSATION_COMPLETED_TURN_H

#include "agents/agent.h"
#include "agents/turn.h"
#include "server/conversation/sampling.h"

/* Results of the prompt that a turn asks for; the members are as in struct observation. */
struct prompt_wants {
    enum pooling pooling;
    bool logprobs;
    uint32_t n_tops;
    bool no_reply;   /* nothing else is wanted: no turn may follow */
    bool is_counted; /* a quota has its request already, of which this is a further part */
};

/* A copy of a turn's request, in one block with its texts. Two requests with equal copies are the
 * same request. */
struct stored_request {
    struct sampling_overrides *overrides; /* NULL: nothing given */
    uint32_t n_logprobs;                  /* 0: none requested */
    struct prompt_wants wants;
    bool is_plain;            /* no chat: as observation's */
    bool is_observed;         /* no reply is asked for */
    bool is_detached;         /* it goes on without readers, to its own end */
    const int32_t *plain_ids; /* [n_plain_ids] */
    size_t n_plain_ids;
    struct tool_use tool_use;
    struct template_variables variables;
    uint32_t n_messages;
    size_t size_bytes;         /* of all of it */
    struct message messages[]; /* [n_messages] */
};

/* By which a kept turn is found again, as a part of a keyed reply. */
struct turn_key {
    const char *text; /* NUL-ended */
    uint32_t part;
    const void *body; /* [size_bytes] of struct body_key */
    size_t size_bytes;
    uint64_t until_unix_ms; /* nobody has the key then; 0: as long as the conversation is */
};

struct turn_request {
    uint32_t number;                /* 0: the next */
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    bool is_plain; /* raw prompt: the texts, or the ids, are continued without a chat template */
    const int32_t *plain_ids; /* [n_plain_ids]; a raw prompt in place of messages */
    size_t n_plain_ids;
    const struct sampling_overrides *overrides; /* may be NULL */
    struct tool_use tool_use;                   /* its seed is drawn with the turn, where 0 */
    struct template_variables variables;
    uint32_t n_logprobs;
    struct prompt_wants wants;
    bool is_detached;           /* it goes on without readers, to its own end */
    bool is_observed;           /* no reply: the messages wait for the next turn that acts */
    const struct turn_key *key; /* NULL: none */
    uint64_t deadline_us;       /* 0: none */
    bool is_reply_deadline;     /* it ends the reply, as done; else the reader, as a failure */
    /* Reads an existing turn, from behind this place on; messages may be missing. */
    struct turn_resume {
        bool is_wanted;
        uint32_t generation;
        uint64_t index;
    } resume;
};

enum status stored_request_open(struct stored_request **out, const struct turn_request *r,
                                struct error *err) MUST_CHECK;
void stored_request_close(struct stored_request *b);
bool stored_request_matches(const struct stored_request *b, const struct turn_request *r);

struct usage {
    uint32_t n_prompt, n_cached, n_completion; /* tokens */
};

struct timings {
    uint64_t queue_us;   /* accepted until the first step */
    uint64_t prefill_us; /* first step until the first token, or the end where there are none */
    uint64_t decode_us;  /* first token until the last */
    uint64_t total_us;
    uint32_t n_steps;
};

/* A token of a reply, without its log-probability. */
struct said_token {
    int32_t id;
    uint32_t text_end; /* length of the reply's text including this token's */
};

struct said_logprob {
    float logprob;
    uint32_t tops_end; /* end of its alternatives in tops; they begin at the previous one's end */
};

/* Of a turn's prompt, in one block. */
struct prompt_results {
    float *embedding; /* [n_embedding], not normalised */
    size_t n_embedding;
    struct prompt_token *tokens; /* [n_tokens] */
    size_t n_tokens;
};

struct completed_turn {
    size_t n_refs;
    struct completed_turn *before; /* the turn before, shared */
    struct completed_turn *skip;   /* one further back, see completed_turn_find; borrowed */
    uint32_t number;
    enum finish finish;
    struct usage usage;
    struct timings timings;
    struct stored_request *request;
    char *text; /* NUL-ended */
    size_t len;
    struct said_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct said_logprob *logprobs; /* [n_tokens], NULL unless requested */
    struct top_logprob *tops;
    struct prompt_results *results; /* NULL unless requested */
    size_t total_bytes;             /* of this turn and all before it */
    uint32_t n_acted;               /* of this turn and all before it, those with a reply */
    uint32_t n_waiting;             /* messages of the turns without one behind the last of those */
};

/* Copies the reply; takes before and request on success only. */
enum status completed_turn_open(struct completed_turn **out, struct completed_turn *before,
                                struct stored_request *request, const struct reply *reply,
                                struct error *err) MUST_CHECK;
struct completed_turn *completed_turn_ref(struct completed_turn *r);
/* r may be NULL. */
void completed_turn_unref(struct completed_turn *r);

/* The turn of this number, NULL if the chain does not reach it, in O(log n). newest may be NULL. */
struct completed_turn *completed_turn_find(struct completed_turn *newest, uint32_t number);

#endif
