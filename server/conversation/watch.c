#include "server/conversation/watch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void watch_ring_init(struct watch_ring *ring)
{
    *ring = (struct watch_ring){0};
    list_init(&ring->watchers);
}

void watch_ring_deinit(struct watch_ring *ring)
{
    assert(list_is_empty(&ring->watchers));
    free(ring->events);
    ring->events = NULL;
}

void watch_ring_put(struct watch_ring *ring, const struct watch_event *event)
{
    struct link *at;

    if (list_is_empty(&ring->watchers))
        return;
    ring->events[ring->n_events++ % WATCH_RING_EVENTS] = *event;
    for (at = list_first(&ring->watchers); at != NULL; at = list_next(&ring->watchers, at)) {
        struct watcher *w = container_of(at, struct watcher, link);

        w->notify(w->arg);
    }
}

void watcher_open(struct watcher *w, struct watch_ring *ring, const struct conversation_id *id,
                  void (*notify)(void *arg), void *arg)
{
    if (ring->events == NULL)
        ring->events = xalloc(WATCH_RING_EVENTS * sizeof(ring->events[0]));
    *w = (struct watcher){.ring = ring, .next = ring->n_events, .notify = notify, .arg = arg};
    if (id != NULL) {
        w->is_one = true;
        w->id = *id;
    }
    list_push(&ring->watchers, &w->link);
}

void watcher_close(struct watcher *w)
{
    list_remove(&w->link);
}

bool watcher_next(struct watcher *w, struct watch_event *out, uint64_t *ret_lost)
{
    const struct watch_ring *ring = w->ring;

    if (ring->n_events - w->next > WATCH_RING_EVENTS) {
        *ret_lost = ring->n_events - w->next - WATCH_RING_EVENTS;
        w->next += *ret_lost;
        return true;
    }
    *ret_lost = 0;
    while (w->next < ring->n_events) {
        const struct watch_event *e = &ring->events[w->next++ % WATCH_RING_EVENTS];

        if (w->is_one && memcmp(&e->id, &w->id, sizeof(w->id)) != 0)
            continue;
        *out = *e;
        return true;
    }
    return false;
}
