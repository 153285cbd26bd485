#include "server/conversation/keeping.h"

#include <string.h>

#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

enum { MAX_RECORDS = 64 };

/* A store that notes the kinds of its records, and fails when it is told to. */
struct noted_store {
    struct journal_store base;
    char kinds[MAX_RECORDS]; /* a letter each, NUL-ended */
    size_t n;
    bool fails;
};

static struct noted_store store;
static struct fake_server s;
static uv_loop_t loop;
static struct journal *journal;
static bool is_stopped;

static enum status noted_open(struct journal_store **out, const char *dir, struct error *err)
{
    *out = &store.base;
    return STATUS_OK;
}

static void noted_close(struct journal_store *base)
{
}

static enum status noted_commit(struct journal_store *base,
                                const struct journal_record *const *records, size_t n,
                                struct error *err)
{
    static const char letters[] = "?OUAFBWRC"; /* by enum journal_kind */

    if (store.fails)
        return error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL, "it fails");
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_lt(store.n, MAX_RECORDS - 1);
        store.kinds[store.n++] = letters[records[i]->kind];
    }
    return STATUS_OK;
}

static const struct journal_store_type noted_type = {
    .name = "noted", .open = noted_open, .close = noted_close, .commit = noted_commit};

static void on_stopped(void *arg)
{
    is_stopped = true;
}

static void on_settled(void *arg, const struct error *err)
{
    *(bool *)arg = true;
}

