/* A dictionary holds words and their counts, as ParlAI's DictionaryAgent with the tokenizer `re`
 * (agents/words/tokens.h). Its file has `token TAB count` on each line, sorted by falling count,
 * then by bytes; a token's id is the number of its line, from 0. One thread; several threads may
 * read one that no thread changes. */
#ifndef WORLDS_BASELINES_DICTIONARY_H
#define WORLDS_BASELINES_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

struct act;
struct dictionary;

/* Makes a dictionary of the special tokens: __null__, __start__, __end__, __unk__. EXHAUSTED. */
enum status dictionary_open(struct dictionary **out, struct error *err) MUST_CHECK;
/* Reads a dictionary from a file. INVALID: "FILE:LINE: what is wrong". */
enum status dictionary_read(struct dictionary **out, const char *path,
                            struct error *err) MUST_CHECK;
void dictionary_close(struct dictionary *d); /* d may be NULL */

/* Count the words of a text, or of an act's text and labels; eval_labels are not counted, since
 * they are for evaluation only. EXHAUSTED without memory or beyond 2^32 words. */
enum status dictionary_add(struct dictionary *d, struct text text, struct error *err) MUST_CHECK;
enum status dictionary_add_act(struct dictionary *d, const struct act *a,
                               struct error *err) MUST_CHECK;

/* Writes a new file and renames it, so that a reader sees either the old or the new one. Sorts the
 * words, so that from then on ids are in the file's order. UNAVAILABLE if the file cannot be
 * written. */
enum status dictionary_write(struct dictionary *d, const char *path, struct error *err) MUST_CHECK;

size_t dictionary_n(const struct dictionary *d); /* words, the special tokens among them */
/* Returns the word's count, 0 if the dictionary does not have the word. */
uint64_t dictionary_count(const struct dictionary *d, struct text word);
/* Returns the word with that id (below dictionary_n), borrowed; *ret_count (may be NULL) is its
 * count. */
struct text dictionary_word(const struct dictionary *d, size_t id, uint64_t *ret_count);

#endif
