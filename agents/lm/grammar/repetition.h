/* Notices that a reply repeats itself: a small model that may write text of any length often writes
 * the same phrase for ever. What is sound repeats itself seldom as long as this. */
#ifndef AGENTS_LM_GRAMMAR_REPETITION_H
#define AGENTS_LM_GRAMMAR_REPETITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REPETITION_MAX_PERIOD = 64, /* the most tokens of a phrase */
    REPETITION_TOKENS = 128,    /* that its repetition must have */
};

/* Zeroed: no token yet. */
struct repetition {
    int32_t last[REPETITION_MAX_PERIOD];       /* the last tokens, in turn */
    uint32_t n_repeats[REPETITION_MAX_PERIOD]; /* how many tokens in a row were equal to the token
                                                  1 + i before */
    size_t n_added;
};

/* The reply has one more token; true if it repeats itself now. */
bool repetition_add(struct repetition *r, int32_t id);

#endif
