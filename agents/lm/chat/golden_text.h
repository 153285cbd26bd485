/* Compares the tokenizer and the chat template with known results: files of JSON lines, one `{text,
 * ids}` or `{messages, prompt, ids}` a line. tests/golden/README.md says where they come from. */
#ifndef AGENTS_LM_CHAT_GOLDEN_TEXT_H
#define AGENTS_LM_CHAT_GOLDEN_TEXT_H

#include "agents/lm/chat/prompt.h"
#include "agents/lm/chat/template.h"
#include "agents/lm/tokenizer/vocab.h"

struct golden_text {
    size_t n, equal;      /* lines */
    size_t first_unequal; /* its line, from 1; 0 for none */
};

/* A missing file is NOT_FOUND, a file with other lines DATA_LOSS. */

/* Equal: the text encodes to the ids, and the ids decode to the text. */
enum status golden_text_tokens(struct golden_text *out, const struct vocab *v, const char *path,
                               struct error *err) MUST_CHECK;

/* Equal: the conversation with the start of a reply renders to prompt and ids. It is rendered in
 * parts by t, or whole by whole where t is NULL; a line's "now", in Unix seconds, is then the date
 * that the template shows. */
enum status golden_text_chats(struct golden_text *out, const struct vocab *v,
                              const struct chat_template *t, const struct chat_prompter *whole,
                              const char *path, struct error *err) MUST_CHECK;

#endif
