/* The inside of a compiled constraint, for the matcher. */
#ifndef AGENTS_LM_GRAMMAR_GRAMMARS_PARTS_H
#define AGENTS_LM_GRAMMAR_GRAMMARS_PARTS_H

#include "agents/lm/grammar/grammars.h"
#include "agents/lm/grammar/module.h"
#include "base/hash.h"
#include "base/worker.h"

enum grammar_state {
    GRAMMAR_WAITING,   /* for the vocabulary, which a job in the background makes */
    GRAMMAR_COMPILING, /* the compiler has it; or, without one, a job */
    GRAMMAR_LOADING,   /* a job makes it of the compiler's bytes */
    GRAMMAR_READY,
};

enum { GRAMMAR_MAX_FORCED = 256 };

struct grammar {
    struct grammars *owner;
    enum grammar_state state;
    struct hash_node by_text;
    struct link kept; /* in the owner's list, the least recently used first, if no turn uses it */
    struct list waiting;
    size_t n_refs;
    void *compiled; /* NULL until then; the job's until it is done */
    size_t n_bytes;
    char forced[GRAMMAR_MAX_FORCED]; /* [n_forced]: how each text must begin; at most so many bytes
                                        are handled at once */
    size_t n_forced;
    bool is_spent;               /* no matcher can be opened: it would take too much work */
    const struct tenant *tenant; /* who asked first */
    struct job job;
    struct compile_job compile;
    struct error err;
    char *bytes;                  /* [n_bytes] while it is loaded */
    struct constraint constraint; /* its text is behind this struct */
};

struct grammars {
    const struct vocab *vocab;
    size_t n_tokens; /* of the model */
    const struct agent_background *background;
    const struct agent_compiler *compiler; /* NULL: in this process */
    const struct grammar_module *module;   /* NULL until it is loaded */
    void *engine_vocab;                    /* a job makes it; jobs run one after the other */
    int vocab_fd;                          /* for the compiler; so too. -1: none yet */
    bool has_vocab;                        /* both are there, the loop knows */
    struct hash all;
    struct list kept;
    size_t n_kept, n_kept_bytes, n_compiling;
    size_t n_bytes; /* of all that are ready */
};

#endif
