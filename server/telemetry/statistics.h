/* Counters of a model's requests and of the time of each of their parts, for turns and steps of
 * Act, over every API. Counters only grow. Zeroed memory is the initial state. Loop. */
#ifndef SERVER_TELEMETRY_STATISTICS_H
#define SERVER_TELEMETRY_STATISTICS_H

#include "base/status.h"
#include "server/telemetry/histogram.h"

enum { N_STATUSES = STATUS_UNAUTHENTICATED + 1 };

struct duration {
    uint64_t n, us; /* the sum */
};

/* The parts of a request's time. */
struct request_times {
    uint64_t total_us;                      /* accepted until its end */
    uint64_t queue_us;                      /* accepted until the first step, without input_us */
    uint64_t input_us, infer_us, output_us; /* to observe; to compute; to make the reply */
};

struct statistics {
    struct duration success, fail, queue, input, infer, output; /* all but fail count successes */
    uint64_t refused[N_STATUSES];                               /* requests that were not begun */
    uint64_t failed[N_STATUSES]; /* requests that were begun and failed */
    size_t n_open;               /* requests that were begun and have not ended */
    uint64_t last_us;            /* when the last success ended, by env's clock; 0: never */
    uint64_t n_steps, n_rows, n_cost;
    struct duration *by_rows; /* [n_by_rows] the i-th is of steps with i + 1 rows */
    size_t n_by_rows;
    uint64_t n_prompt, n_cached, n_said; /* tokens of completed turns */
    struct histogram ttft, inter_token, queue_times, prefill, decode, step_rows, step_cost;
};

void statistics_deinit(struct statistics *s);

/* Counts a request that was not begun. */
void statistics_refuse(struct statistics *s, enum status why);
/* Counts a request that has begun. One call of statistics_succeed or statistics_fail follows. */
void statistics_begin(struct statistics *s);
void statistics_succeed(struct statistics *s, const struct request_times *times, uint64_t now_us);
/* why may also be CANCELLED or DEADLINE. */
void statistics_fail(struct statistics *s, enum status why, uint64_t total_us);

/* Counts a step of n_rows rows and this cost. took_us includes the hand-over from the loop to the
 * model's thread and back. */
void statistics_step(struct statistics *s, size_t n_rows, uint64_t cost, uint64_t took_us);

/* Count the time of a turn's first token, since the turn's acceptance, and the times of n further
 * tokens, each since the token before. */
void statistics_first_token(struct statistics *s, uint64_t after_us);
void statistics_tokens(struct statistics *s, uint64_t n, uint64_t after_us);

#endif
