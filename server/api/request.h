/* A generation request of any HTTP API, as read from its JSON. Results borrow the JSON and lie in
 * the given arena. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "agents/message_extras.h"
#include "agents/turn.h"
#include "base/arena.h"
#include "server/api/tools.h"
#include "server/conversation/sampling.h"

/* The input of one reply: as in a turn_request. */
struct prompt {
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    bool is_plain;
    struct raw_rules raw; /* of a plain one */
    bool has_names;       /* a message that is no tool's result has a name */
    bool is_begun;        /* the last message, the assistant's, is the beginning of the reply */
    struct tool_use tool_use;
};

/* What an API calls a field. */
struct field_name {
    const char *ours, *theirs;
};

struct request {
    const char *model; /* "": the default */
    struct prompt *prompts;
    size_t n_prompts;
    uint32_t n; /* replies to each prompt */
    struct sampling_overrides overrides;
    const char *left_out; /* what is not enforced, or left out, as a list; NULL or "": nothing */
    const struct field_name *names;    /* of errors, the last with NULL; NULL: none differs */
    const struct offered_tools *tools; /* NULL: none */
    bool is_function_call;             /* the call is answered in OpenAI's old form */
    struct template_variables variables;
    const char *thinks;  /* the field that asks for thoughts; NULL: none does, models may */
    bool keeps_thoughts; /* in the text of the reply */
    bool want_logprobs;
    uint32_t n_top;           /* alternatives returned */
    bool echo;                /* the prompt comes before the reply; with its log-probabilities if
                                 want_logprobs */
    bool has_prompt_logprobs; /* the prompt's log-probabilities in a list of their own */
    uint32_t n_prompt_top;    /* alternatives in that */
    bool no_reply;            /* results of the prompt alone */
    bool wants_ids;           /* the prompt's token ids and those of the reply */
    bool names_ids;           /* tokens of log-probabilities are named by their ids */
    bool stream, include_usage, continuous_usage;
    bool is_background; /* the turns go on without the client, who is answered once they are
                           accepted */
};

enum { REQUEST_MAX_CHOICES = 128, REQUEST_MAX_PROMPTS = 256, REQUEST_MAX_MESSAGES = 4096 };
enum { REQUEST_MAX_CALLS = 128 }; /* of one message */

/* Adds what is left out of the request to its list. what: printable ASCII without a comma. */
enum status request_leave_out(struct request *r, const char *what, struct arena *arena,
                              struct error *err) MUST_CHECK;
/* Adds the type of a tool that is left out to a list of such, once, in letters that a header may
 * have. False: there is no memory. */
bool request_list_left_out(json_t *list, const char *type);
/* Gives err's field the name that the client knows it by. Returns err->status. */
enum status request_name_error(const struct request *r, struct error *err);

/* What the replies must match. format: the value of
 * OpenAI's own field for it, or NULL. */
enum status request_constraint(struct request *out, const json_t *body, const json_t *format,
                               const char *format_name, struct arena *arena,
                               struct error *err) MUST_CHECK;

enum tools_spelling { TOOLS_OF_CHAT, TOOLS_OF_RESPONSES, TOOLS_AS_FUNCTIONS };

/* Reads tools and their choice; out->tools stays as it is if there are none. Borrows body. */
enum status request_tools(struct request *out, const json_t *body, enum tools_spelling spelling,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* How much the model is asked to think. */
struct thinking_request {
    enum thinking thinking;
    const char *effort; /* static; NULL: not given */
    bool has_budget;
    uint32_t budget; /* the most tokens of the thoughts */
};

/* The value of an effort's field, which may be NULL: then out stays as it is. */
enum status request_effort(struct thinking_request *out, const json_t *value, const char *name,
                           struct error *err) MUST_CHECK;
/* The member of object that bounds the thoughts' tokens; out stays as it is where there is none. */
enum status request_budget(struct thinking_request *out, const json_t *object, const char *name,
                           struct error *err) MUST_CHECK;
/* Reads the variables of the model's chat template: reasoning_effort, enable_thinking,
 * thinking_budget and chat_template_kwargs, of which the last goes first. asked: what the API's own
 * fields say; may be NULL. */
enum status request_variables(struct request *out, const json_t *body,
                              const struct thinking_request *asked, struct arena *arena,
                              struct error *err) MUST_CHECK;
/* kwargs: an object, or NULL. */
enum status template_variables_make(struct template_variables *out,
                                    const struct thinking_request *asked, const json_t *kwargs,
                                    struct arena *arena, struct error *err) MUST_CHECK;

/* Puts into r what its tools and thoughts mean for a model's replies, once the model is known,
 * before its generation starts. */
enum status request_fit_model(struct request *r, const struct reply_format *format,
                              struct arena *arena, struct error *err) MUST_CHECK;
/* Puts the extras into the message, with memory of the arena. */
enum status request_message_extras(struct message *out, const struct message_extras *x,
                                   struct arena *arena, struct error *err) MUST_CHECK;

/* A list of {"role", "content"}. */
enum status request_messages(struct prompt *out, const json_t *list, const char *name,
                             struct arena *arena, struct error *err) MUST_CHECK;
/* Whether the messages end with one of the assistant's. */
bool request_ends_with_reply(const struct prompt *p);
/* The text of a message: a string, or a list of parts that are text. Its role stays. */
enum status request_content(struct message *out, const json_t *value, const char *name,
                            struct arena *arena, struct error *err) MUST_CHECK;
/* Reads parse_special and add_special_tokens, or their other names, into the rules of raw texts;
 * what is not given stays. */
enum status request_raw_rules(struct raw_rules *out, const json_t *body,
                              struct error *err) MUST_CHECK;
/* A string, a list of strings, of ids, or of lists of ids. rules: of the texts; ids are taken as
 * they are. */
enum status request_prompts(struct request *out, const json_t *value, const struct raw_rules *rules,
                            struct arena *arena, struct error *err) MUST_CHECK;
/* Makes of the prompts, which must be texts, those of a gap with this text behind it. suffix: NULL
 * or "" is none, and changes nothing. */
enum status request_fill_in(struct request *out, const json_t *suffix, struct arena *arena,
                            struct error *err) MUST_CHECK;
/* A chat's prompt as ids. */
enum status request_chat_ids(struct prompt *out, const json_t *value, const char *name,
                             struct arena *arena, struct error *err) MUST_CHECK;

#endif
