/* Messages with roles, sampling parameters, and the tokens of a reply. */
#ifndef AGENTS_MESSAGE_H
#define AGENTS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/constraint/form.h"
#include "base/status.h"
#include "proto/sampling_fields.h"

/* ROLE_TOOL: the result of a call. */
enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };

const char *role_name(enum role r);
/* "system", "user", "assistant", "tool"; anything else is STATUS_INVALID naming them. */
enum status role_parse(enum role *out, const char *name, struct error *err) MUST_CHECK;

struct message {
    enum role role;
    const char *text; /* UTF-8, NUL-ended; may be empty */
    size_t len;
    const char *more; /* a JSON object, see message_extras.h; may be NULL where more_len is 0 */
    size_t more_len;
};

struct logit_bias {
    int32_t id;
    float bias; /* added to the logit; -inf bans */
};

struct text {
    const char *text;
    size_t len;
};

/* The tools that a reply may call. */
struct tool_use {
    struct text tools; /* a JSON array in the form of OpenAI's chat completions; len 0: none */
    bool is_forced;    /* the reply is a call: a constraint says so, too */
    bool is_single;    /* at most one call */
    uint64_t seed;     /* of the ids of its calls */
};

/* Whether a request wants the model to think first. */
enum thinking { THINKING_DEFAULT, THINKING_ON, THINKING_OFF };
enum { N_THINKING = THINKING_OFF + 1 };

enum { TEMPLATE_VARIABLE_MAX_NAME = 64 };

/* What a request sets in the model's chat template, beside messages and tools. */
struct template_variables {
    struct text json; /* an object; len 0: none */
    enum thinking thinking;
};

/* What a reply's text must match; constraint/constraint.h makes them. */
struct constraint {
    enum constraint_form form;
    const char *text;
    size_t len;
};

enum { SAMPLING_MAX_STOPS = 16, SAMPLING_MAX_BIASES = 1024, SAMPLING_MAX_LOGPROBS = 20 };
enum { SAMPLING_MAX_STOP_BYTES = 4096 }; /* of one stop text */

/* How to choose tokens. The members that are one number each are the rows of
 * proto/sampling_fields.h: temperature (0: greedy, exact), top_p, min_p, top_k (0: all),
 * repetition_penalty (1: none), presence_penalty, frequency_penalty, max_tokens (of the reply; 0:
 * until the context is full), min_tokens (before an end token or a stop may end the reply), seed,
 * ignore_eos. sampling_init fills the neutral values. An agent fills its model's defaults; the
 * conversation's and then the turn's values override them. */
struct sampling {
#define SAMPLING_MEMBER(name, NAME, kind, ...) SAMPLING_TYPE_##kind name;
    SAMPLING_FIELDS(SAMPLING_MEMBER)
#undef SAMPLING_MEMBER
    bool has_seed; /* else the conversation draws one */
    uint32_t
        n_logprobs; /* top alternatives per token; 0 with want_logprobs: only the token's own */
    bool want_logprobs;
    const struct text *stops; /* [n_stops], none empty */
    size_t n_stops;
    const struct logit_bias *biases;
    size_t n_biases;
    const struct constraint *constraint; /* NULL: none */
};

void sampling_init(struct sampling *s);

/* STATUS_INVALID naming the field. n_vocab bounds the ids of biases. */
enum status sampling_check(const struct sampling *s, size_t n_vocab, struct error *err) MUST_CHECK;

enum finish {
    FINISH_NONE,      /* not finished */
    FINISH_STOP,      /* the model ended its turn, or a stop text came */
    FINISH_LENGTH,    /* max_tokens, or the context is full */
    FINISH_CANCELLED, /* by the caller, or the caller disconnected */
    FINISH_DEADLINE,
    FINISH_ERROR,
    FINISH_OBSERVED,    /* the turn asked for no reply */
    FINISH_WORKER_LOST, /* the process that computed the agent went away in mid-reply */
};

/* "stop", "length", "cancelled", "deadline", "error", "observed",
 * "worker_lost". */
const char *finish_name(enum finish f);

struct top_logprob {
    int32_t id;
    float logprob; /* natural */
};

/* One token of a reply. */
struct reply_token {
    int32_t id;
    float logprob; /* of the model's distribution before temperature and cuts; if requested */
    const struct top_logprob *top; /* [n_top], most likely first, in the turn's arena */
    uint32_t n_top;
    uint32_t text_end; /* length of the reply's text up to and including this token's */
};

#endif
