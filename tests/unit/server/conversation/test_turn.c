#include "server/conversation/turn.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/fake_server.h"

static struct fake_server s;

static void setup(void)
{
    fake_server_open(&s, "fake", 0, NULL);
}

static void teardown(void)
{
    fake_server_close(&s);
}

/* A turn is accepted, its pieces come in order, and it is done; the completed turn has the same
 * reply. */
START_TEST(test_events_in_order)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &r, &err), STATUS_OK);
    fake_reader_read(&r);
    ck_assert(r.has_accepted && !r.is_done);
    ck_assert_uint_eq(r.number, 1);
    ck_assert_uint_eq(r.n_prompt, 3);
    for (size_t i = 1; i < 3; i++) {
        ck_assert(fake_server_step(&s));
        fake_reader_read(&r);
        ck_assert_uint_eq(r.n_pieces, i);
    }
    fake_server_run(&s);
    fake_reader_read(&r);
    ck_assert(r.is_done);
    ck_assert_str_eq(r.text.data, "<0><1><2>");
    ck_assert_int_eq(r.done.finish, FINISH_STOP);
    ck_assert_uint_eq(r.done.number, 1);
    ck_assert_uint_eq(r.done.usage.n_prompt, 3);
    ck_assert_uint_eq(r.done.usage.n_completion, 3);
    ck_assert_uint_eq(r.done.timings.n_steps, 3);
    ck_assert_uint_eq(r.done.timings.prefill_us, 1000);
    ck_assert_uint_eq(r.done.timings.decode_us, 2000);
    ck_assert_uint_eq(r.done.timings.total_us, 3000);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_uint_eq(fake_clone_n_turns(c), 1);
    ck_assert_str_eq(c->host.newest->text, "<0><1><2>");
    ck_assert_uint_eq(s.all.n_turns, 1);
    fake_reader_deinit(&r);
}
END_TEST

/* A reader that is moved to a place reads what comes behind it; there is no place beyond the end.
 */
START_TEST(test_seek)
{
    struct conversation *c = fake_conversation(&s);
    const struct message say = {.role = ROLE_USER, .text = "say 3", .len = 5};
    struct turn_request r = {.number = 1, .messages = &say, .n_messages = 1};
    struct fake_reader from;
    struct error err;

    fake_turn_whole(&s, c, 1, "say 3", FINISH_STOP, "<0><1><2>");
    r.resume = (struct turn_resume){.is_wanted = true, .generation = 1};
    for (r.resume.index = 0; r.resume.index <= 3; r.resume.index++) {
        fake_reader_init(&from);
        ck_assert_int_eq(conversation_turn(c, &r, &from.reader, &err), STATUS_OK);
        fake_reader_read(&from);
        ck_assert_uint_eq(from.n_ids, 3 - r.resume.index);
        ck_assert_str_eq(from.text.len == 0 ? "" : from.text.data,
                         &"<0><1><2>"[3 * r.resume.index]);
        ck_assert(from.is_done);
        fake_reader_deinit(&from);
    }
    fake_reader_init(&from);
    ck_assert_int_eq(conversation_turn(c, &r, &from.reader, &err), STATUS_RANGE);
    ck_assert_str_eq(err.field, "resume_from.index");
    r.resume = (struct turn_resume){.is_wanted = true, .generation = 2};
    ck_assert_int_eq(conversation_turn(c, &r, &from.reader, &err), STATUS_RANGE);
    ck_assert_str_eq(err.field, "resume_from.generation");
    fake_reader_deinit(&from);
}
END_TEST

/* A numbered turn goes on without readers for the linger time; one that comes back finds it, one
 * that does not finds it cancelled; a drain ends it. */
