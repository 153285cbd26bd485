/* A peer is a program that has attached itself over a stream and carries out orders: it computes an
 * agent, computes functions, or hosts environments. This module is what these three uses have in
 * common. It keeps the orders that a peer's stream has not taken yet and the orders that the peer
 * has still to answer, and it ends a peer that leaves too many orders untaken or is silent for too
 * long. The module knows neither what an order asks for nor how a stream sends it. It lies in base/
 * because agents/remote/ uses it and may include nothing of server/. All functions are called on
 * the loop. */
#ifndef BASE_PEER_H
#define BASE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/list.h"
#include "base/status.h"

struct alarm;
struct peer;

/* All peers of one use. The owner sets the members above list and calls peers_init. */
struct peers {
    const struct env *env;
    uint64_t silence_us; /* a peer from which nothing has come for so long is ended */
    size_t max_orders;   /* a peer whose stream leaves more orders untaken is ended; 0: no limit */
    struct alarm *alarm; /* the owner's, whose tick calls peers_tick */
    /* Sets err to the reason why a silent peer is ended. */
    void (*say_silent)(const struct peer *p, struct error *err);
    struct list list; /* of struct peer: the open ones, the oldest first */
};

/* A member of the owner's order. The order belongs to the owner, who frees it after peer_drop, or
 * after peer_take if no answer to it is awaited. */
struct peer_order {
    struct link link;    /* in the peer's orders, until the stream has taken the order */
    struct link awaited; /* in the peer's awaited, until the order is answered or dropped */
    uint64_t since_us;   /* the time at which the peer was given the order */
};

/* One peer. It is a member of the owner's struct, which lies in the memory of the peer's stream. */
struct peer {
    struct link link;    /* in the list of all */
    struct peers *all;   /* NULL: the peer is not open */
    struct list orders;  /* of struct peer_order: the orders that the stream has not taken */
    struct list awaited; /* of struct peer_order: the orders that the peer must still answer */
    size_t n_orders, n_awaited;
    bool must_speak;   /* silence counts even while no order is awaited */
    uint64_t heard_us; /* the time at which a message of the peer came last, or it was opened */
    /* The stream sets notify. It is called when there are orders to take, and must not take them
     * inside the call. */
    void (*notify)(struct peer *p);
    /* The stream sets ended. It is called when the peer is at fault or not wanted any more. It must
     * close the peer, by way of the peer's owner, and end the stream with err. */
    void (*ended)(struct peer *p, const struct error *err);
    void *stream; /* of the stream's own use */
};

static inline bool peer_is_open(const struct peer *p)
{
    return p->all != NULL;
}

void peers_init(struct peers *all);
/* Ends the peers that are at fault: with EXHAUSTED if too many orders wait for its stream, with the
 * owner's words if the peer is silent. Arms for the next peer that may be silent. */
void peers_tick(struct peers *all);
/* Ends all peers, because the server stops. */
void peers_end(struct peers *all);

/* Opens a peer, which is zeroed but for what the stream has set. */
void peer_open(struct peer *p, struct peers *all, bool must_speak);
/* Closes an open peer. Its orders stay; the owner drops them next. */
void peer_close(struct peer *p);

/* Notes that a message of the peer has come: the time in which it must answer begins anew. */
void peer_heard(struct peer *p);

/* Gives the peer an order, behind its other orders, and notifies the stream. */
void peer_give(struct peer *p, struct peer_order *o, bool is_awaited);
/* Returns the order that the stream sends next; NULL: there is none. */
struct peer_order *peer_next(const struct peer *p);
/* Returns the order of peer_next and removes it from orders, because it was sent. There must be
 * one. */
struct peer_order *peer_take(struct peer *p);
/* Removes an order from orders and awaited, because it is answered, or not wanted any more. */
void peer_drop(struct peer *p, struct peer_order *o);

/* Whether the peer's stream has taken the order. */
static inline bool peer_order_is_taken(const struct peer_order *o)
{
    return !link_is_on(&o->link);
}

/* The oldest order that the peer must still answer; NULL: there is none. */
static inline struct peer_order *peer_oldest(const struct peer *p)
{
    struct link *l = list_first(&p->awaited);

    return l == NULL ? NULL : container_of(l, struct peer_order, awaited);
}

/* The newest order that the peer must still answer; NULL: there is none. */
static inline struct peer_order *peer_newest(const struct peer *p)
{
    struct link *l = list_last(&p->awaited);

    return l == NULL ? NULL : container_of(l, struct peer_order, awaited);
}

#endif
