/* The inside of a compiled constraint, for the matcher. */
#ifndef AGENTS_LM_GRAMMAR_GRAMMARS_PARTS_H
#define AGENTS_LM_GRAMMAR_GRAMMARS_PARTS_H

#include "agents/lm/grammar/grammars.h"
#include "agents/lm/grammar/module.h"
#include "base/hash.h"
#include "base/worker.h"

struct grammar {
    struct grammars *owner;
    struct hash_node by_text;
    struct link kept; /* in the owner's list, the least recently used first, if no turn uses it */
    struct list waiting;
    size_t n_refs;
    bool is_compiling;
    void *compiled; /* NULL until then; the job's until it is done */
    size_t n_bytes;
    struct job job;
    struct error err;
    struct constraint constraint; /* its text is behind this struct */
};

struct grammars {
    const struct vocab *vocab;
    size_t n_tokens; /* of the model */
    const struct agent_background *background;
    const struct grammar_module *module; /* NULL until it is loaded */
    void *engine_vocab;                  /* the first job makes it; jobs run one after the other */
    struct hash all;
    struct list kept;
    size_t n_kept, n_kept_bytes, n_compiling;
};

#endif
