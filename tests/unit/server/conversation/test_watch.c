#include "server/conversation/watch.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t n_notified;

static void on_notify(void *arg)
{
    n_notified++;
}

static void put(struct watch_ring *ring, uint8_t id, uint64_t unix_ms)
{
    struct watch_event e = {
        .id = {.bytes = {id}}, .what = WATCH_OPENED, .reason = "", .unix_ms = unix_ms};

    watch_ring_put(ring, &e);
}

/* Without a snapshot. */
static void open_now(struct watcher *w, struct watch_ring *ring, const struct conversation_id *id)
{
    const struct watch_place now = {.next = ring->n_events, .is_synced = true};

    watcher_open(w, ring, 0, id, &now, on_notify, NULL);
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

    watch_ring_init(&ring, 7);
    put(&ring, 1, 1);
    open_now(&all, &ring, NULL);
    open_now(&one, &ring, &two);
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

    watch_ring_init(&ring, 7);
    open_now(&w, &ring, NULL);
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

static enum status parse(struct watch_place *out, const struct watch_ring *ring, const char *token)
{
    struct error err;
    enum status rc = watch_token_parse(out, ring, token, &err);

    if (rc != STATUS_OK)
        ck_assert_str_eq(err.field, "resume_token");
    return rc;
}

/* A token goes on behind its event, also behind events that came while nobody watched; the ring
 * keeps them as long as there is room. */
START_TEST(test_resume)
{
    struct watch_ring ring;
    struct watch_place place;
    struct watcher w;
    struct watch_event e;
    char token[WATCH_TOKEN_CHARS];
    uint64_t lost;

    watch_ring_init(&ring, 7);
    open_now(&w, &ring, NULL);
    for (uint64_t i = 0; i < 10; i++)
        put(&ring, 1, i);
    for (uint64_t i = 0; i < 4; i++)
        ck_assert(watcher_next(&w, &e, &lost));
    watch_token_format(token, &ring, &w.place);
    watcher_close(&w);
    for (uint64_t i = 10; i < 4 + WATCH_RING_EVENTS; i++)
        put(&ring, 1, i);
    ck_assert_int_eq(parse(&place, &ring, token), STATUS_OK);
    ck_assert(place.is_synced);
    watcher_open(&w, &ring, 0, NULL, &place, on_notify, NULL);
    for (uint64_t i = 4; i < 4 + WATCH_RING_EVENTS; i++) {
        ck_assert(watcher_next(&w, &e, &lost));
        ck_assert_uint_eq(lost, 0);
        ck_assert_uint_eq(e.unix_ms, i);
    }
    watcher_close(&w);
    put(&ring, 1, 0);
    ck_assert_int_eq(parse(&place, &ring, token), STATUS_OK);
    ck_assert(!place.is_synced); /* too long ago */
    ck_assert_uint_eq(place.next, ring.n_events);
    watch_ring_deinit(&ring);
}
END_TEST

/* A token inside a snapshot goes on there; one of another life, and none, begin a new one; what is
 * no token is refused. */
START_TEST(test_tokens)
{
    static const char *const bad[] = {"x",
                                      "7",
                                      "7-0",
                                      "0000000000000007-0000000000000000-",
                                      "0000000000000007-000000000000000 ",
                                      "0000000000000007-0000000000000001",
                                      "0000000000000007-0000000000000000-0000000000000000-"};
    struct watch_ring ring, other;
    struct watch_place place = {.next = 0, .below = 42}, again;
    char token[WATCH_TOKEN_CHARS];

    watch_ring_init(&ring, 7);
    watch_ring_init(&other, 8);
    watch_token_format(token, &ring, &place);
    ck_assert_int_eq(parse(&again, &ring, token), STATUS_OK);
    ck_assert(!again.is_synced);
    ck_assert_uint_eq(again.below, 42);
    ck_assert_int_eq(parse(&again, &other, token), STATUS_OK);
    ck_assert_uint_eq(again.below, UINT64_MAX);
    ck_assert_int_eq(parse(&again, &ring, ""), STATUS_OK);
    ck_assert_uint_eq(again.below, UINT64_MAX);
    ck_assert(watch_place_is_new(&again));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(parse(&again, &ring, bad[i]), STATUS_INVALID);
    watch_ring_deinit(&ring);
    watch_ring_deinit(&other);
}
END_TEST

/* Of the tokens of several daemons each takes its own, wherever it stands; each has to be one. */
START_TEST(test_tokens_of_all)
{
    static const char *const bad[][2] = {{"", ","}, {",", ""}, {"", ",,"}, {"", ",x"}, {"x,", ""}};
    struct watch_ring ring, other, third;
    struct watch_place place = {.is_synced = true}, again;
    char mine[WATCH_TOKEN_CHARS], theirs[WATCH_TOKEN_CHARS], text[4 * WATCH_TOKEN_CHARS];

    watch_ring_init(&ring, 7);
    watch_ring_init(&other, 8);
    watch_ring_init(&third, 9);
    watch_token_format(mine, &ring, &place);
    place = (struct watch_place){.below = 42};
    watch_token_format(theirs, &other, &place);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof(text), "%s,%s", i == 0 ? mine : theirs, i == 0 ? theirs : mine);
        ck_assert_uint_eq(watch_token_parts(text), 2);
        ck_assert_int_eq(parse(&again, &ring, text), STATUS_OK);
        ck_assert(again.is_synced);
        ck_assert_int_eq(parse(&again, &other, text), STATUS_OK);
        ck_assert_uint_eq(again.below, 42);
        ck_assert(!watch_place_is_new(&again));
        ck_assert_int_eq(parse(&again, &third, text), STATUS_OK);
        ck_assert(watch_place_is_new(&again));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(text, sizeof(text), "%s%s%s", bad[i][0], mine, bad[i][1]);
        ck_assert_int_eq(parse(&again, &ring, text), STATUS_INVALID);
    }
    ck_assert_uint_eq(watch_token_parts(""), 0);
    watch_ring_deinit(&ring);
    watch_ring_deinit(&other);
    watch_ring_deinit(&third);
}
END_TEST

SUITE_MAIN("server/watch", test_events, test_lost, test_resume, test_tokens, test_tokens_of_all)
