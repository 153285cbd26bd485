/* Turns sampled tokens into the reply's text: pieces never end inside a character, stop texts are
 * found across tokens and never shown, nor is a beginning of one until it is clear that it is none.
 */
#ifndef AGENTS_LM_WRITER_H
#define AGENTS_LM_WRITER_H

#include "agents/agent.h"
#include "agents/lm/vocab.h"

struct writer {
    const struct vocab *vocab;
    const struct sampling *sampling;
    struct buf held; /* bytes not yet shown: part of a character or of a stop text */
    size_t n_tokens; /* added */
};

void writer_init(struct writer *w, const struct vocab *v, const struct sampling *s,
                 size_t limit_bytes);
void writer_deinit(struct writer *w);

/* Adds a token's bytes; appends to text what may be shown. *ret_stopped when a stop text is whole:
 * what comes before it is in text then, it and what follows is not, and nothing is held. Of several
 * the one whose last byte comes first counts, and of those the longest: so the answer does not
 * depend on how the text is cut into tokens. A stop text that is whole before the reply has
 * min_tokens is text like any other. Bytes that can never become UTF-8 are shown as U+FFFD. */
enum status writer_add(struct writer *w, int32_t id, struct buf *text, bool *ret_stopped,
                       struct error *err) MUST_CHECK;

/* The reply ends: shows what is held; an unfinished character becomes U+FFFD. */
enum status writer_end(struct writer *w, struct buf *text, struct error *err) MUST_CHECK;

#endif
