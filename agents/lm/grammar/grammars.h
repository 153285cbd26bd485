/* The compiled constraints of one vocabulary: compiled outside of this process, found again by
 * their text, bounded in number and bytes. Loop. */
#ifndef AGENTS_LM_GRAMMAR_GRAMMARS_H
#define AGENTS_LM_GRAMMAR_GRAMMARS_H

#include "agents/background.h"
#include "agents/compiler.h"
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
    GRAMMARS_MAX_BYTES = 192 << 20, /* with those that turns use; more are EXHAUSTED */
};

/* g is NULL where err says why; else the callee owns a reference. */
typedef void (*grammar_ready_fn)(struct grammar_waiter *w, struct grammar *g,
                                 const struct error *err);

/* A member of whoever waits for a compilation. */
struct grammar_waiter {
    struct link link;
    struct grammar *grammar; /* while it waits */
    grammar_ready_fn ready;
    const struct tenant *tenant; /* who asks; NULL without keys. With keys, a tenant may have half
                                    of what may be compiled at once, and half of the bytes */
    bool is_unbounded;           /* for a turn that an earlier process had accepted: the budget of
                                    work counted then */
};

/* Borrows v. n_tokens: of the model, which may have more than v; those never come. b may be NULL:
 * then grammars_get compiles before it returns. c may be NULL: then b compiles, in this process,
 * for whatever time and memory that takes. */
enum status grammars_open(struct grammars **out, const struct vocab *v, size_t n_tokens,
                          const struct agent_background *b, const struct agent_compiler *c,
                          struct error *err) MUST_CHECK;
/* NULL is fine. Nobody waits, and no job runs in the background. */
void grammars_close(struct grammars *g);

/* *out: a reference to the compiled constraint; NULL where it is being compiled, and then w->ready
 * is called once, later. UNAVAILABLE without the module, EXHAUSTED where too many compile, INVALID
 * for what the engine refuses. */
enum status grammars_get(struct grammar **out, struct grammars *g, const struct constraint *c,
                         struct grammar_waiter *w, struct error *err) MUST_CHECK;
/* w waits no more; nothing happens if it did not. A compilation for which nobody waits is ended. */
void grammars_forget(struct grammar_waiter *w);

void grammar_unref(struct grammar *g); /* NULL is fine */

#endif
