/* What compiles a constraint outside of this process, since that may take long and much memory:
 * server/compile has one. Loop. */
#ifndef AGENTS_COMPILER_H
#define AGENTS_COMPILER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/status.h"

struct compile_job;
struct tenant;

/* The compiled constraint's bytes [len] are the callee's, to be freed; NULL where err says why. */
typedef void (*compile_done_fn)(struct compile_job *job, char *bytes, size_t len,
                                const struct error *err);

/* A member of whoever asks. Its fields are set before, and what they point to is borrowed until
 * done, or cancel. */
struct compile_job {
    struct link link; /* the compiler's, as what follows done is */
    int form;         /* an enum constraint_form */
    const char *text; /* [len] */
    size_t len;
    int vocab_fd;                /* of vocab_file_make */
    size_t n_tokens;             /* of that vocabulary */
    const struct tenant *tenant; /* who asks; NULL without keys */
    bool is_unbounded;           /* of an accepted turn: whatever it takes */
    compile_done_fn done;
    bool is_over_budget; /* set before done: the budget of work was too small */
    void *user, *child;
    unsigned n_overtaken; /* so many that came later have begun before it */
    bool is_repeated, is_long;
};

struct agent_compiler {
    /* job->done is called once, never inside this call. UNAVAILABLE where it cannot be compiled
     * now, EXHAUSTED where too many wait: then nothing has happened. */
    enum status (*submit)(void *self, struct compile_job *job, struct error *err);
    /* The job is over; done will not be called. */
    void (*cancel)(void *self, struct compile_job *job);
    /* The vocabulary is going away; there are no jobs. */
    void (*forget)(void *self);
    void *self;
};

#endif
