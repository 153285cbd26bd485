/* A dictionary: words and their counts, as ParlAI's with the tokenizer `re`
 * (agents/words/tokens.h). A file has `token TAB count` on each line, by falling count, then by
 * bytes; a token's line number is its id. */
#ifndef WORLDS_BASELINES_DICTIONARY_H
#define WORLDS_BASELINES_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/status.h"

struct act;
struct dictionary;

/* Holds the four special tokens: __null__, __start__, __end__, __unk__. */
enum status dictionary_open(struct dictionary **out, struct error *err) MUST_CHECK;
/* From a file. INVALID: "FILE:LINE: what is wrong". */
enum status dictionary_read(struct dictionary **out, const char *path,
                            struct error *err) MUST_CHECK;
void dictionary_close(struct dictionary *d); /* NULL is fine */

/* Counts the words of a text, or of an act's text and labels (not eval_labels: they are for
 * evaluation only). */
enum status dictionary_add(struct dictionary *d, struct text text, struct error *err) MUST_CHECK;
enum status dictionary_add_act(struct dictionary *d, const struct act *a,
                               struct error *err) MUST_CHECK;

/* Writes a new file and renames it, so that a reader sees either the old or the new one. From
 * then on ids are in the file's order. */
enum status dictionary_write(struct dictionary *d, const char *path, struct error *err) MUST_CHECK;

size_t dictionary_n(const struct dictionary *d);
/* 0 for an unknown word. */
uint64_t dictionary_count(const struct dictionary *d, struct text word);
/* id < dictionary_n. */
struct text dictionary_word(const struct dictionary *d, size_t id, uint64_t *ret_count);

#endif
