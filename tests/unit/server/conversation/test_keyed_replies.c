#include "server/conversation/keyed_replies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "server/conversation/body.h"
#include "server/journal/store.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

enum { LINGER_US = 10 * 1000 * 1000, TTL_US = 60 * 1000 * 1000 };

static struct fake_server s;
static struct keyed_replies k;
static struct alarm due = {.tick = keyed_replies_tick, .owner = &k};

static void open_keyed(size_t max_replies, size_t max_bytes)
{
    const struct keyed_replies_config config = {
        .max_replies = max_replies,
        .max_bytes = max_bytes,
        .ttl_us = TTL_US,
        .linger_us = LINGER_US,
        .conversations = &s.all,
        .env = &s.env,
        .alarm = &due,
    };

    fake_server_open(&s, "fake", 0, NULL);
    keyed_replies_init(&k, &config);
    due.at_us = 0;
}

static void close_keyed(void)
{
    conversations_close_all(&s.all, NULL, "the test is over");
    fake_server_run(&s);
    keyed_replies_deinit(&k);
    fake_server_close(&s);
}

/* The timer fires if it is due. */
static void tick_if_due(void)
{
    if (due.at_us != 0 && due.at_us <= s.now_us)
        alarm_ring(&due);
}

static void run_all(void)
{
    fake_server_run(&s);
    tick_if_due();
}

static const uint8_t *digest_of(const char *body)
{
    static uint8_t digest[SHA256_BYTES];

    memset(digest, 0, sizeof(digest));
    memcpy(digest, body, strnlen(body, sizeof(digest)));
    return digest;
}

/* NULL: there is none. */
static struct keyed_reply *find_reply(const char *key, const char *body)
{
    struct keyed_reply *r;
    struct error err;

    ck_assert_int_eq(keyed_replies_find(&r, &k, 0, key, digest_of(body), &err), STATUS_OK);
    return r;
}

/* The key is new: a turn for each of the readers, with this text, in a conversation of its own. */
static struct keyed_reply *begin_reply(const char *key, const char *text,
                                       struct fake_reader *readers, size_t n)
{
    struct keyed_reply *r = find_reply(key, text);
    struct error err;

    ck_assert_ptr_null(r);
    ck_assert_int_eq(keyed_reply_open(&r, &k, 0, key, digest_of(text), &s.model, NULL, n, &err),
                     STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        struct conversation *c = fake_conversation(&s);

        fake_reader_init(&readers[i]);
        ck_assert_int_eq(fake_turn(c, 0, text, &readers[i], &err), STATUS_OK);
        keyed_reply_add(r, i, c, true, &readers[i].reader);
    }
    keyed_reply_name(r, key, 7);
    return r;
}

static void leave_reply(struct keyed_reply *r, struct fake_reader *readers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fake_reader_deinit(&readers[i]);
    keyed_reply_leave(r);
}

static void complete_reply(const char *key, const char *text)
{
    struct fake_reader reader;
    struct keyed_reply *r = begin_reply(key, text, &reader, 1);

    run_all();
    leave_reply(r, &reader, 1);
}

/* What a request that was sent again reads. */
static void check_reply(const char *key, const char *body, const char *text, enum finish finish)
{
    struct keyed_reply *r = find_reply(key, body);
    struct fake_reader reader;

    ck_assert_ptr_nonnull(r);
    keyed_reply_join(r);
    fake_reader_init(&reader);
    keyed_reply_attach(r, 0, &reader.reader);
    run_all();
    fake_reader_read(&reader);
    ck_assert(reader.is_done);
    ck_assert_int_eq(reader.done.finish, finish);
    ck_assert_str_eq(reader.text.data, text);
    ck_assert_str_eq(r->id, key);
    ck_assert_uint_eq(r->created_s, 7);
    leave_reply(r, &reader, 1);
}

/* The same request has the same reply, while it runs and afterwards, and generates nothing. The
 * conversation does not outlive its turn. */
