/* Several lives of a server, each with a clock of its own, on one journal. */
#include "server/conversation/retention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alarm.h"
#include "server/conversation/keeping.h"
#include "server/conversation/lookup.h"
#include "server/model/models.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

#define HOUR ((uint64_t)60 * 60 * 1000)
#define DAY (24 * HOUR)
#define NOW ((uint64_t)1700000000000)
#define FAR_AHEAD ((uint64_t)4070908800000) /* 2099 */

static char dir[] = "/tmp/parley-retention-XXXXXX"; /* of each test */
static struct fake_server s;
static struct models models;
static struct retention retention;
static struct journal *journal;
static uv_loop_t loop;
static bool is_stopped;

static struct alarm due = {.tick = retention_tick, .owner = &retention};

static void begin(uint64_t unix_ms, uint64_t age_ms)
{
    const struct journal_config config = {.dir = dir};
    struct keeping_config keeping = {.binding = "here", .models = &models};
    const struct retention_config retain = {.alarm = &due};
    static uint64_t n_lives;
    struct error err;

    is_stopped = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(journal_open(&journal, &loop, &config, &err), STATUS_OK);
    fake_server_open(&s, "fake", 0, NULL);
    s.drawn = ++n_lives << 32; /* no id is drawn twice */
    s.all.config.unix_ms = unix_ms;
    s.all.config.unload_us = 60 * 1000 * 1000;
    models = (struct models){.loaded = {&s.model}, .n_loaded = 1};
    list_init(&models.entries);
    keeping.journal = journal;
    conversations_keep(&s.all, &keeping);
    retention_init(&retention, &s.all, &retain);
    retention_configure(&retention, age_ms, 0);
}

static void on_settled(void *arg, const struct error *err)
{
    ck_assert_int_eq(err->status, STATUS_OK);
    *(bool *)arg = true;
}

static void settle(void)
{
    do {
        struct journal_wait w = {NULL};
        bool is_written = false;

        fake_server_run(&s);
        journal_settle(journal, &w, on_settled, &is_written);
        while (!is_written)
            (void)uv_run(&loop, UV_RUN_ONCE);
    } while (fake_server_step(&s));
}

static void on_stopped(void *arg)
{
    is_stopped = true;
}

