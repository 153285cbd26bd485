/* The options of a conversation. Its forks share them, and turns in flight hold those that they
 * were accepted with: options never change, an update makes new ones. */
#ifndef SERVER_CONVERSATION_OPTIONS_H
#define SERVER_CONVERSATION_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct sampling_overrides;

struct limits {
    uint32_t max_turns;  /* 0: the server's bound */
    uint32_t max_tokens; /* of the context; 0: the model's */
    int priority;        /* -100 … 100 */
};

struct conversation_options {
    size_t n_refs;
    struct limits limits;
    uint64_t ttl_ms; /* that a client asked for; 0: the server's, see conversation_ttl_ms */
    struct sampling_overrides *overrides; /* NULL: nothing given */
    const char *system;                   /* NUL-ended; "": the model's own */
    size_t system_len;
    struct conversation_options
        *origin; /* whose own text system is, a reference; NULL: it is ours */
    char own[];
};

/* Copies system and overrides, which may be NULL. */
enum status conversation_options_open(struct conversation_options **out, const char *system,
                                      size_t system_len, const struct sampling_overrides *overrides,
                                      const struct limits *limits, uint64_t ttl_ms,
                                      struct error *err) MUST_CHECK;
/* The same options but for overrides, copied, which may be NULL, and ttl_ms. Shares the system
 * prompt. */
enum status conversation_options_change(struct conversation_options **out,
                                        struct conversation_options *from,
                                        const struct sampling_overrides *overrides, uint64_t ttl_ms,
                                        struct error *err) MUST_CHECK;
struct conversation_options *conversation_options_ref(struct conversation_options *o);
void conversation_options_unref(struct conversation_options *o); /* NULL is fine */

#endif