START_TEST(test_linger)
{
    const struct conversations_config config = {.linger_us = 10000};
    struct conversation *c;
    struct fake_reader r, again;
    struct error err;

    fake_server_close(&s);
    fake_server_open(&s, "fake", 0, &config);
    c = fake_conversation(&s);
    for (int round = 0; round < 3; round++) {
        fake_reader_init(&r);
        ck_assert_int_eq(fake_turn(c, (uint32_t)round + 1, "say 9", &r, &err), STATUS_OK);
        ck_assert(fake_server_step(&s));
        reader_close(&r.reader, STATUS_CANCELLED);
        fake_reader_deinit(&r);
        ck_assert(fake_server_step(&s));
        fake_reader_init(&again);
        switch (round) {
        case 0:
            ck_assert_uint_le(s.expiry.at_us, s.now_us + config.linger_us);
            ck_assert_int_eq(fake_turn(c, 1, "say 9", &again, &err), STATUS_OK);
            s.now_us += config.linger_us;
            conversations_tick(&s.all);
            break;
        case 1:
            s.now_us += config.linger_us;
            conversations_tick(&s.all);
            break;
        default:
            conversations_drain(&s.all);
        }
        fake_server_run(&s);
        ck_assert_uint_eq(c->host.n_turns, (uint32_t)round + 1);
        ck_assert_int_eq(c->host.newest->finish, round == 0 ? FINISH_STOP : FINISH_CANCELLED);
        fake_reader_deinit(&again);
    }
}
END_TEST

/* The deadline of a request ends its reply as done, also when its reader has gone meanwhile. */
START_TEST(test_reply_deadline)
{
    const struct conversations_config config = {.linger_us = UINT64_C(1) << 40};
    const struct message say = {.role = ROLE_USER, .text = "say 9", .len = 5};
    struct turn_request request = {
        .number = 1, .messages = &say, .n_messages = 1, .is_reply_deadline = true};
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    fake_server_close(&s);
    fake_server_open(&s, "fake", 0, &config);
    c = fake_conversation(&s);
    for (uint32_t n = 1; n <= 2; n++) {
        request.number = n;
        request.deadline_us = s.now_us + 3000;
        fake_reader_init(&r);
        ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_OK);
        ck_assert(fake_server_step(&s));
        if (n == 2)
            reader_close(&r.reader, STATUS_CANCELLED);
        fake_server_run(&s);
        if (n == 1) {
            fake_reader_read(&r);
            ck_assert(r.is_done && r.done.finish == FINISH_DEADLINE);
        }
        ck_assert_uint_eq(c->host.n_turns, n);
        ck_assert_int_eq(c->host.newest->finish, FINISH_DEADLINE);
        fake_reader_deinit(&r);
    }
}
END_TEST

/* Tokens that come while a reader does not read are one piece. */
START_TEST(test_pieces_are_merged)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 100", &r, &err), STATUS_OK);
    for (size_t i = 0; i < 50; i++)
        ck_assert(fake_server_step(&s));
    fake_reader_read(&r);
    ck_assert_uint_eq(r.n_pieces, 1);
    ck_assert_uint_eq(r.n_ids, 50);
    fake_server_run(&s);
    fake_reader_read(&r);
    ck_assert_uint_eq(r.n_pieces, 2);
    ck_assert_uint_eq(r.n_ids, 100);
    for (int32_t i = 0; i < 100; i++)
        ck_assert_int_eq(r.ids[i], i);
    fake_reader_deinit(&r);
}
END_TEST

/* A long prompt reports its progress, and nothing else. */
START_TEST(test_progress)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "long 5", &r, &err), STATUS_OK);
    while (!r.is_done) {
        ck_assert(fake_server_step(&s));
        fake_reader_read(&r);
    }
    ck_assert_uint_eq(r.n_progress, 4);
    ck_assert_uint_eq(r.n_pieces, 1);
    fake_reader_deinit(&r);
}
END_TEST

/* The same number and request during the turn: both readers see the whole reply, which is generated
 * once. */
