#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/lm.h"
#include "agents/reply/whole_reply.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

#define TURNS                                                                                  \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n"

static const char opens[] = TURNS "<think>\n{% endif %}{# </think> #}";
static const char plain[] = TURNS "{% endif %}{# </think> #}";
static const char calls[] = TURNS "{% endif %}{% if tools %}<tool_call>{% endif %}{# </think> #}";
static const char harmony[] = TURNS "{% endif %}{# <|channel|>analysis #}";

enum { THINK = TINY_VOCAB, THINK_END, CHANNEL, MESSAGE, END, START, N_MORE = 8 };

static const struct tiny_token more[N_MORE] = {
    {"<think>", false}, {"</think>", false}, {"<|channel|>", true}, {"<|message|>", true},
    {"<|end|>", true},  {"<|start|>", true}, {"<|return|>", true},  {"<|call|>", true},
};

static struct arena arena;

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"the_first\":{\"type\":\"string\"},\"the_second\":"
    "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}},\"required\":[\"the_first\","
    "\"the_second\"]}";

static struct agent *reasoning_agent(const char *template, bool has_tokens,
                                     enum speculate speculate)
{
    const struct tiny_config tiny = {.type = DTYPE_Q8_0,
                                     .seed = 7,
                                     .chat_template = template,
                                     .more_tokens = more,
                                     .n_more_tokens = has_tokens ? N_MORE : 0};
    struct agent_config config = drive_config("cpu", 128);
    struct agent *a;
    struct error err;

    config.options.speculate = speculate;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct clone *reasoning_clone(struct agent *a)
{
    const struct clone_config nothing = {0};
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &nothing, &err), STATUS_OK);
    return c;
}

static struct sampling reasoning_sampling(float temperature, uint32_t max_tokens)
{
    const char *left_out;
    struct sampling s;
    struct error err;

    sampling_init(&s);
    s.temperature = temperature;
    s.seed = 3;
    s.has_seed = true;
    s.max_tokens = max_tokens;
    ck_assert_int_eq(constraint_of_schema_text(&s.constraint, schema, strlen(schema), true,
                                               &left_out, &arena, &err),
                     STATUS_OK);
    return s;
}

static void reasoning_run(struct drive *d, struct clone *c, const struct sampling *s,
                          enum thinking thinking)
{
    const struct template_variables variables = {.thinking = thinking};
    struct error err;

    ck_assert_msg(drive_begin_variables(d, c, "hello", s, &variables, &err) == STATUS_OK, "%s",
                  err.text);
    ck_assert_msg(c->agent->type->text->prepare(c, &d->turn, &err) == STATUS_OK, "%s", err.text);
    drive_run(c->agent, &d, 1, 256);
    ck_assert_msg(d->turn.row.outcome == ROW_DONE, "%s", d->turn.row.err.text);
}

/* What a client gets of the reply: its reasoning's length, and whether its text is an instance. */
struct told {
    size_t n_thought;
    bool is_instance;
    char text[4096];
};

static struct told told_of(const struct drive *d, enum thinking thinking)
{
    const struct lm *m = container_of(d->clone->agent, const struct lm, base);
    const struct reply_parser_config config = {
        .format = &m->format, .is_json = true, .thinking = thinking};
    const struct reply *r = &d->turn.reply;
    struct whole_reply whole;
    struct told told;
    struct error err;
    json_t *read;

    ck_assert_int_eq(
        whole_reply_read(&whole, &config, r->text.len == 0 ? "" : r->text.data, r->text.len, &err),
        STATUS_OK);
    told.n_thought = whole.thoughts.len;
    (void)snprintf(told.text, sizeof(told.text), "%s", whole.text.len == 0 ? "" : whole.text.data);
    read = json_loads(told.text, 0, NULL);
    told.is_instance = json_is_string(json_object_get(read, "the_first")) &&
                       json_is_array(json_object_get(read, "the_second")) &&
                       json_object_size(read) == 2;
    json_decref(read);
    whole_reply_deinit(&whole);
    return told;
}

static struct told reasoning_reply(struct agent *a, const struct sampling *s,
                                   enum thinking thinking, enum finish *ret_finish)
{
    struct clone *c = reasoning_clone(a);
    struct drive d;
    struct told told;

    reasoning_run(&d, c, s, thinking);
    told = told_of(&d, thinking);
    *ret_finish = d.turn.reply.finish;
    drive_end(&d, false);
    clone_close(c);
    return told;
}

static void check_same_ids(const struct reply *a, const struct reply *b)
{
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++)
        ck_assert_int_eq(a->tokens[i].id, b->tokens[i].id);
    ck_assert_str_eq(a->text.data, b->text.data);
}

/* Where the template opens the reasoning, the model reasons, and then comes an instance, however
 * likely tokens are and however the delimiters are spelt. The ids are the same token by token and
 * with written text at once, with draft tokens, and after a fork. */
