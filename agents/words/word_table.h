/* The vocabulary of an agent that learns from texts: words, by number, the most frequent first.
 * The first four are ParlAI's: __null__, __start__, __end__, __unk__. Once settled it never
 * changes, and any thread may read it. */
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

enum status word_table_open(struct word_table **out, struct error *err) MUST_CHECK;
void word_table_close(struct word_table *t); /* NULL is fine */

/* Counts the words of a text. EXHAUSTED without memory, or with more than WORD_TABLE_MAX words. */
enum status word_table_add(struct word_table *t, struct text text, struct error *err) MUST_CHECK;
/* Numbers the words by falling count, then by bytes, and keeps the first `most` (0: all). */
enum status word_table_settle(struct word_table *t, size_t most, struct error *err) MUST_CHECK;

size_t word_table_n(const struct word_table *t);
struct text word_table_word(const struct word_table *t, size_t id); /* id < n */

/* A checksum of all words in order: tables that encode alike have the same. */
uint32_t word_table_crc(const struct word_table *t);

/* Appends the ids (int32_t) of a text's words; on failure ids is as before. */
enum status word_table_encode(const struct word_table *t, const char *text, size_t len,
                              struct buf *ids, struct error *err) MUST_CHECK;
/* Appends the words with spaces between; INVALID for an id that there is not. */
enum status word_table_decode(const struct word_table *t, const int32_t *ids, size_t n,
                              struct buf *text, struct error *err) MUST_CHECK;

/* As an array of texts. Reading: DATA_LOSS if it is none, or a word stands there twice. */
void word_table_write(const struct word_table *t, struct gguf_writer *w, const char *key);
enum status word_table_read(struct word_table **out, struct gguf *g, const char *key,
                            struct error *err) MUST_CHECK;

#endif
