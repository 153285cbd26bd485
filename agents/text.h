/* The facet of kinds of agents that have a vocabulary: text to tokens and back, constraints, and
 * results of prompts. All functions run on the loop. */
#ifndef AGENTS_TEXT_H
#define AGENTS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

struct agent;
struct agent_turn;
struct clone;
struct raw_rules;

struct agent_text {
    bool gives_prompt_results; /* embeddings and log-probabilities of prompts */
    /* Appends the text's tokens, int32_t, to ids. Control tokens written in the text are recognised
     * only if it is trusted. */
    enum status (*tokenize)(const struct agent *a, const char *text, size_t len, bool is_trusted,
                            struct buf *ids, struct error *err);
    /* Appends the ids of a new conversation's raw prompt, n texts. */
    enum status (*raw_prompt)(const struct agent *a, const struct raw_rules *rules,
                              const struct message *texts, size_t n, struct buf *ids,
                              struct error *err);
    enum status (*detokenize)(const struct agent *a, const int32_t *ids, size_t n, struct buf *text,
                              struct error *err);
    /* Appends, as int32_t, the prompt of a new conversation's first turn with these messages, n >
     * 0, tools, as in a tool_use, and variables, as in template_variables. The prompt ends with the
     * start of a reply only if is_replied. */
    enum status (*render)(const struct agent *a, const struct message *messages, size_t n,
                          struct text tools, struct text variables, bool is_replied,
                          struct buf *ids, struct error *err);
    /* Optional. INVALID for a chat template that cannot be compiled: open takes it, since raw
     * prompts need none. */
    enum status (*check_template)(const struct agent *a, struct error *err);
    /* Gets what a turn with a constraint, or one that wants_preparing, needs beside its place in a
     * step. Where that is not there at once, prepare sets turn->is_preparing, and the kind calls
     * agent_turn_prepared once, later, unless unprepare was called. */
    enum status (*prepare)(struct clone *c, struct agent_turn *turn, struct error *err);
    void (*unprepare)(struct clone *c, struct agent_turn *turn);
};

#endif
