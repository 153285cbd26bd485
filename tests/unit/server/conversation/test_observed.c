/* Turns that ask for no reply. */
#include "server/conversation/observed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;

static enum status observe_one(struct conversation *c, uint32_t number, const char *text,
                               struct fake_reader *r, struct error *err)
{
    struct message m = {.role = ROLE_USER, .text = text, .len = strlen(text)};
    struct turn_request request = {
        .number = number, .messages = &m, .n_messages = 1, .is_observed = true};

    fake_reader_init(r);
    return conversation_turn(c, &request, &r->reader, err);
}

/* The turn is complete at once, with no reply. */
static void observe_whole(struct conversation *c, uint32_t number, const char *text)
{
    struct fake_reader r;
    struct error err;

    ck_assert_int_eq(observe_one(c, number, text, &r, &err), STATUS_OK);
    fake_reader_read(&r);
    ck_assert(r.has_accepted && r.is_done && !r.has_failed);
    ck_assert_uint_eq(r.number, number);
    ck_assert_uint_eq(r.text.len, 0);
    ck_assert_int_eq(r.done.finish, FINISH_OBSERVED);
    ck_assert_uint_eq(r.done.usage.n_prompt, 0);
    fake_reader_deinit(&r);
}

/* Such a turn counts, is stored under its number, and is none of the clone's. */
START_TEST(is_a_turn)
{
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    fake_server_open(&s, "fake", 0, NULL);
    c = fake_conversation(&s);
    observe_whole(c, 1, "one");
    observe_whole(c, 2, "two");
    ck_assert_uint_eq(c->host.n_turns, 2);
    ck_assert_uint_eq(c->host.n_live, 0);
    ck_assert_uint_eq(s.all.n_live, 0);
    observe_whole(c, 1, "one"); /* again: the stored one */
    ck_assert_uint_eq(c->host.n_turns, 2);
    ck_assert_int_eq(observe_one(c, 1, "other", &r, &err), STATUS_EXISTS);
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "one", &r, &err), STATUS_EXISTS); /* asks for a reply */
    ck_assert_int_eq(observe_one(c, 4, "a gap", &r, &err), STATUS_PRECONDITION);
    ck_assert_uint_eq(fake_clone_n_turns(c), 0);
    fake_turn_whole(&s, c, 3, "say 2", FINISH_STOP, "<0><1>");
    ck_assert_uint_eq(fake_clone_n_turns(c), 1);
    observe_whole(c, 4, "four");
    fake_turn_whole(&s, c, 5, "say 1", FINISH_STOP, "<0>");
    ck_assert_uint_eq(fake_clone_n_turns(c), 2);
    fake_server_close(&s);
}
END_TEST

/* Rewinds and forks to before, among and behind such turns. */
START_TEST(goes_back)
{
    static const uint32_t n_acted[] = {0, 0, 1, 1, 1, 2};
    struct conversation *c;
    struct error err;

    fake_server_open(&s, "fake", 0, NULL);
    c = fake_conversation(&s);
    observe_whole(c, 1, "one");
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
    observe_whole(c, 3, "three");
    observe_whole(c, 4, "four");
    fake_turn_whole(&s, c, 5, "say 1", FINISH_STOP, "<0>");
    for (uint32_t at = 0; at <= 5; at++) {
        struct conversation *f;

        ck_assert_int_eq(conversation_fork(&f, c, at, NULL, 0, &err), STATUS_OK);
        ck_assert_uint_eq(f->host.n_turns, at);
        ck_assert_uint_eq(fake_clone_n_turns(f), n_acted[at]);
        fake_turn_whole(&s, f, at + 1, "say 1", FINISH_STOP, "<0>");
    }
    for (uint32_t at = 5; at-- > 0;) {
        ck_assert_int_eq(conversation_rewind(c, at, &err), STATUS_OK);
        ck_assert_uint_eq(fake_clone_n_turns(c), n_acted[at]);
        observe_whole(c, at + 1, "in its place");
    }
    fake_server_close(&s);
}
END_TEST