/* Until all that was appended is written, or has failed. */
static void write_all(void)
{
    struct journal_wait w = {NULL};
    bool is_written = false;

    journal_settle(journal, &w, on_settled, &is_written);
    while (!is_written)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* All that can happen does, and is written. */
static void settle(void)
{
    do {
        fake_server_run(&s);
        write_all();
        write_all(); /* what was written may have others written */
    } while (fake_server_step(&s));
}

static void start(void)
{
    const struct journal_config config = {.dir = "", .type = &noted_type};
    struct keeping_config keeping = {.binding = "here"};
    struct error err;

    store = (struct noted_store){.base.type = &noted_type};
    is_stopped = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(journal_open(&journal, &loop, &config, &err), STATUS_OK);
    fake_server_open(&s, "fake", 0, NULL);
    keeping.journal = journal;
    conversations_keep(&s.all, &keeping);
}

static void stop(void)
{
    settle();
    fake_server_close(&s);
    journal_stop(journal, on_stopped, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert(is_stopped);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static struct conversation *kept(void)
{
    struct conversation *c = fake_conversation(&s);
    struct error err;

    ck_assert_int_eq(keeping_begin(c, NULL, &err), STATUS_OK);
    ck_assert(c->host.is_kept);
    return c;
}

static void ask(struct conversation *c, uint32_t number, const char *text, struct fake_reader *r)
{
    struct error err;

    fake_reader_init(r);
    ck_assert_int_eq(fake_turn(c, number, text, r, &err), STATUS_OK);
}

/* A turn is accepted once that is written, and not computed before; its end is told once that is
 * written, and counts only then. */
START_TEST(a_turn_waits_for_the_journal)
{
    struct conversation *c;
    struct fake_reader r;

    start();
    c = kept();
    ask(c, 1, "say 2", &r);
    fake_reader_read(&r);
    ck_assert(!r.has_accepted && !fake_server_step(&s));
    write_all();
    ck_assert_str_eq(store.kinds, "OA");
    fake_reader_read(&r);
    ck_assert(r.has_accepted);
    fake_server_run(&s);
    fake_reader_read(&r);
    ck_assert_str_eq(r.text.data, "<0><1>");
    ck_assert(!r.is_done && c->host.n_turns == 0 && c->host.n_live == 1);
    write_all();
    ck_assert_str_eq(store.kinds, "OAF");
    fake_reader_read(&r);
    ck_assert(r.is_done && c->host.n_turns == 1 && c->host.n_live == 0);
    fake_reader_deinit(&r);
    stop();
}
END_TEST

/* A turn that was accepted keeps its number, also if it is cancelled before its first step; one
 * that fails gives it back, and those behind it move up. */
START_TEST(an_accepted_turn_keeps_its_number)
{
    struct fake_reader r, failing, behind;
    struct conversation *c;

    start();
    c = kept();
    ask(c, 1, "say 2", &r);
    reader_cancel(&r.reader);
    settle();
    fake_reader_read(&r);
    ck_assert(r.is_done && r.done.finish == FINISH_CANCELLED && r.n_ids == 0);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_str_eq(store.kinds, "OAF");
    ck_assert_uint_eq(fake_clone_n_turns(c), 1);

    ask(c, 0, "fail 1", &failing);
    ask(c, 0, "say 1", &behind);
    settle();
    fake_reader_read(&failing);
    fake_reader_read(&behind);
    ck_assert(failing.has_failed && behind.is_done);
    ck_assert_uint_eq(behind.number, 2);
    ck_assert_str_eq(store.kinds, "OAFAWAF");
    fake_reader_deinit(&r);
    fake_reader_deinit(&failing);
    fake_reader_deinit(&behind);
    stop();
}
END_TEST

/* If the acceptance cannot be written the turn and all behind it are UNAVAILABLE, and the
 * conversation leaves memory; so too if the end cannot be written. Nothing is closed. */
START_TEST(a_failing_journal_takes_the_conversation)
{
    for (int at_end = 0; at_end < 2; at_end++) {
        struct fake_reader r, behind;
        struct conversation *c;

        start();
        store.fails = !at_end; /* before the journal's thread has anything to do */
        c = kept();
        ask(c, 1, "say 3", &r);
        ask(c, 2, "say 3", &behind);
        if (at_end) {
            write_all();
            fake_reader_read(&r);
            store.fails = true; /* the journal's thread has nothing to do */
        }
        settle();
        fake_reader_read(&r);
        fake_reader_read(&behind);
        ck_assert(r.has_failed && behind.has_failed && !behind.has_accepted);
        ck_assert(r.has_accepted == at_end);
        ck_assert_int_eq(r.err.status, STATUS_UNAVAILABLE);
        ck_assert_int_eq(r.err.reason, REASON_JOURNAL_FAILING);
        ck_assert_int_eq(behind.err.status, STATUS_UNAVAILABLE);
        ck_assert_uint_eq(s.all.n + s.all.n_live + s.all.n_closing, 0);
        store.fails = false;
        fake_reader_deinit(&r);
        fake_reader_deinit(&behind);
        stop();
        ck_assert_str_eq(store.kinds, at_end ? "OA" : "");
    }
}
END_TEST

/* A turn without a reply is accepted and done once it is written. */
START_TEST(an_observed_turn_waits_too)
{
    const struct message said = {.role = ROLE_USER, .text = "listen", .len = 6};
    const struct turn_request request = {
        .number = 1, .messages = &said, .n_messages = 1, .is_observed = true};
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    start();
    c = kept();
    fake_reader_init(&r);
    ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_OK);
    fake_reader_read(&r);
    ck_assert(!r.has_accepted && c->host.n_turns == 0);
    write_all();
    fake_reader_read(&r);
    ck_assert(r.has_accepted && r.is_done && r.done.finish == FINISH_OBSERVED);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_str_eq(store.kinds, "OB");
    fake_reader_deinit(&r);
    stop();
}
END_TEST

/* A conversation may be closed while its turn is being accepted, or its end written; what is only
 * taken out of memory is not closed. Updates, rewinds and forks are written. */
START_TEST(changes_are_written)
{
    const struct update_request update = {.has_ttl = true, .ttl_ms = 5000};
    struct conversation *c, *fork;
    struct fake_reader r;
    struct error err;

    start();
    c = kept();
    ask(c, 1, "say 1", &r);
    settle();
    fake_reader_deinit(&r);
    ck_assert_int_eq(conversation_update(c, &update, &err), STATUS_OK);
    ck_assert_int_eq(conversation_fork(&fork, c, 1, NULL, 0, &err), STATUS_OK);
    ck_assert_int_eq(keeping_begin(fork, NULL, &err), STATUS_OK);
    ck_assert_int_eq(conversation_rewind_from(c, 1, 1, &err), STATUS_OK); /* nothing is dropped */
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_OK);
    write_all();
    ck_assert_str_eq(store.kinds, "OAFUORR");
    ask(c, 1, "say 1", &r);
    conversation_close(c, WATCH_CLOSED, "");
    settle();
    fake_reader_read(&r);
    ck_assert(r.is_done && r.done.finish == FINISH_CANCELLED);
    fake_reader_deinit(&r);
    ck_assert_str_eq(store.kinds, "OAFUORRACF");
    stop(); /* takes the fork out of memory */
    ck_assert_str_eq(store.kinds, "OAFUORRACF");
}
END_TEST

static void on_nothing(void *arg)
{
}

/* One that was idle for long leaves memory, untold and still open; not while it has a turn, and not
 * one that is in memory alone. */
START_TEST(an_idle_one_leaves_memory)
{
    struct conversation *c, *other;
    struct watcher watcher = {0};
    struct watch_event event;
    struct watch_place place;
    struct fake_reader r;
    struct error err;
    uint64_t lost;

    start();
    s.all.config.unload_us = 1000000;
    other = fake_conversation(&s);
    c = kept();
    ask(c, 1, "say 2", &r);
    s.now_us += 1500000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 2);
    settle();
    ck_assert_int_eq(watch_token_parse(&place, &s.all.watch, "", &err), STATUS_OK);
    watcher_open(&watcher, &s.all.watch, c->principal, NULL, &place, on_nothing, NULL);
    s.now_us = c->host.last_done_us + 999999;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 2);
    ck_assert_uint_eq(s.expiry.at_us, s.now_us + 1);
    s.now_us++;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_ptr_eq(conversations_newest(&s.all), other);
    ck_assert(!watcher_next(&watcher, &event, &lost));
    watcher_close(&watcher);
    fake_reader_read(&r);
    ck_assert(r.is_done); /* the reader has what was said */
    fake_reader_deinit(&r);
    settle();
    ck_assert_str_eq(store.kinds, "OAF");
    stop();
}
END_TEST

