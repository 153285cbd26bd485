/* An alarm is the next time at which its owner has something to do. The owner sets the
 * time; a clock calls alarm_ring once that time has come: the server's loop
 * (server/loop_alarm.h), or a test that turns its own clock. An alarm belongs to one thread. */
#ifndef BASE_ALARM_H
#define BASE_ALARM_H

#include <stddef.h>
#include <stdint.h>

struct alarm {
    /* Tells the clock that at_us has changed. NULL: the clock looks at at_us itself. */
    void (*arm)(struct alarm *a);
    void (*tick)(void *owner); /* does what the time has come for, and sets the next time */
    void *owner;
    uint64_t at_us; /* of the owner's env; 0: the alarm does not ring */
};

/* The alarm rings at at_us, and at no other time; at_us is 0: the alarm does not ring. A time that
 * is past rings soon, but never inside. */
static inline void alarm_set(struct alarm *a, uint64_t at_us)
{
    if (a->at_us == at_us)
        return;
    a->at_us = at_us;
    if (a->arm != NULL)
        a->arm(a);
}

/* The alarm rings at at_us, or earlier if an earlier time was set. at_us is 0: nothing changes. */
static inline void alarm_by(struct alarm *a, uint64_t at_us)
{
    if (at_us != 0 && (a->at_us == 0 || at_us < a->at_us))
        alarm_set(a, at_us);
}

/* For the clock: the time has come. */
static inline void alarm_ring(struct alarm *a)
{
    a->at_us = 0;
    a->tick(a->owner);
}

#endif
