/* A vocabulary of the engine with a token for each byte, and one that ends. */
#ifndef TESTS_UNIT_AGENTS_LM_GRAMMAR_BYTE_VOCAB_H
#define TESTS_UNIT_AGENTS_LM_GRAMMAR_BYTE_VOCAB_H

#include <stdio.h>
#include <stdlib.h>

#include "agents/lm/grammar/module.h"

static inline void *byte_vocab_open(const struct grammar_module *module)
{
    enum { N_BYTES = 256 };
    static char bytes[N_BYTES];
    const char *texts[N_BYTES + 1];
    size_t lens[N_BYTES + 1];
    const int32_t end = N_BYTES;
    char why[200] = "";
    void *vocab;

    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        texts[i] = &bytes[i];
        lens[i] = 1;
    }
    texts[end] = "";
    lens[end] = 0;
    vocab = module->vocab_open(texts, lens, N_BYTES + 1, &end, 1, why, sizeof(why));
    if (vocab == NULL) {
        fprintf(stderr, "no vocabulary: %s\n", why);
        abort();
    }
    return vocab;
}

#endif