static void end(void)
{
    settle();
    retention_stop(&retention);
    fake_server_close(&s);
    journal_stop(journal, on_stopped, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert(is_stopped);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void pass(void)
{
    alarm_ring(&due);
    while (due.at_us == 0) /* the next pass is armed */
        (void)uv_run(&loop, UV_RUN_ONCE);
    settle();
}

static struct conversation_id opened(uint64_t ttl_ms)
{
    const struct open_request r = {.system = "", .ttl_ms = ttl_ms};
    struct conversation *c;
    struct fake_reader reader;
    struct error err;

    ck_assert_int_eq(conversation_open(&c, &s.all, &s.model, &r, &err), STATUS_OK);
    ck_assert_int_eq(keeping_begin(c, NULL, &err), STATUS_OK);
    fake_reader_init(&reader);
    ck_assert_int_eq(fake_turn(c, 1, "say 1", &reader, &err), STATUS_OK);
    settle();
    fake_reader_read(&reader);
    ck_assert(reader.is_done);
    fake_reader_deinit(&reader);
    return c->id;
}

struct seeking {
    struct lookup lookup;
    bool is_done;
};

static void on_sought(struct lookup *l, const struct error *err)
{
    ck_assert_int_eq(err->status, STATUS_OK);
    container_of(l, struct seeking, lookup)->is_done = true;
}

/* Reads it into memory, where it is not there. */
static struct conversation *sought(const struct conversation_id *id)
{
    char text[CONVERSATION_ID_CHARS];
    struct seeking k = {.is_done = false};

    conversation_id_format(id, text);
    if (lookup_begin(&k.lookup, &s.all, JOURNAL_BY_ID, LOOKUP_HERE, 0, text, on_sought))
        while (!k.is_done)
            (void)uv_run(&loop, UV_RUN_ONCE);
    return conversations_get(&s.all, id);
}

static void on_rows(void *arg, struct journal_found *found, const struct error *err)
{
    size_t n = 0;

    ck_assert_int_eq(err->status, STATUS_OK);
    for (struct link *l = list_first(&found->rows); l != NULL; l = list_next(&found->rows, l))
        n++;
    *(size_t *)arg = n;
}

static size_t n_stored(void)
{
    const struct journal_query q = {.by = JOURNAL_SWEEP, .max_rows = 1000};
    struct journal_wait w = {NULL};
    size_t n = SIZE_MAX;

    journal_read(journal, &w, &q, on_rows, &n);
    while (n == SIZE_MAX)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return n;
}

static void pass_time(uint64_t ms)
{
    s.now_us += ms * 1000;
    conversations_tick(&s.all);
}

/* A keyed request's conversation, or NULL where its request's key is over. */
static struct conversation_id keyed(const char *key)
{
    const struct message m = {.role = ROLE_USER, .text = "say 1", .len = 5};
    const struct turn_key k = {
        .text = key, .body = "", .until_unix_ms = conversations_unix_ms(&s.all) + 48 * HOUR};
    const struct turn_request r = {.messages = &m, .n_messages = 1, .key = &k};
    struct conversation *c = fake_conversation(&s);
    struct fake_reader reader;
    struct error err;

    ck_assert_int_eq(keeping_begin(c, NULL, &err), STATUS_OK);
    fake_reader_init(&reader);
    ck_assert_int_eq(conversation_turn(c, &r, &reader.reader, &err), STATUS_OK);
    settle();
    fake_reader_deinit(&reader);
    return c->id;
}

static void make_dir(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(void)
{
    static const char *const names[] = {"journal.db", "journal.db-wal", "journal.db-shm", "lock"};
    char path[sizeof(dir) + 32];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path); /* not all are there */
    }
    ck_assert_int_eq(rmdir(dir), 0);
    memcpy(strrchr(dir, '-') + 1, "XXXXXX", 6);
}

/* --ttl is for what is in memory alone: a stored conversation leaves memory, and no more, however
 * long nobody asks for it, and however far the clock has come when the server starts again. */
START_TEST(storage_has_no_time_to_live)
{
    struct conversation_id id;

    make_dir();
    begin(NOW, 0);
    id = opened(0);
    ck_assert_uint_eq(conversation_ttl_ms(conversations_get(&s.all, &id)), 0);
    pass_time(1000 * DAY);
    ck_assert_ptr_null(conversations_get(&s.all, &id));
    pass();
    ck_assert_uint_eq(n_stored(), 1);
    end();
    begin(NOW + 3000 * DAY, 0);
    pass();
    ck_assert_ptr_nonnull(sought(&id));
    s.all.config.unload_us = 0; /* it stays in memory, too */
    pass_time(1000 * DAY);
    ck_assert_ptr_nonnull(conversations_get(&s.all, &id));
    conversation_close(conversations_get(&s.all, &id), WATCH_CLOSED, "");
    end();
    remove_dir();
}
END_TEST

/* A clock that is wrong at a start deletes nothing, whichever way, how often, and whatever is
 * written meanwhile. Time that passes does. */
START_TEST(a_clock_deletes_nothing)
{
    static const uint64_t clocks[] = {NOW + DAY, FAR_AHEAD, 0,    NOW + 2 * DAY,
                                      FAR_AHEAD, FAR_AHEAD, 1000, NOW + 3 * DAY};
    struct conversation_id ids[sizeof(clocks) / sizeof(clocks[0]) + 1];
    size_t n = 0;

    make_dir();
    begin(NOW, 30 * DAY);
    ids[n++] = opened(0);
    end();
    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        begin(clocks[i], 30 * DAY);
        pass();
        ck_assert_uint_eq(n_stored(), n);
        ids[n++] = opened(0);
        pass_time(HOUR);
        pass();
        ck_assert_uint_eq(n_stored(), n);
        ck_assert_ptr_nonnull(sought(&ids[0])); /* nor is it deleted because it was read */
        pass();
        pass_time(1);
        ck_assert_uint_eq(n_stored(), n);
        end();
    }
    begin(FAR_AHEAD, 30 * DAY);
    pass_time(31 * DAY);
    pass();
    ck_assert_uint_eq(n_stored(), 0);
    end();
    remove_dir();
}
END_TEST

/* The age is that of the last turn; one in memory goes as well, but not while a turn is in flight.
 */
