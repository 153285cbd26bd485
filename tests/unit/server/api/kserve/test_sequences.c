#include "server/api/kserve/sequences.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/alarm.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;
static struct sessions sessions;
static struct sequences all;
static struct alarm due = {.tick = sequences_tick, .owner = &all};

static void open_all(const struct sequences_config *given)
{
    static struct alarm never;
    const struct sessions_config none = {.env = &s.env, .alarm = &never};
    struct sequences_config config = *given;

    fake_server_open(&s, "fake", 0, NULL);
    sessions_init(&sessions, &none);
    config.env = &s.env;
    config.conversations = &s.all;
    config.sessions = &sessions;
    config.alarm = &due;
    due.at_us = 0;
    sequences_init(&all, &config);
}

static void close_all(void)
{
    sequences_retire(&all, NULL);
    sequences_deinit(&all);
    sessions_close_all(&sessions, NULL);
    sessions_deinit(&sessions);
    fake_server_close(&s);
}

/* A request of a sequence: a turn that begins when it is the first. */
struct asked {
    struct sequence_slot item;
    struct fake_reader reader;
    const char *text;
    unsigned n_begun;
    enum status rc;
    struct error err;
};

static void begin(struct sequence_slot *item)
{
    struct asked *a = container_of(item, struct asked, item);
    const struct message said = {.role = ROLE_USER, .text = a->text, .len = strlen(a->text)};
    const struct turn_request r = {.messages = &said, .n_messages = 1};

    a->n_begun++;
    a->rc = sequence_turn(item, &r, 0, &a->reader.reader, &a->err);
}

static enum status ask(struct asked *a, const char *key, bool starts, bool ends, const char *text)
{
    enum status rc;

    *a = (struct asked){.item.begin = begin, .text = text};
    fake_reader_init(&a->reader);
    rc = sequences_enter(&all, 0, &s.model, key, starts, ends, &a->item, &a->err);
    if (rc == STATUS_OK && sequence_slot_is_first(&a->item))
        begin(&a->item);
    return rc;
}

/* Runs the turn to its end, and leaves the sequence. */
static void answered(struct asked *a, const char *reply)
{
    fake_server_run(&s);
    fake_reader_read(&a->reader);
    ck_assert_int_eq(a->rc, STATUS_OK);
    ck_assert(a->reader.is_done);
    ck_assert_str_eq(a->reader.text.data, reply);
    sequence_leave(&a->item);
    fake_reader_deinit(&a->reader);
}

static void refused(const char *key, bool starts, enum status status, const char *text)
{
    struct asked a;

    ck_assert_int_eq(ask(&a, key, starts, false, "say 1"), status);
    ck_assert_ptr_nonnull(strstr(a.err.text, text));
    ck_assert_ptr_null(a.item.sequence);
    fake_reader_deinit(&a.reader);
}

/* Requests of one id are turns of one conversation, in order of arrival, one at a time; the last
 * one closes it. */
