/* What a load measured. The terms are those of `vllm bench serve`:
 *
 *   TTFT   a turn sent until the first chunk of its reply
 *   ITL    between two chunks of a reply
 *   TPOT   first chunk until the last, over the reply's tokens but the first
 *   E2EL   a request begun, which of a first turn includes the opening, until the last chunk
 *
 * Percentiles are interpolated between the two nearest ranks. */
#ifndef CLIENT_CLI_BENCH_FIGURES_H
#define CLIENT_CLI_BENCH_FIGURES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "client/cli/bench/target.h"

/* Numbers of which percentiles are wanted. */
struct samples {
    float *values; /* [n] */
    size_t n, cap;
};

void samples_add(struct samples *s, double value);
void samples_deinit(struct samples *s);
/* Sorts. percent: 0 … 100. NaN where there are none. */
double samples_percentile(struct samples *s, double percent);

struct figures {
    uint64_t start_us, end_us;      /* monotonic clock: start of the first turn, end of the last */
    uint64_t n_completed, n_failed; /* turns */
    uint64_t n_input, n_cached, n_output; /* tokens, of completed turns */
    uint32_t n_prompt_min, n_prompt_max;  /* tokens of first turns' prompts; 0: none completed */
    struct samples ttft_ms, itl_ms, tpot_ms, e2el_ms;
    struct samples *turn_ttft_ms; /* [n_turns] by turn; of those that completed */
    size_t n_turns;
    struct samples rates;           /* of conversations: tokens/s while it is their turn */
    double newcomer_ttft_ms;        /* NaN: there was none */
    struct samples newcomer_itl_ms; /* of the other conversations, while the newcomer waits for its
                                       first chunk */
    double client_cpu_s;
    struct error first_error; /* STATUS_OK: none */
};

void figures_init(struct figures *f, size_t n_turns);
void figures_deinit(struct figures *f);

/* Adds a completed turn, from its session. */
void figures_add_turn(struct figures *f, const struct target_session *s);
/* n turns failed, or were never started. */
void figures_add_failed(struct figures *f, uint64_t n, const struct error *why);

double figures_duration_s(const struct figures *f);
double figures_output_rate(const struct figures *f); /* tokens/s */
/* The slowest conversation's rate over the median's; NaN where there are none. */
double figures_fairness(struct figures *f);

/* Adds the members that scripts rely on; null for a missing figure. */
void figures_json(struct figures *f, json_t *into);
void figures_print(struct figures *f);

#endif