START_TEST(answers_once)
{
    struct fake_reader readers[2];
    struct keyed_reply *r;

    open_keyed(0, 0);
    r = begin_reply("a", "say 3", readers, 2);
    ck_assert(fake_server_step(&s));
    check_reply("a", "say 3", "<0><1><2>", FINISH_STOP);
    ck_assert_uint_eq(s.all.n, 0);
    ck_assert_uint_eq(s.all.n_turns, 2);
    leave_reply(r, readers, 2);
    check_reply("a", "say 3", "<0><1><2>", FINISH_STOP);
    ck_assert_uint_eq(s.all.n_turns, 2);
    ck_assert_ptr_null(find_reply("b", "say 3"));
    close_keyed();
}
END_TEST

/* A key is of one request, and has a form. */
START_TEST(refuses_keys)
{
    char long_key[KEYED_KEY_MAX + 2];
    const char *const bad[] = {"", "a\tb", "\x7f", "\xc3\xa4", long_key};
    struct keyed_reply *r;
    struct error err;

    memset(long_key, 'k', sizeof(long_key));
    long_key[KEYED_KEY_MAX + 1] = '\0';
    open_keyed(0, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(keyed_replies_find(&r, &k, 0, bad[i], digest_of("x"), &err),
                         STATUS_INVALID);
        ck_assert_str_eq(err.field, "Idempotency-Key");
    }
    ck_assert_ptr_null(find_reply(long_key + 1, "x"));
    complete_reply("a", "say 3");
    ck_assert_int_eq(keyed_replies_find(&r, &k, 0, "a", digest_of("say 4"), &err), STATUS_EXISTS);
    close_keyed();
}
END_TEST

/* After a failure the key may be used again, also for another request; a reply with two turns fails
 * with one of them, and the other one ends. */
START_TEST(forgets_failures)
{
    struct fake_reader readers[2];
    struct keyed_reply *r;
    struct error err;

    open_keyed(0, 0);
    r = begin_reply("a", "fail 2", readers, 1);
    fake_server_run(&s);
    ck_assert_ptr_null(find_reply("a", "fail 2")); /* before the tick */
    ck_assert_uint_eq(s.all.n, 0);
    leave_reply(r, readers, 1);

    ck_assert_int_eq(keyed_reply_open(&r, &k, 0, "a", digest_of("x"), &s.model, NULL, 2, &err),
                     STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        struct conversation *c = fake_conversation(&s);

        fake_reader_init(&readers[i]);
        ck_assert_int_eq(fake_turn(c, 0, i == 0 ? "fail 2" : "say 100", &readers[i], &err),
                         STATUS_OK);
        keyed_reply_add(r, i, c, true, &readers[i].reader);
    }
    for (size_t i = 0; i < 6; i++) {
        (void)fake_server_step(&s);
        tick_if_due();
    }
    ck_assert_uint_eq(s.all.n_live, 0);
    ck_assert_ptr_null(find_reply("a", "y"));
    leave_reply(r, readers, 2);
    close_keyed();
}
END_TEST

/* A request of which a part was refused is as if it had never come. */
START_TEST(forgets_what_was_refused)
{
    struct fake_reader readers[2];
    struct keyed_reply *r;
    struct error err;

    open_keyed(0, 0);
    ck_assert_int_eq(
        keyed_reply_open(&r, &k, 0, "a", digest_of("x"), &s.model, "be brief", 2, &err), STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        struct conversation *c = fake_conversation(&s);

        fake_reader_init(&readers[i]);
        ck_assert_int_eq(
            fake_turn(c, 0, i == 0 ? "say 100" : "refuse", &readers[i], &err) == STATUS_OK, i == 0);
        if (i == 0)
            keyed_reply_add(r, i, c, true, &readers[i].reader);
    }
    keyed_reply_forget(r);
    leave_reply(r, readers, 2);
    fake_server_run(&s);
    ck_assert_uint_eq(s.all.n_live, 0);
    ck_assert_uint_eq(s.all.n, 1); /* the refused one's, which was never added */
    ck_assert_ptr_null(find_reply("a", "y"));
    close_keyed();
}
END_TEST

