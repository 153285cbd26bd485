#include "batching/gather.h"

#include <math.h>

/* What a step counts for is multiplied by this with each one after it. */
static const double fading = 63.0 / 64;
/* Steps that differ less in their rows (a variance) say nothing about the share. */
static const double least_variance = 0.05;
/* What a group counts for beside those before it. */
static const double back_weight = 0.25;
/* A share of less is not worth company, */
static const double company_us = 20;
/* but one step in so many has it, so that what it saves stays known. */
static const unsigned company_every = 16;
/* A share of less is not worth a timer and a wake: some ten microseconds each, on either side. */
static const double least_share_us = 100;
/* How many steps at most wait for nobody because others waited in vain. */
static const unsigned max_to_skip = 64;

static void learn_share(struct gather *g)
{
    double rows = g->rows / g->weight, us = g->us / g->weight;
    double variance = g->rows_rows / g->weight - rows * rows;
    double each_us;

    if (variance < least_variance)
        return;
    each_us = (g->rows_us / g->weight - rows * us) / variance;
    g->share_us = fmin(fmax(us - (each_us > 0 ? each_us : 0) * rows, 0), us);
    g->has_share = true;
}

void gather_step(struct gather *g, size_t n_rows, uint64_t us, uint64_t now_us)
{
    double n = (double)n_rows, t = (double)us;

    g->weight = g->weight * fading + 1;
    g->rows = g->rows * fading + n;
    g->us = g->us * fading + t;
    g->rows_rows = g->rows_rows * fading + n * n;
    g->rows_us = g->rows_us * fading + n * t;
    g->free_us = now_us;
    g->n_steps++;
    learn_share(g);
}

static void drop_first(struct gather *g)
{
    g->n_groups--;
    for (size_t i = 0; i < g->n_groups; i++)
        g->groups[i] = g->groups[i + 1];
}

void gather_answered(struct gather *g, size_t n, uint64_t now_us)
{
    if (n == 0)
        return;
    if (g->n_groups == GATHER_GROUPS)
        drop_first(g);
    g->groups[g->n_groups++] = (struct gather_group){now_us, n};
}

/* One that takes much longer may have had something else to do between two episodes. */
static void learn_back(struct gather *g, double us)
{
    us = g->back_us > 0 ? fmin(us, 2 * g->back_us) : us;
    if (g->back_us <= 0)
        g->back_us = us;
    g->spread_us += back_weight * (fabs(us - g->back_us) - g->spread_us);
    g->back_us += back_weight * (us - g->back_us);
}

void gather_asked(struct gather *g, uint64_t now_us)
{
    if (g->n_groups == 0)
        return;
    if (--g->groups[0].n_away > 0)
        return;
    learn_back(g, (double)(now_us - g->groups[0].answered_us));
    drop_first(g);
}

/* They did not come: nobody waits for these again, and fewer steps for others. */
static void give_up(struct gather *g)
{
    g->n_groups = 0;
    g->n_to_skip = g->n_to_skip == 0 ? 1 : 2 * g->n_to_skip;
    if (g->n_to_skip > max_to_skip)
        g->n_to_skip = max_to_skip;
    g->n_skipped = 0;
}

size_t gather_rows(const struct gather *g, size_t n)
{
    bool is_alone = g->has_share && g->share_us < company_us && g->n_steps % company_every != 0;

    return is_alone && n > 1 ? 1 : n;
}

uint64_t gather_until(struct gather *g, uint64_t oldest_us, uint64_t now_us)
{
    uint64_t from_us = oldest_us > g->free_us ? oldest_us : g->free_us;
    uint64_t end_us = from_us + (uint64_t)g->share_us;
    double due_us;

    if (g->share_us < least_share_us)
        return 0;
    if (g->n_groups == 0) { /* all are here */
        g->n_to_skip /= 2;
        return 0;
    }
    if (g->n_skipped < g->n_to_skip) {
        g->n_skipped++;
        return 0;
    }
    due_us = (double)g->groups[g->n_groups - 1].answered_us + g->back_us + g->spread_us;
    if (due_us > (double)end_us)
        return 0;
    if (now_us < end_us)
        return end_us;
    give_up(g);
    return 0;
}
