/* Cuts text into the pieces that byte-level BPE may not merge across: words with the space before
 * them, digits, runs of punctuation, runs of space. Each model family has its patterns
 * (families.c), the same as in the tokenizers library. */
#ifndef AGENTS_LM_TOKENIZER_PRETOKENIZER_H
#define AGENTS_LM_TOKENIZER_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct pretokenizer;

/* A status other than OK ends the run and is its result. */
typedef enum status (*pretokenizer_piece_fn)(void *arg, const char *piece, size_t len);

/* name is the value of tokenizer.ggml.pre. An unknown one is UNIMPLEMENTED, and the error names the
 * known ones. Immutable once open; any thread. */
enum status pretokenizer_open(struct pretokenizer **out, const char *name, size_t name_len,
                              struct error *err) MUST_CHECK;
void pretokenizer_close(struct pretokenizer *p);

/* True for families whose vocabulary has precedence over merges: a piece that is a token becomes
 * that token. */
bool pretokenizer_prefers_whole(const struct pretokenizer *p);
/* Whether the family's prompts begin with bos if the file does not say. */
bool pretokenizer_adds_bos(const struct pretokenizer *p);

/* Calls each with every piece in order; together they are the text, and none is empty. text must be
 * UTF-8. Time is linear in len for any text. Fills *err on its own failures, not on those of each.
 */
enum status pretokenizer_run(const struct pretokenizer *p, const char *text, size_t len,
                             pretokenizer_piece_fn each, void *arg, struct error *err) MUST_CHECK;

#endif