/* When all have left, a reply runs on for the linger time; whoever comes meanwhile stops that. */
START_TEST(lingers)
{
    struct fake_reader reader, again;
    struct keyed_reply *r;

    open_keyed(0, 0);
    r = begin_reply("a", "say 100", &reader, 1);
    ck_assert(fake_server_step(&s));
    leave_reply(r, &reader, 1);
    ck_assert_uint_eq(due.at_us, s.now_us + LINGER_US);
    s.now_us += LINGER_US / 2;
    alarm_ring(&due);
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(s.all.n_live, 1);

    r = find_reply("a", "say 100");
    keyed_reply_join(r);
    fake_reader_init(&again);
    keyed_reply_attach(r, 0, &again.reader);
    s.now_us += 2 * LINGER_US;
    alarm_ring(&due);
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(s.all.n_live, 1);
    leave_reply(r, &again, 1);
    s.now_us += LINGER_US;
    tick_if_due();
    run_all();
    check_reply("a", "say 100", "<0><1><2><3>", FINISH_CANCELLED);
    ck_assert_uint_eq(s.all.n_turns, 1);
    close_keyed();
}
END_TEST

/* A turn that lingers is not ended while another reads it. */
START_TEST(spares_readers)
{
    struct fake_reader reader, other;
    struct keyed_reply *r;

    open_keyed(0, 0);
    r = begin_reply("a", "say 9", &reader, 1);
    fake_reader_init(&other);
    turn_attach(reader.reader.turn, &other.reader);
    ck_assert(fake_server_step(&s));
    leave_reply(r, &reader, 1);
    s.now_us += LINGER_US;
    tick_if_due();
    ck_assert_uint_gt(due.at_us, s.now_us + LINGER_US); /* it is looked at again */
    run_all();
    fake_reader_read(&other);
    ck_assert_int_eq(other.done.finish, FINISH_STOP);
    fake_reader_deinit(&other);
    close_keyed();
}
END_TEST

/* Nor is one that is detached. */
START_TEST(spares_detached)
{
    struct fake_reader reader;
    struct keyed_reply *r;

    open_keyed(0, 0);
    r = begin_reply("a", "say 9", &reader, 1);
    reader.reader.turn->request->is_detached = true;
    ck_assert(fake_server_step(&s));
    leave_reply(r, &reader, 1);
    s.now_us += LINGER_US;
    tick_if_due();
    run_all();
    ck_assert_ptr_eq(find_reply("a", "say 9"), r);
    ck_assert_int_eq(r->turns[0].reader.completed->finish, FINISH_STOP);
    close_keyed();
}
END_TEST

/* A drain ends what lingers, and what is left from then on, but not what is read. */
START_TEST(drains)
{
    struct fake_reader lingering, read;
    struct keyed_reply *r[2];

    open_keyed(0, 0);
    r[0] = begin_reply("a", "say 100", &lingering, 1);
    r[1] = begin_reply("b", "say 100", &read, 1);
    ck_assert(fake_server_step(&s));
    leave_reply(r[0], &lingering, 1);
    keyed_replies_drain(&k);
    ck_assert(fake_server_step(&s));
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(s.all.n_live, 1);
    leave_reply(r[1], &read, 1);
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(s.all.n_live, 0);
    close_keyed();
}
END_TEST

