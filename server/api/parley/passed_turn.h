/* A turn of a Chat stream that the daemon answers which has the conversation: its events come as
 * those of Turn. All functions are called on the loop. */
#ifndef SERVER_API_PARLEY_PASSED_TURN_H
#define SERVER_API_PARLEY_PASSED_TURN_H

#include <stdbool.h>

#include "parley/v1/conversations.pb-c.h"

#include "server/call/call.h"
#include "server/journal/store.h"

struct cluster;
struct cluster_call;

/* In its owner's struct. */
struct passed_turn {
    struct cluster *cluster;
    struct cluster_call *out;    /* NULL: the stream is over */
    struct cluster_call *cancel; /* the call that cancels the turn; NULL: none is in flight */
    struct call_bytes *held;     /* the event that was not taken yet; NULL: none */
    struct journal_peer to;
    const char *conversation, *principal;
    uint32_t number; /* of the turn; 0: it is not known to be accepted yet */
    bool is_reading, has_answer, is_cancelled, is_repeatable;
    bool is_refused; /* the other daemon has not begun the turn, and it may be begun here */
    bool is_over;
    struct error err;          /* how it is over */
    void (*notify)(void *arg); /* there is an event, or it is over; never called inside */
    void *arg;
};

/* Begins the turn; request lives until it is over. Returns false if it cannot be passed on. */
bool passed_turn_begin(struct passed_turn *t, struct cluster *cluster,
                       const struct journal_peer *to, const char *principal,
                       const Parley__V1__TurnRequest *request, void (*notify)(void *arg),
                       void *arg);
/* Takes the next event, whose parts live in arena. Returns false if none is there: then is_over and
 * err say whether more come. An event that cannot be read ends the turn. */
bool passed_turn_next(struct passed_turn *t, Parley__V1__TurnEvent **out, struct arena *arena);
/* Cancels the turn, whose last event then comes. */
void passed_turn_cancel(struct passed_turn *t);
/* Leaves the turn, which goes on if others read it. Does nothing if it was not begun. */
void passed_turn_leave(struct passed_turn *t);

#endif
