#include "server/api/anthropic/request.h"

#include "base/buf.h"
#include "tests/support/request_case.h"
#include "tests/unit/base/suite.h"
#include <check.h>
#include <string.h>

/* A request read from a text; valid until its case is closed. */
struct read {
    struct request_case c;
    struct request r;
};

static enum status take(struct read *x, bool is_counted, const char *text)
{
    *x = (struct read){0};
    if (request_case_open(&x->c, text) != STATUS_OK)
        return x->c.err.status;
    return anthropic_request(&x->r, x->c.body, is_counted, &x->c.arena, &x->c.err);
}

static const char whole[] =
    "{\"model\":\"m\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"be \"},"
    "{\"type\":\"text\",\"text\":\"brief\",\"cache_control\":{}}],\"messages\":[{\"role\":\"user\","
    "\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]},"
    "{\"role\":\"user\",\"content\":\"c\"}],\"stop_sequences\":[\"x\",\"yz\"],\"top_k\":5,"
    "\"metadata\":{\"user_id\":\"u\"},\"stream\":true,\"tools\":[],\"tool_choice\":{\"type\":"
    "\"auto\"},"
    "\"thinking\":{\"type\":\"adaptive\"},\"whatever\":[1],\"output_config\":{\"format\":"
    "{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}}";

