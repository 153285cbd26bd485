/* What a load measured. The terms are those of `vllm bench serve`:
 *
 *   TTFT   a turn sent until the first chunk of its reply
 *   ITL    between two chunks of a reply
 *   TPOT   first chunk until the last, over the reply's tokens but the first
 *   E2EL   a request begun, which of a first turn includes the opening, until the last chunk
 *
 * In an open loop, and after think time, TTFT and E2EL count from the time at which the turn was to
 * begin: a server that stalls also delays the turns that could not be sent meanwhile (see "How NOT
 * to Measure Latency", G. Tene, on coordinated omission). */
#ifndef CLIENT_CLI_BENCH_FIGURES_H
#define CLIENT_CLI_BENCH_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "client/cli/bench/quantiles.h"
#include "client/cli/bench/target.h"
#include "client/cli/bench/timeline.h"

enum { FIGURES_N_STATUSES = STATUS_UNAUTHENTICATED + 1 };

/* What a good turn keeps to; 0: no bound. */
struct goodput_goal {
    double ttft_ms, tpot_ms, e2el_ms;
};

struct figures {
    struct goodput_goal goal;
    uint64_t start_us, end_us;      /* monotonic clock: start of the first turn, end of the last */
    uint64_t n_completed, n_failed; /* turns */
    uint64_t n_cancelled;           /* by the load's own wish; neither completed nor failed */
    uint64_t n_good;                /* completed within the goal */
    uint64_t n_by_status[FIGURES_N_STATUSES]; /* failed turns; those never sent count as the one
                                                 that failed before them */
    uint64_t n_input, n_cached, n_output;     /* tokens, of completed turns */
    uint32_t n_prompt_min, n_prompt_max; /* tokens of first turns' prompts; 0: none completed */
    uint32_t n_peak;                     /* turns in flight at once, at most */
    struct quantiles ttft_us, itl_us, tpot_us, e2el_us;
    struct quantiles lag_us;        /* a turn due until it was sent; of scheduled turns */
    struct quantiles *turn_ttft_us; /* [n_turns] by turn; of those that completed */
    size_t n_turns;
    struct quantiles rates_milli; /* of conversations: tokens/s while it is their turn, × 1000 */
    double newcomer_ttft_ms;      /* NaN: there was none */
    struct quantiles newcomer_itl_us; /* of the other conversations, while the newcomer waits for
                                         its first chunk */
    struct timeline timeline;
    double client_cpu_s;
    double server_cpu_s;      /* NaN: the server is not on this host, or not ours to look at */
    struct error first_error; /* STATUS_OK: none */
};

void figures_init(struct figures *f, size_t n_turns);
void figures_deinit(struct figures *f);

/* Adds a completed turn, from its session. */
void figures_add_turn(struct figures *f, const struct target_session *s);
/* n turns failed, or were never started. */
void figures_add_failed(struct figures *f, uint64_t n, const struct error *why);

/* Adds those of a load that followed: its times come after, its counts and times are summed. Not
 * the newcomer's, of which only one load has any. */
void figures_merge(struct figures *into, const struct figures *from);

double figures_duration_s(const struct figures *f);
/* So many a second of the duration. */
double figures_rate(const struct figures *f, uint64_t n);
double figures_output_rate(const struct figures *f); /* tokens/s */
/* The slowest conversation's rate over the median's; NaN where there are none. */
double figures_fairness(const struct figures *f);

#endif