START_TEST(test_template_opens)
{
    const bool has_tokens = _i % 2 != 0;
    struct agent *off = reasoning_agent(opens, has_tokens, SPECULATE_OFF),
                 *on = reasoning_agent(opens, has_tokens, SPECULATE_ON);

    for (int temperature = 0; temperature < 3; temperature++) {
        struct sampling s = reasoning_sampling((float)temperature, 160), by_token = s;
        struct clone *a = reasoning_clone(off), *b = reasoning_clone(on), *fork;
        struct drive d[3];
        struct error err;
        struct told told;

        by_token.want_logprobs = true;
        reasoning_run(&d[0], a, &s, THINKING_DEFAULT);
        reasoning_run(&d[1], b, &by_token, THINKING_DEFAULT);
        check_same_ids(&d[0].turn.reply, &d[1].turn.reply);
        told = told_of(&d[0], THINKING_DEFAULT);
        ck_assert_msg(told.n_thought > (has_tokens ? 0 : 60) && told.is_instance, "%zu: %s",
                      told.n_thought, told.text);
        ck_assert_int_eq(d[0].turn.reply.finish, FINISH_STOP);
        ck_assert_uint_le(d[0].turn.reply.n_tokens, 160);
        drive_end(&d[0], true);
        drive_end(&d[1], true);
        ck_assert_int_eq(clone_fork(&fork, b, 1, &err), STATUS_OK);
        reasoning_run(&d[0], a, &s, THINKING_DEFAULT);
        reasoning_run(&d[2], fork, &s, THINKING_DEFAULT);
        check_same_ids(&d[0].turn.reply, &d[2].turn.reply);
        drive_end(&d[0], true);
        drive_end(&d[2], true);
        clone_close(fork);
        clone_close(a);
        clone_close(b);
    }
    agent_unref(off);
    agent_unref(on);
}
END_TEST

/* The limit is kept, and the reply is an instance wherever the shortest one fits: reasoning takes
 * what is left. */
START_TEST(test_limits)
{
    struct agent *a = reasoning_agent(opens, false, SPECULATE_OFF);
    size_t n_longest = 0;
    uint32_t least = 0;

    for (uint32_t limit = 4; limit <= 260; limit += limit < 100 ? 3 : 40) {
        const struct sampling s = reasoning_sampling(1, limit);
        enum finish finish;
        const struct told told = reasoning_reply(a, &s, THINKING_DEFAULT, &finish);

        if (least == 0 && finish == FINISH_STOP)
            least = limit;
        ck_assert_int_eq(finish, least == 0 ? FINISH_LENGTH : FINISH_STOP);
        ck_assert(told.is_instance == (least != 0));
        ck_assert_uint_ge(told.n_thought + 8, n_longest);
        n_longest = told.n_thought;
    }
    ck_assert_uint_lt(least, 60);
    ck_assert_uint_gt(n_longest, 120);
    agent_unref(a);
}
END_TEST

/* Reasoning that repeats itself is ended, whatever room is left. */
START_TEST(test_repetition)
{
    const struct logit_bias bias = {TINY_FIRST_BYTE + 'x', 100};
    struct agent *a = reasoning_agent(opens, false, SPECULATE_OFF);
    struct sampling s = reasoning_sampling(1, 1800);
    enum finish finish;
    struct told told;

    s.biases = &bias;
    s.n_biases = 1;
    told = reasoning_reply(a, &s, THINKING_DEFAULT, &finish);
    ck_assert(told.n_thought == REPETITION_TOKENS + 1 && told.is_instance);
    ck_assert_int_eq(finish, FINISH_STOP);
    agent_unref(a);
}
END_TEST

static struct told biased_reply(struct agent *a, int32_t id, enum thinking thinking,
                                enum finish *ret_finish)
{
    struct sampling s = reasoning_sampling(1, 200);
    const struct logit_bias bias = {id, 100};

    s.biases = &bias;
    s.n_biases = id >= 0;
    return reasoning_reply(a, &s, thinking, ret_finish);
}

/* Where the template does not open the reasoning, the model does if that is its likeliest token,
 * and is made to if the request asks; not if the request does not want it. */
START_TEST(test_model_opens)
{
    static const char *const templates[] = {plain, calls};

    for (size_t i = 0; i < 2; i++) {
        struct agent *a = reasoning_agent(templates[i], true, SPECULATE_OFF),
                     *spelt = reasoning_agent(templates[i], false, SPECULATE_OFF);
        enum finish finish;
        struct told told;

        told = biased_reply(a, -1, THINKING_DEFAULT, &finish);
        ck_assert(told.n_thought == 0 && told.is_instance && finish == FINISH_STOP);
        told = biased_reply(a, THINK, THINKING_DEFAULT, &finish);
        ck_assert_msg(told.n_thought > 100 && told.is_instance, "%s", told.text);
        ck_assert_int_eq(finish, FINISH_STOP);
        told = biased_reply(a, THINK, THINKING_OFF, &finish);
        ck_assert(told.n_thought == 0 && told.is_instance && finish == FINISH_STOP);
        told = biased_reply(a, TINY_FIRST_BYTE + 'x', THINKING_ON, &finish);
        ck_assert(told.n_thought > 100 && told.is_instance && finish == FINISH_STOP);
        told = biased_reply(spelt, -1, THINKING_ON, &finish);
        ck_assert(told.n_thought > 60 && told.is_instance && finish == FINISH_STOP);
        agent_unref(a);
        agent_unref(spelt);
    }
}
END_TEST

