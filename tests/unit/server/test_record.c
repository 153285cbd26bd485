#include "server/record.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdlib.h>

static const struct message asked[] = {
    {ROLE_SYSTEM, "be brief", 8},
    {ROLE_USER, "why?", 4},
};

static struct body *make_body(uint32_t n_logprobs)
{
    struct turn_request r = {.messages = asked, .n_messages = 2, .n_logprobs = n_logprobs};
    struct error err;
    struct body *b;

    ck_assert_int_eq(body_open(&b, &r, &err), STATUS_OK);
    return b;
}

/* A body keeps its own copy, and knows its request again by every part of it. */
START_TEST(test_body)
{
    struct message other[] = {asked[0], asked[1]};
    struct sampling_patch patch = {.given = SAMPLING_TOP_K, .values = {.top_k = 2}};
    struct turn_request r = {.messages = other, .n_messages = 2, .n_logprobs = 1};
    struct body *b = make_body(1);

    ck_assert_ptr_ne(b->messages[1].text, asked[1].text);
    ck_assert_str_eq(b->messages[1].text, "why?");
    ck_assert(body_is_of(b, &r));
    other[1].text = "who?";
    ck_assert(!body_is_of(b, &r));
    other[1] = asked[1];
    other[1].role = ROLE_ASSISTANT;
    ck_assert(!body_is_of(b, &r));
    other[1] = asked[1];
    r.n_messages = 1;
    ck_assert(!body_is_of(b, &r));
    r.n_messages = 2;
    r.n_logprobs = 0;
    ck_assert(!body_is_of(b, &r));
    r.n_logprobs = 1;
    r.patch = &patch;
    ck_assert(!body_is_of(b, &r));
    r.patch = NULL;
    r.number = 7; /* which turn it is, and until when, is not part of it */
    r.deadline_us = 9;
    ck_assert(body_is_of(b, &r));
    body_close(b);
}
END_TEST

static struct record *make_record(struct record *before, const char *said)
{
    struct reply_token tokens[] = {{.id = 5, .text_end = 1}, {.id = 6, .text_end = 2}};
    struct reply reply = {.tokens = tokens, .n_tokens = 2, .finish = FINISH_STOP, .n_prompt = 4};
    struct record *r;
    struct error err;

    buf_init(&reply.text, 1000);
    ck_assert_int_eq(buf_append_text(&reply.text, said), STATUS_OK);
    ck_assert_int_eq(record_open(&r, before, make_body(0), &reply, &err), STATUS_OK);
    buf_deinit(&reply.text);
    return r;
}

/* Records number themselves, keep what was said, and are found by number. */
START_TEST(test_chain)
{
    struct record *one = make_record(NULL, "a");
    struct record *two = make_record(one, "b");
    struct record *three = make_record(two, "");

    ck_assert_uint_eq(three->number, 3);
    ck_assert_str_eq(three->text, "");
    ck_assert_str_eq(two->text, "b");
    ck_assert_int_eq(two->tokens[1].id, 6);
    ck_assert_uint_eq(two->usage.n_completion, 2);
    ck_assert_uint_gt(three->total_bytes, two->total_bytes);
    ck_assert_ptr_eq(record_find(three, 1), one);
    ck_assert_ptr_eq(record_find(three, 3), three);
    ck_assert_ptr_null(record_find(three, 0));
    ck_assert_ptr_null(record_find(three, 4));
    ck_assert_ptr_null(record_find(NULL, 1));
    record_unref(three);
}
END_TEST

/* Two branches share their past; it goes with the last of them. A long chain goes without
 * recursion. */
START_TEST(test_branches)
{
    struct record *past = make_record(NULL, "a");
    struct record *left = make_record(record_ref(past), "b");
    struct record *right = make_record(past, "c");

    record_unref(left);
    ck_assert_str_eq(record_find(right, 1)->text, "a");
    for (size_t i = 0; i < 100000; i++)
        right = make_record(right, "x");
    ck_assert_uint_eq(right->number, 100002);
    record_unref(right);
    record_unref(NULL);
}
END_TEST

SUITE_MAIN("server/record", test_body, test_chain, test_branches)