START_TEST(test_join_while_it_runs)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader a, b;
    struct error err;

    fake_reader_init(&a);
    fake_reader_init(&b);
    ck_assert_int_eq(fake_turn(c, 1, "say 6", &a, &err), STATUS_OK);
    for (size_t i = 0; i < 3; i++) {
        ck_assert(fake_server_step(&s));
        fake_reader_read(&a);
    }
    ck_assert_int_eq(fake_turn(c, 1, "say 6", &b, &err), STATUS_OK);
    fake_reader_read(&b);
    ck_assert_str_eq(b.text.data, "<0><1><2>");
    fake_server_run(&s);
    fake_reader_read(&a);
    fake_reader_read(&b);
    ck_assert(a.is_done && b.is_done);
    ck_assert_str_eq(a.text.data, "<0><1><2><3><4><5>");
    ck_assert_str_eq(b.text.data, a.text.data);
    ck_assert_uint_eq(b.n_ids, 6);
    ck_assert_uint_eq(s.all.n_turns, 1);
    fake_reader_deinit(&a);
    fake_reader_deinit(&b);
}
END_TEST

/* After the turn the stored reply is returned, with its numbers and log-probabilities. */
START_TEST(test_replay)
{
    struct conversation *c = fake_conversation(&s);
    struct message m = {.role = ROLE_USER, .text = "say 4", .len = 5};
    struct turn_request request = {.number = 1, .messages = &m, .n_messages = 1, .n_logprobs = 2};
    struct fake_reader r[2];
    struct error err;

    for (size_t i = 0; i < 2; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(conversation_turn(c, &request, &r[i].reader, &err), STATUS_OK);
        fake_server_run(&s);
        fake_reader_read(&r[i]);
        ck_assert(r[i].is_done);
        ck_assert_str_eq(r[i].text.data, "<0><1><2><3>");
        ck_assert_uint_eq(r[i].n_ids, 4);
        ck_assert_uint_eq(r[i].n_logprobs, 4);
        for (size_t j = 0; j < 4; j++)
            ck_assert(r[i].logprobs[j] == -(float)j);
        ck_assert_uint_eq(r[i].done.timings.total_us, 4000);
        fake_reader_deinit(&r[i]);
    }
    ck_assert_uint_eq(s.all.n_turns, 1);
    request.n_logprobs = 1; /* a different request */
    fake_reader_init(&r[0]);
    ck_assert_int_eq(conversation_turn(c, &request, &r[0].reader, &err), STATUS_EXISTS);
    fake_reader_deinit(&r[0]);
}
END_TEST

/* A number that was used with another request is refused, running or done; so is a gap, with the
 * expected number. */
START_TEST(test_numbers)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r, other;
    struct error err;

    fake_reader_init(&r);
    fake_reader_init(&other);
    ck_assert_int_eq(fake_turn(c, 2, "say 3", &other, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "the next is turn 1"));
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &r, &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 1, "say 4", &other, &err), STATUS_EXISTS);
    ck_assert_int_eq(fake_turn(c, 3, "say 4", &other, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "the next is turn 2"));
    fake_server_run(&s);
    ck_assert_int_eq(fake_turn(c, 1, "say 4", &other, &err), STATUS_EXISTS);
    fake_reader_read(&r);
    ck_assert(r.is_done);
    ck_assert_uint_eq(c->host.n_turns, 1);
    fake_reader_deinit(&r);
    fake_reader_deinit(&other);
}
END_TEST

/* Turns that are sent ahead are queued, and run one at a time, in order; the queue is bounded. */
START_TEST(test_queue)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[18];
    struct error err;
    char text[16];

    for (uint32_t i = 0; i < 17; i++) {
        fake_reader_init(&r[i]);
        (void)snprintf(text, sizeof(text), "say %u", i + 1);
        ck_assert_int_eq(fake_turn(c, i % 2 == 0 ? i + 1 : 0, text, &r[i], &err), STATUS_OK);
        fake_reader_read(&r[i]);
        ck_assert(r[i].has_accepted == (i == 0));
    }
    fake_reader_init(&r[17]);
    ck_assert_int_eq(fake_turn(c, 18, "say 1", &r[17], &err), STATUS_EXHAUSTED);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    fake_reader_deinit(&r[17]);
    for (uint32_t i = 0; i < 17; i++) {
        while (!r[i].is_done) {
            ck_assert(fake_server_step(&s));
            fake_reader_read(&r[i]);
            for (uint32_t j = i + 2; j < 17; j++)
                ck_assert(!reader_has_more(&r[j].reader));
        }
        ck_assert_uint_eq(r[i].number, i + 1);
        ck_assert_uint_eq(r[i].n_ids, i + 1);
        fake_reader_deinit(&r[i]);
    }
}
END_TEST

