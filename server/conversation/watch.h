/* Events of conversations, in one ring for all watchers. A watcher is a cursor into the ring; a
 * slow one learns how many events it has lost, and delays nothing. Loop. */
#ifndef SERVER_CONVERSATION_WATCH_H
#define SERVER_CONVERSATION_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

enum { CONVERSATION_ID_BYTES = 16, CONVERSATION_ID_CHARS = 2 * CONVERSATION_ID_BYTES + 1 };

struct conversation_id {
    uint8_t bytes[CONVERSATION_ID_BYTES];
};

enum watch_what {
    WATCH_OPENED,
    WATCH_FORKED,
    WATCH_EVICTED,
    WATCH_RECOMPUTED,
    WATCH_EXPIRED,
    WATCH_CLOSED,
};

struct watch_event {
    struct conversation_id id;
    struct conversation_id parent; /* of WATCH_FORKED */
    enum watch_what what;
    const char *reason; /* static */
    uint64_t unix_ms;
};

enum { WATCH_RING_EVENTS = 1024 };

struct watch_ring {
    struct watch_event *events; /* [WATCH_RING_EVENTS]; event n is at n modulo the size */
    uint64_t n_events;          /* since the start */
    struct list watchers;
};

/* Memory is allocated with the first watcher. */
void watch_ring_init(struct watch_ring *ring);
void watch_ring_deinit(struct watch_ring *ring); /* no watcher is left */
void watch_ring_put(struct watch_ring *ring, const struct watch_event *event);

/* A member of its owner's struct. */
struct watcher {
    struct link link;
    struct watch_ring *ring;
    uint64_t next; /* event to see */
    bool is_one;   /* only events of this id */
    struct conversation_id id;
    void (*notify)(void *arg); /* an event has come; never inside a call of the watcher's */
    void *arg;
};

/* Sees events from now on. id may be NULL: all. */
void watcher_open(struct watcher *w, struct watch_ring *ring, const struct conversation_id *id,
                  void (*notify)(void *arg), void *arg);
void watcher_close(struct watcher *w);

/* False: nothing new. Else either *ret_lost is the non-zero number of missed events, or *out is the
 * next event. */
bool watcher_next(struct watcher *w, struct watch_event *out, uint64_t *ret_lost);

#endif
