#include "server/conversation/snapshot.h"

#include <check.h>
#include <stdlib.h>

#include "tests/support/fake_server.h"

static struct fake_server s;
static struct conversation *c[5];

static void on_notify(void *arg)
{
}

/* Five conversations: c[0] is the oldest. */
static void setup(void)
{
    fake_server_open(&s, "fake", 0, NULL);
    for (size_t i = 0; i < 5; i++)
        c[i] = fake_conversation(&s);
}

static void teardown(void)
{
    fake_server_close(&s);
}

/* token: "" for a new snapshot. */
static void begin(struct watcher *w, const struct conversation *one, const char *token)
{
    struct watch_place place;
    struct error err;

    ck_assert_int_eq(watch_token_parse(&place, &s.all.watch, token, &err), STATUS_OK);
    watcher_open(w, &s.all.watch, 0, one == NULL ? NULL : &one->id, &place, on_notify, NULL);
    snapshot_begin(&s.all, w);
}

static void close_one(size_t i)
{
    conversation_close(c[i], WATCH_CLOSED, "");
}

/* All conversations come, newest first, and then nothing. */
START_TEST(test_all)
{
    struct watcher w;

    begin(&w, NULL, "");
    for (size_t i = 5; i > 0; i--) {
        ck_assert_ptr_eq(snapshot_next(&w), c[i - 1]);
        ck_assert(!w.place.is_synced);
    }
    ck_assert_ptr_null(snapshot_next(&w));
    ck_assert(!w.place.is_synced);
    snapshot_end(&w);
    ck_assert(w.place.is_synced);
    watcher_close(&w);
}
END_TEST

/* What closes before its turn is left out, be it the next one, the last one, or all; what opens is
 * not in it; both are among the events. */
START_TEST(test_changes_meanwhile)
{
    struct conversation_id ids[3] = {c[3]->id, c[0]->id};
    struct watcher w, other;
    struct watch_event e;
    uint64_t lost;

    begin(&w, NULL, "");
    begin(&other, NULL, "");
    ck_assert_ptr_eq(snapshot_next(&w), c[4]);
    close_one(3);
    close_one(0);
    ids[2] = fake_conversation(&s)->id;
    ck_assert_ptr_eq(snapshot_next(&w), c[2]);
    ck_assert_ptr_eq(snapshot_next(&w), c[1]);
    ck_assert_ptr_null(snapshot_next(&w));
    for (size_t i = 0; i < 3; i++) {
        ck_assert(watcher_next(&w, &e, &lost));
        ck_assert_mem_eq(&e.id, &ids[i], sizeof(e.id));
        ck_assert_int_eq(e.what, i == 2 ? WATCH_OPENED : WATCH_CLOSED);
    }
    ck_assert(!watcher_next(&w, &e, &lost));
    close_one(4);
    close_one(2);
    close_one(1);
    ck_assert_ptr_null(snapshot_next(&other));
    watcher_close(&w);
    watcher_close(&other);
}
END_TEST

/* A token inside a snapshot goes on behind its conversation, though that has been closed. */
START_TEST(test_resumed)
{
    char token[WATCH_TOKEN_CHARS];
    struct watcher w;

    begin(&w, NULL, "");
    ck_assert_ptr_eq(snapshot_next(&w), c[4]);
    ck_assert_ptr_eq(snapshot_next(&w), c[3]);
    watch_token_format(token, w.ring, &w.place);
    watcher_close(&w);
    close_one(3);
    (void)fake_conversation(&s);
    begin(&w, NULL, token);
    ck_assert_ptr_eq(snapshot_next(&w), c[2]);
    close_one(1);
    ck_assert_ptr_eq(snapshot_next(&w), c[0]);
    ck_assert_ptr_null(snapshot_next(&w));
    watcher_close(&w);
}
END_TEST

/* A snapshot of one conversation has that alone, once, and nothing if it is closed first. */
START_TEST(test_one)
{
    char token[WATCH_TOKEN_CHARS];
    struct watcher w;

    begin(&w, c[2], "");
    ck_assert_ptr_eq(snapshot_next(&w), c[2]);
    watch_token_format(token, w.ring, &w.place);
    ck_assert_ptr_null(snapshot_next(&w));
    watcher_close(&w);
    begin(&w, c[2], token);
    ck_assert_ptr_null(snapshot_next(&w));
    watcher_close(&w);
    begin(&w, c[2], "");
    close_one(2);
    ck_assert_ptr_null(snapshot_next(&w));
    watcher_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/snapshot");
    TCase *tc = tcase_create("snapshot");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tc, 30);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_all);
    tcase_add_test(tc, test_changes_meanwhile);
    tcase_add_test(tc, test_resumed);
    tcase_add_test(tc, test_one);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