/* The last reader closes before the first step: the turn is dropped. */
START_TEST(test_reader_gone_before_the_first_step)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &r, &err), STATUS_OK);
    fake_reader_deinit(&r);
    fake_server_run(&s);
    ck_assert_uint_eq(c->host.n_turns, 0);
    ck_assert_uint_eq(c->host.n_live, 0);
    ck_assert_uint_eq(fake_clone_n_dropped(c), 1);
    fake_turn_whole(&s, c, 1, "say 2", FINISH_STOP, "<0><1>");
}
END_TEST

/* The last reader closes during the turn: it ends within one step as cancelled, the reply so far is
 * kept, and the next number is free. */
START_TEST(test_reader_gone_in_between)
{
    struct conversation *c = fake_conversation(&s);
    struct batcher_stats stats;
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 100", &r, &err), STATUS_OK);
    for (size_t i = 0; i < 3; i++)
        ck_assert(fake_server_step(&s));
    fake_reader_deinit(&r);
    fake_server_run(&s);
    batcher_stats(s.model.batcher, &stats);
    ck_assert_uint_le(stats.n_steps, 4);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_int_eq(c->host.newest->finish, FINISH_CANCELLED);
    ck_assert_uint_ge(c->host.newest->n_tokens, 3);
    ck_assert_uint_eq(fake_clone_n_turns(c), 1);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
}
END_TEST

/* A detached turn goes on to its end without readers, also from the queue; a cancel ends it. */
START_TEST(test_detached)
{
    static const struct message message = {.role = ROLE_USER, .text = "say 9", .len = 5};
    const struct turn_request detached = {
        .messages = &message, .n_messages = 1, .is_detached = true};
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[3];
    struct error err;

    for (size_t i = 0; i < 3; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(conversation_turn(c, &detached, &r[i].reader, &err), STATUS_OK);
    }
    for (size_t i = 0; i < 3; i++)
        fake_reader_deinit(&r[i]);
    while (c->host.n_turns < 2)
        ck_assert(fake_server_step(&s));
    ck_assert_int_eq(c->host.newest->finish, FINISH_STOP);
    ck_assert_uint_eq(c->host.newest->n_tokens, 9);
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(conversation_cancel(c), 1);
    fake_server_run(&s);
    ck_assert_uint_eq(c->host.n_turns, 3);
    ck_assert_int_eq(c->host.newest->finish, FINISH_CANCELLED);
}
END_TEST

/* One of two readers closes: the turn goes on for the other. */
START_TEST(test_one_of_two_readers_goes)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader a, b;
    struct error err;

    fake_reader_init(&a);
    fake_reader_init(&b);
    ck_assert_int_eq(fake_turn(c, 1, "say 5", &a, &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 1, "say 5", &b, &err), STATUS_OK);
    ck_assert(fake_server_step(&s));
    fake_reader_deinit(&a);
    fake_server_run(&s);
    fake_reader_read(&b);
    ck_assert(b.is_done);
    ck_assert_uint_eq(b.n_ids, 5);
    fake_reader_deinit(&b);
}
END_TEST

static enum status turn_until(struct conversation *c, uint32_t number, const char *text,
                              uint64_t deadline_us, struct fake_reader *r, struct error *err)
{
    struct message m = {.role = ROLE_USER, .text = text, .len = strlen(text)};
    struct turn_request request = {
        .number = number, .messages = &m, .n_messages = 1, .deadline_us = deadline_us};

    return conversation_turn(c, &request, &r->reader, err);
}

/* The deadline passes during the turn: the reader gets the reply so far, then the failure; the turn
 * is kept. */
