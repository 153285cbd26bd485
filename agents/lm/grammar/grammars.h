/* The compiled constraints of one vocabulary: compiled on a thread in the background, found again
 * by their text, bounded in number and bytes. Loop. */
#ifndef AGENTS_LM_GRAMMAR_GRAMMARS_H
#define AGENTS_LM_GRAMMAR_GRAMMARS_H

#include "agents/background.h"
#include "agents/lm/tokenizer/vocab.h"
#include "agents/message.h"
#include "base/list.h"
#include "base/status.h"

struct grammar; /* one compiled constraint, with counted references */
struct grammar_waiter;
struct grammars;

enum {
    GRAMMARS_MAX_COMPILING = 16, /* more constraints at once are EXHAUSTED */
    GRAMMARS_MAX_KEPT = 256,     /* that no turn uses */
    GRAMMARS_MAX_KEPT_BYTES = 64 << 20,
};

/* g is NULL where err says why; else the callee owns a reference. */
typedef void (*grammar_ready_fn)(struct grammar_waiter *w, struct grammar *g,
                                 const struct error *err);

/* A member of whoever waits for a compilation. */
struct grammar_waiter {
    struct link link;
    grammar_ready_fn ready;
};

/* Borrows v. n_tokens: of the model, which may have more than v; those never come. b may be NULL:
 * then grammars_get compiles before it returns. */
enum status grammars_open(struct grammars **out, const struct vocab *v, size_t n_tokens,
                          const struct agent_background *b, struct error *err) MUST_CHECK;
/* NULL is fine. Nobody waits, and no compilation runs. */
void grammars_close(struct grammars *g);

/* *out: a reference to the compiled constraint; NULL where it is being compiled, and then w->ready
 * is called once, later. UNAVAILABLE without the module, EXHAUSTED where too many compile, INVALID
 * for what the engine refuses. */
enum status grammars_get(struct grammar **out, struct grammars *g, const struct constraint *c,
                         struct grammar_waiter *w, struct error *err) MUST_CHECK;
/* w waits no more; nothing happens if it did not. */
void grammars_forget(struct grammar_waiter *w);

void grammar_unref(struct grammar *g); /* NULL is fine */

#endif
