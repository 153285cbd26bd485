/* SentencePiece's BPE as llama.cpp has it: pairs of neighbours merge into the token of the highest
 * score, leftmost first among equals, until no pair is a token. */
#ifndef AGENTS_LM_TOKENIZER_SPM_H
#define AGENTS_LM_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct vocab;
struct spm_symbol;

/* Scratch memory, kept from one text to the next. A zeroed struct is an empty one. */
struct spm_work {
    struct spm_symbol *symbols; /* [cap] */
    uint64_t *heap;             /* [2 * cap] */
    size_t cap;
};

void spm_work_deinit(struct spm_work *w);

/* Appends the ids of text, which is UTF-8. A character that is no token becomes the tokens of its
 * bytes, or the unknown token where there are none. O(n log n). len < 2^31. */
enum status spm_encode(struct spm_work *w, const struct vocab *v, const char *text, size_t len,
                       struct buf *ids, struct error *err) MUST_CHECK;

#endif