START_TEST(test_deadline)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(turn_until(c, 1, "say 100", s.now_us + 5000, &r, &err), STATUS_OK);
    fake_server_run(&s);
    fake_reader_read(&r);
    ck_assert(r.has_failed);
    ck_assert_int_eq(r.err.status, STATUS_DEADLINE);
    ck_assert_uint_eq(r.n_ids, 5);
    ck_assert_uint_eq(c->host.n_turns, 1);
    ck_assert_int_eq(c->host.newest->finish, FINISH_DEADLINE);
    fake_reader_deinit(&r);

    /* A repeated request gets the stored end. */
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 100", &r, &err), STATUS_OK);
    fake_reader_read(&r);
    ck_assert(r.is_done);
    ck_assert_int_eq(r.done.finish, FINISH_DEADLINE);
    fake_reader_deinit(&r);

    /* A deadline in the past starts nothing. */
    fake_reader_init(&r);
    ck_assert_int_eq(turn_until(c, 2, "say 1", s.now_us, &r, &err), STATUS_DEADLINE);
    ck_assert_uint_eq(c->host.n_live, 0);
    fake_reader_deinit(&r);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
}
END_TEST

/* The latest deadline of all readers counts, also a later reader's. */
START_TEST(test_latest_deadline)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader a, b;
    struct error err;

    fake_reader_init(&a);
    fake_reader_init(&b);
    ck_assert_int_eq(turn_until(c, 1, "say 20", s.now_us + 5000, &a, &err), STATUS_OK);
    ck_assert(fake_server_step(&s));
    ck_assert_int_eq(turn_until(c, 1, "say 20", s.now_us + 60000, &b, &err), STATUS_OK);
    fake_server_run(&s);
    fake_reader_read(&b);
    ck_assert(b.is_done);
    ck_assert_int_eq(b.done.finish, FINISH_STOP);
    ck_assert_uint_eq(b.n_ids, 20);
    ck_assert_uint_eq(b.done.timings.n_steps, 20);
    fake_reader_deinit(&a);
    fake_reader_deinit(&b);
}
END_TEST

/* A reader closed because of its deadline ends the turn with DEADLINE. */
START_TEST(test_closed_by_deadline)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "say 100", &r, &err), STATUS_OK);
    ck_assert(fake_server_step(&s));
    reader_close(&r.reader, STATUS_DEADLINE);
    fake_server_run(&s);
    ck_assert_int_eq(c->host.newest->finish, FINISH_DEADLINE);
    fake_reader_deinit(&r);
}
END_TEST

/* A cancel ends the turn in flight, whose readers are done, and the queued ones, whose readers get
 * CANCELLED. */
START_TEST(test_cancel)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[3];
    struct error err;

    for (uint32_t i = 0; i < 3; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c, i + 1, "say 9", &r[i], &err), STATUS_OK);
    }
    ck_assert(fake_server_step(&s));
    ck_assert_uint_eq(conversation_cancel(c), 3);
    ck_assert_uint_eq(conversation_cancel(c), 0);
    fake_server_run(&s);
    for (size_t i = 0; i < 3; i++)
        fake_reader_read(&r[i]);
    ck_assert(r[0].is_done);
    ck_assert_int_eq(r[0].done.finish, FINISH_CANCELLED);
    for (size_t i = 1; i < 3; i++) {
        ck_assert(r[i].has_failed && !r[i].has_accepted);
        ck_assert_int_eq(r[i].err.status, STATUS_CANCELLED);
    }
    ck_assert_uint_eq(c->host.n_turns, 1);
    for (size_t i = 0; i < 3; i++)
        fake_reader_deinit(&r[i]);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
}
END_TEST

/* A cancel of one turn ends it and those behind it, and leaves those before it; a complete one is
 * left; one that is to come is refused. */
