#include "server/conversation/watch.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static size_t n_notified;

static void on_notify(void *arg)
{
    (void)arg;
    n_notified++;
}

static void put(struct watch_ring *ring, uint8_t id, uint64_t unix_ms)
{
    struct watch_event e = {
        .id = {.bytes = {id}}, .what = WATCH_OPENED, .reason = "", .unix_ms = unix_ms};

    watch_ring_put(ring, &e);
}

/* A watcher sees the events after its opening, in order; one for a single conversation sees only
 * that one's. */
START_TEST(test_events)
{
    struct conversation_id two = {.bytes = {2}};
    struct watch_ring ring;
    struct watcher all, one;
    struct watch_event e;
    uint64_t lost;

    watch_ring_init(&ring);
    put(&ring, 1, 1);
    watcher_open(&all, &ring, NULL, on_notify, NULL);
    watcher_open(&one, &ring, &two, on_notify, NULL);
    ck_assert(!watcher_next(&all, &e, &lost));
    n_notified = 0;
    put(&ring, 1, 2);
    put(&ring, 2, 3);
    ck_assert_uint_eq(n_notified, 4);
    ck_assert(watcher_next(&all, &e, &lost));
    ck_assert_uint_eq(lost, 0);
    ck_assert_uint_eq(e.unix_ms, 2);
    ck_assert(watcher_next(&all, &e, &lost));
    ck_assert_uint_eq(e.unix_ms, 3);
    ck_assert(!watcher_next(&all, &e, &lost));
    ck_assert(watcher_next(&one, &e, &lost));
    ck_assert_uint_eq(e.unix_ms, 3);
    ck_assert(!watcher_next(&one, &e, &lost));
    watcher_close(&all);
    watcher_close(&one);
    watch_ring_deinit(&ring);
}
END_TEST

/* A slow watcher learns how many events it missed, then continues with the remaining ones. */
START_TEST(test_lost)
{
    struct watch_ring ring;
    struct watcher w;
    struct watch_event e;
    uint64_t lost;

    watch_ring_init(&ring);
    watcher_open(&w, &ring, NULL, on_notify, NULL);
    for (uint64_t i = 0; i < WATCH_RING_EVENTS + 5; i++)
        put(&ring, 1, i);
    ck_assert(watcher_next(&w, &e, &lost));
    ck_assert_uint_eq(lost, 5);
    for (uint64_t i = 5; i < WATCH_RING_EVENTS + 5; i++) {
        ck_assert(watcher_next(&w, &e, &lost));
        ck_assert_uint_eq(lost, 0);
        ck_assert_uint_eq(e.unix_ms, i);
    }
    ck_assert(!watcher_next(&w, &e, &lost));
    watcher_close(&w);
    watch_ring_deinit(&ring);
}
END_TEST

SUITE_MAIN("server/watch", test_events, test_lost)
