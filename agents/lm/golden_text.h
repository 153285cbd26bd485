/* How many known answers the tokenizer and the chat template give: files of JSON lines, one
 * `{text, ids}` or `{messages, prompt, ids}` a line. tests/golden/README.md says where they come
 * from. */
#ifndef AGENTS_LM_GOLDEN_TEXT_H
#define AGENTS_LM_GOLDEN_TEXT_H

#include "agents/lm/template.h"
#include "agents/lm/vocab.h"

struct golden_text {
    size_t n, equal;      /* lines */
    size_t first_unequal; /* its line, from 1; 0 for none */
};

/* A file that is not there is NOT_FOUND, one that has not such lines DATA_LOSS. */

/* Equal: the ids of the text are those, and the bytes of those ids are the text. */
enum status golden_text_tokens(struct golden_text *out, const struct vocab *v, const char *path,
                               struct error *err) MUST_CHECK;

/* Equal: prompt and ids of the conversation with the beginning of a reply. */
enum status golden_text_chats(struct golden_text *out, const struct chat_template *t,
                              const char *path, struct error *err) MUST_CHECK;

#endif
