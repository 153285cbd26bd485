#include <time.h>

#include "agents/agent.h"
#include "agents/turn.h"

#include "tests/unit/base/suite.h"

static struct agent *open_echo(void)
{
    const struct agent_config config = {.name = "e", .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    ck_assert_int_eq(agent_open(&a, "echo", &config, &err), STATUS_OK);
    return a;
}

static struct clone *open_clone(struct agent *a)
{
    struct clone *c = NULL;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    return c;
}

static struct message message(enum role role, const char *text)
{
    return (struct message){.role = role, .text = text, .len = strlen(text)};
}

static void turn_init(struct agent_turn *turn, const struct message *messages, size_t n)
{
    agent_turn_init(turn, NULL, 1000);
    turn->seen.messages = messages;
    turn->seen.n_messages = n;
    turn->seen.turn = 1;
    sampling_init(&turn->seen.sampling);
}

static void act(struct clone *c, struct agent_turn *turn)
{
    struct row *const rows[] = {&turn->row};
    struct batch_agent to;

    agent_batch_adapter(c->agent, &to);
    ck_assert_uint_eq(to.cost(to.self, rows[0]), 1);
    agent_compute(c->agent, rows, 1);
}

/* Runs a whole turn on c and checks the reply's text. */
static void check_turn(struct clone *c, const char *said, uint32_t max_tokens, const char *text,
                       enum finish finish)
{
    const struct message messages[] = {message(ROLE_USER, said)};
    struct agent_turn turn;
    struct error err;

    turn_init(&turn, messages, 1);
    turn.seen.sampling.max_tokens = max_tokens;
    ck_assert_int_eq(c->agent->type->observe(c, &turn, &err), STATUS_OK);
    ck_assert_ptr_eq(turn.row.clone, c);
    act(c, &turn);
    ck_assert_int_eq(turn.row.outcome, ROW_DONE);
    ck_assert_uint_eq(turn.reply.text.len, strlen(text));
    if (text[0] != '\0')
        ck_assert_str_eq(turn.reply.text.data, text);
    ck_assert_int_eq(turn.reply.finish, finish);
    ck_assert_uint_eq(turn.reply.n_tokens, 0);
    c->agent->type->self_observe(c, &turn);
    agent_turn_deinit(&turn);
}

/* The completed turns: a fork at each of them is possible, and at no other. */
static unsigned n_turns(const struct clone *c)
{
    unsigned n = 0;
    struct clone *fork;
    struct error err;

    while (clone_fork(&fork, c, n + 1, &err) == STATUS_OK) {
        clone_close(fork);
        n++;
    }
    ck_assert_int_eq(err.status, STATUS_RANGE);
    return n;
}

/* The reply is the user's last message, byte for byte. */
START_TEST(test_echoes)
{
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);

    check_turn(c, "hello", 0, "hello", FINISH_STOP);
    check_turn(c, "", 0, "", FINISH_STOP);
    check_turn(c, " two  words\n", 0, " two  words\n", FINISH_STOP);
    check_turn(c, "gr\xc3\xbc\xc3\x9f dich \xe2\x98\x83", 0, "gr\xc3\xbc\xc3\x9f dich \xe2\x98\x83",
               FINISH_STOP);
    ck_assert_uint_eq(n_turns(c), 4);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* max_tokens counts words; a reply of exactly max_tokens words is not cut. */
START_TEST(test_max_tokens_cuts_words)
{
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);

    check_turn(c, "one two three", 1, "one", FINISH_LENGTH);
    check_turn(c, "  one\ttwo three", 2, "  one\ttwo", FINISH_LENGTH);
    check_turn(c, "one two three", 3, "one two three", FINISH_STOP);
    check_turn(c, "one two ", 2, "one two ", FINISH_STOP);
    check_turn(c, "one two", 9, "one two", FINISH_STOP);
    check_turn(c, "  ", 1, "  ", FINISH_STOP);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* The prompt's length is all messages' words; the reply is to the user's last message. */
START_TEST(test_prompt)
{
    const struct message messages[] = {message(ROLE_SYSTEM, "be brief"), message(ROLE_USER, "a b"),
                                       message(ROLE_USER, "c"), message(ROLE_ASSISTANT, "d e f")};
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);
    struct agent_turn turn;
    struct error err;

    turn_init(&turn, messages, 4);
    ck_assert_int_eq(a->type->observe(c, &turn, &err), STATUS_OK);
    ck_assert_uint_eq(turn.reply.n_prompt, 8);
    act(c, &turn);
    ck_assert_str_eq(turn.reply.text.data, "c");
    ck_assert_uint_eq(turn.reply.n_prefilled, 8);
    agent_turn_deinit(&turn);
    ck_assert_uint_eq(n_turns(c), 0); /* the dropped turn does not count */
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* observe refuses invalid turns by name and changes nothing. */
START_TEST(test_observe_refuses)
{
    const struct message messages[] = {message(ROLE_SYSTEM, "a"), message(ROLE_ASSISTANT, "b")};
    const struct message user[] = {message(ROLE_USER, "c")};
    const struct logit_bias bias = {.id = 0, .bias = 1};
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);
    struct agent_turn turn;
    struct error err;

