/* A turn of an agent: its observation, its row in the batcher, its reply, and the life cycle of all
 * turns:
 *
 *   agent_turn_observe   the clone takes in the observation
 *   agent_turn_ask       the batcher runs its steps; ended is called once, later
 *   agent_turn_cancel    ended comes soon
 *    in ended, or when agent_turn_ask was refused, exactly one of
 *     agent_turn_keep    the clone keeps its reply: the turn counts
 *     agent_turn_drop    the clone is as before the turn
 *     agent_turn_ask     again, from its present state: the deadline was extended
 *
 * One that an earlier process has computed is observed, recalled (agent_turn_recall) and kept.
 *
 * The caller decides which, since it may fail to store the turn or its reply. A table asserts the
 * order. Loop. */
#ifndef AGENTS_TURN_H
#define AGENTS_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "agents/options.h"
#include "agents/tensor.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "batching/batcher.h"

struct clone;
struct agent_turn;

/* A continuation to score: a text, or its token ids. Ids are scored as they are; a text behind
 * messages with roles is followed by the end of the turn. */
struct scored_continuation {
    struct text text;
    const int32_t *ids; /* [n_ids] NULL: the text's */
    size_t n_ids;
};

/* How a raw prompt is read, which is text or token ids without roles or chat template. */
struct raw_rules {
    bool parses_control; /* control tokens written in the text are recognised */
    bool adds_no_bos;    /* else bos comes first where the model adds one and the prompt has none */
    /* The texts are two, what is before a gap and what is behind it. The reply fills the gap in;
     * INVALID for a model that has no tokens for this. Control tokens in them are text. Of three
     * and more, the third ends the text before the gap, by parses_control, and the others are the
     * names and texts of files that come before all that, two by two. */
    bool fills_in;
    bool is_chat; /* the ids are a chat's prompt: the reply may have reasoning and calls */
};

/* A turn's input: messages for language models, tensors for policies and parameter servers.
 * Borrowed until the turn's end: it lies in the turn's arena. */
struct observation {
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const struct tensor_view *tensors; /* [n_tensors] */
    size_t n_tensors;
    const struct text *labels; /* [n_labels] right answers to learn from; a plug-in's */
    size_t n_labels;
    float reward;  /* of the previous action; policies */
    bool is_first; /* first step of an episode: a recurrent state is reset */
    /* The participant's index under lock-step: orders the rows of a batch. A policy draws by
     * (sampling.seed, row_key, the clone's step), independent of the order of arrival. */
    uint32_t row_key;
    struct sampling sampling; /* complete: defaults are filled in */
    float epsilon;            /* [0, 1] how likely a policy acts at random, all actions alike */
    uint32_t turn;            /* 1, 2, … */
    struct tool_use tool_use; /* of a language model's reply */
    struct template_variables variables; /* of its chat template */
    /* Continuations to score, each as the whole reply, before a reply is generated. Kinds that give
     * no probabilities leave the reply's scores empty. */
    const struct scored_continuation *scored; /* [n_scored] none empty */
    size_t n_scored;
    /* The prompt's embedding, which only no_reply may ask for; or the log-probability of each of
     * its tokens, with the most likely ones. Neither together with scored. POOLING_RANK: the
     * messages are a query and a document, and the embedding is one number, how well they fit:
     * from 0 to 1. */
    enum pooling pooling;
    bool want_prompt_logprobs;
    uint32_t n_prompt_tops; /* at most SAMPLING_MAX_LOGPROBS */
    /* Only the scores, the embedding or the log-probabilities are wanted; such a turn does not
     * change the clone. */
    bool no_reply;
    /* An earlier process had accepted the turn: what is bounded when a turn is accepted is not
     * bounded again. */
    bool is_accepted;
    /* A raw prompt: the messages' text and these token ids behind it, without roles or chat
     * template. The reply continues it. */
    bool is_raw_prompt;
    const int32_t *raw_ids; /* [n_raw_ids] */
    size_t n_raw_ids;
    struct raw_rules raw;
    bool want_prompt_ids; /* the reply has prompt_ids */
    /* The token ids that the reply probably has, from its first token on; they may be any numbers.
     * A kind that has tokens checks several of them in one step. They change no bit of the reply.
     */
    const int32_t *predicted; /* [n_predicted] */
    size_t n_predicted;
};

/* How likely a continuation is as the reply. In the turn's arena. */
struct text_score {
    const float *logprobs; /* [n_tokens] natural, each given all tokens before it */
    uint32_t n_tokens;     /* of the text; where messages have roles also the end of the turn */
    uint32_t n_top;        /* how many of them no token was likelier than */
    double logprob;        /* of the text: the sum of logprobs, in order */
};

/* A token of a prompt whose log-probabilities are wanted. */
struct prompt_token {
    int32_t id;
    uint32_t rank; /* 1: no token was likelier; 0: the first token, which has no log-probability */
    float logprob; /* natural, given all tokens before it */
    uint32_t n_top;
    const struct top_logprob *top; /* [n_top], most likely first; in the turn's arena */
};

/* The result so far. Owned by the loop: what batch_act computes stays in the row's private state
 * until stepped merges it. */
