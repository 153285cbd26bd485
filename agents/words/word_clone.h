/* A clone whose private state is the conversation so far, as ids of words, and the table functions
 * that the kinds which read words (starspace, seq2seq) have in common. One thread. */
#ifndef AGENTS_WORDS_WORD_CLONE_H
#define AGENTS_WORDS_WORD_CLONE_H

#include "agents/agent.h"
#include "agents/words/word_history.h"

struct word_clone {
    struct clone base;
    struct word_history past;
};

struct word_clone *word_clone_of(struct clone *c);
const struct word_clone *const_word_clone_of(const struct clone *c);

/* Entries of a struct agent_type (agents/agent.h). */
enum status word_clone_open(struct clone *c, const struct clone_config *config,
                            struct error *err) MUST_CHECK;
void word_clone_close(struct clone *c);
void word_clone_info(const struct clone *c, struct clone_info *out);
enum status word_clone_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                            struct error *err) MUST_CHECK;
enum status word_clone_rewind(struct clone *c, uint32_t at_turn, struct error *err) MUST_CHECK;
void word_clone_reset(struct clone *c);

#endif
