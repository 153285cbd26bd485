/* Learns the times of past steps by the sizes of their parts, in buckets. From these it says how
 * long a step would take, and how many tokens of prompts a step may read. */
#include "batching/step_time.h"

#include <math.h>

/* What a chunk may add to a step, as a share of the decode rows' time: below 1, since estimates
 * err.
 */
static const double stretch = 0.75;
/* What all chunks may add at least, as a share of the decode rows' time: a quarter, and as much
 * again where decode rows alone take as long as the bound, on a slow machine or with a large model,
 * so that no chunk keeps it. Between, from near_bound of it on, the share grows evenly. */
static const double least_share = 0.25, full_share = 1, near_bound = 0.8;
/* One step in 16 runs without chunks, which costs little; one in 4 while the model has seen a
 * single such step, which may have been disturbed. */
static const unsigned max_mixed = 15, max_mixed_unsure = 3;
/* Chunks fill a step if they take more than this times what its decode rows take. */
static const double filled = 2;
/* The weight of a new step in the smoothed chunk times. */
static const double chunk_weight = 0.25;

static size_t bucket_of(size_t cost)
{
    size_t i = 0;

    while (i < STEP_TIME_BUCKETS - 1 && cost > (size_t)1 << i)
        i++;
    return i;
}

/* The bucket of cost, or the nearest one below or above it that has seen a step. */
static const struct step_time_seen *step_time_nearest(const struct step_time *s, size_t cost)
{
    size_t at = bucket_of(cost);

    for (size_t d = 0; d < STEP_TIME_BUCKETS; d++) {
        if (at >= d && s->n_decode[at - d] > 0)
            return s->decode[at - d];
        if (at + d < STEP_TIME_BUCKETS && s->n_decode[at + d] > 0)
            return s->decode[at + d];
    }
    return NULL;
}

double step_time_chunk_us(const struct step_time *s, size_t cost)
{
    return s->chunk_us + (double)cost * s->unit_us;
}

/* What decode rows of that cost would have taken in a step that was seen. A row more or less adds
 * or takes about as much as a chunk of that size; a step's fixed share does not shrink with its
 * rows. */
static double us_after(const struct step_time *s, const struct step_time_seen *seen, double cost)
{
    double us = seen->us + (cost - seen->cost) * s->unit_us;
    double least = cost < seen->cost ? seen->us * cost / seen->cost : seen->us;

    return us > least ? us : least;
}

/* What decode rows of that cost take alone. */
static double decode_us(const struct step_time *s, size_t cost)
{
    const struct step_time_seen *seen = step_time_nearest(s, cost);
    double us = (double)cost * s->unit_us;

    for (size_t i = 0; seen != NULL && i < STEP_TIME_SEEN && seen[i].cost > 0; i++)
        if (i == 0 || us_after(s, &seen[i], (double)cost) < us)
            us = us_after(s, &seen[i], (double)cost);
    return us;
}

bool step_time_has_seen(const struct step_time *s, size_t cost)
{
    return s->n_decode[bucket_of(cost)] > 0;
}

/* The shortest step of a bucket, or the one in the middle, of two the longer, at any cost: a row
 * more or less counts as a token. */
