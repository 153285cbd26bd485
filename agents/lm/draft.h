/* Drafts by prompt lookup: what a conversation has said before, it may say again. The ids that
 * followed the last ones where they last stood are guesses at the next ones; a step verifies them,
 * so that they change its speed and never a reply. No memory, no state but two small tallies. */
#ifndef AGENTS_LM_DRAFT_H
#define AGENTS_LM_DRAFT_H

#include <stddef.h>
#include <stdint.h>

enum {
    DRAFT_MAX = 15,         /* ids: with the one before them a full block of the kernels' rows */
    DRAFT_MATCH_MIN = 2,    /* last ids that must have stood before */
    DRAFT_MATCH_MAX = 4,    /* that are looked at */
    DRAFT_WINDOW = 1 << 14, /* ids that are looked through: some microseconds */
};

/* Guesses what follows ids[n_ids], writes it behind them (ids has room for n_ids + max) and returns
 * how much: max, or 0 when the last DRAFT_MATCH_MIN ids never stood before. Of several places the
 * one where most of the last ids stand, *ret_match of them, and of those the latest. A guess may
 * run into itself: a b c a b goes on c a b c a b. */
size_t draft_propose(int32_t *ids, size_t n_ids, size_t max, size_t *ret_match);

/* How often guesses were right lately, by length of the match; a conversation's. */
struct draft_odds {
    float right[DRAFT_MATCH_MAX - DRAFT_MATCH_MIN + 1];
};

void draft_odds_init(struct draft_odds *o);
/* One guess was compared with the token that came. */
void draft_odds_learn(struct draft_odds *o, size_t match, int was_right);

/* What a position of a step costs: a line through the times of steps that were seen, recent ones
 * counting most. A model's; compute thread. */
struct draft_cost {
    double weight, n, n2, us, n_us; /* sums over steps, ever fading */
};

/* A step of n positions, all with logits, took so long. */
void draft_cost_learn(struct draft_cost *c, size_t n, uint64_t us);
/* What one more position costs, as a share of a step of none (the line at 0). */
double draft_cost_slope(const struct draft_cost *c);

/* A step that is being put together: positions, and tokens that are expected of them. */
struct draft_load {
    double n_positions, n_tokens;
};

/* How many of n guesses make the step yield more tokens a second; adds them to the load. */
size_t draft_worth(const struct draft_odds *o, size_t match, size_t n, double slope,
                   struct draft_load *load);

#endif
