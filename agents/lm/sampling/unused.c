#include "agents/lm/sampling/unused.h"

#include <math.h>

#include "agents/lm/tokenizer/vocab.h"

bool unused_any(const struct vocab *v, size_t n_vocab)
{
    size_t n;

    (void)vocab_unused(v, &n);
    return n > 0 || n_vocab > vocab_n_tokens(v);
}

void unused_ban(const struct vocab *v, float *logits, size_t n_vocab)
{
    size_t n;
    const int32_t *ids = vocab_unused(v, &n);

    for (size_t i = 0; i < n; i++)
        if ((size_t)ids[i] < n_vocab)
            logits[ids[i]] = -INFINITY;
    for (size_t i = vocab_n_tokens(v); i < n_vocab; i++)
        logits[i] = -INFINITY;
}