/* The oldest complete reply goes first, a running one never. */
START_TEST(bounds_their_number)
{
    struct fake_reader readers[3];
    struct keyed_reply *r[3], *refused;
    struct error err;

    open_keyed(3, 0);
    r[0] = begin_reply("running", "say 100", &readers[0], 1);
    for (size_t i = 0; i < 4; i++)
        ck_assert(fake_server_step(&s));
    for (size_t i = 1; i < 3; i++) {
        char key[8];

        (void)snprintf(key, sizeof(key), "%zu", i);
        r[i] = begin_reply(key, "say 1", &readers[i], 1);
        while (r[i]->state == KEYED_RUNNING) {
            ck_assert(fake_server_step(&s));
            tick_if_due();
        }
        leave_reply(r[i], &readers[i], 1);
    }
    r[1] = begin_reply("3", "say 100", &readers[1], 1);
    ck_assert_ptr_null(find_reply("1", "say 1"));
    ck_assert_ptr_nonnull(find_reply("2", "say 1"));
    ck_assert_ptr_nonnull(find_reply("running", "say 100"));
    r[2] = begin_reply("4", "say 100", &readers[2], 1);
    ck_assert_int_eq(
        keyed_reply_open(&refused, &k, 0, "5", digest_of("x"), &s.model, NULL, 1, &err),
        STATUS_EXHAUSTED);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    for (size_t i = 0; i < 3; i++)
        leave_reply(r[i], &readers[i], 1);
    close_keyed();
}
END_TEST

/* With keys a principal's replies push out its own from half of them on; its running ones are
 * refused there, and another's are not. */
START_TEST(bounds_a_principal)
{
    struct keyed_reply *r[4];
    struct error err;

    open_keyed(6, 0);
    for (size_t i = 0; i < 3; i++) {
        char key[8];

        (void)snprintf(key, sizeof(key), "%zu", i);
        ck_assert_int_eq(
            keyed_reply_open(&r[i], &k, 1, key, digest_of("x"), &s.model, NULL, 1, &err),
            STATUS_OK);
    }
    ck_assert_int_eq(keyed_reply_open(&r[3], &k, 1, "3", digest_of("x"), &s.model, NULL, 1, &err),
                     STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "the principal's half of the limit of 6 replies"));
    ck_assert_uint_gt(err.retry_after_ms, 0);
    ck_assert_int_eq(keyed_reply_open(&r[3], &k, 2, "3", digest_of("x"), &s.model, NULL, 1, &err),
                     STATUS_OK);
    for (size_t i = 0; i < 4; i++) {
        keyed_reply_forget(r[i]);
        keyed_reply_leave(r[i]);
    }
    ck_assert_uint_eq(k.limit.held, 0);
    close_keyed();
}
END_TEST

/* Replies are bounded by their bytes too, and by their age. */
START_TEST(bounds_their_bytes_and_age)
{
    open_keyed(0, 4096);
    for (size_t i = 0; i < 20; i++) {
        char key[8];

        (void)snprintf(key, sizeof(key), "%zu", i);
        complete_reply(key, "say 9");
        ck_assert_uint_le(k.bytes.held, 4096);
    }
    ck_assert_ptr_null(find_reply("0", "say 9"));
    ck_assert_ptr_nonnull(find_reply("19", "say 9"));
    ck_assert_uint_lt(k.by_key.n, 20);
    s.now_us += TTL_US - 1;
    ck_assert_ptr_nonnull(find_reply("19", "say 9"));
    s.now_us++;
    tick_if_due();
    ck_assert_uint_eq(k.by_key.n, 0);
    ck_assert_uint_eq(k.bytes.held, 0);
    close_keyed();
}
END_TEST

/* A reply that the journal has leaves memory when it was idle; one that only memory has stays for
 * its time. */
START_TEST(stored_ones_leave_memory)
{
    enum { MINUTE_US = 60 * 1000 * 1000 };
    struct fake_reader reader;
    struct keyed_reply *r;

    open_keyed(0, 0);
    k.config.ttl_us = 10 * MINUTE_US;
    s.all.config.unload_us = 1000;
    complete_reply("memory", "say 1");
    r = begin_reply("b", "say 2", &reader, 1);
    r->turns[0].is_kept = true;
    run_all();
    leave_reply(r, &reader, 1);
    check_reply("b", "say 2", "<0><1>", FINISH_STOP);
    s.now_us += MINUTE_US - 1;
    tick_if_due();
    ck_assert_ptr_nonnull(find_reply("b", "say 2"));
    s.now_us++;
    tick_if_due();
    ck_assert_uint_eq(k.by_key.n, 1);
    ck_assert_ptr_nonnull(find_reply("memory", "say 1"));
    s.now_us += 9 * MINUTE_US;
    tick_if_due();
    ck_assert_uint_eq(k.by_key.n + k.limit.held + k.bytes.held, 0);
    close_keyed();
}
END_TEST

