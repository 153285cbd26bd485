/* The clock of an alarm (base/alarm.h): a timer of the loop. Loop. */
#ifndef SERVER_LOOP_ALARM_H
#define SERVER_LOOP_ALARM_H

#include <uv.h>

#include "base/alarm.h"
#include "base/env.h"
#include "base/list.h"

struct loop_alarm {
    struct alarm alarm;
    uv_timer_t timer;
    const struct env *env;
};

static inline void loop_alarm_on_timer(uv_timer_t *timer)
{
    alarm_ring(&container_of(timer, struct loop_alarm, timer)->alarm);
}

/* The timer fires at about the alarm's time: the loop's clock may lag a little. */
static inline void loop_alarm_arm(struct alarm *alarm)
{
    struct loop_alarm *a = container_of(alarm, struct loop_alarm, alarm);
    const uint64_t at_us = alarm->at_us, now_us = env_now_us(a->env);

    if (at_us == 0)
        (void)uv_timer_stop(&a->timer); /* cannot fail */
    else
        (void)uv_timer_start(&a->timer, loop_alarm_on_timer,
                             at_us > now_us ? (at_us - now_us + 999) / 1000 : 0,
                             0); /* fails only when closing */
}

static inline void loop_alarm_open(struct loop_alarm *a, uv_loop_t *loop, const struct env *env,
                                   void (*tick)(void *owner), void *owner)
{
    a->alarm = (struct alarm){.arm = loop_alarm_arm, .tick = tick, .owner = owner};
    a->env = env;
    (void)uv_timer_init(loop, &a->timer); /* cannot fail */
}

/* The timer is closed in the loop's next iteration. Until the owner is gone the alarm may be set,
 * and does not ring. */
static inline void loop_alarm_close(struct loop_alarm *a)
{
    uv_close((uv_handle_t *)&a->timer, NULL);
}

#endif
