/* A completed turn has a request and its reply, and never changes. The completed turns of a
 * conversation form a chain from the newest back. Forks share the chain up to the fork. */
#ifndef SERVER_CONVERSATION_COMPLETED_TURN_H
#define SERVER_CONVERSATION_COMPLETED_TURN_H

#include "agents/agent.h"
#include "agents/turn.h"
#include "server/conversation/sampling.h"
#include "server/conversation/watch.h"

/* Which results of the prompt a turn asks for. The members are as in struct observation. */
struct prompt_wants {
    enum pooling pooling;
    bool logprobs;
    uint32_t n_tops;
    bool ids;        /* the prompt's token ids */
    bool no_reply;   /* the turn asks for these results alone, and no turn may follow */
    bool is_counted; /* the turn is a further part of a request that a quota has counted */
};

/* A copy of a turn's request, in one block with its texts. Two requests with equal copies are the
 * same request. */
struct stored_request {
    struct sampling_overrides *overrides; /* NULL: the request gives none */
    uint32_t n_logprobs;                  /* 0: the request asks for no log-probabilities */
    struct prompt_wants wants;
    bool is_plain;            /* the request is no chat: see struct observation */
    bool is_observed;         /* the request asks for no reply */
    bool is_detached;         /* the turn goes on to its end without readers */
    const int32_t *plain_ids; /* [n_plain_ids] */
    size_t n_plain_ids;
    struct raw_rules raw; /* of a raw prompt */
    struct tool_use tool_use;
    struct template_variables variables;
    uint32_t n_messages;
    size_t size_bytes;         /* the size of the block */
    struct message messages[]; /* [n_messages] */
};

/* The key by which a kept turn is found again, as a part of a keyed reply. */
struct turn_key {
    const char *text; /* NUL-ended */
    uint32_t part;
    const void *body; /* [size_bytes] a struct body_key, as bytes */
    size_t size_bytes;
    uint64_t until_unix_ms; /* when the key is over; 0: when the conversation is closed */
};

struct turn_request {
    uint32_t number;                /* 0: the conversation's next number */
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    bool is_plain; /* a raw prompt: the reply continues the texts or ids without a chat template */
    const int32_t *plain_ids; /* [n_plain_ids] a raw prompt in place of messages */
    size_t n_plain_ids;
    struct raw_rules raw;                       /* of a raw prompt */
    const struct sampling_overrides *overrides; /* may be NULL */
    struct tool_use tool_use;                   /* a seed of 0 is drawn with the turn */
    struct template_variables variables;
    uint32_t n_logprobs;
    struct prompt_wants wants;
    bool is_detached;           /* the turn goes on to its end without readers */
    bool is_observed;           /* no reply: the messages wait for the next turn that acts */
    const struct turn_key *key; /* NULL: the turn has no key */
    uint64_t deadline_us;       /* 0: the turn has no deadline */
    bool is_reply_deadline;     /* the deadline completes the reply; else the reader fails */
    /* With is_wanted, the request reads an existing turn from behind this place on. Then messages
     * may be missing. */
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
    uint32_t n_cached_host, n_cached_disk;     /* of n_cached: not from the KV cache itself. 0 of a
                                                  turn of an earlier process */
};

struct timings {
    uint64_t queue_us;   /* from the acceptance to the first step */
    uint64_t prefill_us; /* from the first step to the first token, or to the end without tokens */
    uint64_t decode_us;  /* from the first token to the last */
    uint64_t total_us;
    uint32_t n_steps;
};

/* A token of a reply, without its log-probability. */
struct said_token {
    int32_t id;
    uint32_t text_end; /* the length of the reply's text with the text of this token */
};

struct said_logprob {
    float logprob;
    uint32_t tops_end; /* where the token's alternatives end in tops; they begin where the
                          alternatives of the token before end */
};

/* The results of a turn's prompt, in one block. */
struct prompt_results {
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    float *embedding; /* [n_embedding], not normalised */
    size_t n_embedding;
    struct prompt_token *tokens; /* [n_tokens] */
    size_t n_tokens;
};

/* The conversation that a turn was taken in, and its generation then. With the turn's number, no
 * other turn has the same: a generation ends when a turn of it is dropped. */
struct turn_origin {
    struct conversation_id conversation;
    uint32_t generation; /* from 1; 0: not known */
};

struct completed_turn {
    size_t n_refs;
    struct completed_turn *before; /* the turn before, shared */
    struct completed_turn *skip;   /* a turn further back, for completed_turn_find; borrowed */
    uint32_t number;
    struct turn_origin origin; /* set by the opener, as timings; forks share it */
    enum finish finish;
    struct usage usage;
    struct timings timings;
    struct stored_request *request;
    char *text; /* NUL-ended */
    size_t len;
    struct said_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct said_logprob *logprobs; /* [n_tokens]; NULL: the request asks for none */
    struct top_logprob *tops;
    struct prompt_results *results; /* NULL: the request asks for none */
    size_t total_bytes;             /* the size of this turn and all turns before it */
    size_t memory_bytes;            /* about the memory that these take */
    uint32_t n_acted;               /* how many turns up to this one have a reply */
    uint32_t n_waiting;             /* messages of the turns behind the last turn with a reply */
};

/* Makes a completed turn with a copy of the reply. On success the turn owns before and request. */
enum status completed_turn_open(struct completed_turn **out, struct completed_turn *before,
                                struct stored_request *request, const struct reply *reply,
                                struct error *err) MUST_CHECK;
struct completed_turn *completed_turn_ref(struct completed_turn *r);
/* r may be NULL. */
void completed_turn_unref(struct completed_turn *r);

/* Whether the text of this token, [len] bytes, begins at this byte of the reply; completed is a
 * struct completed_turn. See struct reply_places. */
bool completed_turn_has_token(const void *completed, int32_t id, size_t at, size_t len);

/* Returns the turn of this number, in O(log n) steps; NULL if the chain has no such turn. newest
 * may be NULL. */
struct completed_turn *completed_turn_find(struct completed_turn *newest, uint32_t number);

#endif
