/* BERT's WordPiece: text is cleaned and cut into words, and each word is cut into the longest
 * tokens that begin it, one after the other. Tokens that begin a word begin with a space. */
#ifndef AGENTS_LM_TOKENIZER_WPM_H
#define AGENTS_LM_TOKENIZER_WPM_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

struct vocab;

/* Appends the ids of text, which is UTF-8. Control characters are left out; punctuation and Chinese
 * characters are words of their own; where v->folds_case letters become lower case, and where
 * v->strips_accents they lose their accents. A word that is no row of tokens, or has more than 100
 * characters, becomes the unknown token. O(n). len < 2^31. */
enum status wpm_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                       struct error *err) MUST_CHECK;

#endif
