/* Whether batches pay: learned from what steps took, and from how soon those who were answered ask
 * again. A step has a share that does not grow with its rows, and two steps that become one save it
 * once. Nobody should wait for longer than that; and where there is next to nothing to save, a row
 * that joins others only has them answered later. */
#ifndef BATCHING_GATHER_H
#define BATCHING_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GATHER_GROUPS = 8 };

/* Plain data; zeroed, it has seen nothing. */
struct gather {
    struct gather_group {
        uint64_t answered_us;
        size_t n_away;       /* of those answered then, who have not asked again */
    } groups[GATHER_GROUPS]; /* the oldest first; who asks is taken for one of the oldest */
    size_t n_groups;
    double weight, rows, us, rows_rows, rows_us; /* sums over steps, older ones counting less */
    double share_us;                             /* of a step, whatever its rows */
    bool has_share;                              /* it is known */
    unsigned n_steps;
    double back_us, spread_us;     /* from the answers to a group's last coming back, smoothed */
    unsigned n_skipped, n_to_skip; /* steps that wait for nobody, after a wait in vain */
    uint64_t free_us;              /* when the last step was back */
};

/* A step of n_rows took us and is back. */
void gather_step(struct gather *g, size_t n_rows, uint64_t us, uint64_t now_us);

/* n asks were answered. */
void gather_answered(struct gather *g, size_t n, uint64_t now_us);

/* An asker asks. */
void gather_asked(struct gather *g, uint64_t now_us);

/* How many of n that are there should begin in one step. */
size_t gather_rows(const struct gather *g, size_t n);

/* Until when a step that could begin now should wait, the oldest of its rows being there since
 * oldest_us; 0: it should not. Who comes meanwhile makes it ask again. */
uint64_t gather_until(struct gather *g, uint64_t oldest_us, uint64_t now_us);

#endif
