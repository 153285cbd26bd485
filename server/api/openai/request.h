/* The common part of OpenAI's requests, read from their JSON. Results borrow the JSON and lie in
 * the given arena. Unknown fields are ignored; known but unsupported ones are refused. */
#ifndef SERVER_API_OPENAI_REQUEST_H
#define SERVER_API_OPENAI_REQUEST_H

#include <jansson.h>

#include "agents/message_extras.h"
#include "base/arena.h"
#include "server/api/request.h"

struct pair;

/* The beginning of the "encrypted_content" of reasoning that a response has given out, which goes
 * on in base64: clients that keep nothing else send it back. */
#define RESPONSE_THOUGHTS_MARK "parley:"
/* The same of a compaction item, whose content is a summary. */
#define RESPONSE_SUMMARY_MARK "parley-summary:"

enum status request_chat(struct request *out, const json_t *body, struct arena *arena,
                         struct error *err) MUST_CHECK;
enum status request_completion(struct request *out, const json_t *body, struct arena *arena,
                               struct error *err) MUST_CHECK;

/* Fields that a response repeats as the request has them. */
enum response_echo {
    ECHO_MAX_TOOL_CALLS,
    ECHO_PROMPT_CACHE_KEY,
    ECHO_PROMPT_CACHE_RETENTION,
    ECHO_REASONING_SUMMARY,
    ECHO_SAFETY_IDENTIFIER,
    ECHO_TEXT,
    ECHO_TOP_LOGPROBS,
    ECHO_TRUNCATION,
    ECHO_USER,
    N_RESPONSE_ECHOES
};

struct responses_request {
    struct request base;                 /* one prompt, without instructions */
    const char *instructions, *previous; /* NULL: not given */
    const char *conversation;            /* its id or name; NULL: not given */
    const char *tools, *choice;          /* JSON, for the response */
    const char *echo[N_RESPONSE_ECHOES]; /* JSON, for the response; NULL: its default */
    bool gives_thoughts, gives_logprobs; /* what "include" asks for */
    bool truncates;                      /* the front of a history that is too long is dropped */
    bool store;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

enum status request_responses(struct responses_request *out, const json_t *body,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* max_field: this API's name of the bound on the reply's length. */
enum status request_sampling(struct sampling_overrides *out, const json_t *body,
                             const char *max_field, struct arena *arena,
                             struct error *err) MUST_CHECK;
/* The input items of Responses as messages of chat completions, a new reference. name: the field's.
 */
enum status request_items(json_t **out, const json_t *input, const char *name,
                          struct error *err) MUST_CHECK;
/* The texts by name of an object, or of NULL: [*ret_n] in the arena, borrowed from it. */
enum status request_metadata(const struct pair **out, size_t *ret_n, const json_t *metadata,
                             struct arena *arena, struct error *err) MUST_CHECK;
/* The id or name that the field "conversation" has: a string, or an object with an id. NULL: value
 * is none of these. */
const char *request_conversation(const json_t *value);

#endif
