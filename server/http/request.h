/* What OpenAI's requests ask for, read from their JSON: the part that is alike in all of them. What
 * is read borrows the JSON and lies in the arena given. Unknown fields are ignored; known ones that
 * cannot be met are refused. */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include <jansson.h>

#include "base/arena.h"
#include "server/record.h"

enum { REQUEST_MAX_CHOICES = 128, REQUEST_MAX_PROMPTS = 256, REQUEST_MAX_MESSAGES = 4096 };

/* What one reply is to: as in a turn_request. */
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
    struct sampling_patch patch;
    bool want_logprobs;
    uint32_t n_top; /* alternatives shown */
    bool stream, include_usage, continuous_usage;
};

enum status request_chat(struct request *out, const json_t *body, struct arena *arena,
                         struct error *err) MUST_CHECK;
enum status request_completion(struct request *out, const json_t *body, struct arena *arena,
                               struct error *err) MUST_CHECK;

struct responses_request {
    struct request base;                 /* one prompt, without instructions */
    const char *instructions, *previous; /* NULL: not given */
    bool store;
};

enum status request_responses(struct responses_request *out, const json_t *body,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* max_field: how this API calls the bound on the reply's length. */
enum status request_sampling(struct sampling_patch *out, const json_t *body, const char *max_field,
                             struct arena *arena, struct error *err) MUST_CHECK;
enum status request_messages(struct prompt *out, const json_t *list, const char *name,
                             struct arena *arena, struct error *err) MUST_CHECK;
/* A string, a list of strings, of ids, or of lists of ids. */
enum status request_prompts(struct request *out, const json_t *value, struct arena *arena,
                            struct error *err) MUST_CHECK;

#endif