START_TEST(test_order)
{
    struct asked one, two, three;

    open_all(&(struct sequences_config){0});
    ck_assert_int_eq(ask(&one, "1", true, false, "say 2"), STATUS_OK);
    ck_assert_int_eq(ask(&two, "1", false, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(ask(&three, "1", false, true, "say 3"), STATUS_OK);
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_uint_eq(two.n_begun + three.n_begun, 0);
    answered(&one, "<0><1>");
    ck_assert_uint_eq(two.n_begun, 1);
    ck_assert_uint_eq(three.n_begun, 0);
    answered(&two, "<0>");
    ck_assert_uint_eq(fake_clone_n_turns(conversations_newest(&s.all)), 2);
    answered(&three, "<0><1><2>");
    ck_assert_uint_eq(s.all.n, 0);
    refused("1", false, STATUS_INVALID, "START");
    close_all();
}
END_TEST

/* A new start of a sequence leaves the old one to its queued requests. */
START_TEST(test_restart)
{
    struct asked old, waiting, fresh;

    open_all(&(struct sequences_config){0});
    ck_assert_int_eq(ask(&old, "\"a\"", true, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(ask(&waiting, "\"a\"", false, false, "say 2"), STATUS_OK);
    ck_assert_int_eq(ask(&fresh, "\"a\"", true, false, "say 3"), STATUS_OK);
    ck_assert_uint_eq(s.all.n, 2);
    answered(&fresh, "<0><1><2>");
    answered(&old, "<0>");
    ck_assert_uint_eq(s.all.n, 2);
    answered(&waiting, "<0><1>");
    ck_assert_uint_eq(s.all.n, 1);
    close_all();
}
END_TEST

/* Idle time counts from the last completion, not the last arrival; a later request fails with that
 * reason. */
START_TEST(test_idle)
{
    struct asked one, two;

    open_all(&(struct sequences_config){.idle_ms = 1000});
    ck_assert_int_eq(ask(&one, "7", true, false, "say 1"), STATUS_OK);
    s.now_us += 5000000;
    alarm_ring(&due);
    answered(&one, "<0>");
    ck_assert_uint_eq(due.at_us, s.now_us + 1000000);
    s.now_us += 900000;
    alarm_ring(&due);
    ck_assert_int_eq(ask(&two, "7", false, false, "say 1"), STATUS_OK);
    s.now_us += 900000;
    alarm_ring(&due);
    answered(&two, "<0>");
    s.now_us += 1000000;
    alarm_ring(&due);
    ck_assert_uint_eq(s.all.n, 0);
    refused("7", false, STATUS_ABORTED, "was closed after 1000 ms");
    refused("8", false, STATUS_INVALID, "START");
    ck_assert_int_eq(ask(&one, "7", true, true, "say 1"), STATUS_OK);
    answered(&one, "<0>");
    refused("7", false, STATUS_INVALID, "START"); /* it ended regularly, not as idle */
    close_all();
}
END_TEST

/* A request that gives up, first or not, lets the others go on. */
START_TEST(test_leave)
{
    struct asked one, two, three;

    open_all(&(struct sequences_config){0});
    ck_assert_int_eq(ask(&one, "1", true, false, "say 9"), STATUS_OK);
    ck_assert_int_eq(ask(&two, "1", false, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(ask(&three, "1", false, false, "say 1"), STATUS_OK);
    sequence_leave(&two.item);
    fake_reader_deinit(&two.reader);
    ck_assert_uint_eq(two.n_begun, 0);
    fake_reader_deinit(&one.reader); /* its turn is cancelled */
    sequence_leave(&one.item);
    ck_assert_uint_eq(three.n_begun, 1);
    answered(&three, "<0>");
    close_all();
}
END_TEST

/* Queued requests and sequences are bounded. */
START_TEST(test_bounds)
{
    struct asked a[4];

    open_all(&(struct sequences_config){.max_sequences = 1, .max_queued = 1});
    ck_assert_int_eq(ask(&a[0], "1", true, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(ask(&a[1], "1", false, false, "say 1"), STATUS_OK);
    refused("1", false, STATUS_EXHAUSTED, "1 requests of sequence 1 wait already");
    refused("2", true, STATUS_EXHAUSTED,
            "the limit of 1 sequences of KServe (built in) is reached");
    ck_assert_int_eq(ask(&a[2], "1", true, false, "say 1"), STATUS_OK); /* replaces the sequence */
    answered(&a[0], "<0>");
    answered(&a[1], "<0>");
    answered(&a[2], "<0>");
    close_all();
}
END_TEST

/* A conversation that was closed elsewhere is reported, and so is an unloaded model. */
START_TEST(test_lost)
{
    struct asked one, two, three;

    open_all(&(struct sequences_config){0});
    ck_assert_int_eq(ask(&one, "1", true, false, "say 1"), STATUS_OK);
    answered(&one, "<0>");
    conversation_close(conversations_newest(&s.all), WATCH_CLOSED, "test");
    ck_assert_int_eq(ask(&two, "1", false, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(two.rc, STATUS_ABORTED);
    sequence_leave(&two.item);
    fake_reader_deinit(&two.reader);

    ck_assert_int_eq(ask(&one, "2", true, false, "say 1"), STATUS_OK);
    ck_assert_int_eq(ask(&two, "2", false, false, "say 1"), STATUS_OK);
    sequences_retire(&all, &s.model);
    answered(&one, "<0>");
    ck_assert_int_eq(two.rc, STATUS_UNAVAILABLE);
    sequence_leave(&two.item);
    fake_reader_deinit(&two.reader);
    ck_assert_int_eq(ask(&three, "2", false, false, "say 1"), STATUS_INVALID);
    fake_reader_deinit(&three.reader);
    close_all();
}
END_TEST

/* Many ids find their own sequences; the table grows. */
START_TEST(test_many)
{
    enum { N = 300 };
    struct asked a;
    char key[16];

    open_all(&(struct sequences_config){0});
    for (int i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        ck_assert_int_eq(ask(&a, key, true, false, "say 1"), STATUS_OK);
        answered(&a, "<0>");
    }
    ck_assert_uint_eq(all.limit.held, N);
    for (int i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        ck_assert_int_eq(ask(&a, key, false, true, "say 2"), STATUS_OK);
        answered(&a, "<0><1>");
    }
    ck_assert_uint_eq(all.limit.held, 0);
    ck_assert_uint_eq(s.all.n, 0);
    close_all();
}
END_TEST

SUITE_MAIN("server/sequences", test_order, test_restart, test_idle, test_leave, test_bounds,
           test_lost, test_many)
