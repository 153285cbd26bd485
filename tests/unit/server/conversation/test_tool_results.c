#include "server/conversation/tool_results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/message_extras.h"
#include "server/conversation/turn.h"
#include "tests/unit/base/suite.h"

enum { N_TURNS = 1000, N_RESULTS = 4096 };

static const char tools[] = "[{}]";

/* A message with the result of a call, whose id has nine characters. */
static struct message result_of(const char *id, struct buf *more)
{
    const struct message_extras x = {.call_id = {id, strlen(id)}};

    buf_init(more, SIZE_MAX);
    ck_assert_int_eq(message_extras_write(more, &x), STATUS_OK);
    return (struct message){
        .role = ROLE_TOOL, .text = "42", .len = 2, .more = more->data, .more_len = more->len};
}

/* Completes a turn that has tools, so that its reply has the calls of this seed. */
static void add_turn(struct turn_host *h, uint64_t seed, const struct message *messages, size_t n)
{
    const struct turn_request r = {.messages = messages,
                                   .n_messages = n,
                                   .tool_use = {.tools = {tools, sizeof(tools) - 1}, .seed = seed}};
    struct stored_request *request;
    struct completed_turn *completed;
    struct reply reply = {.finish = FINISH_STOP};
    struct error err;

    ck_assert_int_eq(stored_request_open(&request, &r, &err), STATUS_OK);
    ck_assert_int_eq(completed_turn_open(&completed, h->newest, request, &reply, &err), STATUS_OK);
    h->newest = completed;
}

static enum status check_results(const struct turn_host *h, const struct message *messages,
                                 size_t n, struct error *err)
{
    const struct turn_request r = {.messages = messages, .n_messages = n};

    *err = (struct error){0};
    return tool_results_check(h, &r, err);
}

/* Each call of the model takes one result; calls that the model did not make take any number. The
 * error names the first message that is refused, whatever the order of the ids. */
START_TEST(each_call_gets_one_result)
{
    char a[CALL_ID_CHARS], b[CALL_ID_CHARS], later[CALL_ID_CHARS];
    struct turn_host h = {.newest = NULL};
    struct buf more[5];
    struct message m[5];
    struct error err;

    list_init(&h.turns);
    call_id_format(a, 7, 0);
    call_id_format(b, 7, 1);
    call_id_format(later, 8, 31);
    m[0] = result_of("notacall1", &more[0]);
    m[1] = result_of(b, &more[1]);
    m[2] = result_of(a, &more[2]);
    m[3] = result_of(later, &more[3]);
    m[4] = result_of("short", &more[4]);
    ck_assert_int_eq(check_results(&h, m, 5, &err), STATUS_OK); /* there is no turn */
    ck_assert_int_eq(check_results(&h, NULL, 0, &err), STATUS_OK);
    add_turn(&h, 7, NULL, 0);
    ck_assert_int_eq(check_results(&h, m, 5, &err), STATUS_OK);
    add_turn(&h, 8, m, 3);
    ck_assert_int_eq(check_results(&h, &m[3], 2, &err), STATUS_OK);
    ck_assert_int_eq(check_results(&h, &m[0], 1, &err), STATUS_OK); /* the client's own */
    for (int is_swapped = 0; is_swapped < 2; is_swapped++) {
        const struct message given[] = {m[3], m[0], m[1 + is_swapped], m[2 - is_swapped]};

        ck_assert_int_eq(check_results(&h, given, 4, &err), STATUS_EXISTS);
        ck_assert_int_eq(err.reason, REASON_TURN_BODY_DIFFERS);
        ck_assert_str_eq(err.field, "messages[2].tool_call_id");
        ck_assert_ptr_nonnull(strstr(err.text, is_swapped ? a : b));
    }
    add_turn(&h, 9, &m[3], 1);
    ck_assert_int_eq(check_results(&h, &m[3], 1, &err), STATUS_EXISTS);
    completed_turn_unref(h.newest);
    for (size_t i = 0; i < 5; i++)
        buf_deinit(&more[i]);
}
END_TEST

/* As many results as there may be, in a conversation of many turns: each turn has given the result
 * of the call of the turn before it, and the last call has none yet. Only results that were given
 * are refused, and the first of them is named. */
START_TEST(many_results_in_many_turns)
{
    static struct buf more[N_RESULTS];
    static struct message m[N_RESULTS];
    struct turn_host h = {.newest = NULL};
    char id[CALL_ID_CHARS], field[64];
    struct error err;

    list_init(&h.turns);
    for (size_t i = 0; i < N_RESULTS; i++) { /* backwards: the oldest call's result is the last */
        call_id_format(id, N_RESULTS - i, 0);
        m[i] = result_of(id, &more[i]);
    }
    for (size_t i = 0; i < N_TURNS; i++)
        add_turn(&h, i + 1, &m[N_RESULTS - i], i == 0 ? 0 : 1);
    ck_assert_int_eq(check_results(&h, m, N_RESULTS - N_TURNS + 1, &err), STATUS_OK);
    ck_assert_int_eq(check_results(&h, m, N_RESULTS, &err), STATUS_EXISTS);
    (void)snprintf(field, sizeof(field), "messages[%d].tool_call_id", N_RESULTS - N_TURNS + 1);
    ck_assert_str_eq(err.field, field);
    ck_assert_int_eq(check_results(&h, &m[N_RESULTS - 1], 1, &err), STATUS_EXISTS);
    completed_turn_unref(h.newest);
    for (size_t i = 0; i < N_RESULTS; i++)
        buf_deinit(&more[i]);
}
END_TEST

SUITE_MAIN("server/conversation/tool_results", each_call_gets_one_result,
           many_results_in_many_turns)
