/* Prompts of a model whose chat template is rendered whole at each turn (template.h knows the few
 * that are rendered in parts). Text of callers never becomes a control token. Immutable once open;
 * any thread. */
#ifndef AGENTS_LM_CHAT_PROMPT_H
#define AGENTS_LM_CHAT_PROMPT_H

#include <time.h>

#include "agents/lm/tokenizer/vocab.h"
#include "agents/message.h"

struct chat_prompter;

/* A template that cannot be compiled is reported by chat_prompter_render, so that the model still
 * takes raw prompts; so is text NULL, a model without one. Borrows v until close. Fails only
 * without memory. */
enum status chat_prompter_open(struct chat_prompter **out, const char *text, size_t len,
                               const struct vocab *v, struct error *err) MUST_CHECK;
void chat_prompter_close(struct chat_prompter *p); /* NULL is fine */

/* INVALID, with its line, where the model has a template that cannot be compiled. */
enum status chat_prompter_check(const struct chat_prompter *p, struct error *err) MUST_CHECK;

/* Whether the template uses this variable. */
bool chat_prompter_uses(const struct chat_prompter *p, const char *name);
/* Whether it uses one of these, the members of a JSON object. */
bool chat_prompter_uses_any(const struct chat_prompter *p, struct text variables);

struct chat_input {
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    struct text tools;     /* as in a tool_use */
    struct text variables; /* as in template_variables */
    bool wants_reply;      /* with the start of a reply */
    time_t now;            /* what the template shows as the date, in UTC */
    const char *date;      /* its variable date_string, where variables has none; NULL: absent */
};

/* Renders a conversation and compares it with known [n_known], the ids that stand for its beginning
 * so far: *ret_n_kept of them stay as they are, however they were divided, and ids (int32_t) that
 * follow are appended to ids. PRECONDITION if there is no template or it cannot be compiled;
 * INVALID if it refuses the messages or passes its bounds. On failure ids is as before. */
enum status chat_prompter_render(const struct chat_prompter *p, const struct chat_input *in,
                                 const int32_t *known, size_t n_known, size_t *ret_n_kept,
                                 struct buf *ids, struct error *err) MUST_CHECK;

/* Appends to out what the template makes of two messages, of the roles "query" and "document", as
 * sentence-transformers gives a pair to it, and where has_opening of a reply's opening.
 * PRECONDITION as above; INVALID if not both texts are in what it makes. */
enum status chat_prompter_render_pair(const struct chat_prompter *p, const char *query,
                                      const char *document, bool has_opening, struct buf *out,
                                      struct error *err) MUST_CHECK;

#endif