static void say(struct conversation *c, uint32_t number)
{
    struct fake_reader r;

    ask(c, number, "say 2", &r);
    settle();
    fake_reader_read(&r);
    ck_assert(r.is_done);
    fake_reader_deinit(&r);
    s.now_us++;
}

/* Sets the bound to what there is, less this, and lets the time pass after which that counts. */
static void bound_memory(size_t less_bytes)
{
    conversations_configure_unload(&s.all, 0, s.all.idle.bytes - less_bytes);
    conversations_tick(&s.all); /* nothing has been idle for long */
    s.now_us += IDLE_LEAST_US;
    conversations_tick(&s.all);
}

/* Kept conversations leave memory while they take more than the bound, the least recently used
 * first: not one that has a turn, or that a watcher follows alone, nor one that only memory has. */
START_TEST(idle_ones_leave_within_a_bound)
{
    struct conversation *c[4];
    struct conversation_id id[4];
    struct watcher watcher = {0};
    struct watch_place place;
    struct fake_reader r;
    struct error err;

    start();
    (void)fake_conversation(&s);
    for (size_t i = 0; i < 4; i++) {
        c[i] = kept();
        id[i] = c[i]->id;
        say(c[i], 1);
    }
    ck_assert_uint_gt(s.all.idle.bytes, 4 * sizeof(*c[0]));
    ck_assert_uint_eq(s.all.n, 5);
    ck_assert_uint_eq(idle_list_due_us(&s.all.idle), 0);
    bound_memory(0);
    ck_assert_uint_eq(s.all.n, 5);
    say(c[0], 2);
    bound_memory(1);
    ck_assert_uint_eq(s.all.n, 4);
    ck_assert_ptr_null(conversations_get(&s.all, &id[1]));

    ck_assert_int_eq(watch_token_parse(&place, &s.all.watch, "", &err), STATUS_OK);
    watcher_open(&watcher, &s.all.watch, 0, &id[2], &place, on_nothing, NULL);
    ask(c[3], 2, "say 2", &r);
    bound_memory(1);
    ck_assert_uint_eq(s.all.n, 3);
    ck_assert_ptr_null(conversations_get(&s.all, &id[0]));
    settle();
    fake_reader_deinit(&r);
    s.all.config.unload_us = 1000;
    conversations_expiry_changed(c[2]);
    s.now_us += 10 * IDLE_LEAST_US;
    conversations_tick(&s.all); /* the time does not take the one that is watched either */
    ck_assert_ptr_eq(conversations_get(&s.all, &id[2]), c[2]);
    watcher_close(&watcher);
    s.now_us += 1000;
    conversations_tick(&s.all);
    ck_assert_ptr_null(conversations_get(&s.all, &id[2]));
    conversations_configure_unload(&s.all, 0, 1);
    s.now_us += IDLE_LEAST_US;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_uint_eq(s.all.idle.bytes, 0);
    stop();
    ck_assert_ptr_null(strchr(store.kinds, 'C'));
}
END_TEST

/* A queued turn ends inside the leaving of its conversation, which comes into no list again. */
START_TEST(one_that_leaves_is_not_idle)
{
    struct fake_reader first, queued;
    struct conversation *c;

    start();
    c = kept();
    conversations_configure_unload(&s.all, 0, 1);
    ask(c, 1, "say 3", &first);
    ask(c, 2, "say 3", &queued);
    conversation_put_away(c, "");
    ck_assert_uint_eq(s.all.idle.bytes, 0);
    settle();
    ck_assert_uint_eq(s.all.idle.bytes + s.all.n + s.all.n_closing, 0);
    ck_assert_ptr_null(idle_list_first(&s.all.idle));
    fake_reader_deinit(&first);
    fake_reader_deinit(&queued);
    stop();
}
END_TEST

/* One that is not kept writes nothing, nor do its forks. */
START_TEST(others_write_nothing)
{
    struct conversation *c, *fork;
    struct error err;

    start();
    c = fake_conversation(&s);
    fake_turn_whole(&s, c, 1, "say 2", FINISH_STOP, "<0><1>");
    ck_assert_int_eq(conversation_fork(&fork, c, 1, NULL, 0, &err), STATUS_OK);
    ck_assert_int_eq(keeping_begin(fork, NULL, &err), STATUS_OK);
    ck_assert(!fork->host.is_kept);
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_OK);
    conversation_close(c, WATCH_CLOSED, "");
    stop();
    ck_assert_str_eq(store.kinds, "");
}
END_TEST

SUITE_MAIN("server/conversation/keeping", a_turn_waits_for_the_journal,
           an_accepted_turn_keeps_its_number, a_failing_journal_takes_the_conversation,
           an_observed_turn_waits_too, changes_are_written, an_idle_one_leaves_memory,
           idle_ones_leave_within_a_bound, one_that_leaves_is_not_idle, others_write_nothing)