struct reply {
    const struct tensor_view *tensors; /* [n_tensors], in the turn's arena */
    size_t n_tensors;
    uint64_t params_version;
    uint32_t batch_rows;        /* rows of the step that produced the reply */
    struct buf text;            /* UTF-8; never ends inside a character */
    struct reply_token *tokens; /* [n_tokens] */
    size_t n_tokens, cap_tokens;
    enum finish finish;
    uint32_t n_prompt, n_cached; /* tokens of the whole prompt; of those, not computed again */
    uint32_t n_cached_host, n_cached_disk; /* of n_cached: from host pages, and from disk */
    uint32_t n_prefilled;                  /* tokens of the prompt in KV pages so far */
    const struct text_score *scores;       /* [n_scores], as many as are complete, in order */
    size_t n_scores;
    const float *embedding; /* [n_embedding], once it is complete; not normalised */
    size_t n_embedding;
    const struct prompt_token *prompt; /* [n_prompt_tokens], once they are complete */
    size_t n_prompt_tokens;
    const int32_t
        *prompt_ids; /* [n_prompt] in the turn's arena; NULL: the turn does not want them */
};

enum agent_turn_state {
    AGENT_TURN_NEW,       /* to be observed */
    AGENT_TURN_OBSERVED,  /* to be asked, or dropped */
    AGENT_TURN_ASKED,     /* the batcher has its request */
    AGENT_TURN_CANCELLED, /* so too, until its step ends */
    AGENT_TURN_ENDED,     /* to be kept, dropped, or asked again */
    AGENT_TURN_OVER,      /* kept or dropped; its reply may still be read */
};

/* err is the request's result and is valid only during the call. The turn may be freed inside, once
 * it was kept or dropped. */
typedef void (*agent_turn_ended_fn)(struct agent_turn *t, const struct error *err);
/* The reply has grown, or more of the prompt was read. */
typedef void (*agent_turn_more_fn)(struct agent_turn *t);

/* How a turn is submitted. */
struct agent_turn_terms {
    uint64_t deadline_us; /* 0: none */
    int priority;         /* as a request's */
    agent_turn_ended_fn ended;
    agent_turn_more_fn more; /* as batch_request.more; may be NULL */
    void *arg;               /* for callers that do not embed the turn */
};

/* Embedded in the caller's struct. The agent uses seen, row, reply and arena. */
struct agent_turn {
    struct observation seen;
    struct row row;
    struct reply reply;
    struct arena *arena;

    /* turn.c's. */
    enum agent_turn_state state;
    struct clone *clone;    /* once observed */
    bool is_preparing;      /* asked, and not submitted yet: see agents/text.h */
    bool wants_preparing;   /* set by observe: prepare is called, as for a constraint */
    uint32_t n_steps;       /* of all its requests that have ended */
    uint64_t first_step_us; /* of the first request that had a step; 0: none had */
    /* Once asked. */
    struct batcher *batcher;
    struct agent_turn_terms terms;
    struct batch_request request;
};

static inline struct agent_turn *agent_turn_of(struct row *row)
{
    return container_of(row, struct agent_turn, row);
}

void agent_turn_init(struct agent_turn *t, struct arena *arena, size_t reply_limit_bytes);
void agent_turn_deinit(struct agent_turn *t); /* state NEW or OVER; calling it again is fine */

/* Has c observe t->seen. On failure nothing has changed. */
enum status agent_turn_observe(struct agent_turn *t, struct clone *c, struct error *err) MUST_CHECK;

/* On success terms->ended is called once, never inside this call. A refusal changes nothing. */
enum status agent_turn_ask(struct agent_turn *t, struct batcher *b,
                           const struct agent_turn_terms *terms, struct error *err) MUST_CHECK;

/* For agents: what the turn waited for is there, or err says why it will not be. */
void agent_turn_prepared(struct agent_turn *t, const struct error *err);

/* The turn was submitted and has not ended. */
static inline bool agent_turn_is_asked(const struct agent_turn *t)
{
    return t->state == AGENT_TURN_ASKED || t->state == AGENT_TURN_CANCELLED;
}

/* Moves the deadline to deadline_us (0: none) if that is later. The turn must be asked. */
void agent_turn_postpone(struct agent_turn *t, uint64_t deadline_us);
/* ended is called with CANCELLED, or with the turn's own result if the running step is its last.
 * The turn must be asked; calling it again is fine. */
void agent_turn_cancel(struct agent_turn *t);

/* Observed or ended: the caller must still keep or drop it. */
static inline bool agent_turn_is_open(const struct agent_turn *t)
{
    return t->state == AGENT_TURN_OBSERVED || t->state == AGENT_TURN_ENDED;
}

void agent_turn_keep(struct agent_turn *t); /* ended */

/* What agent_turn_recall will need; ended. */
enum status agent_turn_trace(const struct agent_turn *t, struct buf *out,
                             struct error *err) MUST_CHECK;
/* The observed turn has ended, with this trace: "" for a turn that ended before its first step. On
 * failure it is as before. */
enum status agent_turn_recall(struct agent_turn *t, const void *trace, size_t size_bytes,
                              struct error *err) MUST_CHECK;
void agent_turn_drop(struct agent_turn *t); /* observed, or ended */

#endif
