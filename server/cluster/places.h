/* Where the things are that one daemon has as a whole, of those that share a journal: the sets of
 * parameters, the keys of Store, the tables of Replay, the groups of Registry, the tasks of Work,
 * and rooms. Each of these is a place. A place that nobody has is given to the daemon that
 * rendezvous hashing chooses among those with a lease, and stays there until that daemon ends or
 * has no lease. Without other daemons every place is here. All functions are called on the loop. */
#ifndef SERVER_CLUSTER_PLACES_H
#define SERVER_CLUSTER_PLACES_H

#include <stdbool.h>

#include "base/list.h"
#include "server/journal/keeper.h"

struct alarm;
struct env;
struct places;

/* The registry whose things a place has. */
struct place_holder {
    struct keeper *keeper; /* of the things, which is_placed; NULL: they are not kept */
    /* Another daemon has the place: all of it leaves memory, and calls end with why. */
    void (*leave)(void *self, const struct error *why);
    void *self;
};

enum place_state { PLACE_UNKNOWN, PLACE_HERE, PLACE_THERE };

struct places_row {
    enum place_state state;
    uint64_t epoch;            /* under which its things are in memory; 0: they are not */
    uint64_t n_lapses;         /* the journal's, when the place was found to be here */
    uint64_t judged_from;      /* the beat whose daemons were read behind that of the owner */
    struct journal_peer owner; /* of PLACE_THERE */
    struct place_holder holder;
    struct list waits; /* of struct place_ask: until what the journal has is read */
};

/* A question where a place is: a member of the asker's struct. */
struct place_ask {
    struct journal_wait wait;
    struct link link; /* in the place's waits */
    struct places *of;
    enum journal_place place;
    /* owner is NULL if the place is here. err says why it is not known where the place is. */
    void (*done)(struct place_ask *a, const struct journal_peer *owner, const struct error *err);
};

struct places {
    const struct env *env;
    struct journal *journal; /* NULL: there are no other daemons */
    struct alarm *alarm;     /* rings places_tick */
    bool is_draining;
    struct places_row rows[JOURNAL_N_PLACES];
    struct place_ask looks[JOURNAL_N_PLACES]; /* of places_tick */
};

void places_init(struct places *p, const struct env *env, struct alarm *alarm);
/* Says whose things the place has. Before places_join. */
void places_hold(struct places *p, enum journal_place place, const struct place_holder *holder);
/* Begins to look after the places of a shared journal, once this daemon serves. journal may be NULL
 * or not shared: then all places are here. */
void places_join(struct places *p, struct journal *journal);
/* Finds places whose daemon has ended, so that what was in them is somewhere again unasked. */
void places_tick(void *places);
/* Looks no more. */
void places_drain(void *places);

/* Returns where the place is, as far as is known. *ret_owner, of PLACE_THERE, is borrowed until the
 * loop's next iteration. */
enum place_state places_look(struct places *p, enum journal_place place,
                             const struct journal_peer **ret_owner);
/* The on_ready of a place's keeper; row is a struct places_row. */
void places_ready(void *row);
/* Of a place without a keeper: its things were read under this epoch. Returns whether they may stay
 * in memory; if not, leave was called, since others were read under another one. */
bool places_arrived(struct places *p, enum journal_place place, uint64_t epoch);
/* Asks the journal where the place is, and waits until its things are read if it is here.
 * is_patient: while another daemon has the place, the question waits for it, as journal_read says.
 * a does not wait. */
void places_ask(struct places *p, enum journal_place place, bool is_patient, struct place_ask *a,
                void (*done)(struct place_ask *a, const struct journal_peer *owner,
                             const struct error *err));
/* Ends a question: done is not called. Does nothing if a does not wait. */
void places_leave(struct place_ask *a);

#endif
