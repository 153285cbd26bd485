#include "server/api/openai/request.h"

#include "server/api/openai/error.h"
#include "server/http/status.h"
#include "tests/support/request_case.h"
#include "tests/unit/base/suite.h"
#include <check.h>
#include <string.h>

enum api { CHAT, COMPLETION, RESPONSES };

/* A request read from a text; valid until its case is closed. */
struct read {
    struct request_case c;
    struct request r;
    struct responses_request responses;
};

static enum status take(struct read *x, enum api api, const char *text)
{
    *x = (struct read){0};
    if (request_case_open(&x->c, text) != STATUS_OK)
        return x->c.err.status;
    if (api == CHAT)
        return request_chat(&x->r, x->c.body, &x->c.arena, &x->c.err);
    if (api == COMPLETION)
        return request_completion(&x->r, x->c.body, &x->c.arena, &x->c.err);
    if (request_responses(&x->responses, x->c.body, &x->c.arena, &x->c.err) != STATUS_OK)
        return x->c.err.status;
    x->r = x->responses.base;
    return STATUS_OK;
}

static const char whole_chat[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
    "\"text\":\"b\"}],\"name\":\"x\"},{\"role\":\"assistant\",\"content\":null}],"
    "\"max_completion_tokens\":5,\"temperature\":0.5,\"top_k\":-1,\"seed\":7,\"n\":2,"
    "\"stop\":[\"x\",\"yz\"],\"logit_bias\":{\"9\":1.5,\"3\":-100},\"stream\":true,"
    "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},"
    "\"logprobs\":true,\"top_logprobs\":4,\"ignore_eos\":true,\"min_tokens\":2,"
    "\"response_format\":{\"type\":\"text\"},\"tools\":[],\"user\":null,\"whatever\":[1,{}]}";

/* All supported fields of a chat are read; unknown ones are ignored. */
START_TEST(test_chat)
{
    struct read x;

    ck_assert_int_eq(take(&x, CHAT, whole_chat), STATUS_OK);
    ck_assert_str_eq(x.r.model, "m");
    ck_assert_uint_eq(x.r.n_prompts, 1);
    ck_assert_uint_eq(x.r.prompts[0].n_messages, 3);
    ck_assert_int_eq(x.r.prompts[0].messages[0].role, ROLE_SYSTEM);
    ck_assert_str_eq(x.r.prompts[0].messages[1].text, "ab");
    ck_assert_uint_eq(x.r.prompts[0].messages[2].len, 0);
    ck_assert_uint_eq(x.r.n, 2);
    ck_assert(x.r.stream && x.r.include_usage && x.r.continuous_usage && x.r.want_logprobs);
    ck_assert_uint_eq(x.r.n_top, 4);
    ck_assert_uint_eq(x.r.overrides.values.max_tokens, 5);
    ck_assert_uint_eq(x.r.overrides.values.top_k, 0);
    ck_assert_uint_eq(x.r.overrides.values.seed, 7);
    ck_assert_uint_eq(x.r.overrides.values.n_stops, 2);
    ck_assert_str_eq(x.r.overrides.values.stops[1].text, "yz");
    ck_assert_uint_eq(x.r.overrides.values.n_biases, 2);
    ck_assert_int_eq(x.r.overrides.values.biases[0].id, 3);
    ck_assert_uint_eq(x.r.overrides.given &
                          (SAMPLING_IGNORE_EOS | SAMPLING_MIN_TOKENS | SAMPLING_TOP_P),
                      SAMPLING_IGNORE_EOS | SAMPLING_MIN_TOKENS);
    request_case_close(&x.c);
}
END_TEST

/* A prompt is a text, ids, or a list of either. */
START_TEST(test_prompts)
{
    struct read x;

    ck_assert_int_eq(take(&x, COMPLETION, "{\"prompt\":\"once\",\"logprobs\":null}"), STATUS_OK);
    ck_assert(x.r.prompts[0].is_plain && !x.r.want_logprobs);
    ck_assert_str_eq(x.r.prompts[0].messages[0].text, "once");
    ck_assert_uint_eq(x.r.overrides.values.max_tokens, 16);
    request_case_close(&x.c);
    ck_assert_int_eq(take(&x, COMPLETION, "{\"prompt\":[5,6,7],\"logprobs\":0}"), STATUS_OK);
    ck_assert_uint_eq(x.r.n_prompts, 1);
    ck_assert_uint_eq(x.r.prompts[0].n_ids, 3);
    ck_assert_int_eq(x.r.prompts[0].ids[2], 7);
    ck_assert(x.r.want_logprobs);
    request_case_close(&x.c);
    ck_assert_int_eq(take(&x, COMPLETION, "{\"prompt\":[\"a\",[1,2],\"b\"],\"n\":3}"), STATUS_OK);
    ck_assert_uint_eq(x.r.n_prompts, 3);
    ck_assert_uint_eq(x.r.prompts[1].n_ids, 2);
    ck_assert_uint_eq(x.r.n, 3);
    request_case_close(&x.c);
}
END_TEST

START_TEST(test_responses)
{
    struct read x;

    ck_assert_int_eq(take(&x, RESPONSES,
                          "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
                          "\"text\":\"hi\"}]},{\"type\":\"message\",\"role\":\"assistant\","
                          "\"content\":[{\"type\":\"output_text\",\"text\":\"ho\"}]}],"
                          "\"instructions\":\"be\",\"previous_response_id\":\"resp_1\","
                          "\"max_output_tokens\":9,\"store\":false,"
                          "\"text\":{\"format\":{\"type\":\"text\"}}}"),
                     STATUS_OK);
    ck_assert_str_eq(x.r.prompts[0].messages[1].text, "ho");
    ck_assert_str_eq(x.responses.instructions, "be");
    ck_assert_str_eq(x.responses.previous, "resp_1");
    ck_assert(!x.responses.store);
    ck_assert_uint_eq(x.r.overrides.values.max_tokens, 9);
    request_case_close(&x.c);
}
END_TEST

#define TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

static const struct wrong {
    enum api api;
    const char *text, *field, *says;
} wrongs[] = {
    {CHAT, "", "", "the body is no JSON"},
    {CHAT, "[]", "", "must be a JSON object"},
    {CHAT, "{\"model\":\"\\u0000\"}", "model", "has the character U+0000"},
    {CHAT, "{}", "messages", "is missing"},
    {CHAT, "{\"messages\":[]}", "messages", "is empty"},
    {RESPONSES, "{\"input\":\"a\",\"background\":true,\"store\":false}", "background",
     "needs store"},
    {RESPONSES, "{\"input\":\"a\",\"metadata\":{\"a\":1}}", "metadata", "an object of strings"},
    {CHAT, "{\"messages\":{}}", "messages", "must be a list, not an object"},
    {CHAT, "{\"messages\":[3]}", "messages[0]", "must be an object, not a number"},
    {CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "is missing"},
    {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", "is missing"},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[1]}]}", "messages[0].content[0]",
     "must be an object, not a number"},
    {CHAT, "{" USER ",\"model\":1}", "model", "must be a string, not a number"},
    {CHAT, "{" USER ",\"n\":1.5}", "n", "must be a whole number"},
    {CHAT, "{" USER ",\"n\":129}", "n", "from 1 to 128"},
    {CHAT, "{" USER ",\"max_tokens\":-2}", "max_tokens", "-1 for no bound"},
    {CHAT, "{" USER ",\"max_completion_tokens\":\"5\"}", "max_completion_tokens", "whole number"},
    {CHAT, "{" USER ",\"stream_options\":[]}", "stream_options", "must be an object"},
    {CHAT, "{" USER ",\"logit_bias\":{\"-1\":0}}", "logit_bias", "not a token's id"},
    {CHAT, "{" USER ",\"logit_bias\":{\"1\":0,\"01\":0}}", "logit_bias", "token 1 twice"},
    {CHAT, "{" USER ",\"tools\":[{}]}", "tools[0].type", "is missing"},
    {CHAT, "{" USER ",\"tools\":[{\"type\":\"namespace\"}]}", "tools[0].name",
     "is not the name of a namespace"},
    {CHAT, "{" USER ",\"tools\":[{\"type\":\"namespace\",\"name\":\"a\\u0000b\"}]}",
     "tools[0].name", "is not the name of a namespace"},
    {RESPONSES,
     "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"s\",\"tools\":[{\"type\":"
     "\"function\",\"name\":\"a\\u0000b\"}]}]}",
     "tools[0].tools", "a function without a name, or with a bad one"},
    {RESPONSES, "{\"input\":\"x\",\"tools\":[{\"type\":\"custom\",\"name\":\"a\\u0000b\"}]}",
     "tools[0]", "has the character U+0000"},
    {RESPONSES,
     "{\"input\":\"x\",\"tools\":[{\"type\":\"shell\",\"environment\":{\"skills\":{}}}]}",
     "tools[0].environment.skills", "must be a list, not an object"},
    {RESPONSES,
     "{\"input\":\"x\",\"tools\":[{\"type\":\"shell\",\"environment\":{\"skills\":[{}]}}]}",
     "tools[0].environment.skills", "has a skill without a name"},
    {CHAT, "{" USER ",\"tools\":[{\"type\":\"function\"}]}", "tools[0].function",
     "is not an object"},
    {CHAT, "{" USER ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}",
     "tools[0].function.name", "must have 1 to 64 letters"},
    {CHAT, "{" USER "," TOOL ",\"tool_choice\":\"maybe\"}", "tool_choice", "must be none, auto"},
    {CHAT, "{" USER "," TOOL ",\"tool_choice\":{\"function\":{\"name\":\"g\"}}}", "tool_choice",
     "names 'g', which is not a tool"},
    {CHAT, "{" USER "," TOOL ",\"tool_choice\":{\"type\":\"allowed_tools\",\"tools\":[]}}",
     "tool_choice", "allows no tool"},
    {CHAT, "{" USER "," TOOL ",\"parallel_tool_calls\":1}", "parallel_tool_calls", "true or false"},
    {CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\"}]}]}",
     "messages[0].tool_calls", "a call without a name"},
    {CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", "messages[0].tool_calls",
     "must be a list, not an object"},
    {CHAT, "{" USER ",\"response_format\":{\"type\":\"xml\"}}", "response_format",
     "must be text, json_object or json_schema"},
    {CHAT, "{" USER ",\"response_format\":{\"type\":\"json_schema\"}}", "response_format",
     "has no schema"},
    {CHAT, "{" USER ",\"guided_regex\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\"}", "guided_regex",
     "cannot be combined with grammar"},
    {CHAT, "{" USER ",\"guided_json\":{\"type\":\"x\"}}", "guided_json", "is not a type"},
    {CHAT, "{" USER ",\"guided_choice\":[]}", "guided_choice", "there are 0 choices"},
    {COMPLETION, "{\"prompt\":\"a\",\"grammar\":\"root ::= b\"}", "grammar",
     "uses a rule that is not defined: 'b'"},
    {COMPLETION, "{\"prompt\":\"a\",\"grammar\":\"\"}", "grammar", "is empty"},
    {CHAT, "{" USER ",\"guided_grammar\":\"start: \\\"a\\\"\"}", "guided_grammar",
     "is Lark, which is not taken: write the grammar in GBNF"},
    {CHAT, "{" USER ",\"structured_outputs\":{\"grammar\":\"%llguidance {}\"}}",
     "structured_outputs.grammar", "is Lark"},
    {CHAT, "{" USER ",\"structured_outputs\":{\"regex\":\"\"}}", "structured_outputs.regex",
     "is empty"},
    {CHAT, "{" USER ",\"guided_json\":\"\"}", "guided_json", "is not JSON"},
    {COMPLETION, "{\"prompt\":\"a\",\"guided_choice\":[1]}", "guided_choice", "a list of strings"},
    {COMPLETION, "{\"prompt\":\"a\",\"json_schema\":3}", "json_schema", "must be an object"},
    {CHAT, "{" USER ",\"structured_outputs\":{\"structural_tag\":\"x\"}}", "structured_outputs",
     "is not taken"},
    {COMPLETION, "{}", "prompt", "is missing"},
    {COMPLETION, "{\"prompt\":[]}", "prompt", "is empty"},
    {COMPLETION, "{\"prompt\":[[]]}", "prompt", "is empty"},
    {COMPLETION, "{\"prompt\":[1,\"a\"]}", "prompt", "list of token ids"},
    {COMPLETION, "{\"prompt\":[-1]}", "prompt", "has the token -1"},
    {COMPLETION, "{\"prompt\":\"a\",\"best_of\":3}", "best_of", "as large as n"},
    {COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":100}", "n", "times the prompts is 200"},
    {RESPONSES, "{}", "input", "is missing"},
    {RESPONSES, "{\"input\":[{\"type\":\"function_call\"}]}", "input[0].tool_calls",
     "a call without a name"},
    {RESPONSES, "{\"input\":[{\"type\":\"item_reference\"}]}", "input",
     "messages, calls, their outputs and reasoning are taken"},
    {RESPONSES, "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "text.format",
     "has no schema"},
};

