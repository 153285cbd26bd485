#include "agents/lm/sampling/tops.h"

#include <math.h>

#include "agents/lm/sampling/logits.h"
#include "agents/message.h"

/* Inserts the i-th logit into the highest, n_out of at most max; returns how many there are then.
 */
static size_t tops_put(struct top_logprob *out, size_t n_out, size_t max, size_t i, float logit)
{
    size_t at;

    if (n_out == max && logit <= out[max - 1].logprob)
        return n_out;
    if (n_out < max)
        n_out++;
    at = n_out - 1;
    for (; at > 0 && out[at - 1].logprob < logit; at--)
        out[at] = out[at - 1];
    out[at] = (struct top_logprob){(int32_t)i, logit};
    return n_out;
}

/* By insertion: max is small, and few logits are above the last of the highest. */
size_t tops_take(const struct logit_kernels *kernels, const float *logits, size_t n, double log_sum,
                 struct top_logprob *out, size_t max)
{
    size_t n_out = 0, i = 0;

    for (; i < n && n_out < max; i++)
        n_out = tops_put(out, n_out, max, i, logits[i]);
    while (max > 0 && i < n && (i = kernels->find_from(logits, n, i, out[max - 1].logprob)) < n) {
        size_t end = n - i < LOGITS_GROUP ? n : i + LOGITS_GROUP;

        for (; i < end; i++)
            n_out = tops_put(out, n_out, max, i, logits[i]);
    }
    while (n_out > 0 && isinf(out[n_out - 1].logprob))
        n_out--; /* banned */
    for (i = 0; i < n_out; i++)
        out[i].logprob = (float)((double)out[i].logprob - log_sum);
    return n_out;
}
