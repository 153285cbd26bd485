/* The learning rate of each round. */
#ifndef AGENTS_PARAMS_SCHEDULE_H
#define AGENTS_PARAMS_SCHEDULE_H

#include <stdint.h>

#include "base/status.h"

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    double rate;        /* the rate after the warm-up, before it falls */
    uint64_t warm_up;   /* how many rounds warm up: round r of them has r / warm_up of the rate */
    uint64_t step_size; /* step: each time so many rounds have passed, factor multiplies the rate */
    double factor;
    uint64_t total; /* cosine: the round, warm-up counted, after which the rate is minimum */
    double minimum;
};

/* Checks a schedule. STATUS_INVALID names the member that is not valid. */
enum status schedule_check(const struct schedule *s, struct error *err) MUST_CHECK;

/* Returns the rate of a round, 1, 2, …. With n the rounds since the warm-up, from 0, it is
 *   step:   rate * factor^(n / step_size)
 *   cosine: minimum + (rate - minimum) * (1 + cos(pi * n / (total - warm_up))) / 2 */
float schedule_rate(const struct schedule *s, uint64_t round);

#endif
