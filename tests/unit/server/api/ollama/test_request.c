#include "server/api/ollama/request.h"

#include "tests/support/request_case.h"
#include "tests/unit/base/suite.h"
#include <check.h>
#include <string.h>

/* A request read from a text; valid until its case is closed. */
struct read {
    struct request_case c;
    struct ollama_request r;
};

static enum status take(struct read *x, bool is_chat, const char *text)
{
    *x = (struct read){0};
    if (request_case_open(&x->c, text) != STATUS_OK)
        return x->c.err.status;
    return (is_chat ? ollama_request_chat : ollama_request_generate)(&x->r, x->c.body, &x->c.arena,
                                                                     &x->c.err);
}

static const char whole_chat[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
    "{\"role\":\"user\",\"content\":\"a\",\"images\":[],\"tool_calls\":null}],\"tools\":[],"
    "\"think\":false,\"keep_alive\":\"5m\",\"format\":\"json\",\"logprobs\":true,"
    "\"top_logprobs\":3,\"options\":{\"num_predict\":5,\"repeat_penalty\":1.5,\"seed\":-1,"
    "\"repeat_last_n\":-1,\"mirostat\":0,\"top_k\":7,\"temperature\":0,\"num_ctx\":99,"
    "\"stop\":[\"x\",\"yz\"],\"num_thread\":3,\"tfs_z\":1.0,\"min_p\":null}}";

/* Fields of a chat and its options are read, by their names here; hints and unknown ones are
 * ignored. */
START_TEST(test_chat)
{
    const struct sampling *s;
    struct read x;

    ck_assert_int_eq(take(&x, true, whole_chat), STATUS_OK);
    s = &x.r.base.overrides.values;
    ck_assert_str_eq(x.r.base.model, "m");
    ck_assert(x.r.base.stream && x.r.base.want_logprobs && !x.r.is_empty);
    ck_assert_uint_eq(x.r.base.n_top, 3);
    ck_assert_uint_eq(x.r.base.prompts[0].n_messages, 2);
    ck_assert_uint_eq(s->max_tokens, 5);
    ck_assert_uint_eq(s->top_k, 7);
    ck_assert_uint_eq(s->n_stops, 2);
    ck_assert_float_eq(s->repetition_penalty, 1.5F);
    ck_assert_ptr_nonnull(s->constraint);
    ck_assert_uint_eq(x.r.base.overrides.given, SAMPLING_MAX_TOKENS | SAMPLING_TOP_K |
                                                    SAMPLING_STOPS | SAMPLING_REPETITION_PENALTY |
                                                    SAMPLING_TEMPERATURE | SAMPLING_CONSTRAINT);
    request_case_close(&x.c);
}
END_TEST

static const char with_calls[] =
    "{\"think\":\"low\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
    "\"messages\":[{"
    "\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\",\"thinking\":"
    "\"hm\","
    "\"tool_calls\":[{\"function\":{\"name\":\"g\",\"arguments\":{}}},{\"function\":{\"name\":"
    "\"f\","
    "\"arguments\":{\"x\":1.0}}},{\"id\":\"own\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
    "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":"
    "\"2\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"own\",\"content\":\"3\"},"
    "{\"role\":\"tool\",\"tool_name\":\"h\",\"content\":\"4\"}]}";

/* Calls get ids, and results find them: by their tool's name, in order, by an id; else by none. */
START_TEST(test_calls)
{
    static const char *const extras[] = {
        "{\"tool_calls\": [{\"id\": \"call00000\", \"type\": \"function\", \"function\": "
        "{\"name\": "
        "\"g\", \"arguments\": {}}}, {\"id\": \"call00001\", \"type\": \"function\", \"function\": "
        "{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}}, {\"id\": \"own\", \"type\": "
        "\"function\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {}}}], \"reasoning_content\": \"hm\"}",
        "{\"tool_call_id\": \"call00001\", \"name\": \"f\"}",
        "{\"tool_call_id\": \"call00000\", \"name\": \"g\"}",
        "{\"tool_call_id\": \"own\", \"name\": \"f\"}",
        "{\"name\": \"h\"}",
    };
    struct read x;

    ck_assert_int_eq(take(&x, true, with_calls), STATUS_OK);
    ck_assert_uint_eq(x.r.base.prompts[0].n_messages, 6);
    for (size_t i = 0; i < 5; i++) {
        const struct message *m = &x.r.base.prompts[0].messages[i + 1];

        ck_assert_msg(m->more_len == strlen(extras[i]) &&
                          memcmp(m->more, extras[i], m->more_len) == 0,
                      "%.*s", (int)m->more_len, m->more);
    }
    ck_assert_str_eq(x.r.base.thinks, "think");
    ck_assert_uint_eq(x.r.base.tools->n, 1);
    request_case_close(&x.c);
}
END_TEST

/* A prompt is a user's message behind the system's, or raw; without one nothing is said. */
START_TEST(test_generate)
{
    struct read x;

    ck_assert_int_eq(take(&x, false, "{\"prompt\":\"a\",\"system\":\"b\",\"stream\":false}"),
                     STATUS_OK);
    ck_assert(!x.r.base.stream && !x.r.is_empty && !x.r.base.prompts[0].is_plain);
    ck_assert_uint_eq(x.r.base.prompts[0].n_messages, 2);
    ck_assert_int_eq(x.r.base.prompts[0].messages[0].role, ROLE_SYSTEM);
    ck_assert_str_eq(x.r.base.prompts[0].messages[1].text, "a");
    request_case_close(&x.c);
    ck_assert_int_eq(take(&x, false, "{\"prompt\":\"a\",\"raw\":true,\"context\":[]}"), STATUS_OK);
    ck_assert(x.r.base.prompts[0].is_plain);
    ck_assert_uint_eq(x.r.base.prompts[0].n_messages, 1);
    request_case_close(&x.c);
    ck_assert_int_eq(take(&x, false, "{\"model\":\"m\"}"), STATUS_OK);
    ck_assert(x.r.is_empty);
    request_case_close(&x.c);
}
END_TEST

/* A context is ids; fields that the API does not know are listed. */
START_TEST(test_context_and_others)
{
    struct read x;

    ck_assert_int_eq(take(&x, false,
                          "{\"prompt\":\"a\",\"context\":[7,8],\"odd\":1,\"width\":0,"
                          "\"options\":{\"num_ctx\":1,\"odd\":2}}"),
                     STATUS_OK);
    ck_assert_uint_eq(x.r.n_context, 2);
    ck_assert(x.r.context[0] == 7 && x.r.context[1] == 8 && x.r.is_chat);
    ck_assert_str_eq(x.r.base.left_out, "odd, options.odd");
    request_case_close(&x.c);
}
END_TEST

/* What cannot be kept is refused by name. */
START_TEST(test_refusals)
{
    static const struct {
        bool is_chat;
        const char *field, *text;
    } all[] = {
        {true, "tools[0].type",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
         "\"tools\":[{}]}"},
        {true, "images", "{\"messages\":[{\"role\":\"user\",\"images\":[\"a\"]}]}"},
        {true, "tool_calls", "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}"},
        {true, "think", "{\"think\":3}"},
        {true, "format", "{\"format\":\"json\",\"guided_choice\":[\"a\"]}"},
        {true, "format", "{\"format\":\"xml\"}"},
        {true, "num_predict", "{\"options\":{\"num_predict\":\"a\"}}"},
        {true, "mirostat", "{\"options\":{\"mirostat\":2}}"},
        {true, "repeat_last_n", "{\"options\":{\"repeat_last_n\":64,\"repeat_penalty\":1.1}}"},
        {true, "typical_p", "{\"options\":{\"typical_p\":0.5}}"},
        {false, "suffix", "{\"prompt\":\"a\",\"suffix\":1}"},
        {false, "template", "{\"prompt\":\"a\",\"template\":\"b\"}"},
        {false, "context", "{\"prompt\":\"a\",\"context\":[1],\"raw\":true}"},
        {false, "context", "{\"prompt\":\"a\",\"context\":[\"1\"]}"},
        {false, "context", "{\"prompt\":\"a\",\"context\":1}"},
        {false, "width", "{\"prompt\":\"a\",\"width\":64}"},
        {true, "n", "{\"n\":2}"},
        {false, "system", "{\"prompt\":\"a\",\"raw\":true,\"system\":\"b\"}"},
        {false, "prompt", "{\"prompt\":[1]}"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct read x;

        ck_assert_int_eq(take(&x, all[i].is_chat, all[i].text), STATUS_INVALID);
        ck_assert_msg(strstr(x.c.err.text, all[i].field) != NULL, "%s", x.c.err.text);
        request_case_close(&x.c);
    }
}
END_TEST

static const char with_others[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"odd\":1,\"even\":2}";

static enum status take_once(void *arg)
{
    struct read x;
    enum status rc = take(&x, true, arg);

    request_case_close(&x.c);
    return rc;
}

/* Without memory a request is refused as such. */
START_TEST(memory_fails)
{
    ck_assert_int_gt(request_case_sweep(take_once, whole_chat), 5);
    ck_assert_int_gt(request_case_sweep(take_once, with_calls), 20);
    ck_assert_int_gt(request_case_sweep(take_once, with_others), 5);
}
END_TEST

SUITE_MAIN("server/api/ollama/request", test_chat, test_calls, test_generate,
           test_context_and_others, test_refusals, memory_fails)