/* An error names the field and has OpenAI's format. */
START_TEST(test_wrong)
{
    const struct wrong *w = &wrongs[_i];
    struct buf body;
    struct read x;

    ck_assert_int_eq(take(&x, w->api, w->text), STATUS_INVALID);
    ck_assert_str_eq(x.c.err.field, w->field);
    ck_assert_msg(strstr(x.c.err.text, w->says) != NULL, "'%s' does not say '%s'", x.c.err.text,
                  w->says);
    buf_init(&body, 4096);
    ck_assert_int_eq(openai_api.append_error(&body, http_status_of(x.c.err.status), &x.c.err),
                     STATUS_OK);
    ck_assert(strstr(body.data, "\"type\":\"invalid_request_error\"") != NULL);
    buf_deinit(&body);
    request_case_close(&x.c);
}
END_TEST

static void append_times(struct buf *out, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert(buf_append_text(out, i == 0 ? "" : ",") == STATUS_OK &&
                  buf_append_text(out, what) == STATUS_OK);
}

/* Lists that are gone through for each tool, or said in one, are bounded. */
START_TEST(test_bounds)
{
    static const struct {
        const char *head, *one, *tail, *field, *says;
    } lists[] = {
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"shell\",\"environment\":{\"skills\":[",
         "{\"name\":\"n\"}", "]}}]}", "tools[0].environment.skills",
         "has 513 entries, at most 512"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"shell\"}],\"tool_choice\":{\"type\":"
         "\"allowed_tools\",\"tools\":[",
         "{\"type\":\"shell\"}", "]}}", "tool_choice", "allows 513 tools, at most 512"},
    };

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (size_t n = 512; n <= 513; n++) {
            struct buf text;
            struct read x;

            buf_init(&text, SIZE_MAX);
            ck_assert_int_eq(buf_append_text(&text, lists[i].head), STATUS_OK);
            append_times(&text, lists[i].one, n);
            ck_assert_int_eq(buf_append_text(&text, lists[i].tail), STATUS_OK);
            ck_assert_int_eq(take(&x, RESPONSES, text.data), n == 512 ? STATUS_OK : STATUS_INVALID);
            if (n > 512) {
                ck_assert_str_eq(x.c.err.field, lists[i].field);
                ck_assert_msg(strstr(x.c.err.text, lists[i].says) != NULL, "%s", x.c.err.text);
            }
            request_case_close(&x.c);
            buf_deinit(&text);
        }
    }
}
END_TEST

