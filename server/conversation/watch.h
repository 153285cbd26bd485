/* Events of conversations lie in one ring for all watchers. A watcher is a cursor into the ring. A
 * slow watcher learns how many events it has lost, and delays nobody. All functions are called on
 * the loop. */
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
    struct conversation_id parent; /* the parent of a fork, for WATCH_FORKED */
    uint32_t principal;            /* the principal whose watchers alone see the event */
    enum watch_what what;
    const char *reason; /* static */
    uint64_t unix_ms;
};

enum { WATCH_RING_EVENTS = 1024 };

struct watch_ring {
    struct watch_event *events; /* [WATCH_RING_EVENTS]; event n is at n modulo the size */
    uint64_t n_events;          /* how many events were put since the first watcher */
    uint64_t life;              /* a part of resume tokens, which differs from daemon to daemon */
    struct list watchers;
};

/* Makes the ring. The first watcher allocates the ring's memory; from then on events are kept,
 * whether anybody watches or not. life is random. */
void watch_ring_init(struct watch_ring *ring, uint64_t life);
/* Frees the ring, which has no watcher any more. */
void watch_ring_deinit(struct watch_ring *ring);
void watch_ring_put(struct watch_ring *ring, const struct watch_event *event);
/* Says that the conversation with the link at is about to be removed. A snapshot that would go on
 * with this conversation goes on with behind, the conversation after it; NULL: there is none. A
 * snapshot of this conversation alone is complete. */
void watch_ring_skip(const struct watch_ring *ring, const struct link *at, struct link *behind);

/* Returns whether a watcher sees the conversation id alone. */
bool watch_ring_has(const struct watch_ring *ring, const struct conversation_id *id);

/* A place in what a watcher sees: first a snapshot of all conversations, newest first, and then the
 * events since the snapshot began. */
struct watch_place {
    uint64_t next;  /* the number of the next event */
    uint64_t below; /* unless is_synced: the snapshot goes on with the serials below this one */
    bool is_synced; /* the snapshot is complete */
};

enum { WATCH_TOKEN_CHARS = 3 * 16 + 2 + 1 };

/* Writes a place as a resume token: "LIFE-NEXT", or "LIFE-NEXT-BELOW" inside a snapshot. */
void watch_token_format(char out[WATCH_TOKEN_CHARS], const struct watch_ring *ring,
                        const struct watch_place *place);

/* Reads the place of a token, or, of tokens of several daemons with commas between, of this ring's.
 * The place is the beginning of a new snapshot if the token is "", if none is of this life, or if
 * the ring does not have the token's next event any more. INVALID, naming the field resume_token,
 * if the text is no token. */
enum status watch_token_parse(struct watch_place *out, const struct watch_ring *ring,
                              const char *token, struct error *err) MUST_CHECK;

/* Returns of how many daemons the token's parts are. */
size_t watch_token_parts(const char *token);
/* Returns whether a place that was read is the beginning of a new snapshot. */
bool watch_place_is_new(const struct watch_place *place);

/* A watcher is a member of its owner's struct. */
struct watcher {
    struct link link;
    struct watch_ring *ring;
    struct watch_place place;
    struct link *at;    /* the snapshot's next conversation; NULL: none is left */
    uint32_t principal; /* the watcher sees the conversations of this principal */
    bool is_one;        /* the watcher sees the conversation with this id alone */
    struct conversation_id id;
    /* Called when an event has come, never inside a call of a watcher's function. */
    void (*notify)(void *arg);
    void *arg;
};

/* Begins to watch the principal's conversations from place on; only the conversation id unless id
 * is NULL. */
void watcher_open(struct watcher *w, struct watch_ring *ring, uint32_t principal,
                  const struct conversation_id *id, const struct watch_place *place,
                  void (*notify)(void *arg), void *arg);
void watcher_close(struct watcher *w);

/* Returns false if there is nothing new. Otherwise *ret_lost is the number of events that the
 * watcher has lost, or, if that is 0, *out is the next event. */
bool watcher_next(struct watcher *w, struct watch_event *out, uint64_t *ret_lost);

/* Returns whether half of the ring is not seen yet, so that events cannot wait for the end of a
 * snapshot. */
bool watcher_is_pressed(const struct watcher *w);

#endif
