/* The words of a conversation so far, of both sides, as ids, and where each turn ends: the private
 * state of a clone whose agent reads words. One thread. */
#ifndef AGENTS_WORDS_WORD_HISTORY_H
#define AGENTS_WORDS_WORD_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum { WORD_HISTORY_MAX = 1 << 20 }; /* the most words, and the most turns */

struct word_history {
    struct buf words; /* int32_t [n_words] */
    struct buf ends;  /* uint32_t [n_turns]: how many words there are up to the end of each turn */
};

void word_history_init(struct word_history *h);
void word_history_deinit(struct word_history *h);
void word_history_clear(struct word_history *h);
size_t word_history_n_words(const struct word_history *h);
size_t word_history_n_turns(const struct word_history *h);
size_t word_history_size_bytes(const struct word_history *h);

/* Copies the first at_turn turns of another history into h, which is empty. RANGE if the other has
 * fewer turns; EXHAUSTED. */
enum status word_history_fork(struct word_history *h, const struct word_history *from,
                              uint32_t at_turn, struct error *err) MUST_CHECK;
/* Drops all turns but the first at_turn. RANGE if there are fewer; h is then unchanged. */
enum status word_history_rewind(struct word_history *h, uint32_t at_turn,
                                struct error *err) MUST_CHECK;

/* Makes room for a turn of n more words, so that adding it cannot fail. RANGE if the history would
 * have more than WORD_HISTORY_MAX words or turns; EXHAUSTED. */
enum status word_history_reserve(struct word_history *h, size_t n, struct error *err) MUST_CHECK;
/* Add words of a turn, and end the turn, within the room that was made (asserted). */
void word_history_add(struct word_history *h, const int32_t *words, size_t n);
void word_history_end_turn(struct word_history *h);

/* word_history_save appends the history as bytes, bound to a kind of agent (magic [8]) and the
 * version of its file; word_history_restore replaces h by what such bytes hold. EXHAUSTED; restore
 * leaves h empty then. DATA_LOSS if the bytes are not of this kind and version, or if a word is not
 * one of n_vocab; h is then unchanged. */
enum status word_history_save(const struct word_history *h, const char *magic, const char *version,
                              struct buf *out, struct error *err) MUST_CHECK;
enum status word_history_restore(struct word_history *h, const char *magic, const char *version,
                                 size_t n_vocab, const void *data, size_t size_bytes,
                                 struct error *err) MUST_CHECK;

#endif