/* Behind a turn that runs it waits; several in a row are then complete, and the next one starts. */
START_TEST(waits_in_order)
{
    struct fake_reader first, seen[2], last;
    struct conversation *c;
    struct error err;

    fake_server_open(&s, "fake", 0, NULL);
    c = fake_conversation(&s);
    fake_reader_init(&first);
    fake_reader_init(&last);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &first, &err), STATUS_OK);
    ck_assert_int_eq(observe_one(c, 2, "two", &seen[0], &err), STATUS_OK);
    ck_assert_int_eq(observe_one(c, 0, "three", &seen[1], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 2", &last, &err), STATUS_OK);
    ck_assert_uint_eq(c->host.n_live, 4);
    fake_reader_read(&seen[0]);
    ck_assert(!seen[0].has_accepted);
    fake_server_run(&s);
    fake_reader_read(&last);
    ck_assert(last.is_done && last.number == 4);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_uint_gt(seen[i].n_notified, 0);
        fake_reader_read(&seen[i]);
        ck_assert(seen[i].is_done && seen[i].number == 2 + i);
        ck_assert_int_eq(seen[i].done.finish, FINISH_OBSERVED);
        fake_reader_deinit(&seen[i]);
    }
    fake_reader_deinit(&first);
    fake_reader_deinit(&last);
    ck_assert_uint_eq(c->host.n_live, 0);
    fake_server_close(&s);
}
END_TEST

static uint32_t prompt_of(const struct conversation *c)
{
    return c->host.newest->usage.n_prompt;
}

/* The next turn that acts observes the messages that wait, and no later one does again. A turn that
 * fails leaves them. */
START_TEST(is_observed_once)
{
    struct open_request short_one = {.limits = {.max_tokens = 10}};
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    fake_server_open(&s, "echo", 0, NULL); /* its prompt's tokens are words */
    ck_assert_int_eq(conversation_open(&c, &s.all, &s.model, &short_one, &err), STATUS_OK);
    observe_whole(c, 1, "one two three");
    observe_whole(c, 2, "four five");
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 3, "a b c d e f g h", &r, &err), STATUS_RANGE);
    fake_turn_whole(&s, c, 3, "six", FINISH_STOP, "six");
    ck_assert_uint_eq(prompt_of(c), 6);
    fake_turn_whole(&s, c, 4, "seven", FINISH_STOP, "seven");
    ck_assert_uint_eq(prompt_of(c), 1);
    fake_server_close(&s);
}
END_TEST

/* The limits of a conversation count it, and so many messages may wait. */
START_TEST(is_limited)
{
    struct open_request few = {.limits = {.max_turns = 1}};
    struct message m[OBSERVED_MAX_MESSAGES];
    struct turn_request all = {
        .messages = m, .n_messages = OBSERVED_MAX_MESSAGES, .is_observed = true};
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    fake_server_open(&s, "echo", 0, NULL);
    ck_assert_int_eq(conversation_open(&c, &s.all, &s.model, &few, &err), STATUS_OK);
    observe_whole(c, 1, "one");
    ck_assert_int_eq(observe_one(c, 2, "two", &r, &err), STATUS_PRECONDITION);
    c = fake_conversation(&s);
    for (size_t i = 0; i < OBSERVED_MAX_MESSAGES; i++)
        m[i] = (struct message){.role = ROLE_USER, .text = "x", .len = 1};
    fake_reader_init(&r);
    ck_assert_int_eq(conversation_turn(c, &all, &r.reader, &err), STATUS_OK);
    fake_reader_deinit(&r);
    ck_assert_int_eq(observe_one(c, 2, "one more", &r, &err), STATUS_PRECONDITION);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_uint_eq(c->host.n_live, 0);
    fake_turn_whole(&s, c, 2, "now", FINISH_STOP, "now");
    ck_assert_uint_eq(prompt_of(c), OBSERVED_MAX_MESSAGES + 1);
    observe_whole(c, 3, "one more");
    fake_server_close(&s);
}
END_TEST

SUITE_MAIN("server/observed", is_a_turn, goes_back, waits_in_order, is_observed_once, is_limited)
