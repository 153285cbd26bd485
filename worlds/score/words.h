/* Words as numbers. Equal words, and equal runs of words, have equal numbers, so that n-grams can
 * be counted in an array. One thread, unless a function says more. The only failure is EXHAUSTED,
 * without memory; it has no line of text. */
#ifndef WORLDS_SCORE_WORDS_H
#define WORLDS_SCORE_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

/* A growing array of numbers. A zeroed struct is empty; ids_deinit frees it. */
struct ids {
    uint32_t *at; /* [n] */
    size_t n, cap;
};

/* Appends a number. */
enum status ids_push(struct ids *ids, uint32_t id) MUST_CHECK;
/* Makes ids n zeros. */
enum status ids_zero(struct ids *ids, size_t n) MUST_CHECK;
/* Makes ids a copy of from. */
enum status ids_copy(struct ids *ids, const struct ids *from) MUST_CHECK;
void ids_deinit(struct ids *ids);

struct word_slot {
    uint32_t epoch, id; /* the slot is in use if epoch is the table's; id: the word's number */
    uint64_t key;       /* a hash of the word, or the pair itself */
    struct text word;   /* text NULL: the slot is a pair's */
};

/* A hash table of the words, or of the pairs of numbers, that it was asked for since words_clear.
 * They are numbered from 0 in that order. A zeroed struct is empty; words_deinit frees it. */
struct words {
    struct word_slot *slots; /* [n_slots], a power of two */
    size_t n_slots;
    uint32_t n, epoch; /* words in the table; a number that each words_clear raises, to empty it */
};

void words_deinit(struct words *w);
void words_clear(struct words *w); /* O(1) */
/* Returns the number of a word, which is added if it is new, and then borrowed until words_clear.
 */
enum status words_of(struct words *w, struct text word, uint32_t *out) MUST_CHECK;
/* Returns the slot of a word, as words_of; valid until a word is added. A new slot borrows the
 * word's text; the caller may replace it by a copy. */
enum status words_slot(struct words *w, struct text word, struct word_slot **out) MUST_CHECK;
/* Returns the slot of a word, NULL if the table does not have it. Any thread, while no other thread
 * changes w. */
const struct word_slot *words_find(const struct words *w, struct text word);
/* Returns the number of a pair, which is added if it is new. A table has either words or pairs. */
enum status words_of_pair(struct words *w, uint32_t a, uint32_t b, uint32_t *out) MUST_CHECK;

/* Appends the numbers of the words between single spaces. An empty text has one word, the empty
 * one. Words are borrowed as by words_of. */
enum status words_split(struct words *w, const char *text, size_t len, struct ids *out) MUST_CHECK;

#endif
