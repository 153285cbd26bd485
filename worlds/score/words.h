/* Words as numbers: equal words, and equal runs of words, have equal numbers, so that n-grams are
 * counted in an array. */
#ifndef WORLDS_SCORE_WORDS_H
#define WORLDS_SCORE_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

/* A growing row of numbers. Zeroed is empty; freed by ids_deinit. */
struct ids {
    uint32_t *at;
    size_t n, cap;
};

enum status ids_push(struct ids *ids, uint32_t id) MUST_CHECK;
/* n zeros. */
enum status ids_zero(struct ids *ids, size_t n) MUST_CHECK;
enum status ids_copy(struct ids *ids, const struct ids *from) MUST_CHECK;
void ids_deinit(struct ids *ids);

struct word_slot {
    uint32_t epoch, id;
    uint64_t key; /* a hash of the word, or the pair itself */
    struct text word;
};

/* Words (or pairs of numbers) seen since words_clear, numbered from 0. Zeroed is empty. */
struct words {
    struct word_slot *slots; /* [n_slots], a power of two */
    size_t n_slots;
    uint32_t n, epoch;
};

void words_deinit(struct words *w);
void words_clear(struct words *w); /* O(1) */
/* The word is borrowed until words_clear. */
enum status words_of(struct words *w, struct text word, uint32_t *out) MUST_CHECK;
/* The slot of a word. A new slot borrows the word; the caller may replace it by a copy. */
enum status words_slot(struct words *w, struct text word, struct word_slot **out) MUST_CHECK;
/* NULL for an unknown word. Changes nothing: any thread, while no other thread changes w. */
const struct word_slot *words_find(const struct words *w, struct text word);
enum status words_of_pair(struct words *w, uint32_t a, uint32_t b, uint32_t *out) MUST_CHECK;

/* Appends the numbers of the words between single spaces; an empty text has one, the empty word. */
enum status words_split(struct words *w, const char *text, size_t len, struct ids *out) MUST_CHECK;

#endif
