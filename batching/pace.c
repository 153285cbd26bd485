#include "batching/pace.h"

#include <math.h>

/* A part's share of the whole rows' time, below 1 for what an estimate may be wrong by. */
static const double stretch = 0.75;
/* What parts have at least of the whole rows' time: where those alone reach the bound, on a slow
 * machine or with a large model, prompts would else be kept out for as long as anybody writes. */
static const double least_share = 0.25;
/* Of 16 steps one without parts costs little; where the room follows from what one such step took,
 * which may have been disturbed, one of 4. */
static const unsigned max_mixed = 15, max_mixed_unsure = 3;
/* Parts that take more than so many times what the whole rows beside them do fill the step. */
static const double filled = 2;
/* What a step counts for beside those before it. */
static const double part_weight = 0.25;

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

double pace_part_us(const struct pace *p, size_t cost)
{
    return p->parts_us + (double)cost * p->unit_us;
}

/* What rows of that cost would have taken in a step that was seen. A row more or less adds or takes
 * about what as much of a part does; and a step has a share that does not shrink with it. */
static double us_after(const struct pace *p, const struct pace_seen *seen, double cost)
{
    double us = seen->us + (cost - seen->cost) * p->unit_us;
    double least = cost < seen->cost ? seen->us * cost / seen->cost : seen->us;

    return us > least ? us : least;
}

/* What whole rows of that cost take alone. */
static double whole_us(const struct pace *p, size_t cost)
{
    const struct pace_seen *seen = nearest(p, cost);
    double us = (double)cost * p->unit_us;

    for (size_t i = 0; seen != NULL && i < PACE_SEEN && seen[i].cost > 0; i++)
        if (i == 0 || us_after(p, &seen[i], (double)cost) < us)
            us = us_after(p, &seen[i], (double)cost);
    return us;
}

/* Parts of that cost added us to a step. One that was disturbed may count for twice what was
 * expected. */
static void learn_parts(struct pace *p, double cost, double us, bool is_filled)
{
    double expected_us = pace_part_us(p, (size_t)cost), off_us;

    if (p->unit_us <= 0) {
        p->unit_us = us / cost;
        return;
    }
    off_us = part_weight * (us < 2 * expected_us ? us - expected_us : expected_us);
    if (is_filled) { /* in proportion: nearly all of it is the units' */
        p->unit_us *= 1 + off_us / expected_us;
        p->parts_us *= 1 + off_us / expected_us;
        return;
    }
    p->parts_us += off_us;
    if (p->parts_us >= 0)
        return;
    p->unit_us += p->parts_us / cost; /* the units' share was too large */
    p->parts_us = 0;
}

void pace_learn(struct pace *p, size_t whole_cost, size_t part_cost, uint64_t us)
{
    const size_t at = bucket_of(whole_cost);
    double alone_us, added_us;
    bool is_filled, is_sure = whole_cost == 0 || p->n_whole[at] > 1;

    if (whole_cost > 0 && p->n_until_leap > 0)
        p->n_until_leap--;
    if (part_cost == 0) {
        p->n_mixed = 0;
        if (whole_cost > 0)
            p->whole[at][p->n_whole[at]++ % PACE_SEEN] =
                (struct pace_seen){.us = (double)us, .cost = (double)whole_cost};
        return;
    }
    alone_us = whole_cost > 0 ? whole_us(p, whole_cost) : 0;
    added_us = (double)us - alone_us;
    is_filled = added_us > filled * alone_us;
    if (whole_cost > 0)
        p->n_mixed += is_sure || is_filled ? 1 : max_mixed / max_mixed_unsure;
    if (added_us <
        (double)us / 10) { /* what is known of whole rows may be too much; nothing is for nothing */
        if (!is_sure)
            return;
        added_us = (double)us / 10;
    }
    learn_parts(p, (double)part_cost, added_us, is_filled);
}

bool pace_is_stale(const struct pace *p)
{
    return p->n_mixed >= max_mixed;
}

bool pace_leap(struct pace *p, size_t whole_cost, size_t n_parts, size_t cost, uint64_t max_us)
{
    const double alone_us = whole_us(p, whole_cost), us = pace_part_us(p, cost);

    if (p->n_until_leap > 0 || us <= 0 || alone_us <= 0 || alone_us + us > (double)max_us)
        return false;
    p->n_until_leap = (unsigned)ceil(us / (stretch * alone_us * (double)n_parts));
    return true;
}

size_t pace_room(const struct pace *p, size_t whole_cost, size_t n_parts, uint64_t max_us)
{
    double alone_us, room_us;

    if (whole_cost == 0 || max_us == 0)
        return SIZE_MAX;
    if (p->unit_us <= 0)
        return whole_cost;
    alone_us = whole_us(p, whole_cost);
    room_us = stretch * alone_us * (double)n_parts;
    if (room_us > (double)max_us - alone_us)
        room_us = (double)max_us - alone_us;
    if (room_us < least_share * alone_us)
        room_us = least_share * alone_us;
    return room_us > p->parts_us ? (size_t)((room_us - p->parts_us) / p->unit_us) : 0;
}
