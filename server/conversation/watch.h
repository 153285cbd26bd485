/* Events of conversations, in one ring for all watchers. A watcher is a cursor into the ring; a
 * slow one learns how many events it has lost, and delays nothing. Loop. */
#ifndef SERVER_CONVERSATION_WATCH_H
#define SERVER_CONVERSATION_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

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
    uint32_t principal;            /* who alone is told */
    enum watch_what what;
    const char *reason; /* static */
    uint64_t unix_ms;
};

enum { WATCH_RING_EVENTS = 1024 };

struct watch_ring {
    struct watch_event *events; /* [WATCH_RING_EVENTS]; event n is at n modulo the size */
    uint64_t n_events;          /* since the first watcher */
    uint64_t life;              /* part of resume tokens: those of another daemon differ */
    struct list watchers;
};

/* Memory is allocated with the first watcher; from then on events are kept, watched or not. life is
 * random. */
void watch_ring_init(struct watch_ring *ring, uint64_t life);
void watch_ring_deinit(struct watch_ring *ring); /* no watcher is left */
void watch_ring_put(struct watch_ring *ring, const struct watch_event *event);
/* The conversation of the link `at` is about to be removed: a snapshot that would go on with it
 * goes on with behind, the one after it (NULL: none), or is complete where it is of one alone. */
void watch_ring_skip(const struct watch_ring *ring, const struct link *at, struct link *behind);

/* A place in what a watcher is told: a snapshot of all conversations, newest first, and the events
 * since it began. */
struct watch_place {
    uint64_t next;  /* event to see */
    uint64_t below; /* not synced: the snapshot goes on with conversations of lower serials */
    bool is_synced; /* the snapshot is complete */
};

enum { WATCH_TOKEN_CHARS = 3 * 16 + 2 + 1 };

/* A place as a resume token: "LIFE-NEXT", or "LIFE-NEXT-BELOW" inside a snapshot. */
void watch_token_format(char out[WATCH_TOKEN_CHARS], const struct watch_ring *ring,
                        const struct watch_place *place);

/* The place of a token. That is the beginning of a new snapshot if the token is "", of another
 * life, or of a place whose next event the ring has no more. STATUS_INVALID, naming the field
 * resume_token, for a text that is no token. */
enum status watch_token_parse(struct watch_place *out, const struct watch_ring *ring,
                              const char *token, struct error *err) MUST_CHECK;

/* A member of its owner's struct. */
struct watcher {
    struct link link;
    struct watch_ring *ring;
    struct watch_place place;
    struct link *at;    /* of all conversations: the snapshot's next; NULL: none is left */
    uint32_t principal; /* only what is of this one */
    bool is_one;        /* and of this id */
    struct conversation_id id;
    void (*notify)(void *arg); /* an event has come; never inside a call of the watcher's */
    void *arg;
};

/* Sees the principal's events from place on. id may be NULL: all. */
void watcher_open(struct watcher *w, struct watch_ring *ring, uint32_t principal,
                  const struct conversation_id *id, const struct watch_place *place,
                  void (*notify)(void *arg), void *arg);
void watcher_close(struct watcher *w);

/* False: nothing new. Else either *ret_lost is the non-zero number of missed events, or *out is the
 * next event. */
bool watcher_next(struct watcher *w, struct watch_event *out, uint64_t *ret_lost);

/* Half of the ring is to be seen yet: events cannot wait for the end of a snapshot. */
bool watcher_is_pressed(const struct watcher *w);

#endif
