/* What a set of parameters has counted since it was made. The counters are part of a checkpoint. */
#ifndef SERVER_PARAMS_COUNTERS_H
#define SERVER_PARAMS_COUNTERS_H

#include <stdint.h>

struct params_counters {
    uint64_t rounds, partial, aborted, duplicates, dropped;
};

#endif