/* What is said of tools, and by them, may have the character U+0000. */
START_TEST(test_nul)
{
    static const struct {
        const char *tool, *says;
    } tools[] = {
        {"{\"type\":\"custom\",\"name\":\"f\",\"description\":\"a\\u0000b\",\"format\":{\"syntax\":"
         "\"lark\",\"definition\":\"c\\u0000d\"}}",
         "a\\u0000b\\n\\nThe input is in this lark grammar:\\nc\\u0000d"},
        {"{\"type\":\"shell\",\"environment\":{\"skills\":[{\"name\":\"n\",\"path\":\"/p\","
         "\"description\":\"a\\u0000b\"},{\"name\":\"m\"}]}}",
         "\\nSkill n in /p: a\\u0000b\\nSkill m in : "},
    };
    struct read x;

    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
        char text[256];

        (void)snprintf(text, sizeof(text), "{\"input\":\"x\",\"tools\":[%s]}", tools[i].tool);
        ck_assert_int_eq(take(&x, RESPONSES, text), STATUS_OK);
        ck_assert_msg(strstr(x.r.tools->json.text, tools[i].says) != NULL, "%s",
                      x.r.tools->json.text);
        request_case_close(&x.c);
    }
    ck_assert_int_eq(take(&x, RESPONSES,
                          "{\"input\":[{\"type\":\"reasoning\",\"content\":[{\"type\":"
                          "\"reasoning_text\",\"text\":\"a\\u0000\"},{\"type\":\"reasoning_text\","
                          "\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":\"c\"},"
                          "{\"role\":\"user\",\"content\":\"d\"}]}"),
                     STATUS_OK);
    ck_assert_str_eq(x.r.prompts[0].messages[0].more, "{\"reasoning_content\": \"a\\u0000b\"}");
    request_case_close(&x.c);
}
END_TEST

