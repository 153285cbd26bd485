/* A connection of rooms that another daemon answers: frames go there in order and come back. All
 * functions are called on the loop. */
#ifndef SERVER_API_PASSED_ROOMS_H
#define SERVER_API_PASSED_ROOMS_H

#include <stdbool.h>

#include "parley/v1/rooms.pb-c.h"

#include "base/arena.h"
#include "server/cluster/cluster.h"

/* In its owner's struct. */
struct passed_rooms {
    struct cluster_call *out; /* NULL: it has not begun, or is over */
    struct list waiting;      /* frames for the other daemon */
    size_t waiting_bytes;
    bool is_sending;
    struct call_bytes *held; /* a frame for the client; NULL: none has come */
    bool is_over;
    struct error err;          /* how it is over */
    void (*notify)(void *arg); /* a frame has come, or it is over; never called inside */
    void *arg;
};

void passed_rooms_init(struct passed_rooms *p, void (*notify)(void *arg), void *arg);
void passed_rooms_deinit(struct passed_rooms *p);
/* Passes on what waits, and what comes. False: it cannot be passed on. */
bool passed_rooms_begin(struct passed_rooms *p, struct cluster *cluster,
                        const struct journal_peer *to, const char *principal);
/* Has a frame wait, or sends it. EXHAUSTED: too many wait. */
enum status passed_rooms_send(struct passed_rooms *p, const Parley__V1__RoomsAttachRequest *m,
                              struct error *err) MUST_CHECK;
/* Takes back the first frame that waits, before passed_rooms_begin; it lives in arena. Returns NULL
 * if there is none, or without memory: then it is over. */
const Parley__V1__RoomsAttachRequest *passed_rooms_take_back(struct passed_rooms *p,
                                                             struct arena *arena);
/* Returns the next frame for the client, which lives in arena; NULL if there is none, or if it
 * cannot be read: then it is over. */
const Parley__V1__RoomsAttachResponse *passed_rooms_next(struct passed_rooms *p,
                                                         struct arena *arena);

#endif