START_TEST(test_cancel_from)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[4];
    struct error err;
    size_t n = 9;

    ck_assert_int_eq(conversation_cancel_from(c, 0, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 0);
    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
    for (uint32_t i = 0; i < 4; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c, i + 2, "say 2", &r[i], &err), STATUS_OK);
    }
    ck_assert(fake_server_step(&s));
    ck_assert_int_eq(conversation_cancel_from(c, 6, &n, &err), STATUS_RANGE);
    ck_assert_str_eq(err.field, "turn");
    ck_assert_int_eq(conversation_cancel_from(c, 1, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 0);
    ck_assert_uint_eq(c->host.n_live, 4);
    ck_assert_int_eq(conversation_cancel_from(c, 4, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(c->host.n_live, 2);
    fake_server_run(&s);
    for (size_t i = 0; i < 4; i++) {
        fake_reader_read(&r[i]);
        ck_assert_int_eq(r[i].is_done, i < 2);
        ck_assert_int_eq(r[i].has_failed, i >= 2);
        fake_reader_deinit(&r[i]);
    }
    ck_assert_uint_eq(c->host.n_turns, 3);
    ck_assert_int_eq(c->host.newest->finish, FINISH_STOP);
    ck_assert_int_eq(conversation_cancel_from(c, 3, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(conversation_cancel_from(c, 4, &n, &err), STATUS_RANGE);
}
END_TEST

/* A cancel of the turn in flight that comes when it is over does not end the next one. */
START_TEST(test_cancel_late)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[2];
    struct error err;
    size_t n;

    for (uint32_t i = 0; i < 2; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c, i + 1, "say 3", &r[i], &err), STATUS_OK);
    }
    ck_assert(fake_server_step(&s));
    ck_assert_int_eq(conversation_cancel_from(c, 1, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 2);
    fake_server_run(&s);
    ck_assert_uint_eq(c->host.n_turns, 1);
    fake_reader_deinit(&r[1]);
    fake_reader_init(&r[1]);
    ck_assert_int_eq(fake_turn(c, 2, "say 3", &r[1], &err), STATUS_OK);
    ck_assert_int_eq(conversation_cancel_from(c, 1, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 0);
    fake_server_run(&s);
    fake_reader_read(&r[1]);
    ck_assert(r[1].is_done);
    ck_assert_int_eq(r[1].done.finish, FINISH_STOP);
    fake_reader_deinit(&r[0]);
    fake_reader_deinit(&r[1]);
}
END_TEST

/* Failures leave the conversation unchanged, with the number free for another attempt. */
START_TEST(test_failures_leave_no_trace)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, "refuse", &r, &err), STATUS_RANGE);
    ck_assert_uint_eq(c->host.n_live, 0);
    ck_assert_int_eq(fake_turn(c, 1, "fail 2", &r, &err), STATUS_OK);
    fake_server_run(&s);
    fake_reader_read(&r);
    ck_assert(r.has_failed);
    ck_assert_int_eq(r.err.status, STATUS_INTERNAL);
    ck_assert_uint_eq(c->host.n_turns, 0);
    ck_assert_uint_eq(fake_clone_n_dropped(c), 1);
    fake_reader_deinit(&r);
    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
}
END_TEST

/* Behind a failed turn, those numbered by their caller fail too; others move up. */
START_TEST(test_turns_behind_one_that_fails)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[4];
    struct error err;

    for (size_t i = 0; i < 4; i++)
        fake_reader_init(&r[i]);
    ck_assert_int_eq(fake_turn(c, 1, "fail 1", &r[0], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 2", &r[1], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 3, "say 3", &r[2], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 4", &r[3], &err), STATUS_OK);
    fake_server_run(&s);
    for (size_t i = 0; i < 4; i++)
        fake_reader_read(&r[i]);
    ck_assert_int_eq(r[0].err.status, STATUS_INTERNAL);
    ck_assert(r[1].is_done);
    ck_assert_uint_eq(r[1].number, 1);
    ck_assert_int_eq(r[2].err.status, STATUS_ABORTED);
    ck_assert(r[3].is_done);
    ck_assert_uint_eq(r[3].number, 2);
    ck_assert_uint_eq(r[3].n_ids, 4);
    ck_assert_uint_eq(c->host.n_turns, 2);
    for (size_t i = 0; i < 4; i++)
        fake_reader_deinit(&r[i]);
}
END_TEST