/* Unsupported fields that would change the reply: values for on, and off. */
static const struct unmet {
    enum api api;
    const char *field, *on, *off[3];
} unmet[] = {
    {CHAT, "add_generation_prompt", "false", {"true"}},
    {CHAT, "add_special_tokens", "true", {"false"}},
    {CHAT, "allowed_token_ids", "[1]", {"[]"}},
    {CHAT, "audio", "{\"voice\":\"x\"}", {"null"}},
    {CHAT, "bad_words", "[\"x\"]", {"[]"}},
    {CHAT, "chat_template", "\"x\"", {"\"\""}},
    {CHAT, "continue_final_message", "true", {"false"}},
    {RESPONSES, "conversation", "1", {"null", "\"conv_1\"", "{\"id\":\"conv_1\"}"}},
    {CHAT, "documents", "[{\"text\":\"x\"}]", {"[]"}},
    {CHAT, "echo", "true", {"false"}},
    {CHAT, "function_call", "{\"name\":\"f\"}", {"\"none\"", "\"auto\""}},
    {RESPONSES,
     "include",
     "[7]",
     {"[]", "[\"message.output_text.logprobs\"]", "[\"reasoning.encrypted_content\"]"}},
    {CHAT, "include_stop_str_in_output", "true", {"false"}},
    {CHAT, "logits_processors", "[\"x\"]", {"[]"}},
    {COMPLETION, "mirostat", "2", {"0"}},
    {CHAT, "modalities", "[\"text\",\"audio\"]", {"[\"text\"]", "[]"}},
    {CHAT, "n_predict", "5", {"-1"}},
    {CHAT, "n_probs", "5", {"0"}},
    {RESPONSES, "prompt", "{\"id\":\"x\"}", {"null"}},
    {COMPLETION, "prompt_embeds", "\"x\"", {"null"}},
    {CHAT, "prompt_logprobs", "21", {"false"}},
    {COMPLETION, "prompt_logprobs", "-1", {"null"}},
    {CHAT, "skip_special_tokens", "false", {"true"}},
    {CHAT, "stop_token_ids", "[2]", {"[]"}},
    {CHAT, "tool_choice", "\"required\"", {"\"none\"", "\"auto\""}},
    {RESPONSES, "tool_choice", "{\"type\":\"function\",\"name\":\"f\"}", {"\"auto\""}},
    {RESPONSES, "top_logprobs", "2", {"0"}},
    {COMPLETION, "truncate_prompt_tokens", "-1", {"null"}},
    {RESPONSES, "truncation", "\"back\"", {"\"auto\"", "\"disabled\""}},
    {CHAT, "use_beam_search", "true", {"false"}},
    {CHAT, "web_search_options", "{}", {"null"}},
};

