/* What a message has besides its text: calls of tools, what a tool's result belongs to, thoughts.
 * Kept as one JSON object, in the form in which chat templates read it (struct message's more). */
#ifndef AGENTS_MESSAGE_EXTRAS_H
#define AGENTS_MESSAGE_EXTRAS_H

#include <stdbool.h>

#include "agents/message.h"
#include "base/arena.h"
#include "base/buf.h"

struct tool_call {
    struct text id, name;
    struct text arguments; /* JSON, or what the model wrote instead */
};

struct message_extras {
    const struct tool_call *calls; /* [n_calls] of an assistant's message */
    size_t n_calls;
    struct text thoughts;      /* of an assistant's message; len 0: none */
    struct text call_id, name; /* of a tool's result; len 0: not known */
};

enum { CALL_ID_CHARS = 10, CALL_KEY_CHARS = 37 };

/* The id of a reply's call, unique over a conversation: nine letters and digits, which all
 * templates take. */
void call_id_format(char out[CALL_ID_CHARS], uint64_t seed, uint32_t call);
/* The idempotency key of a reply's call: a UUID that follows from the seed, which is drawn once for
 * each accepted turn, and from the call's place. It is another one than that of any other call. */
void call_key_format(char out[CALL_KEY_CHARS], uint64_t seed, uint32_t call);

/* Appends the JSON object; nothing if there are no extras. Arguments that are a JSON object stand
 * in it as one, others as a string. */
enum status message_extras_write(struct buf *out, const struct message_extras *x) MUST_CHECK;

/* Reads m's more, with texts in the arena, each ended by NUL. */
enum status message_extras_read(struct message_extras *out, const struct message *m,
                                struct arena *arena) MUST_CHECK;

/* Whether nothing stands in m's more but what message_extras_read reads of it, in the form of
 * message_extras_write. A template reads all of it. Without memory: true. */
bool message_extras_are_all(const struct message *m);

/* Whether the tools of a turn are a JSON array. len 0: there are none, which is one. */
bool tools_are_array(struct text tools);

/* Appends the calls of a message's more as text, as a model without a form of its own writes them.
 * EXHAUSTED without memory. */
enum status message_extras_calls_text(struct buf *out, const struct message *m) MUST_CHECK;

/* What a turn's template variables say of how much the model may reason. */
struct reasoning_terms {
    bool has_budget;
    size_t budget;   /* the most tokens of the reasoning */
    char effort[12]; /* "low"; "": none is given */
};

/* variables: a JSON object, as in template_variables. Without memory nothing is said. */
void reasoning_terms_read(struct reasoning_terms *out, struct text variables);

#endif
