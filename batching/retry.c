#include "batching/retry.h"

/* The weight of a new request in the smoothed time: the mean follows the load, but a single short
 * request changes it little. */
static const double weight = 0.125;
/* The least estimate of the wait before any request has ended. */
static const double least_unknown_us = 100 * 1000;
static const double least_us = 1000, most_us = 60.0 * 1000 * 1000;
/* The share of running requests that may end before the client retries: a short queue empties
 * sooner than a retry is worthwhile. */
static const double share = 0.125;

void retry_begin(struct retry *r, uint64_t now_us)
{
    if (r->quiet_us == 0)
        r->quiet_us = now_us;
}

void retry_learn(struct retry *r, uint64_t first_step_us, uint64_t now_us)
{
    double us = (double)(now_us - first_step_us);

    r->run_us += r->run_us > 0 ? weight * (us - r->run_us) : us;
    r->quiet_us = now_us;
}

void retry_rest(struct retry *r)
{
    r->quiet_us = 0;
}

/* Uniform in [0, 1). */
static double retry_draw(const struct env *env)
{
    uint32_t bits;

    env->random(env->self, &bits, sizeof(bits));
    return (double)bits / 4294967296.0;
}

uint32_t retry_after_ms(const struct retry *r, size_t n_waiting, size_t n_together, uint64_t now_us,
                        const struct env *env)
{
    double quiet_us = r->quiet_us == 0 ? 0 : (double)(now_us - r->quiet_us);
    double run_us = quiet_us > r->run_us ? quiet_us : r->run_us;
    double us = run_us * ((double)n_waiting / (double)(n_together > 0 ? n_together : 1) + share);

    if (r->run_us <= 0 && us < least_unknown_us)
        us = least_unknown_us;
    us *= 0.5 + 0.5 * retry_draw(env);
    us = us > least_us ? us : least_us;
    return (uint32_t)((us < most_us ? us : most_us) / 1000);
}