/* The model closes its reasoning, or would end the reply in it: then the answer begins. */
START_TEST(test_model_closes)
{
    static const char *const templates[] = {opens, opens, harmony, harmony};
    static const int32_t ids[] = {THINK_END, TINY_IM_END, END, TINY_END_OF_TEXT};

    for (size_t i = 0; i < 4; i++) {
        struct agent *a = reasoning_agent(templates[i], true, SPECULATE_OFF);
        enum finish finish;
        const struct told told = biased_reply(a, ids[i], THINKING_ON, &finish);

        ck_assert_msg(told.n_thought == 0 && told.is_instance, "%zu: %s", i, told.text);
        ck_assert_int_eq(finish, FINISH_STOP);
        agent_unref(a);
    }
}
END_TEST

/* A family whose answer has a delimiter of its own gets it, with reasoning and without. */
START_TEST(test_channels)
{
    struct agent *a = reasoning_agent(harmony, true, SPECULATE_OFF);
    enum finish finish;
    struct told told = biased_reply(a, -1, THINKING_ON, &finish);
    struct sampling s = reasoning_sampling(0, 200);
    struct clone *c = reasoning_clone(a);
    struct drive d;

    ck_assert_msg(told.n_thought > 60 && told.is_instance && finish == FINISH_STOP, "%s",
                  told.text);
    reasoning_run(&d, c, &s, THINKING_OFF);
    told = told_of(&d, THINKING_OFF);
    ck_assert(told.n_thought == 0 && told.is_instance);
    ck_assert_msg(strncmp(d.turn.reply.text.data, "<|channel|>final<|message|>{", 28) == 0, "%s",
                  d.turn.reply.text.data);
    ck_assert_int_eq(d.turn.reply.tokens[0].id, CHANNEL);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A constraint that may itself begin with the delimiter has it: no reasoning comes before. */
START_TEST(test_own_delimiter)
{
    static const char regex[] = "<think>hello</think> (a|b)";
    struct agent *a = reasoning_agent(plain, true, SPECULATE_OFF);
    struct sampling s = reasoning_sampling(1, 100);
    struct clone *c = reasoning_clone(a);
    struct drive d;
    struct error err;

    ck_assert_int_eq(constraint_of_regex(&s.constraint, regex, strlen(regex), &arena, &err),
                     STATUS_OK);
    reasoning_run(&d, c, &s, THINKING_ON);
    ck_assert_msg(strncmp(d.turn.reply.text.data, "<think>hello</think> ", 21) == 0 &&
                      d.turn.reply.text.len == 22,
                  "%s", d.turn.reply.text.data);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* So is one that has the closing delimiter: it speaks of the reasoning itself. */
START_TEST(test_own_close)
{
    static const char grammar[] = "root ::= \"hel\" [k-m] \"</think>\" (\"a\" | \"b\")";
    struct agent *a = reasoning_agent(opens, true, SPECULATE_OFF);
    struct sampling s = reasoning_sampling(1, 100);
    struct clone *c = reasoning_clone(a);
    struct drive d;
    struct error err;

    ck_assert_int_eq(constraint_of_grammar(&s.constraint, grammar, strlen(grammar), &arena, &err),
                     STATUS_OK);
    reasoning_run(&d, c, &s, THINKING_DEFAULT);
    ck_assert_msg(d.turn.reply.text.len == 13 &&
                      memcmp(d.turn.reply.text.data + 4, "</think>", 8) == 0,
                  "%s", d.turn.reply.text.data);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

int main(void)
{
    const char *path = getenv("PARLEY_GRAMMAR_MODULE");
    Suite *s = suite_create("reasoning");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    if (path == NULL || access(path, R_OK) != 0) {
        printf("the grammar module is not built\n");
        return 77;
    }
    arena_init(&arena, 4 << 20);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_template_opens, 0, 2);
    tcase_add_test(t, test_limits);
    tcase_add_test(t, test_repetition);
    tcase_add_test(t, test_model_opens);
    tcase_add_test(t, test_model_closes);
    tcase_add_test(t, test_channels);
    tcase_add_test(t, test_own_delimiter);
    tcase_add_test(t, test_own_close);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    arena_deinit(&arena);
    return failed == 0 ? 0 : 1;
}
