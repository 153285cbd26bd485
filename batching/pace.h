/* How long steps take, learned from those that ran, and so how much work may join a step without
 * making those wait who are in the middle of something. A row is whole in a step when it gets all
 * that it asked for (a token of a reply), a part when it could do with less (a prompt's chunk). */
#ifndef BATCHING_PACE_H
#define BATCHING_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PACE_BUCKETS = 16, PACE_SEEN = 3 };

/* Plain data; zeroed, it has seen nothing. */
struct pace {
    /* The last steps of whole rows alone, of cost 1, 2, 3-4, 5-8, … The shortest counts: what
     * disturbs a step makes it longer, and one in 16 is all there is to learn from while a prompt
     * is read. */
    struct pace_seen {
        double us, cost; /* 0: nothing yet */
    } whole[PACE_BUCKETS][PACE_SEEN];
    unsigned n_whole[PACE_BUCKETS]; /* how many there were */
    unsigned n_mixed;               /* steps of both since the last of whole rows alone */
    unsigned n_until_leap;          /* steps before a part may leap */
    /* What parts add to their step, smoothed: as much for each unit, known from steps that they
     * fill, and so much whatever their size. 0: nothing known. */
    double unit_us, parts_us;
};

/* A step took us. */
void pace_learn(struct pace *p, size_t whole_cost, size_t part_cost, uint64_t us);

/* How much of n_parts rows' parts may join whole rows of whole_cost: each of them stretches the
 * step by less than the whole rows take alone, all of them together no further than max_us, or by a
 * quarter where that is more. */
size_t pace_room(const struct pace *p, size_t whole_cost, size_t n_parts, uint64_t max_us);

/* What parts of that cost, in one step, add to it; 0: nothing known. */
double pace_part_us(const struct pace *p, size_t cost);

/* Whether one of n_parts rows' parts, whose all is this cost, may join in one go whatever the room:
 * who is through then, in a step of at most max_us. The others meet one gap in place of many longer
 * steps, and nobody leaps again before as many went by as the room would have made of it. */
bool pace_leap(struct pace *p, size_t whole_cost, size_t n_parts, size_t cost, uint64_t max_us);

/* Whether whole rows should run alone once, so that what they take is known again: a machine that
 * became slower meanwhile looks as if parts had become dearer. */
bool pace_is_stale(const struct pace *p);

#endif
