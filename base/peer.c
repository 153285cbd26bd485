#include "base/peer.h"

#include "base/alarm.h"

void peers_init(struct peers *all)
{
    list_init(&all->list);
}

static struct peer *peer_of(struct link *l)
{
    return container_of(l, struct peer, link);
}

static bool peer_is_flooded(const struct peer *p)
{
    return p->all->max_orders != 0 && p->n_orders > p->all->max_orders;
}

/* When the peer will have been silent for too long; 0: nothing is awaited from it. */
static uint64_t peer_due_us(const struct peer *p)
{
    const struct peer_order *o = peer_oldest(p);
    uint64_t since_us = p->heard_us;

    if (o == NULL && !p->must_speak)
        return 0;
    if (!p->must_speak && o->since_us > since_us)
        since_us = o->since_us;
    return since_us + p->all->silence_us;
}

static bool peer_is_at_fault(const struct peer *p, uint64_t due_us, struct error *err)
{
    bool is_silent = due_us != 0 && due_us <= env_now_us(p->all->env);

    if (peer_is_flooded(p))
        (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "the worker reads too slowly: %zu messages wait for it", p->n_orders);
    else if (is_silent)
        p->all->say_silent(p, err);
    return peer_is_flooded(p) || is_silent;
}

void peers_tick(struct peers *all)
{
    struct link *l = list_first(&all->list);
    struct error err;

    while (l != NULL) {
        struct peer *p = peer_of(l);
        uint64_t due_us = peer_due_us(p);

        if (peer_is_at_fault(p, due_us, &err)) {
            p->ended(p, &err);
            l = list_first(&all->list); /* its end may have ended others */
            continue;
        }
        alarm_by(all->alarm, due_us);
        l = list_next(&all->list, l);
    }
}

void peers_end(struct peers *all)
{
    struct error err;
    struct link *l;

    (void)error_draining(&err);
    while ((l = list_first(&all->list)) != NULL)
        peer_of(l)->ended(peer_of(l), &err);
}

void peer_open(struct peer *p, struct peers *all, bool must_speak)
{
    p->all = all;
    p->must_speak = must_speak;
    p->heard_us = env_now_us(all->env);
    p->n_orders = p->n_awaited = 0;
    list_init(&p->orders);
    list_init(&p->awaited);
    list_push(&all->list, &p->link);
    if (must_speak)
        alarm_by(all->alarm, peer_due_us(p));
}

void peer_close(struct peer *p)
{
    list_remove(&p->link);
    p->all = NULL;
}

void peer_heard(struct peer *p)
{
    p->heard_us = env_now_us(p->all->env);
}

void peer_give(struct peer *p, struct peer_order *o, bool is_awaited)
{
    list_push(&p->orders, &o->link);
    p->n_orders++;
    if (is_awaited) {
        list_push(&p->awaited, &o->awaited);
        p->n_awaited++;
    }
    if (is_awaited && !p->must_speak) { /* else the peer is watched already */
        o->since_us = env_now_us(p->all->env);
        alarm_by(p->all->alarm, o->since_us + p->all->silence_us);
    }
    if (peer_is_flooded(p)) /* the next tick ends the peer, which the caller is still using */
        alarm_by(p->all->alarm, env_now_us(p->all->env));
    p->notify(p);
}

struct peer_order *peer_next(const struct peer *p)
{
    struct link *l = list_first(&p->orders);

    return l == NULL ? NULL : container_of(l, struct peer_order, link);
}

struct peer_order *peer_take(struct peer *p)
{
    p->n_orders--;
    return container_of(list_pop(&p->orders), struct peer_order, link);
}

void peer_drop(struct peer *p, struct peer_order *o)
{
    if (link_is_on(&o->link)) {
        list_remove(&o->link);
        p->n_orders--;
    }
    if (link_is_on(&o->awaited)) {
        list_remove(&o->awaited);
        p->n_awaited--;
    }
}
