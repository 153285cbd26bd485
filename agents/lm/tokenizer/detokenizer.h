/* Turns sampled tokens into the reply's text: pieces never end inside a character. Stop texts are
 * found across tokens and never shown; text that may begin one is held until it cannot. */
#ifndef AGENTS_LM_TOKENIZER_DETOKENIZER_H
#define AGENTS_LM_TOKENIZER_DETOKENIZER_H

#include "agents/lm/tokenizer/vocab.h"
#include "agents/message.h"

struct detokenizer {
    const struct vocab *vocab;
    const struct sampling *sampling;
    struct buf held;      /* bytes not yet shown: part of a character or of a stop text */
    size_t n_tokens;      /* added */
    const int32_t *shown; /* [n_shown] control tokens whose text is part of the reply's */
    size_t n_shown;
};

void detokenizer_init(struct detokenizer *w, const struct vocab *v, const struct sampling *s,
                      size_t limit_bytes);
void detokenizer_deinit(struct detokenizer *w);

/* Adds a token's bytes and appends to text what may be shown. *ret_stopped is set when a stop text
 * is complete: then text ends before it, and nothing is held. Of several the one whose last byte
 * comes first counts, and of those the longest, so the result does not depend on how the text is
 * split into tokens. A stop text that completes before the reply has min_tokens is ordinary text.
 * Bytes that can never become UTF-8 are shown as U+FFFD. */
enum status detokenizer_add(struct detokenizer *w, int32_t id, struct buf *text, bool *ret_stopped,
                            struct error *err) MUST_CHECK;

/* The reply ends: shows what is held; an unfinished character becomes U+FFFD. */
enum status detokenizer_end(struct detokenizer *w, struct buf *text, struct error *err) MUST_CHECK;

#endif
