/* A generation request of any HTTP API, as read from its JSON. Results borrow the JSON and lie in
 * the given arena. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/arena.h"
#include "server/conversation/sampling.h"

/* The input of one reply: as in a turn_request. */
struct prompt {
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    bool is_plain;
};

struct request {
    const char *model; /* "": the default */
    struct prompt *prompts;
    size_t n_prompts;
    uint32_t n; /* replies to each prompt */
    struct sampling_overrides overrides;
    const char *left_out; /* keywords of a schema that are not enforced; NULL or "": none */
    bool want_logprobs;
    uint32_t n_top;           /* alternatives returned */
    bool echo;                /* the prompt comes before the reply; with its log-probabilities if
                                 want_logprobs */
    bool has_prompt_logprobs; /* the prompt's log-probabilities in a list of their own */
    uint32_t n_prompt_top;    /* alternatives in that */
    bool no_reply;            /* only what is wanted of the prompt */
    bool stream, include_usage, continuous_usage;
    bool is_background; /* the turns go on without the client, who is answered once they are
                           accepted */
};

enum { REQUEST_MAX_CHOICES = 128, REQUEST_MAX_PROMPTS = 256, REQUEST_MAX_MESSAGES = 4096 };

/* A list of {"role", "content"}. */
enum status request_messages(struct prompt *out, const json_t *list, const char *name,
                             struct arena *arena, struct error *err) MUST_CHECK;
/* For APIs in which a last message of the assistant's is the beginning of the reply: INVALID. */
enum status request_refuse_begun(const struct prompt *p, const char *name,
                                 struct error *err) MUST_CHECK;
/* The text of a message: a string, or a list of parts that are text. Its role stays. */
enum status request_content(struct message *out, const json_t *value, const char *name,
                            struct arena *arena, struct error *err) MUST_CHECK;
/* A string, a list of strings, of ids, or of lists of ids. */
enum status request_prompts(struct request *out, const json_t *value, struct arena *arena,
                            struct error *err) MUST_CHECK;

#endif