/* All supported fields are read; the system prompt is the first message. */
START_TEST(test_message)
{
    const struct prompt *p;
    struct read x;

    ck_assert_int_eq(take(&x, false, whole), STATUS_OK);
    p = x.r.prompts;
    ck_assert_str_eq(x.r.model, "m");
    ck_assert(x.r.stream);
    ck_assert_uint_eq(p->n_messages, 4);
    ck_assert_int_eq(p->messages[0].role, ROLE_SYSTEM);
    ck_assert_str_eq(p->messages[0].text, "be brief");
    ck_assert_int_eq(p->messages[2].role, ROLE_ASSISTANT);
    ck_assert_str_eq(p->messages[3].text, "c");
    ck_assert_uint_eq(x.r.overrides.values.n_stops, 2);
    ck_assert_uint_eq(x.r.overrides.values.max_tokens, 5);
    ck_assert_uint_eq(x.r.overrides.given,
                      SAMPLING_MAX_TOKENS | SAMPLING_TOP_K | SAMPLING_STOPS | SAMPLING_CONSTRAINT);
    request_case_close(&x.c);
    ck_assert_int_eq(take(&x, true, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"),
                     STATUS_OK);
    ck_assert_uint_eq(x.r.prompts->n_messages, 1);
    request_case_close(&x.c);
}
END_TEST

static const char with_tools[] =
    "{\"max_tokens\":5,\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"cache_control\":{},"
    "\"input_schema\":{\"type\":\"object\"}},{\"name\":\"g\",\"type\":\"custom\",\"strict\":true,"
    "\"input_schema\":{\"type\":\"object\",\"properties\":{}}}],\"tool_choice\":{\"type\":\"tool\","
    "\"name\":\"g\",\"disable_parallel_tool_use\":true},\"messages\":[{\"role\":\"user\","
    "\"content\":"
    "\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"h\","
    "\"signature\":\"\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"thinking\","
    "\"thinking\":\"m\\u0000!\"},{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"id\":"
    "\"1\","
    "\"name\":\"f\",\"input\":{\"x\":1.0}}]},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"tool_result\",\"tool_use_id\":\"1\",\"is_error\":true,\"content\":[{\"type\":\"text\","
    "\"text\":\"no\"}]},{\"type\":\"tool_result\",\"tool_use_id\":\"1\"},{\"type\":\"text\","
    "\"text\":\"and?\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
    "\"tool_use_id\":\"2\",\"content\":\"yes\"}]}]}";

/* Many short thoughts behind a long one are copied once each. */
START_TEST(test_many_thoughts)
{
    enum { N_SHORT = 25000, LONG_BYTES = 2 << 20 };
    static const char block[] = ",{\"type\":\"thinking\",\"thinking\":\"x\"}";
    struct buf text;
    struct read x;

    buf_init(&text, SIZE_MAX);
    ck_assert(buf_append_text(&text,
                              "{\"max_tokens\":5,\"messages\":[{\"role\":\"assistant\","
                              "\"content\":[{\"type\":\"thinking\",\"thinking\":\"") == STATUS_OK &&
              buf_reserve(&text, LONG_BYTES) == STATUS_OK);
    memset(text.data + text.len, 'y', LONG_BYTES);
    text.len += LONG_BYTES;
    ck_assert_int_eq(buf_append_text(&text, "\"}"), STATUS_OK);
    for (size_t i = 0; i < N_SHORT; i++)
        ck_assert_int_eq(buf_append_text(&text, block), STATUS_OK);
    ck_assert_int_eq(buf_append_text(&text, "]},{\"role\":\"user\",\"content\":\"z\"}]}"),
                     STATUS_OK);
    ck_assert_msg(take(&x, false, text.data) == STATUS_OK, "%s", x.c.err.text);
    ck_assert_uint_eq(x.r.prompts->messages[0].more_len,
                      strlen("{\"reasoning_content\": \"\"}") + LONG_BYTES + N_SHORT);
    request_case_close(&x.c);
    buf_deinit(&text);
}
END_TEST

static void check_extras(const struct message *m, const char *expected)
{
    ck_assert_msg(m->more_len == strlen(expected) && memcmp(m->more, expected, m->more_len) == 0,
                  "%.*s", (int)m->more_len, m->more);
}

/* Calls, their results and thoughts of the history are those of chat completions; so are tools. */
START_TEST(test_tools)
{
    const struct offered_tools *t;
    const struct message *m;
    struct read x;

    ck_assert_int_eq(take(&x, false, with_tools), STATUS_OK);
    t = x.r.tools;
    ck_assert_uint_eq(t->n, 2);
    ck_assert_str_eq(t->named, "g");
    ck_assert(t->is_single && t->choice == TOOLS_REQUIRED && t->items[1].is_strict);
    ck_assert_str_eq(t->json.text,
                     "[{\"type\": \"function\", \"function\": {\"parameters\": {\"type\": "
                     "\"object\"}, \"name\": \"f\", \"description\": \"d\"}}, {\"type\": "
                     "\"function\", \"function\": {\"parameters\": {\"type\": \"object\", "
                     "\"properties\": {}}, \"name\": \"g\", \"strict\": true}}]");
    ck_assert_uint_eq(x.r.prompts->n_messages, 6);
    m = x.r.prompts->messages;
    ck_assert_str_eq(m[1].text, "b");
    check_extras(&m[1], "{\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": "
                        "{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}}], "
                        "\"reasoning_content\": \"hm\\u0000!\"}");
    ck_assert_int_eq(m[2].role, ROLE_TOOL);
    ck_assert_str_eq(m[2].text, "Error: no");
    check_extras(&m[2], "{\"tool_call_id\": \"1\", \"name\": \"f\"}");
    ck_assert_int_eq(m[3].role, ROLE_TOOL);
    ck_assert_str_eq(m[3].text, "");
    ck_assert_int_eq(m[4].role, ROLE_USER);
    ck_assert_str_eq(m[4].text, "and?");
    ck_assert_int_eq(m[5].role, ROLE_TOOL);
    ck_assert_str_eq(m[5].text, "yes");
    request_case_close(&x.c);
}
END_TEST

/* What cannot be kept is refused by name. */
START_TEST(test_refusals)
{
    static const char *const all[][2] = {
        {"max_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"},
        {"max_tokens", "{\"max_tokens\":0}"},
        {"messages", "{\"max_tokens\":1}"},
        {"messages", "{\"max_tokens\":1,\"messages\":[]}"},
        {"tool_use", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                     "\"tool_use\"}]}]}"},
        {"tools[0].input_schema", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
                                  "\"a\"}],\"tools\":[{\"name\":\"f\"}]}"},
        {"tool_choice.type",
         "{\"max_tokens\":1,\"messages\":[],\"tool_choice\":{\"type\":\"some\"}}"},
        {"tool_choice.name",
         "{\"max_tokens\":1,\"messages\":[],\"tool_choice\":{\"type\":\"tool\"}}"},
        {"messages[0].content[0].input must be an object",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
         "\"tool_use\",\"name\":\"f\",\"input\":\"{}\"}]}]}"},
        {"messages[0].content[0].content must be a string or a list",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"tool_result\",\"tool_use_id\":\"a\",\"content\":3}]}]}"},
        {"thinking", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                     "\"thinking\",\"thinking\":\"a\"}]}]}"},
        {"messages[1].content",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}"},
        {"mcp_servers", "{\"max_tokens\":1,\"mcp_servers\":[{}]}"},
        {"tool_choice", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                        "\"tool_choice\":{\"type\":\"any\"}}"},
        {"stop_sequences", "{\"max_tokens\":1,\"stop_sequences\":[7]}"},
        {"output_config", "{\"max_tokens\":1,\"output_config\":{\"format\":{}}}"},
        {"metadata", "{\"max_tokens\":1,\"metadata\":3}"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct read x;

        ck_assert_int_eq(take(&x, false, all[i][1]), STATUS_INVALID);
        ck_assert_msg(strstr(x.c.err.text, all[i][0]) != NULL, "%s", x.c.err.text);
        request_case_close(&x.c);
    }
}
END_TEST

static enum status take_once(void *arg)
{
    struct read x;
    enum status rc = take(&x, false, arg);

    request_case_close(&x.c);
    return rc;
}

/* Without memory a request is refused as such. */
START_TEST(memory_fails)
{
    ck_assert_int_gt(request_case_sweep(take_once, whole), 5);
    ck_assert_int_gt(request_case_sweep(take_once, with_tools), 20);
}
END_TEST

SUITE_MAIN("server/api/anthropic/request", test_message, test_many_thoughts, test_tools,
           test_refusals, memory_fails)
