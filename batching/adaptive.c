#include "batching/adaptive.h"

#include <math.h>

/* The weight of a step decays by this with each one after it. */
static const double fading = 63.0 / 64;
/* Steps whose numbers of rows vary less say nothing about the fixed time. */
static const double least_variance = 0.05;
/* The weight of a new group in the smoothed time to come back. */
static const double back_weight = 0.25;
/* With a shorter fixed time steps have one row, */
static const double company_us = 20;
/* but one step in so many is batched, so that the saving stays measured. */
static const unsigned company_every = 16;
/* For a shorter fixed time a wait is not worth its timer and wake-up, some ten microseconds each.
 */
static const double least_share_us = 100;
/* The most steps that skip waiting after steps waited in vain. */
static const unsigned max_to_skip = 64;

static void learn_share(struct adaptive *a)
{
    double rows = a->rows / a->weight, us = a->us / a->weight;
    double variance = a->rows_rows / a->weight - rows * rows;
    double each_us;

    if (variance < least_variance)
        return;
    each_us = (a->rows_us / a->weight - rows * us) / variance;
    a->share_us = fmin(fmax(us - (each_us > 0 ? each_us : 0) * rows, 0), us);
    a->has_share = true;
}

void adaptive_stepped(struct adaptive *a, size_t n_rows, uint64_t us, uint64_t now_us)
{
    double n = (double)n_rows, t = (double)us;

    a->weight = a->weight * fading + 1;
    a->rows = a->rows * fading + n;
    a->us = a->us * fading + t;
    a->rows_rows = a->rows_rows * fading + n * n;
    a->rows_us = a->rows_us * fading + n * t;
    a->free_us = now_us;
    a->n_steps++;
    learn_share(a);
}

static void drop_first(struct adaptive *a)
{
    a->n_groups--;
    for (size_t i = 0; i < a->n_groups; i++)
        a->groups[i] = a->groups[i + 1];
}

void adaptive_answered(struct adaptive *a, size_t n, uint64_t now_us)
{
    if (n == 0)
        return;
    if (a->n_groups == ADAPTIVE_GROUPS)
        drop_first(a);
    a->groups[a->n_groups++] = (struct adaptive_group){now_us, n};
}

/* A much longer time is not learned in full: the client may have done something else between two
 * episodes. */
static void learn_back(struct adaptive *a, double us)
{
    us = a->back_us > 0 ? fmin(us, 2 * a->back_us) : us;
    if (a->back_us <= 0)
        a->back_us = us;
    a->spread_us += back_weight * (fabs(us - a->back_us) - a->spread_us);
    a->back_us += back_weight * (us - a->back_us);
}

void adaptive_submitted(struct adaptive *a, uint64_t now_us)
{
    if (a->n_groups == 0)
        return;
    if (--a->groups[0].n_away > 0)
        return;
    learn_back(a, (double)(now_us - a->groups[0].answered_us));
    drop_first(a);
}

/* The group did not come back: no step waits for it again, and fewer steps wait for others. */
static void adaptive_give_up(struct adaptive *a)
{
    a->n_groups = 0;
    a->n_to_skip = a->n_to_skip == 0 ? 1 : 2 * a->n_to_skip;
    if (a->n_to_skip > max_to_skip)
        a->n_to_skip = max_to_skip;
    a->n_skipped = 0;
}

size_t adaptive_rows(const struct adaptive *a, size_t n)
{
    bool is_alone = a->has_share && a->share_us < company_us && a->n_steps % company_every != 0;

    return is_alone && n > 1 ? 1 : n;
}

uint64_t adaptive_until(struct adaptive *a, uint64_t oldest_us, uint64_t now_us)
{
    uint64_t from_us = oldest_us > a->free_us ? oldest_us : a->free_us;
    uint64_t end_us = from_us + (uint64_t)a->share_us;
    double due_us;

    if (a->share_us < least_share_us)
        return 0;
    if (a->n_groups == 0) { /* all clients have submitted again */
        a->n_to_skip /= 2;
        return 0;
    }
    if (a->n_skipped < a->n_to_skip) {
        a->n_skipped++;
        return 0;
    }
    due_us = (double)a->groups[a->n_groups - 1].answered_us + a->back_us + a->spread_us;
    if (due_us > (double)end_us)
        return 0;
    if (now_us < end_us)
        return end_us;
    adaptive_give_up(a);
    return 0;
}
