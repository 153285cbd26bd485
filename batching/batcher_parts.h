/* Inside of a batcher, shared by batcher.c (asks, their ends, the road of a step) and step.c (who
 * is in a step). */
#ifndef BATCHING_BATCHER_PARTS_H
#define BATCHING_BATCHER_PARTS_H

#include "base/home.h"
#include "batching/batcher.h"
#include "batching/by_length.h"
#include "batching/deadlines.h"
#include "batching/gather.h"
#include "batching/pace.h"
#include "batching/policy.h"
#include "batching/waiting.h"

struct batcher {
    struct home home;
    struct batcher_config config;
    struct batch_agent agent;
    struct batch_compute compute;
    struct batch_timer timer;
    struct env env;
    const struct policy *policy;
    struct batcher_config next; /* with is_changing: applied when what has begun is through */
    size_t cap_rows, cap_waiting;

    struct waiting waiting;
    struct by_length by_length;
    struct deadlines deadlines; /* of asks that wait or are behind another */
    struct list running;        /* the longest without a grant first */
    struct list ending;
    struct list in_step; /* in the order of rows */
    struct list to_tell;
    size_t n_behind, n_running, n_ending;
    size_t n_admitted;   /* of those queued, how many the policy has let in already */
    uint64_t n_numbered; /* asks that came to the front of their asker */
    size_t waiting_cost; /* sum over asks that wait or are behind another */

    struct batch_step step;
    struct row **rows; /* [cap_rows]; compute's while is_stepping */
    size_t n_rows;
    struct pace pace;
    struct gather gather;         /* under that policy */
    size_t whole_cost, part_cost; /* of the step, see pace.h */
    uint64_t step_us;             /* when it began */
    bool is_stepping;
    bool is_pumping; /* the loop is inside pump: no timer is needed */
    bool is_changing;
    bool is_closing;
    void (*closed)(void *arg);
    void *closed_arg;
    uint64_t armed_us;    /* what the timer was last told */
    uint64_t progress_us; /* when an ask last finished or the busy spell began; 0: idle */
    uint64_t interval_us; /* from one finished ask to the next, smoothed; 0: none finished yet */
    struct batcher_stats stats;
};

/* The ask leaves wherever it is (it waits, is behind another, or runs and is in no step). */
void ask_take_out(struct batcher *b, struct ask *ask);

/* The ask, taken out before, will settle with ask->row->err. */
void ask_end(struct batcher *b, struct ask *ask);

/* The ask, taken out before, waits; in front of all if it was preempted. */
void ask_wait(struct batcher *b, struct ask *ask, bool is_returned);

/* What the policy looks at now. */
struct policy_view batcher_view(struct batcher *b, uint64_t now_us);

/* Chooses the rows of the next step and what each may spend: fills rows, n_rows and in_step. Rows
 * that cannot go on end. *ret_wake_us: when the policy wants to be asked again, 0 for never. */
void step_form(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us);

/* The step is back. */
void step_learn(struct batcher *b, uint64_t now_us);

#endif
