/* What a model's requests came to, and how long each part of them took: turns and steps of Act
 * alike, whatever the front door. Counters only grow. Zeroed memory is a beginning. Loop. */
#ifndef SERVER_STATISTICS_H
#define SERVER_STATISTICS_H

#include "base/status.h"
#include "server/histogram.h"

enum { N_STATUSES = STATUS_UNAUTHENTICATED + 1 };

struct duration {
    uint64_t n, us; /* the sum */
};

/* Where a request's time went. */
struct request_times {
    uint64_t total_us;                      /* accepted until its end */
    uint64_t queue_us;                      /* accepted until the first step, but for input_us */
    uint64_t input_us, infer_us, output_us; /* observed; computed; made the reply */
};

struct statistics {
    struct duration success, fail, queue, input, infer, output; /* all but fail: of successes */
    uint64_t refused[N_STATUSES], failed[N_STATUSES];           /* never begun; begun */
    size_t n_open;                                              /* begun and not ended */
    uint64_t last_us; /* when the last success ended, env's clock; 0: never */
    uint64_t n_steps, n_rows, n_cost;
    struct duration *by_rows; /* [n_by_rows] steps of i + 1 rows */
    size_t n_by_rows;
    uint64_t n_prompt, n_cached, n_said; /* tokens of turns that are complete */
    struct histogram ttft, inter_token, queue_times, prefill, decode, step_rows, step_cost;
};

void statistics_deinit(struct statistics *s);

/* Asked for, and not begun. */
void statistics_refuse(struct statistics *s, enum status why);
/* Begun; one of the next two follows. */
void statistics_begin(struct statistics *s);
void statistics_succeed(struct statistics *s, const struct request_times *times, uint64_t now_us);
/* why: CANCELLED and DEADLINE too. */
void statistics_fail(struct statistics *s, enum status why, uint64_t total_us);

/* A step of so many rows and so much cost took so long, from the loop and back. */
void statistics_step(struct statistics *s, size_t n_rows, uint64_t cost, uint64_t took_us);

/* A turn's first token came after so long; n further ones so long after the one before. */
void statistics_first_token(struct statistics *s, uint64_t after_us);
void statistics_tokens(struct statistics *s, uint64_t n, uint64_t after_us);

#endif
