/* SentencePiece's unigram model: a word becomes the row of tokens whose scores have the greatest
 * sum. Text is first rewritten by the file's table of characters (charsmap.h). */
#ifndef AGENTS_LM_TOKENIZER_UGM_H
#define AGENTS_LM_TOKENIZER_UGM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

struct vocab;

/* Appends the ids of text, which is UTF-8. Where v->removes_spaces a run of spaces is one space,
 * and where v->trims_left and v->trims_right none stand at that end; has_prefix puts a space before
 * the text where there is none. What is no token becomes the unknown token, once for neighbours.
 * O(n * the longest token). len < 2^31. */
enum status ugm_encode(const struct vocab *v, const char *text, size_t len, bool has_prefix,
                       struct buf *ids, struct error *err) MUST_CHECK;

#endif
