/* Adaptive batching: whether a step should wait for more rows, learned from step times and from how
 * soon answered clients submit again. A step has a fixed time, which does not grow with its rows;
 * two steps that become one save it once, so no row should wait longer than that. Where the fixed
 * time is next to nothing, a batch only delays its first rows. */
#ifndef BATCHING_ADAPTIVE_H
#define BATCHING_ADAPTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ADAPTIVE_GROUPS = 8 };

/* Plain data; zeroed, it has seen nothing. */
struct adaptive {
    struct adaptive_group {
        uint64_t answered_us;
        size_t n_away;         /* clients answered then that have not submitted again */
    } groups[ADAPTIVE_GROUPS]; /* the oldest first; a submission counts for the oldest */
    size_t n_groups;
    double weight, rows, us, rows_rows, rows_us; /* sums over steps, decaying */
    double share_us;                             /* the fixed time of a step */
    bool has_share;                              /* share_us is known */
    unsigned n_steps;
    double back_us, spread_us;     /* from answers to a group's last submission, smoothed */
    unsigned n_skipped, n_to_skip; /* steps that do not wait, after a wait in vain */
    uint64_t free_us;              /* when the last step was done */
};

/* A step of n_rows took us and is done. */
void adaptive_stepped(struct adaptive *a, size_t n_rows, uint64_t us, uint64_t now_us);

/* n requests were answered. */
void adaptive_answered(struct adaptive *a, size_t n, uint64_t now_us);

/* A request became the head of its flow. */
void adaptive_submitted(struct adaptive *a, uint64_t now_us);

/* How many of n waiting requests should begin in one step. */
size_t adaptive_rows(const struct adaptive *a, size_t n);

/* Until when a step that could begin now should wait, given that its oldest row has waited since
 * oldest_us; 0: it should not wait. A new request makes the policy call this again. */
uint64_t adaptive_until(struct adaptive *a, uint64_t oldest_us, uint64_t now_us);

#endif