static struct journal_event *part_of(const struct conversation *c, const char *key)
{
    struct body_key what = {
        .n_turns = 1, .is_ephemeral = true, .id = key, .model = "fake", .version = "1"};
    struct journal_event *part;
    struct error err;
    struct buf body;

    memcpy(what.conversation, c->id.bytes, sizeof(what.conversation));
    buf_init(&body, 4096);
    ck_assert_int_eq(body_write_key(&body, &what, &err), STATUS_OK);
    part = xalloc(sizeof(*part) + body.len);
    part->turn = part->generation = 1;
    part->size_bytes = body.len;
    memcpy(part->body, body.data, body.len);
    buf_deinit(&body);
    return part;
}

/* One that is read again after its time is over is not found, so that its key is free; in time it
 * is. */
START_TEST(its_time_goes_on_out_of_memory)
{
    open_keyed(0, 0);
    for (uint64_t late_us = 0; late_us < 2; late_us++) {
        struct conversation *c = fake_conversation(&s);
        struct journal_event *part = part_of(c, "a");
        struct keyed_reply *r = NULL;
        struct list parts;
        struct error err;

        fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
        c->is_idle_known = true;
        list_init(&parts);
        list_push(&parts, &part->link);
        s.now_us = c->host.last_done_us + TTL_US - 1 + late_us;
        ck_assert_int_eq(keyed_reply_restore(&r, &k, 0, "a", &parts, false, &err), STATUS_OK);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(r->state, late_us == 0 ? KEYED_COMPLETE : KEYED_FORGOTTEN);
        ck_assert_uint_eq(k.by_key.n, 1 - late_us);
        if (late_us == 0)
            keyed_reply_forget(r);
        keyed_reply_leave(r);
        free(part);
    }
    ck_assert_uint_eq(s.all.n + k.limit.held, 0);
    close_keyed();
}
END_TEST

/* A stored reply whose conversation has left memory before all were read is not free to be computed
 * anew: another one would be told under its key. One that is not stored any more is. */
START_TEST(restores_all_or_asks_again)
{
    const struct body_key what = {.conversation = {1},
                                  .n_turns = 3,
                                  .is_ephemeral = true,
                                  .id = "a",
                                  .model = "fake",
                                  .version = "1"};
    struct keyed_reply *r = NULL;
    struct journal_event *part;
    struct list parts;
    struct error err;
    struct buf body;

    open_keyed(0, 0);
    buf_init(&body, 4096);
    ck_assert_int_eq(body_write_key(&body, &what, &err), STATUS_OK);
    part = xalloc(sizeof(*part) + body.len);
    part->turn = 1;
    part->generation = 1;
    part->size_bytes = body.len;
    memcpy(part->body, body.data, body.len);
    list_init(&parts);
    list_push(&parts, &part->link);
    ck_assert_int_eq(keyed_reply_restore(&r, &k, 0, "a", &parts, false, &err), STATUS_UNAVAILABLE);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    ck_assert_int_eq(keyed_reply_restore(&r, &k, 0, "a", &parts, true, &err), STATUS_OK);
    ck_assert_ptr_null(r);
    ck_assert_uint_eq(k.by_key.n, 0);
    ck_assert_uint_eq(k.limit.held, 0);
    free(part);
    buf_deinit(&body);
    close_keyed();
}
END_TEST

SUITE_MAIN("server/keyed_replies", answers_once, refuses_keys, forgets_failures,
           forgets_what_was_refused, lingers, spares_readers, spares_detached, drains,
           bounds_their_number, bounds_a_principal, bounds_their_bytes_and_age,
           stored_ones_leave_memory, its_time_goes_on_out_of_memory, restores_all_or_asks_again)
