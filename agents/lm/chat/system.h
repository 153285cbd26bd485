/* System prompts: the text and its token ids, encoded once for all clones that begin with it. Their
 * pages are found by their ids, as all others (prefix.h). Loop. */
#ifndef AGENTS_LM_CHAT_SYSTEM_H
#define AGENTS_LM_CHAT_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#include "agents/lm/chat/template.h"
#include "base/hash.h"
#include "base/status.h"

/* Limits of a prompt's length. */
struct prompt_limits {
    size_t context;       /* tokens */
    size_t longest_bytes; /* of any token: n bytes are at least n / longest_bytes tokens */
};

/* Refuses text that cannot fit after n_ids tokens with STATUS_RANGE, before the loop spends time on
 * encoding megabytes. */
enum status prompt_check_size(const struct prompt_limits *limits, size_t n_ids, size_t n_bytes,
                              struct error *err) MUST_CHECK;

struct lm_system {
    struct hash_node by_text; /* in lm_systems.by_text */
    size_t n_refs;
    char *text;
    size_t len;
    int32_t *ids; /* [n_ids]; none for a template that is rendered whole */
    size_t n_ids;
};

/* All system prompts of a model, by their text. */
struct lm_systems {
    struct hash by_text;
    const struct chat_template *template; /* NULL: only the texts are kept, without ids */
    const struct prompt_limits *limits;
};

/* Borrows both. */
void lm_systems_init(struct lm_systems *systems, const struct chat_template *template,
                     const struct prompt_limits *limits);
void lm_systems_deinit(struct lm_systems *systems); /* none may have a reference */

/* Finds or makes a system prompt and takes a reference; text NULL: the template's own. */
enum status lm_system_ref(struct lm_system **out, struct lm_systems *systems, const char *text,
                          size_t len, struct error *err) MUST_CHECK;
void lm_system_unref(struct lm_systems *systems, struct lm_system *s); /* NULL is fine */

#endif
