/* The learning rate of each round. */
#ifndef AGENTS_PARAMS_SCHEDULE_H
#define AGENTS_PARAMS_SCHEDULE_H

#include <stdint.h>

#include "base/status.h"

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    double rate;
    uint64_t warm_up;   /* rounds: round r of them has r / warm_up of the rate */
    uint64_t step_size; /* step: rounds after which the rate is multiplied by factor, again and
                           again */
    double factor;
    uint64_t total; /* cosine: the round, warm-up counted, after which the rate is minimum */
    double minimum;
};

/* STATUS_INVALID names the invalid member. */
enum status schedule_check(const struct schedule *s, struct error *err) MUST_CHECK;

/* Of round 1, 2, …: rounds after the warm-up count from 0 in
 *   step:   rate * factor^(n / step_size)
 *   cosine: minimum + (rate - minimum) * (1 + cos(pi * n / (total - warm_up))) / 2 */
float schedule_rate(const struct schedule *s, uint64_t round);

#endif
