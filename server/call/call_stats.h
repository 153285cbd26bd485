/* How many calls there were, of all transports that share the counters. Loop. */
#ifndef SERVER_CALL_CALL_STATS_H
#define SERVER_CALL_CALL_STATS_H

#include <stdint.h>

struct call_stats {
    uint64_t n_calls;   /* in flight */
    uint64_t n_started; /* since the start, the refused ones too */
    uint64_t n_failed;  /* of those, the ones that ended with an error or that their peer left */
    /* With keys: calls that RESOURCE_EXHAUSTED ended at once, the time since the transport had
     * them, and how many took no longer than a millisecond, and ten. */
    uint64_t n_refused, refused_us, n_refused_in_1ms, n_refused_in_10ms;
};

#endif
