#include "server/conversation/completed_turn.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdlib.h>

static const struct message asked[] = {
    {.role = ROLE_SYSTEM, .text = "be brief", .len = 8},
    {.role = ROLE_USER, .text = "why?", .len = 4},
};

static struct stored_request *make_stored(uint32_t n_logprobs)
{
    struct turn_request r = {.messages = asked, .n_messages = 2, .n_logprobs = n_logprobs};
    struct error err;
    struct stored_request *b;

    ck_assert_int_eq(stored_request_open(&b, &r, &err), STATUS_OK);
    return b;
}

/* A stored request is a copy, and matches its request in every part. */
START_TEST(test_body)
{
    struct message other[] = {asked[0], asked[1]};
    struct sampling_overrides overrides = {.given = SAMPLING_TOP_K, .values = {.top_k = 2}};
    struct turn_request r = {.messages = other, .n_messages = 2, .n_logprobs = 1};
    struct stored_request *b = make_stored(1);

    ck_assert_ptr_ne(b->messages[1].text, asked[1].text);
    ck_assert_str_eq(b->messages[1].text, "why?");
    ck_assert(stored_request_matches(b, &r));
    other[1].text = "who?";
    ck_assert(!stored_request_matches(b, &r));
    other[1] = asked[1];
    other[1].role = ROLE_ASSISTANT;
    ck_assert(!stored_request_matches(b, &r));
    other[1] = asked[1];
    r.n_messages = 1;
    ck_assert(!stored_request_matches(b, &r));
    r.n_messages = 2;
    r.n_logprobs = 0;
    ck_assert(!stored_request_matches(b, &r));
    r.n_logprobs = 1;
    r.overrides = &overrides;
    ck_assert(!stored_request_matches(b, &r));
    r.overrides = NULL;
    r.number = 7; /* number and deadline are not compared */
    r.deadline_us = 9;
    ck_assert(stored_request_matches(b, &r));
    stored_request_close(b);
}
END_TEST

static struct completed_turn *make_completed(struct completed_turn *before, const char *said)
{
    struct reply_token tokens[] = {{.id = 5, .text_end = 1}, {.id = 6, .text_end = 2}};
    struct reply reply = {.tokens = tokens, .n_tokens = 2, .finish = FINISH_STOP, .n_prompt = 4};
    struct completed_turn *r;
    struct error err;

    buf_init(&reply.text, 1000);
    ck_assert_int_eq(buf_append_text(&reply.text, said), STATUS_OK);
    ck_assert_int_eq(completed_turn_open(&r, before, make_stored(0), &reply, &err), STATUS_OK);
    buf_deinit(&reply.text);
    return r;
}

/* Completed turns are numbered, keep the reply, and are found by number. */
START_TEST(test_chain)
{
    struct completed_turn *one = make_completed(NULL, "a");
    struct completed_turn *two = make_completed(one, "b");
    struct completed_turn *three = make_completed(two, "");

    ck_assert_uint_eq(three->number, 3);
    ck_assert_str_eq(three->text, "");
    ck_assert_str_eq(two->text, "b");
    ck_assert_int_eq(two->tokens[1].id, 6);
    ck_assert_uint_eq(two->usage.n_completion, 2);
    ck_assert_uint_gt(three->total_bytes, two->total_bytes);
    ck_assert_ptr_eq(completed_turn_find(three, 1), one);
    ck_assert_ptr_eq(completed_turn_find(three, 3), three);
    ck_assert_ptr_null(completed_turn_find(three, 0));
    ck_assert_ptr_null(completed_turn_find(three, 4));
    ck_assert_ptr_null(completed_turn_find(NULL, 1));
    completed_turn_unref(three);
}
END_TEST

/* Two branches share their past, which is freed with the last of them. A long chain is freed
 * without recursion. */
START_TEST(test_branches)
{
    struct completed_turn *past = make_completed(NULL, "a");
    struct completed_turn *left = make_completed(completed_turn_ref(past), "b");
    struct completed_turn *right = make_completed(past, "c");

    completed_turn_unref(left);
    ck_assert_str_eq(completed_turn_find(right, 1)->text, "a");
    for (size_t i = 0; i < 100000; i++)
        right = make_completed(right, "x");
    ck_assert_uint_eq(right->number, 100002);
    completed_turn_unref(right);
    completed_turn_unref(NULL);
}
END_TEST

/* Steps from newest to the turn of this number, as completed_turn_find takes them. */
static size_t steps_to(const struct completed_turn *newest, uint32_t number)
{
    const struct completed_turn *r = newest;
    size_t n = 0;

    for (; r->number > number; n++)
        r = r->skip != NULL && r->skip->number >= number ? r->skip : r->before;
    ck_assert_uint_eq(r->number, number);
    return n;
}

/* Each turn of a long chain, and of a branch of it, is found, in few steps. */
START_TEST(test_find_in_long_chain)
{
    enum { N = 3000, STEPS_MAX = 40 };
    static struct completed_turn *all[N + 1];
    struct completed_turn *branch;

    for (uint32_t i = 1; i <= N; i++)
        all[i] = make_completed(all[i - 1], "x");
    branch = completed_turn_ref(all[N / 2]);
    for (uint32_t i = 0; i < N / 4; i++)
        branch = make_completed(branch, "y");
    for (uint32_t i = 1; i <= N; i++) {
        ck_assert_ptr_eq(completed_turn_find(all[N], i), all[i]);
        ck_assert_uint_le(steps_to(all[N], i), STEPS_MAX);
    }
    for (uint32_t i = 1; i <= N / 2; i++)
        ck_assert_ptr_eq(completed_turn_find(branch, i), all[i]);
    ck_assert_str_eq(completed_turn_find(branch, N / 2 + 1)->text, "y");
    completed_turn_unref(branch);
    completed_turn_unref(all[N]);
}
END_TEST

SUITE_MAIN("server/record", test_body, test_chain, test_branches, test_find_in_long_chain)
