#include "compute/model/routing.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "compute/model/shape.h"
#include "compute/numerics/scalar.h"

static bool is_chosen(const uint32_t *chosen, size_t n, size_t expert)
{
    for (size_t i = 0; i < n; i++)
        if (chosen[i] == expert)
            return true;
    return false;
}

/* What an expert is chosen by. */
static float routing_merit(const float *scores, const float *bias, size_t expert)
{
    return bias != NULL ? scores[expert] + bias[expert] : scores[expert];
}

/* The best of experts first … last - 1 that are not chosen yet; of equals the first. last where
 * there is none. */
static size_t best_expert(const float *scores, const float *bias, size_t first, size_t last,
                          const uint32_t *chosen, size_t n)
{
    size_t best = last;

    for (size_t i = first; i < last; i++)
        if (!is_chosen(chosen, n, i) &&
            (best == last || routing_merit(scores, bias, i) > routing_merit(scores, bias, best)))
            best = i;
    return best;
}

/* The sum of a group's two best experts. */
static float group_merit(const float *scores, const float *bias, size_t first, size_t last)
{
    uint32_t best = (uint32_t)best_expert(scores, bias, first, last, NULL, 0);
    size_t second = best_expert(scores, bias, first, last, &best, 1);

    return routing_merit(scores, bias, best) +
           (second < last ? routing_merit(scores, bias, second) : 0.0f);
}

/* Makes experts outside the best groups impossible to choose; of equal groups the first is better.
 */
static void leave_best_groups(const struct transformer_shape *s, const float *bias, float *scores)
{
    size_t size = s->n_experts / s->n_expert_groups;
    float merits[SHAPE_MAX_GROUPS];

    for (size_t i = 0; i < s->n_expert_groups; i++)
        merits[i] = group_merit(scores, bias, i * size, (i + 1) * size);
    for (size_t i = 0; i < s->n_expert_groups; i++) {
        size_t n_better = 0;

        for (size_t j = 0; j < s->n_expert_groups; j++)
            n_better += merits[j] > merits[i] || (merits[j] == merits[i] && j < i);
        for (size_t e = i * size; n_better >= s->n_groups_used && e < (i + 1) * size; e++)
            scores[e] = -INFINITY;
    }
}

/* Makes probabilities of the scores. */
static void to_probabilities(const struct transformer_shape *s, float *scores)
{
    float most = scores[0], sum = 0.0f;

    for (size_t i = 0; s->routing == ROUTING_SIGMOID && i < s->n_experts; i++)
        scores[i] = scalar_sigmoid(scores[i]);
    if (s->routing == ROUTING_SIGMOID)
        return;
    for (size_t i = 1; i < s->n_experts; i++)
        most = scores[i] > most ? scores[i] : most;
    for (size_t i = 0; i < s->n_experts; i++) {
        scores[i] = scalar_exp(scores[i] - most);
        sum += scores[i];
    }
    for (size_t i = 0; i < s->n_experts; i++)
        scores[i] /= sum;
}

/* Divides the shares by their sum, if they are, and multiplies them by the experts' scale. */
static void scale_shares(const struct transformer_shape *s, float *shares)
{
    float sum = 0.0f;

    for (size_t i = 0; i < s->n_experts_used; i++)
        sum += shares[i];
    if (s->routing == ROUTING_SIGMOID)
        sum += s->arch != NULL && s->arch->shares_least > 0.0f ? s->arch->shares_least : 1e-20f;
    else if (s->routing != ROUTING_TOP_SOFTMAX)
        sum = fmaxf(sum, 1e-12f);
    if (!s->norms_shares)
        sum = 1.0f;
    for (size_t i = 0; i < s->n_experts_used; i++)
        shares[i] *= s->expert_scale / sum;
}

/* How much less than the best score one may have, as a share of the greater of both. */
#define ROUTING_NEAR 0.02f

/* The share of the best of the experts that are not chosen yet, by softmax over those near it. */
static float share_among_near(const struct transformer_shape *s, const float *scores,
                              const uint32_t *chosen, size_t n, uint32_t best)
{
    const float most = scores[best];
    float sum = 0.0f;

    for (size_t i = 0; i < s->n_experts; i++)
        if (!is_chosen(chosen, n, i) &&
            !((most - scores[i]) / fmaxf(fabsf(scores[i]), most) > ROUTING_NEAR))
            sum += scalar_exp(scores[i] - most);
    return s->expert_scale / sum;
}

static void choose_one_by_one(const struct transformer_shape *s, const float *scores,
                              uint32_t *chosen, float *shares)
{
    for (size_t i = 0; i < s->n_experts_used; i++) {
        chosen[i] = (uint32_t)best_expert(scores, NULL, 0, s->n_experts, chosen, i);
        shares[i] = share_among_near(s, scores, chosen, i, chosen[i]);
    }
}

void routing_choose(const struct transformer_shape *s, const float *bias, float *scores,
                    uint32_t *chosen, float *shares)
{
    const bool is_top = s->routing == ROUTING_TOP_SOFTMAX;
    const bool is_top_sigmoid = s->routing == ROUTING_TOP_SIGMOID;

    if (s->routing == ROUTING_ONE_BY_ONE) {
        choose_one_by_one(s, scores, chosen, shares);
        return;
    }
    if (!is_top && !is_top_sigmoid)
        to_probabilities(s, scores);
    if (s->n_expert_groups > 0)
        leave_best_groups(s, bias, scores);
    for (size_t i = 0; i < s->n_experts_used; i++) {
        chosen[i] = (uint32_t)best_expert(scores, bias, 0, s->n_experts, chosen, i);
        shares[i] = is_top           ? scalar_exp(scores[chosen[i]] - scores[chosen[0]])
                    : is_top_sigmoid ? scalar_sigmoid(scores[chosen[i]])
                                     : scores[chosen[i]];
    }
    scale_shares(s, shares);
}
