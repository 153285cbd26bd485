/* The options of a conversation. Options never change; an update makes new options. A conversation
 * shares its options with its forks, and a turn in flight holds the options with which the turn was
 * accepted. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_OPTIONS_H
#define SERVER_CONVERSATION_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct sampling_overrides;

struct limits {
    uint32_t max_turns;  /* 0: the server's bound */
    uint32_t max_tokens; /* the most tokens of the context; 0: the model's bound */
    int priority;        /* -100 … 100 */
};

struct conversation_options {
    size_t n_refs;
    struct limits limits;
    uint64_t ttl_ms; /* the client's idle time; 0: the server's, see conversation_ttl_ms */
    struct sampling_overrides *overrides; /* NULL: there are none */
    const char *system;                   /* NUL-ended; "": the model's own system prompt */
    size_t system_len;
    struct conversation_options
        *origin; /* the options that own the text of system, a reference; NULL: own has it */
    char own[];
};

/* Makes options with copies of system and overrides. overrides may be NULL. EXHAUSTED. */
enum status conversation_options_open(struct conversation_options **out, const char *system,
                                      size_t system_len, const struct sampling_overrides *overrides,
                                      const struct limits *limits, uint64_t ttl_ms,
                                      struct error *err) MUST_CHECK;
/* Makes options that differ from from in overrides, which are copied and may be NULL, and in
 * ttl_ms. Both share the text of the system prompt. EXHAUSTED. */
enum status conversation_options_change(struct conversation_options **out,
                                        struct conversation_options *from,
                                        const struct sampling_overrides *overrides, uint64_t ttl_ms,
                                        struct error *err) MUST_CHECK;
struct conversation_options *conversation_options_ref(struct conversation_options *o);
void conversation_options_unref(struct conversation_options *o); /* NULL is fine */

#endif
