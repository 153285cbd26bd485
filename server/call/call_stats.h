/* Counters of calls, over all transports that share them. Counters only grow, but n_calls. Loop. */
#ifndef SERVER_CALL_CALL_STATS_H
#define SERVER_CALL_CALL_STATS_H

#include <stdint.h>

struct call_stats {
    uint64_t n_calls;   /* calls in flight */
    uint64_t n_started; /* calls since the daemon's start, with the refused ones */
    uint64_t n_failed;  /* started calls that ended with an error, or that their peer left */
    /* Where keys are configured: calls that ended at once with RESOURCE_EXHAUSTED, the sum of the
     * times from their arrival to that end, and how many took at most one and ten milliseconds. */
    uint64_t n_refused, refused_us, n_refused_in_1ms, n_refused_in_10ms;
};

#endif
