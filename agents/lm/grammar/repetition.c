#include "agents/lm/grammar/repetition.h"

bool repetition_add(struct repetition *r, int32_t id)
{
    bool is_repeating = false;

    for (size_t i = 0; i < REPETITION_MAX_PERIOD && i < r->n_added; i++) {
        const bool repeats = r->last[(r->n_added - 1 - i) % REPETITION_MAX_PERIOD] == id;

        r->n_repeats[i] = repeats ? r->n_repeats[i] + 1 : 0;
        is_repeating = is_repeating || r->n_repeats[i] >= REPETITION_TOKENS;
    }
    r->last[r->n_added++ % REPETITION_MAX_PERIOD] = id;
    return is_repeating;
}
