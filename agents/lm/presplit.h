/* Cuts text into the pieces that byte-level BPE may not merge across: words with the space before
 * them, digits, runs of punctuation, runs of space. Which, is said by the patterns of a model's
 * family, the same ones llama.cpp and the tokenizers library use. */
#ifndef AGENTS_LM_PRESPLIT_H
#define AGENTS_LM_PRESPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct presplit;

/* An answer that is not OK ends the cutting and is its result. */
typedef enum status (*presplit_piece_fn)(void *arg, const char *piece, size_t len);

/* name is what tokenizer.ggml.pre holds; one we do not know is UNIMPLEMENTED, naming those that we
 * do. Immutable once open; any thread. */
enum status presplit_open(struct presplit **out, const char *name, size_t name_len,
                          struct error *err) MUST_CHECK;
void presplit_close(struct presplit *p);

/* True for families whose vocabulary outranks its merges: a piece that is a token is that token. */
bool presplit_prefers_whole(const struct presplit *p);
/* Whether prompts of the family begin with bos where the file does not say. */
bool presplit_adds_bos(const struct presplit *p);

/* Calls each with every piece in order; together they are the text, and none is empty. text must be
 * UTF-8. Time grows with len alone, whatever the text. Fills *err on its own failures, not on those
 * of each. */
enum status presplit_run(const struct presplit *p, const char *text, size_t len,
                         presplit_piece_fn each, void *arg, struct error *err) MUST_CHECK;

#endif
