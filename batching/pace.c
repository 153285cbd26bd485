#include "batching/pace.h"

/* A part's share of the whole rows' time, below 1 for what an estimate may be wrong by. */
static const double stretch = 0.75;
/* Steps between two that a newcomer stretches to the bound; and what tells such a step from those
 * that keep the rhythm: many times what the whole rows take. */
static const unsigned steps_a_leap = 32;
static const double leap = 3;
/* What parts have at least of the whole rows' time: where those alone reach the bound, on a slow
 * machine or with a large model, prompts would else be kept out for as long as anybody writes. */
static const double least_share = 0.25;
/* Of 16 steps one without parts costs little. */
static const unsigned max_mixed = 15;
/* What a step counts for beside those before it. */
static const double part_weight = 0.125;

static size_t bucket_of(size_t cost)
{
    size_t i = 0;

    while (i < PACE_BUCKETS - 1 && cost > (size_t)1 << i)
        i++;
    return i;
}

/* The bucket of cost, or the nearest below or above it of which something is known. */
static const struct pace_seen *nearest(const struct pace *p, size_t cost)
{
    size_t at = bucket_of(cost);

    for (size_t d = 0; d < PACE_BUCKETS; d++) {
        if (at >= d && p->n_whole[at - d] > 0)
            return p->whole[at - d];
        if (at + d < PACE_BUCKETS && p->n_whole[at + d] > 0)
            return p->whole[at + d];
    }
    return NULL;
}

/* What rows of that cost would have taken in a step that was seen. A row more or less adds or takes
 * about what as much of a part does; and a step has a share that does not shrink with it. */
static double us_after(const struct pace *p, const struct pace_seen *seen, double cost)
{
    double us = seen->us + (cost - seen->cost) * p->part_us;
    double least = cost < seen->cost ? seen->us * cost / seen->cost : seen->us;

    return us > least ? us : least;
}

/* What whole rows of that cost take alone. */
static double whole_us(const struct pace *p, size_t cost)
{
    const struct pace_seen *seen = nearest(p, cost);
    double us = (double)cost * p->part_us;

    for (size_t i = 0; seen != NULL && i < PACE_SEEN && seen[i].cost > 0; i++)
        if (i == 0 || us_after(p, &seen[i], (double)cost) < us)
            us = us_after(p, &seen[i], (double)cost);
    return us;
}

void pace_learn(struct pace *p, size_t whole_cost, size_t part_cost, uint64_t us)
{
    size_t at = bucket_of(whole_cost);
    double added_us = (double)us;

    if (whole_cost > 0 && p->n_until_leap > 0)
        p->n_until_leap--;
    if (whole_cost > 0 && part_cost > 0 && (double)us > leap * whole_us(p, whole_cost))
        p->n_until_leap = steps_a_leap;
    p->n_mixed = part_cost > 0 ? p->n_mixed + (whole_cost > 0) : 0;
    if (part_cost > 0) {
        if (whole_cost > 0)
            added_us -= whole_us(p, whole_cost);
        if (added_us < (double)us / 10) /* an estimate that was too high; nothing is for nothing */
            added_us = (double)us / 10;
        added_us /= (double)part_cost;
        if (p->part_us <= 0)
            p->part_us = added_us;
        p->part_us += part_weight * (added_us - p->part_us);
    } else if (whole_cost > 0) {
        p->whole[at][p->n_whole[at]++ % PACE_SEEN] =
            (struct pace_seen){.us = (double)us, .cost = (double)whole_cost};
    }
}

bool pace_is_stale(const struct pace *p)
{
    return p->n_mixed >= max_mixed;
}

bool pace_may_leap(const struct pace *p, size_t whole_cost, size_t cost, uint64_t max_us)
{
    return p->n_until_leap == 0 && p->part_us > 0 &&
           whole_us(p, whole_cost) + (double)cost * p->part_us <= (double)max_us;
}

size_t pace_room(const struct pace *p, size_t whole_cost, size_t n_parts, uint64_t max_us)
{
    double alone_us, room_us;

    if (whole_cost == 0 || max_us == 0)
        return SIZE_MAX;
    if (p->part_us <= 0)
        return whole_cost;
    alone_us = whole_us(p, whole_cost);
    room_us = stretch * alone_us * (double)n_parts;
    if (room_us > (double)max_us - alone_us)
        room_us = (double)max_us - alone_us;
    if (room_us < least_share * alone_us)
        room_us = least_share * alone_us;
    return (size_t)(room_us / p->part_us);
}