/* Every spelling of a constraint, and the form that it takes. */
static const struct constrained {
    enum api api;
    const char *field, *value;
    enum constraint_form form;
} constrained[] = {
    {CHAT, "response_format", "{\"type\":\"json_object\"}", CONSTRAINT_SCHEMA},
    {CHAT, "response_format",
     "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{}}}",
     CONSTRAINT_SCHEMA},
    {CHAT, "response_format", "{\"type\":\"json_object\",\"schema\":{}}", CONSTRAINT_SCHEMA},
    {RESPONSES, "text", "{\"format\":{\"type\":\"json_schema\",\"schema\":{}}}", CONSTRAINT_SCHEMA},
    {CHAT, "guided_json", "{}", CONSTRAINT_SCHEMA},
    {CHAT, "guided_json", "\"{}\"", CONSTRAINT_SCHEMA},
    {COMPLETION, "json_schema", "{}", CONSTRAINT_SCHEMA},
    {COMPLETION, "guided_regex", "\"a+\"", CONSTRAINT_REGEX},
    {COMPLETION, "guided_choice", "[\"a\"]", CONSTRAINT_EBNF},
    {CHAT, "guided_grammar", "\"root ::= \\\"a\\\"\"", CONSTRAINT_EBNF},
    {CHAT, "grammar", "\"root ::= \\\"a\\\"\"", CONSTRAINT_EBNF},
    {CHAT, "structured_outputs", "{\"regex\":\"a\"}", CONSTRAINT_REGEX},
    {CHAT, "structured_outputs", "{\"json\":{}}", CONSTRAINT_SCHEMA},
    {CHAT, "structured_outputs", "{\"json_object\":true}", CONSTRAINT_SCHEMA},
    {CHAT, "structured_outputs", "{\"choice\":[\"a\"]}", CONSTRAINT_EBNF},
    {CHAT, "structured_outputs", "{\"grammar\":\"root ::= \\\"a\\\"\"}", CONSTRAINT_EBNF},
};

