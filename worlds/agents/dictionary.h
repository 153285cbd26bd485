/* A dictionary: words and how often they were seen, as ParlAI's, tokenizer `re`: a run of word
 * characters (letters, numbers, underscore; Unicode's), any other character but white space by
 * itself, a newline. A file has token TAB count on a line, the most frequent first, equals in the
 * order of their bytes; a token's row is its id. */
#ifndef WORLDS_AGENTS_DICTIONARY_H
#define WORLDS_AGENTS_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

struct act;
struct dictionary;

/* With the four specials alone: __null__, __start__, __end__, __unk__. */
enum status dictionary_open(struct dictionary **out, struct error *err) MUST_CHECK;
/* From a file. INVALID: "FILE:LINE: what is wrong". */
enum status dictionary_read(struct dictionary **out, const char *path,
                            struct error *err) MUST_CHECK;
void dictionary_close(struct dictionary *d); /* NULL is fine */

/* Counts the words of a text; of an act: of its text and its labels (not eval_labels, from which
 * nothing is to be learned). */
enum status dictionary_add(struct dictionary *d, struct text text, struct error *err) MUST_CHECK;
enum status dictionary_add_act(struct dictionary *d, const struct act *a,
                               struct error *err) MUST_CHECK;

/* By rename, so that a reader sees the old one or the new one. The order of ids is the file's from
 * then on. */
enum status dictionary_write(struct dictionary *d, const char *path, struct error *err) MUST_CHECK;

size_t dictionary_n(const struct dictionary *d);
/* 0 for a word that it does not have. */
uint64_t dictionary_count(const struct dictionary *d, struct text word);
/* By id < dictionary_n. */
struct text dictionary_word(const struct dictionary *d, size_t id, uint64_t *ret_count);

/* The next word of text from *at on, which moves behind it; text NULL at the end. */
struct text dictionary_next(struct text text, size_t *at);

#endif
