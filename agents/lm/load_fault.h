/* Which part of a model keeps it from loading, and what a person can do about that. */
#ifndef AGENTS_LM_LOAD_FAULT_H
#define AGENTS_LM_LOAD_FAULT_H

#include "base/status.h"

enum model_part {
    MODEL_CONFIG, /* config.json, or the keys of a GGUF file */
    MODEL_TOKENIZER,
    MODEL_TEMPLATE,
    MODEL_WEIGHTS,
    MODEL_MEMORY,
};

struct load_fault {
    const char *part, *advice; /* string constants; part: "tokenizer"; advice: a sentence's words */
};

/* part: what was read when the failure came. */
struct load_fault load_fault_of(enum model_part part, const struct error *err);
/* The same for a model whose files could not be opened: the file that the failure names says the
 * part. Both NULL: there is no model at that path. */
struct load_fault load_fault_of_open(const struct error *err);

#endif
