/* The client library is played by this file: each attempt at a turn goes by a script, on a thread
 * of its own, as the real one calls back. */
#include "client/cli/chat/turn.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/interrupt.h"
#include "parley/v1/conversations.pb-c.h"

enum { MAX_ATTEMPTS = 8 };

struct script {
    const char *pieces[4];
    bool waits; /* after the pieces, until it is cancelled one way or the other */
    enum parley_status end;
    uint32_t retry_after_ms;
};

struct parley_call {
    struct parley_turn_events events;
    const struct script *script;
    pthread_t thread;
};

static struct {
    const struct script *scripts; /* [MAX_ATTEMPTS] */
    size_t n_attempts, n_cancels, n_hang_ups;
    uint32_t turns[MAX_ATTEMPTS];
    bool refuses_cancel;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_cancelled, is_hung_up; /* guarded by lock */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void fake_set(bool *flag)
{
    pthread_mutex_lock(&fake.lock);
    *flag = true;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

static void play_end(const struct parley_call *call, enum parley_status status)
{
    const struct parley_error err = {.status = status,
                                     .retry_after_ms = call->script->retry_after_ms,
                                     .text = "as the script says"};

    call->events.end(call->events.arg, &err);
}

static void *play(void *arg)
{
    const struct parley_call *call = arg;
    struct parley_done done = {.turn = 3, .finish_reason = "stop"};
    bool is_hung_up = false;

    done.usage.completion_tokens = 5;
    done.timings.decode_us = 100 * 1000;
    for (size_t i = 0; i < 4 && call->script->pieces[i] != NULL; i++) {
        const char *text = call->script->pieces[i];
        const struct parley_token token = {.id = (int32_t)i};

        call->events.piece(call->events.arg, text, strlen(text), &token, 1);
    }
    if (call->script->waits) {
        pthread_mutex_lock(&fake.lock);
        while (!fake.is_cancelled && !fake.is_hung_up)
            pthread_cond_wait(&fake.changed, &fake.lock);
        is_hung_up = fake.is_hung_up;
        pthread_mutex_unlock(&fake.lock);
        done.finish_reason = "cancelled";
    }
    if (is_hung_up) {
        play_end(call, PARLEY_CANCELLED);
        return NULL;
    }
    if (call->script->end == PARLEY_OK)
        call->events.done(call->events.arg, &done);
    play_end(call, call->script->end);
    return NULL;
}

struct parley_call *parley_turn_start(struct parley_channel *channel,
                                      const struct parley_turn *turn,
                                      const struct parley_turn_events *events)
{
    struct parley_call *call = calloc(1, sizeof(*call));

    ck_assert_uint_lt(fake.n_attempts, MAX_ATTEMPTS);
    call->events = *events;
    call->script = &fake.scripts[fake.n_attempts];
    fake.turns[fake.n_attempts++] = turn->turn;
    ck_assert_int_eq(pthread_create(&call->thread, NULL, play, call), 0);
    return call;
}

void parley_call_cancel(struct parley_call *call)
{
    fake.n_hang_ups++;
    fake_set(&fake.is_hung_up);
}

/* No link breaks here. */
bool parley_call_is_lost(const struct parley_call *call)
{
    return false;
}

void parley_call_unref(struct parley_call *call)
{
    ck_assert_int_eq(pthread_join(call->thread, NULL), 0);
    free(call);
}

enum parley_status parley_unary(struct parley_channel *channel, const char *method,
                                const void *request, size_t request_len, uint32_t deadline_ms,
                                void **ret_data, size_t *ret_len, struct parley_error *err)
{
    Parley__V1__ConversationsCancelResponse answer =
        PARLEY__V1__CONVERSATIONS_CANCEL_RESPONSE__INIT;

    ck_assert_str_eq(method, "/parley.v1.Conversations/Cancel");
    ck_assert_uint_gt(deadline_ms, 0);
    fake.n_cancels++;
    if (fake.refuses_cancel) {
        *err = (struct parley_error){.status = PARLEY_UNAVAILABLE};
        return PARLEY_UNAVAILABLE;
    }
    answer.cancelled = 1;
    *ret_data = malloc(16);
    *ret_len = parley__v1__conversations_cancel_response__pack(&answer, *ret_data);
    fake_set(&fake.is_cancelled);
    return PARLEY_OK;
}

struct parley_channel *parley_channel_open_with(const struct parley_channel_options *options)
{
    return NULL;
}

void parley_channel_close(struct parley_channel *channel)
{
}

enum parley_status parley_channel_wait(struct parley_channel *channel, uint32_t timeout_ms,
                                       struct parley_error *err)
{
    return PARLEY_OK;
}

const char *parley_status_name(enum parley_status status)
{
    return status == PARLEY_OK ? "OK" : "not OK";
}

static const struct parley_turn turn = {.conversation = "c", .turn = 3};
static struct cli_turn x;
static char shown[256];
static bool wants_more, presses_ctrl_c;

static bool show(void *arg, const char *text, size_t len)
{
    ck_assert_uint_lt(strlen(shown) + len, sizeof(shown));
    strncat(shown, text, len);
    if (presses_ctrl_c) {
        presses_ctrl_c = false;
        (void)kill(getpid(), SIGINT);
    }
    return wants_more;
}

static void begin(const struct script *scripts)
{
    interrupt_catch(); /* here, for Check has caught it, too */
    fake.scripts = scripts;
    fake.n_attempts = fake.n_cancels = fake.n_hang_ups = 0;
    fake.refuses_cancel = fake.is_cancelled = fake.is_hung_up = false;
    *shown = '\0';
    wants_more = true;
    presses_ctrl_c = false;
    x = (struct cli_turn){.turn = &turn, .show = show, .keeps_tokens = true};
}

/* A reply is shown in order, and what the server says of it is kept. */
START_TEST(a_reply_is_shown)
{
    static const struct script scripts[MAX_ATTEMPTS] = {{.pieces = {"Pa", "ris", "."}}};

    begin(scripts);
    ck_assert_int_eq(cli_turn_run(&x), PARLEY_OK);
    ck_assert_str_eq(shown, "Paris.");
    ck_assert_str_eq(x.reply.data, "Paris.");
    ck_assert(x.is_done);
    ck_assert_str_eq(x.finish_reason, "stop");
    ck_assert_uint_eq(x.turn_done, 3);
    ck_assert_uint_eq(json_array_size(x.token_ids), 3);
    ck_assert_double_eq_tol(cli_turn_rate(&x), 40.0, 1e-9); /* 4 tokens in 0.1 s */
    cli_turn_deinit(&x);
}
END_TEST

/* What the library gives up, or what is wrong with the turn itself, ends it with its words; what
 * had come stays. */
START_TEST(a_failure_keeps_what_has_come)
{
    static const struct script scripts[] = {
        {.pieces = {"Hel", "lo"}, .end = PARLEY_UNAVAILABLE, .retry_after_ms = 1}};

    begin(scripts);
    ck_assert_int_eq(cli_turn_run(&x), PARLEY_UNAVAILABLE);
    ck_assert_uint_eq(fake.n_attempts, 1);
    ck_assert_str_eq(x.err.text, "as the script says");
    ck_assert_str_eq(shown, "Hello");
    ck_assert_uint_eq(json_array_size(x.token_ids), 2);
    ck_assert(!x.is_done);
    cli_turn_deinit(&x);
}
END_TEST

/* Ctrl-C has the server end the turn, which then ends in order. */
START_TEST(ctrl_c_cancels_the_turn)
{
    static const struct script scripts[MAX_ATTEMPTS] = {{.pieces = {"Once"}, .waits = true}};

    begin(scripts);
    presses_ctrl_c = true;
    ck_assert_int_eq(cli_turn_run(&x), PARLEY_OK);
    ck_assert(x.was_stopped);
    ck_assert(x.is_done);
    ck_assert_str_eq(x.finish_reason, "cancelled");
    ck_assert_str_eq(shown, "Once");
    ck_assert_uint_eq(fake.n_cancels, 1);
    ck_assert_uint_eq(fake.n_hang_ups, 0);
    cli_turn_deinit(&x);
}
END_TEST

/* When the server does not take the cancel, the call is ended from this side. */
START_TEST(ctrl_c_hangs_up_on_a_deaf_server)
{
    static const struct script scripts[MAX_ATTEMPTS] = {{.pieces = {"Once"}, .waits = true}};

    begin(scripts);
    presses_ctrl_c = true;
    fake.refuses_cancel = true;
    ck_assert_int_eq(cli_turn_run(&x), PARLEY_CANCELLED);
    ck_assert(x.was_stopped);
    ck_assert(!x.is_done);
    ck_assert_uint_ge(fake.n_hang_ups, 1);
    cli_turn_deinit(&x);
}
END_TEST

/* A reader that cannot take the reply any more stops it. */
START_TEST(a_reader_that_is_gone_stops_the_turn)
{
    static const struct script scripts[MAX_ATTEMPTS] = {{.pieces = {"Once"}, .waits = true}};

    begin(scripts);
    wants_more = false;
    ck_assert_int_eq(cli_turn_run(&x), PARLEY_OK);
    ck_assert(x.was_stopped);
    ck_assert_uint_eq(fake.n_cancels, 1);
    cli_turn_deinit(&x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client/cli/chat/turn");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(all, a_reply_is_shown);
    tcase_add_test(all, a_failure_keeps_what_has_come);
    tcase_add_test(all, ctrl_c_cancels_the_turn);
    tcase_add_test(all, ctrl_c_hangs_up_on_a_deaf_server);
    tcase_add_test(all, a_reader_that_is_gone_stops_the_turn);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