/* A queued turn whose observation is refused at its start fails alone. */
START_TEST(test_refused_in_the_queue)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[3];
    struct error err;

    for (size_t i = 0; i < 3; i++)
        fake_reader_init(&r[i]);
    ck_assert_int_eq(fake_turn(c, 0, "say 2", &r[0], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "refuse", &r[1], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 2", &r[2], &err), STATUS_OK);
    fake_server_run(&s);
    for (size_t i = 0; i < 3; i++)
        fake_reader_read(&r[i]);
    ck_assert(r[0].is_done && r[2].is_done);
    ck_assert_int_eq(r[1].err.status, STATUS_RANGE);
    ck_assert_uint_eq(r[2].number, 2);
    for (size_t i = 0; i < 3; i++)
        fake_reader_deinit(&r[i]);
}
END_TEST

/* Turns that run out of pages at the same time are preempted, complete their replies, and leave
 * nothing behind; a turn that is alone and has too few pages fails and is dropped. */
START_TEST(test_preempted)
{
    struct conversation *c[3];
    struct fake_reader r[3];
    struct batcher_stats stats;
    struct error err;

    fake_set_pages(12);
    for (size_t i = 0; i < 3; i++) {
        c[i] = fake_conversation(&s);
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c[i], 1, "say 10", &r[i], &err), STATUS_OK);
    }
    fake_server_run(&s);
    batcher_stats(s.model.batcher, &stats);
    ck_assert_uint_gt(stats.n_preempted, 0);
    for (size_t i = 0; i < 3; i++) {
        fake_reader_read(&r[i]);
        ck_assert(r[i].is_done);
        ck_assert_uint_eq(r[i].n_ids, 10);
        ck_assert_str_eq(r[i].text.data, "<0><1><2><3><4><5><6><7><8><9>");
        ck_assert_uint_eq(r[i].done.timings.n_steps, 10);
        ck_assert_uint_eq(fake_clone_n_dropped(c[i]), 0);
        fake_reader_deinit(&r[i]);
    }
    fake_reader_init(&r[0]);
    ck_assert_int_eq(fake_turn(c[0], 2, "say 13", &r[0], &err), STATUS_OK);
    fake_server_run(&s);
    fake_reader_read(&r[0]);
    ck_assert(r[0].has_failed);
    ck_assert_int_eq(r[0].err.status, STATUS_EXHAUSTED);
    ck_assert_uint_eq(fake_clone_n_dropped(c[0]), 1);
    fake_reader_deinit(&r[0]);
    fake_turn_whole(&s, c[0], 2, "say 2", FINISH_STOP, "<0><1>");
}
END_TEST

/* A preempted turn is cancelled at once with its reply so far. */
START_TEST(test_cancelled_while_preempted)
{
    struct conversation *c[2];
    struct fake_reader r[2];
    struct batcher_stats stats;
    struct error err;

    fake_set_pages(8);
    for (size_t i = 0; i < 2; i++) {
        c[i] = fake_conversation(&s);
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c[i], 1, "say 8", &r[i], &err), STATUS_OK);
    }
    do {
        ck_assert(fake_server_step(&s));
        batcher_stats(s.model.batcher, &stats);
    } while (stats.n_preempted == 0);
    for (size_t i = 0; i < 2; i++) /* one is queued, the other is in a step */
        ck_assert_uint_eq(conversation_cancel(c[i]), 1);
    fake_server_run(&s);
    for (size_t i = 0; i < 2; i++) {
        fake_reader_read(&r[i]);
        ck_assert(r[i].is_done);
        ck_assert_int_eq(r[i].done.finish, FINISH_CANCELLED);
        ck_assert_uint_gt(r[i].n_ids, 2);
        ck_assert_uint_eq(c[i]->host.n_turns, 1);
        fake_reader_deinit(&r[i]);
    }
}
END_TEST

