#include "agents/lm/sampling/draft.h"

#include <assert.h>

/* Length of the n-gram match that ends at end; the last two ids are known to match. */
static size_t match_len(const int32_t *ids, size_t n_ids, size_t end)
{
    size_t len = DRAFT_MATCH_MIN;

    while (len < DRAFT_MATCH_MAX && len < end && ids[end - 1 - len] == ids[n_ids - 1 - len])
        len++;
    return len;
}

/* Whether the last two ids occur at any end in from … to - 1. The loop has no early exit, so that
 * it is vectorised: most blocks have no match. */
static int has_end(const int32_t *ids, size_t from, size_t to, int32_t before, int32_t last)
{
    int n = 0;

    for (size_t i = from; i < to; i++)
        n |= (ids[i - 1] == last) & (ids[i - 2] == before);
    return n;
}

/* Where the ids after the longest match begin, 0 if there is none; *ret_match: its length. */
static size_t draft_find(const int32_t *ids, size_t n_ids, size_t *ret_match)
{
    enum { BLOCK = 64 };
    const size_t least = n_ids > DRAFT_WINDOW ? n_ids - DRAFT_WINDOW : 0;
    const int32_t last = ids[n_ids - 1], before = ids[n_ids - 2];
    size_t best = 0, to = n_ids;

    *ret_match = 0;
    while (to > least + 2) {
        size_t from = to > least + 2 + BLOCK ? to - BLOCK : least + 2;

        if (has_end(ids, from, to, before, last))
            for (size_t end = to; end-- > from;) {
                size_t match;

                if (ids[end - 1] != last || ids[end - 2] != before)
                    continue;
                match = match_len(ids, n_ids, end);
                if (match > *ret_match) {
                    *ret_match = match;
                    best = end;
                }
                if (match == DRAFT_MATCH_MAX)
                    return best;
            }
        to = from;
    }
    return best;
}

size_t draft_propose(int32_t *ids, size_t n_ids, size_t max, size_t *ret_match)
{
    size_t from;

    *ret_match = 0;
    if (n_ids <= DRAFT_MATCH_MIN || max == 0)
        return 0;
    from = draft_find(ids, n_ids, ret_match);
    if (from == 0)
        return 0;
    for (size_t i = 0; i < max; i++)
        ids[n_ids + i] = ids[from + i];
    return max;
}

/* Acceptance rates before a conversation has verified draft tokens; measured rates soon replace
 * them. */
static const float usual_rates[] = {0.3f, 0.5f, 0.7f};

void draft_acceptance_init(struct draft_acceptance *a)
{
    for (size_t i = 0; i < sizeof(a->rates) / sizeof(a->rates[0]); i++)
        a->rates[i] = usual_rates[i];
}

void draft_acceptance_learn(struct draft_acceptance *a, size_t match, int is_accepted)
{
    float *rate = &a->rates[match - DRAFT_MATCH_MIN];

    assert(match >= DRAFT_MATCH_MIN && match <= DRAFT_MATCH_MAX);
    *rate += ((is_accepted ? 1.0f : 0.0f) - *rate) / 16.0f;
}

/* Assumed until steps of different sizes were measured: a machine whose memory is four times slower
 * than its arithmetic on one row. Weighs as much as a few steps. */
static const double usual_slope = 0.25, usual_weight = 4.0, fade = 1.0 / 128.0;

void draft_cost_learn(struct draft_cost *c, size_t n, uint64_t us)
{
    double x = (double)n, y = (double)us, keep = 1.0 - fade;

    if (us == 0) /* the clock did not advance */
        return;
    c->weight = keep * c->weight + 1.0;
    c->n = keep * c->n + x;
    c->n2 = keep * c->n2 + x * x;
    c->us = keep * c->us + y;
    c->n_us = keep * c->n_us + x * y;
}

double draft_cost_slope(const struct draft_cost *c)
{
    double n, us, spread, rise, usual_rise, each;

    if (c->weight == 0)
        return usual_slope;
    n = c->n / c->weight;
    us = c->us / c->weight;
    spread = c->n2 - c->n * n;
    rise = c->n_us - c->n * us;
    usual_rise = us * usual_slope / (1.0 + usual_slope * n);
    each = (rise + usual_weight * usual_rise) / (spread + usual_weight);
    if (each <= 0)
        return 0;
    return us > each * n * 1.01 ? each / (us - each * n)
                                : 100.0; /* the time is in proportion to the positions */
}

/* Rates and costs are rough estimates: the gain must be at least a tenth. */
static const double margin = 1.1;

/* A position pays if it yields at least as many tokens for its time as the step does without it. */
size_t draft_length(const struct draft_acceptance *a, size_t match, size_t n, double slope,
                    struct draft_load *load)
{
    const double rate = (double)a->rates[match - DRAFT_MATCH_MIN];
    double chance = rate; /* that this draft token and all before it are accepted */
    size_t i = 0;

    for (; i < n && chance * (1.0 + slope * load->n_positions) > margin * slope * load->n_tokens;
         i++) {
        load->n_positions += 1.0;
        load->n_tokens += chance;
        chance *= rate;
    }
    return i;
}
