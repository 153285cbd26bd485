/* A timer that fires at a time of the clock, for an owner with one next deadline. Loop. */
#ifndef SERVER_ALARM_H
#define SERVER_ALARM_H

#include <uv.h>

#include "base/env.h"

struct alarm {
    uv_timer_t timer;
    const struct env *env;
    void (*ring)(void *arg);
    void *arg;
};

static inline void alarm_open(struct alarm *a, uv_loop_t *loop, const struct env *env,
                              void (*ring)(void *arg), void *arg)
{
    a->env = env;
    a->ring = ring;
    a->arg = arg;
    (void)uv_timer_init(loop, &a->timer); /* cannot fail */
    a->timer.data = a;
}

/* The timer is closed in the loop's next iteration. */
static inline void alarm_close(struct alarm *a)
{
    uv_close((uv_handle_t *)&a->timer, NULL);
}

static inline void alarm_on_timer(uv_timer_t *timer)
{
    struct alarm *a = timer->data;

    a->ring(a->arg);
}

/* Fires once, at about at_us (the loop's clock may lag a little), and replaces an earlier deadline;
 * 0: disarms. alarm is a struct alarm; its type lets this function serve as a callback. */
static inline void alarm_arm(void *alarm, uint64_t at_us)
{
    struct alarm *a = alarm;
    uint64_t now_us = env_now_us(a->env);

    if (at_us == 0)
        (void)uv_timer_stop(&a->timer); /* cannot fail */
    else
        (void)uv_timer_start(&a->timer, alarm_on_timer,
                             at_us > now_us ? (at_us - now_us + 999) / 1000 : 0,
                             0); /* fails only when closing */
}

#endif