    turn_init(&turn, messages, 2);
    ck_assert_int_eq(a->type->observe(c, &turn, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "messages");
    ck_assert_uint_eq(turn.reply.n_prompt, 0);
    turn_init(&turn, user, 1);
    turn.seen.sampling.temperature = -1;
    ck_assert_int_eq(a->type->observe(c, &turn, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "temperature");
    turn_init(&turn, user, 1);
    turn.seen.sampling.biases = &bias; /* there is no vocabulary */
    turn.seen.sampling.n_biases = 1;
    ck_assert_int_eq(a->type->observe(c, &turn, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "logit_bias");
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A reply above its bound fails its row. */
START_TEST(test_reply_is_bounded)
{
    const struct message messages[] = {message(ROLE_USER, "12345")};
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);
    struct agent_turn turn;
    struct error err;

    turn_init(&turn, messages, 1);
    turn.reply.text.limit_bytes = 4;
    ck_assert_int_eq(a->type->observe(c, &turn, &err), STATUS_OK);
    act(c, &turn);
    ck_assert_int_eq(turn.row.outcome, ROW_FAILED);
    ck_assert_int_eq(turn.row.err.status, STATUS_RANGE);
    ck_assert_str_eq(error_reason(&turn.row.err), "REPLY_TOO_LONG");
    agent_turn_deinit(&turn);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A fork has the requested turns and is independent of its parent. */
START_TEST(test_fork)
{
    struct agent *a = open_echo();
    struct clone *c = open_clone(a), *fork = NULL;
    struct error err;

    for (size_t i = 0; i < 3; i++)
        check_turn(c, "x", 0, "x", FINISH_STOP);
    ck_assert_int_eq(clone_fork(&fork, c, 4, &err), STATUS_RANGE);
    ck_assert_ptr_null(fork);
    ck_assert_int_eq(clone_fork(&fork, c, 2, &err), STATUS_OK);
    ck_assert_uint_eq(n_turns(fork), 2);
    check_turn(fork, "y", 0, "y", FINISH_STOP);
    check_turn(fork, "z", 0, "z", FINISH_STOP);
    ck_assert_uint_eq(n_turns(fork), 4);
    ck_assert_uint_eq(n_turns(c), 3);
    clone_close(c);
    clone_close(fork);
    agent_unref(a);
}
END_TEST

/* rewind keeps the first turns, reset none; a missing turn is OUT_OF_RANGE. */
START_TEST(test_rewind_and_reset)
{
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);
    struct error err;

    for (size_t i = 0; i < 3; i++)
        check_turn(c, "x", 0, "x", FINISH_STOP);
    ck_assert_int_eq(a->type->rewind(c, 4, &err), STATUS_RANGE);
    ck_assert_uint_eq(n_turns(c), 3);
    ck_assert_int_eq(a->type->rewind(c, 1, &err), STATUS_OK);
    ck_assert_uint_eq(n_turns(c), 1);
    a->type->reset(c);
    ck_assert_uint_eq(n_turns(c), 0);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* Its info. */
START_TEST(test_info)
{
    struct agent *a = open_echo();
    struct clone *c = open_clone(a);
    struct batcher_config batching;
    struct agent_info info;
    struct clone_info clone;

    agent_describe(a, &info);
    ck_assert_str_eq(info.name, "e");
    ck_assert_str_eq(info.kind, "echo");
    ck_assert_str_eq(info.version, "1");
    ck_assert_str_eq(info.architecture, "");
    ck_assert_str_eq(info.backend, "");
    ck_assert_uint_eq(info.text.context, 0);
    clone_describe(c, &clone);
    ck_assert_uint_eq(clone.n_tokens, 0);
    ck_assert_uint_eq(clone.state_bytes, a->type->clone_size);
    agent_batching(a, &batching);
    ck_assert_int_eq(batching.policy, BATCH_CONTINUOUS);
    ck_assert_uint_eq(batching.max_rows, 256);
    clone_close(c);
    agent_unref(a);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

static uint64_t cpu_ns(void)
{
    struct timespec t;

    ck_assert_int_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A clone is small and cheap: at most 128 bytes, and 5 us of processor time each (the best of some
 * runs, so that a busy machine does not matter; ten times that under a sanitizer). */
START_TEST(test_clone_is_cheap)
{
    enum { N = 1000 };
    const uint64_t most_ns = IS_SANITIZED ? 50000 : 5000;
    struct agent *a = open_echo();
    struct clone *parent = open_clone(a);
    static struct clone *clones[N];
    uint64_t best_ns = UINT64_MAX;
    struct error err;

    ck_assert_uint_le(a->type->clone_size, 128);
    for (unsigned run = 0; run < 5; run++) {
        uint64_t start_ns = cpu_ns();
        uint64_t each_ns;

        for (size_t i = 0; i < N; i++)
            ck_assert_int_eq(clone_fork(&clones[i], parent, 0, &err), STATUS_OK);
        each_ns = (cpu_ns() - start_ns) / N;
        best_ns = each_ns < best_ns ? each_ns : best_ns;
        for (size_t i = 0; i < N; i++)
            clone_close(clones[i]);
    }
    ck_assert_uint_le(best_ns, most_ns);
    clone_close(parent);
    agent_unref(a);
}
END_TEST

SUITE_MAIN("agents/echo", test_echoes, test_max_tokens_cuts_words, test_prompt,
           test_observe_refuses, test_reply_is_bounded, test_fork, test_rewind_and_reset, test_info,
           test_clone_is_cheap)
