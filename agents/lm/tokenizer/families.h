/* The pre-tokenizers that GGUF files name, as a table: how each family cuts text into words. */
#ifndef AGENTS_LM_TOKENIZER_FAMILIES_H
#define AGENTS_LM_TOKENIZER_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>

enum { FAMILY_NAMES_MAX = 12, FAMILY_STAGES_MAX = 5 };

struct split_family {
    const char *names[FAMILY_NAMES_MAX]; /* values of tokenizer.ggml.pre; NULL ends the list */
    /* PCRE2 expressions, NULL ends the list. Each is searched for in every piece that the one
     * before has left: what it matches and what lies between are pieces. None matches nothing. */
    const char *patterns[FAMILY_STAGES_MAX];
    bool prefers_whole; /* a piece that is a token is that token, whatever merges say */
    bool adds_bos;      /* if the file does not say */
};

/* NULL for an unknown name. */
const struct split_family *family_find(const char *name, size_t len);

/* The name in row i, the first of its names; NULL behind the last row. */
const char *family_name(size_t i);

#endif
