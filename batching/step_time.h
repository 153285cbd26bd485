/* The step-time model: how long steps take, learned from those that ran, and from that, how many
 * prefill tokens may join a step without raising the inter-token latency of its decode rows too
 * far. A decode row computes all of its cost in each step (a token of a reply); a prefill chunk is
 * the part of a prompt that the step has room for. */
#ifndef BATCHING_STEP_TIME_H
#define BATCHING_STEP_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEP_TIME_BUCKETS = 16, STEP_TIME_SEEN = 3 };

/* Plain data; zeroed, it has seen nothing. */
struct step_time {
    /* The last steps of decode rows alone, of cost 1, 2, 3-4, 5-8, … The shortest is used: a
     * disturbance only makes a step longer, and while a prompt is read only one step in 16 has
     * decode rows alone. */
    struct step_time_seen {
        double us, cost; /* 0: nothing yet */
    } decode[STEP_TIME_BUCKETS][STEP_TIME_SEEN];
    unsigned n_decode[STEP_TIME_BUCKETS]; /* how many there were */
    unsigned
        n_mixed; /* steps with decode rows and chunks since the last step of decode rows alone */
    unsigned n_until_unchunked; /* steps before the next unchunked prefill */
    /* What chunks add to their step, smoothed: unit_us per token, learned from steps that chunks
     * fill, and a fixed chunk_us. 0: unknown. */
    double unit_us, chunk_us;
};

/* A step took us microseconds. */
void step_time_learn(struct step_time *s, size_t decode_cost, size_t chunk_cost, uint64_t us);

/* How many prefill tokens of n_chunked rows may join decode rows of decode_cost. Each chunk
 * lengthens the step by less than the decode rows alone take, all chunks together to at most
 * max_us, or by a quarter where that is more: as much again where decode rows alone
 * take max_us. */
size_t step_time_prefill_budget(const struct step_time *s, size_t decode_cost, size_t n_chunked,
                                uint64_t max_us);

/* What chunks of that cost add to one step; 0: unknown. */
double step_time_chunk_us(const struct step_time *s, size_t cost);

/* What decode rows of that cost take alone, between the nearest steps of less and of more that were
 * seen: the shortest of these, or, is_usual, those in the middle; 0: unknown. */
double step_time_decode_us(const struct step_time *s, size_t cost, bool is_usual);
/* Whether decode rows of about that cost have run alone. */
bool step_time_has_seen(const struct step_time *s, size_t cost);
/* How many prefill tokens take that long; SIZE_MAX: unknown. */
size_t step_time_tokens(const struct step_time *s, double us);

/* Whether one of n_chunked rows may compute all its cost in one step, regardless of the prefill
 * budget: if that step takes at most max_us. Decode rows then see one gap instead of many longer
 * steps. After that no row may do so until as many steps have passed as its chunks would have
 * taken. */
bool step_time_allows_unchunked(struct step_time *s, size_t decode_cost, size_t n_chunked,
                                size_t cost, uint64_t max_us);

/* Whether decode rows should run alone once to measure their time again: if the machine became
 * slower, an old time makes chunks look more expensive. */
bool step_time_is_stale(const struct step_time *s);

#endif
