/* What was said in a conversation so far, both sides, as ids of words, and where each turn ends:
 * the private state of a clone whose agent reads words. One thread. */
#ifndef AGENTS_WORDS_WORD_HISTORY_H
#define AGENTS_WORDS_WORD_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum { WORD_HISTORY_MAX = 1 << 20 }; /* words, and turns */

struct word_history {
    struct buf words; /* int32_t */
    struct buf ends;  /* uint32_t [n_turns]: words up to and including the turn */
};

void word_history_init(struct word_history *h);
void word_history_deinit(struct word_history *h);
void word_history_clear(struct word_history *h);
size_t word_history_n_words(const struct word_history *h);
size_t word_history_n_turns(const struct word_history *h);
size_t word_history_size_bytes(const struct word_history *h);

/* h, which is empty, gets the first at_turn turns of another. RANGE: there are fewer. */
enum status word_history_fork(struct word_history *h, const struct word_history *from,
                              uint32_t at_turn, struct error *err) MUST_CHECK;
/* Keeps the first at_turn turns. RANGE: there are fewer. */
enum status word_history_rewind(struct word_history *h, uint32_t at_turn,
                                struct error *err) MUST_CHECK;

/* Makes room for a turn of n more words, so that self_observe cannot fail. RANGE: they would be
 * more than WORD_HISTORY_MAX. */
enum status word_history_reserve(struct word_history *h, size_t n, struct error *err) MUST_CHECK;
/* Within that room: some words of the turn; its end. */
void word_history_add(struct word_history *h, const int32_t *words, size_t n);
void word_history_end_turn(struct word_history *h);

/* To bytes and back, bound to a kind of agent (magic [8]) and its file's version. DATA_LOSS: these
 * are no such bytes, or a word is not one of n_vocab; then nothing has changed. */
enum status word_history_save(const struct word_history *h, const char *magic, const char *version,
                              struct buf *out, struct error *err) MUST_CHECK;
enum status word_history_restore(struct word_history *h, const char *magic, const char *version,
                                 size_t n_vocab, const void *data, size_t size_bytes,
                                 struct error *err) MUST_CHECK;

#endif
