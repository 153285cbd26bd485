/* A generation request of any HTTP API, as read from its JSON. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
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
    uint32_t n_top; /* alternatives returned */
    bool stream, include_usage, continuous_usage;
};

#endif
