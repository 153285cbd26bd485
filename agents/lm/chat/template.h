/* A chat template: how messages become a prompt. The template of the file (Jinja) is recognised,
 * not interpreted: ChatML (with or without a default system prompt) and the llama-3 family (3, 3.1,
 * 3.2). A template of another shape is UNIMPLEMENTED, and the error names it. Works on token ids:
 * only the template's own control tokens are special, whatever a message says. */
#ifndef AGENTS_LM_CHAT_TEMPLATE_H
#define AGENTS_LM_CHAT_TEMPLATE_H

#include "agents/lm/tokenizer/vocab.h"
#include "agents/message.h"

struct chat_template;

/* Borrows v until chat_template_close. DATA_LOSS if the vocabulary lacks a control token of the
 * template. text NULL: there is none. */
enum status chat_template_open_text(struct chat_template **out, const char *text, size_t len,
                                    const struct vocab *v, struct error *err) MUST_CHECK;
/* The file's own; its path stands before the error. */
enum status chat_template_open(struct chat_template **out, const struct gguf *g,
                               const struct vocab *v, struct error *err) MUST_CHECK;
void chat_template_close(struct chat_template *t);
const char *chat_template_name(const struct chat_template *t); /* "chatml", "llama3" */

/* The model's own system prompt, used for conversations without one; "" if the model has none. */
const char *chat_template_default_system(const struct chat_template *t);
/* The date that its prompts show whenever they are rendered; NULL: they show none. A prompt that is
 * rendered whole, with tools, shows the same. */
const char *chat_template_date(const struct chat_template *t);

/* These render in parts, so that a conversation only appends. Each appends ids (int32_t) and, if
 * text is not NULL, the prompt as text with its control tokens written out.
 *
 * A conversation is: begin (system prompt), then for each turn its messages and, at the end,
 * reply_start; after the reply: reply_end. The joined parts equal the whole template's output. A
 * part that fails appends nothing.
 *
 * system is NULL, or what chat_template_default_system returned, for the model's own prompt or
 * none; any other value is a system message, even if empty. If the first message of a conversation
 * is a system message, its text is passed as system, and the message is not rendered again. */
enum status chat_template_begin(const struct chat_template *t, const char *system, size_t len,
                                struct buf *ids, struct buf *text, struct error *err) MUST_CHECK;
enum status chat_template_message(const struct chat_template *t, const struct message *m,
                                  struct buf *ids, struct buf *text, struct error *err) MUST_CHECK;
enum status chat_template_reply_start(const struct chat_template *t, struct buf *ids,
                                      struct buf *text, struct error *err) MUST_CHECK;
/* Renders what follows a reply whose last token was last_id (an end token is not repeated). */
enum status chat_template_reply_end(const struct chat_template *t, int32_t last_id, struct buf *ids,
                                    struct buf *text, struct error *err) MUST_CHECK;

#endif
