/* Byte-pair encoding: text is cut into words, and within a word pairs of tokens merge by rank. */
#ifndef AGENTS_LM_TOKENIZER_BPE_H
#define AGENTS_LM_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "agents/lm/tokenizer/merges.h"
#include "base/buf.h"
#include "base/status.h"

struct vocab;

/* Scratch memory, kept from one text to the next. A zeroed struct is an empty one. */
struct bpe_work {
    struct merge_work merging;
    int32_t *ids; /* [cap] of the current word */
    size_t cap;
};

void bpe_work_deinit(struct bpe_work *w);

/* Appends the ids of text, which is UTF-8. A byte without a token is left out. O(n log n).
 * len < 2^31. */
enum status bpe_encode(struct bpe_work *w, const struct vocab *v, const char *text, size_t len,
                       struct buf *ids, struct error *err) MUST_CHECK;

#endif
