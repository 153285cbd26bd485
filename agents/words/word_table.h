/* The vocabulary of an agent that learns from texts: words with their ids, the most frequent first.
 * The first four are ParlAI's special words: __null__, __start__, __end__, __unk__.
 *
 * A new table is opened, counts the words of texts (word_table_add), and is settled once; only then
 * do its ids count. A table that was read from a file is settled. A settled table never changes,
 * and any thread may read it; before that, one thread uses it. */
#ifndef AGENTS_WORDS_WORD_TABLE_H
#define AGENTS_WORDS_WORD_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

struct gguf;
struct gguf_writer;
struct word_table;

enum { WORD_NULL, WORD_START, WORD_END, WORD_UNKNOWN, WORD_N_SPECIALS };
enum { WORD_TABLE_MAX = 1 << 24, WORD_MAX_BYTES = 1 << 16 };

/* Makes a table of the special words. EXHAUSTED. */
enum status word_table_open(struct word_table **out, struct error *err) MUST_CHECK;
void word_table_close(struct word_table *t); /* t may be NULL */

/* Counts the words of a text; words of more than WORD_MAX_BYTES are left out. EXHAUSTED without
 * memory, or with more than WORD_TABLE_MAX words. */
enum status word_table_add(struct word_table *t, struct text text, struct error *err) MUST_CHECK;
/* Settles the table: numbers the words by falling count, then by bytes, and keeps the first `most`
 * of them (0: all), special words included. INVALID if `most` leaves room only for these. */
enum status word_table_settle(struct word_table *t, size_t most, struct error *err) MUST_CHECK;

size_t word_table_n(const struct word_table *t); /* words, the special ones among them */
/* Returns the word of an id below word_table_n, borrowed. */
struct text word_table_word(const struct word_table *t, size_t id);

/* Returns a checksum of all words in order: tables that encode alike have the same one. */
uint32_t word_table_crc(const struct word_table *t);

/* Appends the ids (int32_t) of a text's words; unknown words have the id WORD_UNKNOWN. EXHAUSTED;
 * ids is then unchanged. */
enum status word_table_encode(const struct word_table *t, const char *text, size_t len,
                              struct buf *ids, struct error *err) MUST_CHECK;
/* Appends the words of ids, with spaces between them. INVALID for an id that the table does not
 * have; EXHAUSTED. A part may then have been appended. */
enum status word_table_decode(const struct word_table *t, const int32_t *ids, size_t n,
                              struct buf *text, struct error *err) MUST_CHECK;

/* Write the table to a file as an array of texts, and read it. DATA_LOSS if the array is no table:
 * it has too few or too many words, its first words are not the special ones, a word is not valid,
 * or a word is there twice. */
void word_table_write(const struct word_table *t, struct gguf_writer *w, const char *key);
enum status word_table_read(struct word_table **out, struct gguf *g, const char *key,
                            struct error *err) MUST_CHECK;

#endif
