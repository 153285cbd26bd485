#include "server/api/connect/connect_calls.h"

#include "base/alarm.h"
#include "base/env.h"
#include "server/api/connect/connect_parts.h"

enum { CONNECT_CALLS_MAX = 1 << 16 };

static const struct limit_kind kind_of_connect_calls = {"Connect calls in flight", NULL, NULL};

void connect_calls_init(struct connect_calls *c, const struct env *env, struct alarm *alarm,
                        struct health *health)
{
    *c = (struct connect_calls){.env = env, .alarm = alarm, .health = health};
    list_init(&c->by_deadline);
    shared_limit_init(&c->limit, &kind_of_connect_calls, CONNECT_CALLS_MAX);
}

void connect_calls_deinit(void *calls)
{
    struct connect_calls *c = calls;

    shared_limit_deinit(&c->limit);
}

void connect_calls_add(struct connect_calls *c, struct connect_deadline *d)
{
    struct link *at = &c->by_deadline.head;

    while (at->prev != &c->by_deadline.head && connect_deadline_of(at->prev)->at_us > d->at_us)
        at = at->prev;
    list_insert_before(at, &d->link);
    alarm_by(c->alarm, d->at_us);
}

void connect_calls_tick(void *calls)
{
    struct connect_calls *c = calls;
    const uint64_t now_us = env_now_us(c->env);
    struct link *link;

    while ((link = list_first(&c->by_deadline)) != NULL) {
        struct connect_deadline *d = connect_deadline_of(link);

        if (d->at_us > now_us) {
            alarm_by(c->alarm, d->at_us);
            return;
        }
        list_remove(link);
        connect_call_expire(d);
    }
}