static enum status take_with(struct read *x, enum api api, const char *field, const char *value)
{
    static const char *const rests[] = {
        [CHAT] = USER, [COMPLETION] = "\"prompt\":\"a\"", [RESPONSES] = "\"input\":\"a\""};
    char text[256];

    (void)snprintf(text, sizeof(text), "{%s,\"%s\":%s}", rests[api], field, value);
    return take(x, api, text);
}

/* A known but unsupported field is refused by name, never ignored; null and values that mean "off"
 * are accepted. */
START_TEST(test_unmet)
{
    const struct unmet *u = &unmet[_i];
    struct read x;

    ck_assert_int_eq(take_with(&x, u->api, u->field, u->on), STATUS_INVALID);
    ck_assert_str_eq(x.c.err.field, u->field);
    request_case_close(&x.c);
    ck_assert_int_eq(take_with(&x, u->api, u->field, "null"), STATUS_OK);
    request_case_close(&x.c);
    for (size_t i = 0; i < 3 && u->off[i] != NULL; i++) {
        ck_assert_msg(take_with(&x, u->api, u->field, u->off[i]) == STATUS_OK, "%s: %s", u->off[i],
                      x.c.err.text);
        request_case_close(&x.c);
    }
}
END_TEST

START_TEST(test_constrained)
{
    const struct constrained *c = &constrained[_i];
    const struct sampling_overrides *o;
    struct read x;

    ck_assert_msg(take_with(&x, c->api, c->field, c->value) == STATUS_OK, "%s", x.c.err.text);
    o = c->api == RESPONSES ? &x.responses.base.overrides : &x.r.overrides;
    ck_assert((o->given & SAMPLING_CONSTRAINT) != 0);
    ck_assert_int_eq(o->values.constraint->form, c->form);
    request_case_close(&x.c);
    ck_assert_int_eq(take_with(&x, c->api, c->field, "null"), STATUS_OK);
    o = c->api == RESPONSES ? &x.responses.base.overrides : &x.r.overrides;
    ck_assert((o->given & SAMPLING_CONSTRAINT) == 0);
    request_case_close(&x.c);
}
END_TEST

static enum status read_once(void *arg)
{
    struct read x;
    enum status rc = take(&x, CHAT, arg);

    request_case_close(&x.c);
    return rc;
}

/* Any allocation may fail. */
START_TEST(test_no_memory)
{
    ck_assert_int_gt(request_case_sweep(read_once, whole_chat), 20);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/http/request");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(t, test_chat);
    tcase_add_test(t, test_prompts);
    tcase_add_test(t, test_responses);
    tcase_add_loop_test(t, test_wrong, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
    tcase_add_test(t, test_bounds);
    tcase_add_test(t, test_nul);
    tcase_add_loop_test(t, test_constrained, 0,
                        (int)(sizeof(constrained) / sizeof(constrained[0])));
    tcase_add_loop_test(t, test_unmet, 0, (int)(sizeof(unmet) / sizeof(unmet[0])));
    tcase_add_test(t, test_no_memory);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}
