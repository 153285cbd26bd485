/* Speculative tokens by prompt lookup: a conversation often repeats itself. The ids that followed
 * the previous occurrence of its last n ids (an n-gram match) become draft tokens. A step verifies
 * them, so they change the speed and never a reply. The only state is two small statistics. */
#ifndef AGENTS_LM_SAMPLING_DRAFT_H
#define AGENTS_LM_SAMPLING_DRAFT_H

#include <stddef.h>
#include <stdint.h>

enum {
    DRAFT_MAX = 15,         /* with the id before them a full block of the kernels' rows */
    DRAFT_MATCH_MIN = 2,    /* ids of the shortest n-gram match, */
    DRAFT_MATCH_MAX = 4,    /* and of the longest */
    DRAFT_WINDOW = 1 << 14, /* ids that are searched; takes some microseconds */
};

/* Writes draft tokens after the n_ids of ids, which has room for n_ids + max, and returns how many:
 * max, or 0 if the last DRAFT_MATCH_MIN ids do not occur earlier. Uses the longest match, of
 * *ret_match ids, and of equal ones the latest. Draft tokens may repeat themselves: a b c a b
 * continues c a b c a b. */
size_t draft_propose(int32_t *ids, size_t n_ids, size_t max, size_t *ret_match);

/* A conversation's recent acceptance rate of draft tokens, by length of the n-gram match. */
struct draft_acceptance {
    float rates[DRAFT_MATCH_MAX - DRAFT_MATCH_MIN + 1];
};

void draft_acceptance_init(struct draft_acceptance *a);
/* A draft token was compared with the sampled token. */
void draft_acceptance_learn(struct draft_acceptance *a, size_t match, int is_accepted);

/* A model's cost of a position in a step: a line fitted to the times of past steps, weighted to
 * recent ones. Compute thread. */
struct draft_cost {
    double weight, n, n2, us, n_us; /* decaying sums over steps */
};

/* A step of n positions, all with logits, took us microseconds. */
void draft_cost_learn(struct draft_cost *c, size_t n, uint64_t us);
/* The cost of one more position, as a share of a step without positions (the line at 0). */
double draft_cost_slope(const struct draft_cost *c);

/* A step being formed: its positions, and the tokens expected from them. */
struct draft_load {
    double n_positions, n_tokens;
};

/* The draft length: how many of n draft tokens make the step yield more tokens a second; adds them
 * to the load. */
size_t draft_length(const struct draft_acceptance *a, size_t match, size_t n, double slope,
                    struct draft_load *load);

#endif
