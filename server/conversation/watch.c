#include "server/conversation/watch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void watch_ring_init(struct watch_ring *ring, uint64_t life)
{
    *ring = (struct watch_ring){.life = life};
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

    if (ring->events == NULL)
        return;
    ring->events[ring->n_events++ % WATCH_RING_EVENTS] = *event;
    for (at = list_first(&ring->watchers); at != NULL; at = list_next(&ring->watchers, at)) {
        struct watcher *w = container_of(at, struct watcher, link);

        w->notify(w->arg);
    }
}

void watch_ring_skip(const struct watch_ring *ring, const struct link *at, struct link *behind)
{
    for (struct link *l = list_first(&ring->watchers); l != NULL;
         l = list_next(&ring->watchers, l)) {
        struct watcher *w = container_of(l, struct watcher, link);

        if (w->at == at)
            w->at = w->is_one ? NULL : behind;
    }
}

bool watch_ring_has(const struct watch_ring *ring, const struct conversation_id *id)
{
    for (struct link *l = list_first(&ring->watchers); l != NULL;
         l = list_next(&ring->watchers, l)) {
        const struct watcher *w = container_of(l, const struct watcher, link);

        if (w->is_one && memcmp(&w->id, id, sizeof(*id)) == 0)
            return true;
    }
    return false;
}

/* --- resume tokens --- */

void watch_token_format(char out[WATCH_TOKEN_CHARS], const struct watch_ring *ring,
                        const struct watch_place *place)
{
    int n = snprintf(out, WATCH_TOKEN_CHARS, "%016" PRIx64 "-%016" PRIx64, ring->life, place->next);

    if (!place->is_synced)
        (void)snprintf(out + n, WATCH_TOKEN_CHARS - (size_t)n, "-%016" PRIx64, place->below);
}

static bool token_read(uint64_t *life, struct watch_place *place, const char *token)
{
    struct watch_ring ring;
    char again[WATCH_TOKEN_CHARS];
    int n =
        sscanf(token, "%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64, life, &place->next, &place->below);

    if (n < 2)
        return false;
    place->is_synced = n == 2;
    ring.life = *life;
    watch_token_format(again, &ring, place);
    return strcmp(again, token) == 0;
}

enum status watch_token_parse(struct watch_place *out, const struct watch_ring *ring,
                              const char *token, struct error *err)
{
    struct watch_place place = {.next = ring->n_events, .below = UINT64_MAX};
    const char *at = token;

    while (*at != '\0') {
        const size_t n = strcspn(at, ",");
        struct watch_place part = {0};
        char text[WATCH_TOKEN_CHARS];
        uint64_t life = 0;

        (void)snprintf(text, sizeof(text), "%.*s", (int)(n < sizeof(text) ? n : 0), at);
        if (!token_read(&life, &part, text) || (life == ring->life && part.next > ring->n_events))
            return error_field(err, "resume_token", "is not a token of an earlier response");
        if (life == ring->life && ring->n_events - part.next <= WATCH_RING_EVENTS)
            place = part;
        at += n;
        if (*at == ',' && *++at == '\0')
            return error_field(err, "resume_token", "is not a token of an earlier response");
    }
    *out = place;
    return STATUS_OK;
}

size_t watch_token_parts(const char *token)
{
    size_t n = token[0] != '\0';

    for (; *token != '\0'; token++)
        n += *token == ',';
    return n;
}

bool watch_place_is_new(const struct watch_place *place)
{
    return !place->is_synced && place->below == UINT64_MAX;
}

/* --- watchers --- */

void watcher_open(struct watcher *w, struct watch_ring *ring, uint32_t principal,
                  const struct conversation_id *id, const struct watch_place *place,
                  void (*notify)(void *arg), void *arg)
{
    if (ring->events == NULL)
        ring->events = xalloc(WATCH_RING_EVENTS * sizeof(ring->events[0]));
    *w = (struct watcher){
        .ring = ring, .place = *place, .notify = notify, .arg = arg, .principal = principal};
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

    if (ring->n_events - w->place.next > WATCH_RING_EVENTS) {
        *ret_lost = ring->n_events - w->place.next - WATCH_RING_EVENTS;
        w->place.next += *ret_lost;
        return true;
    }
    *ret_lost = 0;
    while (w->place.next < ring->n_events) {
        const struct watch_event *e = &ring->events[w->place.next++ % WATCH_RING_EVENTS];

        if (e->principal != w->principal)
            continue;
        if (w->is_one && memcmp(&e->id, &w->id, sizeof(w->id)) != 0)
            continue;
        *out = *e;
        return true;
    }
    return false;
}

bool watcher_is_pressed(const struct watcher *w)
{
    return w->ring->n_events - w->place.next > WATCH_RING_EVENTS / 2;
}
