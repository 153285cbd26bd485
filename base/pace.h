/* How fast somebody may act: time is saved up to a bound, and each act costs some of it. All times
 * are in microseconds. */
#ifndef BASE_PACE_H
#define BASE_PACE_H

#include <stdint.h>

struct pace {
    uint64_t at_us;    /* up to when time is saved */
    uint64_t saved_us; /* at most the bound */
};

/* Begins with the bound saved. */
static inline void pace_init(struct pace *p, uint64_t now_us, uint64_t most_us)
{
    *p = (struct pace){.at_us = now_us, .saved_us = most_us};
}

/* Takes the cost of an act. Returns 0 if it was taken, else after how long it could be. */
static inline uint64_t pace_take(struct pace *p, uint64_t now_us, uint64_t most_us,
                                 uint64_t cost_us)
{
    p->saved_us += now_us - p->at_us;
    p->at_us = now_us;
    if (p->saved_us > most_us)
        p->saved_us = most_us;
    if (p->saved_us < cost_us)
        return cost_us - p->saved_us;
    p->saved_us -= cost_us;
    return 0;
}

#endif