/* A queued turn whose reader closes leaves the queue at once. */
START_TEST(test_queued_reader_gone)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[3];
    struct error err;

    for (size_t i = 0; i < 3; i++)
        fake_reader_init(&r[i]);
    ck_assert_int_eq(fake_turn(c, 1, "say 2", &r[0], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 2", &r[1], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 0, "say 3", &r[2], &err), STATUS_OK);
    fake_reader_deinit(&r[1]);
    ck_assert_uint_eq(c->host.n_live, 2);
    fake_server_run(&s);
    fake_reader_read(&r[2]);
    ck_assert(r[2].is_done);
    ck_assert_uint_eq(r[2].number, 2);
    fake_reader_deinit(&r[0]);
    fake_reader_deinit(&r[2]);
}
END_TEST

/* A full batcher refuses with a retry hint, and the conversation is unchanged. */
START_TEST(test_batcher_full)
{
    struct conversation *c[3];
    struct fake_reader r[3];
    struct fake_server full;
    struct error err;

    fake_server_open(&full, "fake", 2, NULL);
    for (size_t i = 0; i < 3; i++) {
        c[i] = fake_conversation(&full);
        fake_reader_init(&r[i]);
    }
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(fake_turn(c[i], 1, "say 2", &r[i], &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c[2], 1, "say 2", &r[2], &err), STATUS_EXHAUSTED);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    ck_assert_uint_eq(c[2]->host.n_live, 0);
    fake_server_run(&full);
    fake_turn_whole(&full, c[2], 1, "say 2", FINISH_STOP, "<0><1>");
    for (size_t i = 0; i < 3; i++)
        fake_reader_deinit(&r[i]);
    fake_server_close(&full);
}
END_TEST

/* A reply longer than a message comes in several pieces, cut between characters. */
START_TEST(test_long_reply_is_cut)
{
    enum { N_CHARS = 100000, CHAR_BYTES = 3 };
    struct fake_server echo;
    struct conversation *c;
    struct fake_reader r;
    struct turn_event e;
    struct error err;
    char *text = malloc(N_CHARS * CHAR_BYTES + 1);
    size_t total = 0;

    for (size_t i = 0; i < N_CHARS; i++)
        memcpy(text + CHAR_BYTES * i, "\xe2\x82\xac", CHAR_BYTES);
    text[N_CHARS * CHAR_BYTES] = '\0';
    fake_server_open(&echo, "echo", 0, NULL);
    c = fake_conversation(&echo);
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 1, text, &r, &err), STATUS_OK);
    fake_server_run(&echo);
    while (reader_next(&r.reader, &e)) {
        if (e.kind != EVENT_PIECE)
            continue;
        ck_assert_uint_le(e.piece.len, PIECE_MAX_BYTES);
        ck_assert_uint_eq(e.piece.len % CHAR_BYTES, 0);
        total += e.piece.len;
    }
    ck_assert_int_eq(e.kind, EVENT_DONE);
    ck_assert_uint_eq(total, N_CHARS * CHAR_BYTES);
    fake_reader_deinit(&r);
    fake_server_close(&echo);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("turn");
    TCase *tc = tcase_create("turn");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tc, 30);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_events_in_order);
    tcase_add_test(tc, test_seek);
    tcase_add_test(tc, test_linger);
    tcase_add_test(tc, test_reply_deadline);
    tcase_add_test(tc, test_pieces_are_merged);
    tcase_add_test(tc, test_progress);
    tcase_add_test(tc, test_join_while_it_runs);
    tcase_add_test(tc, test_replay);
    tcase_add_test(tc, test_numbers);
    tcase_add_test(tc, test_queue);
    tcase_add_test(tc, test_reader_gone_before_the_first_step);
    tcase_add_test(tc, test_reader_gone_in_between);
    tcase_add_test(tc, test_detached);
    tcase_add_test(tc, test_one_of_two_readers_goes);
    tcase_add_test(tc, test_deadline);
    tcase_add_test(tc, test_latest_deadline);
    tcase_add_test(tc, test_closed_by_deadline);
    tcase_add_test(tc, test_cancel);
    tcase_add_test(tc, test_cancel_from);
    tcase_add_test(tc, test_cancel_late);
    tcase_add_test(tc, test_failures_leave_no_trace);
    tcase_add_test(tc, test_turns_behind_one_that_fails);
    tcase_add_test(tc, test_refused_in_the_queue);
    tcase_add_test(tc, test_queued_reader_gone);
    tcase_add_test(tc, test_preempted);
    tcase_add_test(tc, test_cancelled_while_preempted);
    tcase_add_test(tc, test_batcher_full);
    tcase_add_test(tc, test_long_reply_is_cut);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