START_TEST(an_age_deletes)
{
    struct conversation_id first, second;
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    make_dir();
    begin(NOW, 10 * DAY);
    s.all.config.unload_us = 0;
    first = opened(0);
    second = opened(HOUR * 1000);
    pass_time(6 * DAY);
    c = conversations_get(&s.all, &second);
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 2, "say 1", &r, &err), STATUS_OK);
    settle();
    fake_reader_deinit(&r);
    pass_time(5 * DAY);
    pass();
    ck_assert_ptr_null(conversations_get(&s.all, &first));
    ck_assert_ptr_nonnull(conversations_get(&s.all, &second));
    ck_assert_uint_eq(n_stored(), 1);
    pass_time(6 * DAY);
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 3, "say 3", &r, &err), STATUS_OK);
    pass();
    ck_assert_ptr_nonnull(conversations_get(&s.all, &second));
    fake_reader_deinit(&r);
    pass_time(10 * DAY);
    pass();
    ck_assert_uint_eq(n_stored(), 0);
    end();
    remove_dir();
}
END_TEST

/* What a key alone keeps goes some time after, when other keys come; a clock does not end that
 * time.
 */
START_TEST(a_clock_ends_no_key)
{
    make_dir();
    begin(NOW, 0);
    (void)keyed("one");
    end();
    begin(FAR_AHEAD, 0);
    (void)keyed("two"); /* before the first pass, and after it */
    pass();
    (void)keyed("three");
    ck_assert_uint_eq(n_stored(), 3);
    pass_time(49 * HOUR);
    (void)keyed("four");
    ck_assert_uint_eq(n_stored(), 3);
    end();
    remove_dir();
}
END_TEST

/* A time to live that a client asked for counts while the server runs: in memory, after it was read
 * again, and out of memory. */
START_TEST(a_ttl_is_the_clients)
{
    struct conversation_id id, other, third;

    make_dir();
    begin(NOW, 0);
    id = opened(2 * HOUR);
    other = opened(0);
    ck_assert_uint_eq(conversation_ttl_ms(conversations_get(&s.all, &id)), 2 * HOUR);
    s.all.config.unload_us = 0;
    third = opened(HOUR / 2);
    pass_time(HOUR);
    pass();
    ck_assert_ptr_null(conversations_get(&s.all, &third));
    ck_assert_uint_eq(n_stored(), 2);
    end();
    begin(NOW + 100 * DAY, 0);
    pass();
    ck_assert_uint_eq(n_stored(), 2);
    ck_assert_ptr_nonnull(sought(&id)); /* read, so it is in use */
    pass_time(2 * HOUR - 1000);
    pass();
    ck_assert_uint_eq(n_stored(), 2);
    pass_time(2000);
    pass();
    ck_assert_uint_eq(n_stored(), 1);
    ck_assert_ptr_nonnull(sought(&other));
    conversation_close(conversations_get(&s.all, &other), WATCH_CLOSED, "");
    end();
    remove_dir();
}
END_TEST

/* A pass whose reading takes time rests for three times as long, so that turns are read in between,
 * and for 50 ms at the most. */
START_TEST(a_pass_rests)
{
    make_dir();
    begin(NOW, HOUR); /* it goes over all twice */
    (void)opened(0);
    for (uint64_t took_us = 10000; took_us <= 100000; took_us *= 10) {
        alarm_ring(&due);
        for (size_t n = 0; retention.is_passing; n++) {
            s.now_us += took_us;
            while (due.at_us == 0)
                (void)uv_run(&loop, UV_RUN_ONCE);
            if (!retention.is_passing)
                break;
            ck_assert(retention.is_resting && n < 2);
            ck_assert_uint_eq(due.at_us - s.now_us, took_us == 10000 ? 30000 : 50000);
            s.now_us = due.at_us;
            alarm_ring(&due);
        }
    }
    alarm_ring(&due);
    s.now_us += 10000;
    while (due.at_us == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert(retention.is_resting);
    end(); /* in its rest */
    remove_dir();
}
END_TEST

SUITE_MAIN("server/conversation/retention", storage_has_no_time_to_live, a_clock_deletes_nothing,
           an_age_deletes, a_clock_ends_no_key, a_ttl_is_the_clients, a_pass_rests)
