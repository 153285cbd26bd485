/* The tokens of texts with a gap. */
#ifndef AGENTS_LM_TOKENIZER_FILL_IN_H
#define AGENTS_LM_TOKENIZER_FILL_IN_H

#include <stdint.h>

/* Each stands before what it names: the text before the gap, the text behind it, and what fills it
 * in; the name of a repository, and the name of one of its files. -1: the vocabulary has none. */
struct fill_in_tokens {
    int32_t prefix, suffix, middle;
    int32_t repository, file;
};

#endif