static const struct step_time_seen *step_time_pick(const struct step_time *s, size_t at,
                                                   bool is_usual)
{
    const struct step_time_seen *sorted[STEP_TIME_SEEN];
    size_t n = 0;

    for (size_t i = 0; i < STEP_TIME_SEEN && s->decode[at][i].cost > 0; i++) {
        const struct step_time_seen *seen = &s->decode[at][i];
        size_t k = n++;

        for (; k > 0 && sorted[k - 1]->us - sorted[k - 1]->cost * s->unit_us >
                            seen->us - seen->cost * s->unit_us;
             k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = seen;
    }
    return sorted[is_usual ? n / 2 : 0];
}

double step_time_decode_us(const struct step_time *s, size_t cost, bool is_usual)
{
    const struct step_time_seen *least = NULL, *below = NULL, *above = NULL;
    double part, us, slope;

    for (size_t i = 0; i < STEP_TIME_BUCKETS; i++) {
        const struct step_time_seen *seen;

        if (s->n_decode[i] == 0)
            continue;
        seen = step_time_pick(s, i, is_usual);
        if (least == NULL)
            least = seen;
        if (seen->cost <= (double)cost)
            below = seen;
        else if (above == NULL)
            above = seen;
    }
    if (below == NULL)
        return above == NULL ? 0 : us_after(s, above, (double)cost);
    if (above == NULL) { /* rows may take longer than a prompt's tokens */
        us = us_after(s, below, (double)cost);
        if (below == least || below->us <= least->us)
            return us;
        slope = (below->us - least->us) / (below->cost - least->cost);
        return fmax(us, below->us + slope * ((double)cost - below->cost));
    }
    part = ((double)cost - below->cost) / (above->cost - below->cost);
    return below->us + part * (above->us > below->us ? above->us - below->us : 0);
}

size_t step_time_tokens(const struct step_time *s, double us)
{
    if (s->unit_us <= 0)
        return SIZE_MAX;
    return us > s->chunk_us ? (size_t)((us - s->chunk_us) / s->unit_us) : 0;
}

/* Chunks of that cost added us to a step. A disturbed step counts for at most twice the expected
 * time. */
static void learn_chunks(struct step_time *s, double cost, double us, bool is_filled)
{
    double expected_us = step_time_chunk_us(s, (size_t)cost), off_us;

    if (s->unit_us <= 0) {
        s->unit_us = us / cost;
        return;
    }
    off_us = chunk_weight * (us < 2 * expected_us ? us - expected_us : expected_us);
    if (is_filled) { /* divided in proportion: nearly all the time is spent per token */
        s->unit_us *= 1 + off_us / expected_us;
        s->chunk_us *= 1 + off_us / expected_us;
        return;
    }
    s->chunk_us += off_us;
    if (s->chunk_us >= 0)
        return;
    s->unit_us += s->chunk_us / cost; /* the estimated time per token was too large */
    s->chunk_us = 0;
}

void step_time_learn(struct step_time *s, size_t decode_cost, size_t chunk_cost, uint64_t us)
{
    const size_t at = bucket_of(decode_cost);
    double alone_us, added_us;
    bool is_filled, is_sure = decode_cost == 0 || s->n_decode[at] > 1;

    if (decode_cost > 0 && s->n_until_unchunked > 0)
        s->n_until_unchunked--;
    if (chunk_cost == 0) {
        s->n_mixed = 0;
        if (decode_cost > 0)
            s->decode[at][s->n_decode[at]++ % STEP_TIME_SEEN] =
                (struct step_time_seen){.us = (double)us, .cost = (double)decode_cost};
        return;
    }
    alone_us = decode_cost > 0 ? decode_us(s, decode_cost) : 0;
    added_us = (double)us - alone_us;
    is_filled = added_us > filled * alone_us;
    if (decode_cost > 0)
        s->n_mixed += is_sure || is_filled ? 1 : max_mixed / max_mixed_unsure;
    if (added_us < (double)us / 10) { /* decode times may be overestimated; chunks take some time */
        if (!is_sure)
            return;
        added_us = (double)us / 10;
    }
    learn_chunks(s, (double)chunk_cost, added_us, is_filled);
}

bool step_time_is_stale(const struct step_time *s)
{
    return s->n_mixed >= max_mixed;
}

bool step_time_allows_unchunked(struct step_time *s, size_t decode_cost, size_t n_chunked,
                                size_t cost, uint64_t max_us)
{
    const double alone_us = decode_us(s, decode_cost), us = step_time_chunk_us(s, cost);

    if (s->n_until_unchunked > 0 || us <= 0 || alone_us <= 0 || alone_us + us > (double)max_us)
        return false;
    s->n_until_unchunked = (unsigned)ceil(us / (stretch * alone_us * (double)n_chunked));
    return true;
}

static double least_share_at(double alone_us, double max_us)
{
    const double part = (alone_us / max_us - near_bound) / (1 - near_bound);

    return least_share + (full_share - least_share) * fmin(fmax(part, 0), 1);
}

size_t step_time_prefill_budget(const struct step_time *s, size_t decode_cost, size_t n_chunked,
                                uint64_t max_us)
{
    double alone_us, room_us, least_us;

    if (decode_cost == 0 || max_us == 0)
        return SIZE_MAX;
    if (s->unit_us <= 0)
        return decode_cost;
    alone_us = decode_us(s, decode_cost);
    room_us = stretch * alone_us * (double)n_chunked;
    if (room_us > (double)max_us - alone_us)
        room_us = (double)max_us - alone_us;
    least_us = least_share_at(alone_us, (double)max_us) * alone_us;
    if (room_us < least_us)
        room_us = least_us;
    return room_us > s->chunk_us ? (size_t)((room_us - s->chunk_us) / s->unit_us) : 0;
}
