#include "agents/reply/reply_parser.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agents/reply/reply_places.h"
#include "base/buf.h"
#include "tests/unit/base/suite.h"

static struct error err;

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\","
    "\"description\":\"\\u0000\"}}]";

static const struct call_format *family(const char *name)
{
    for (size_t i = 0; call_format_at(i) != NULL; i++)
        if (strcmp(call_format_at(i)->family, name) == 0)
            return call_format_at(i);
    ck_abort_msg("there is no family %s", name);
}

/* Parts as a text: T(…) text, R(…) thoughts, C(…) a call, its arguments as they are. */
static void add_parts(struct buf *out, struct buf *thoughts, struct reply_parser *p, char *ret_last)
{
    static const char kinds[] = {
        [REPLY_TEXT] = 'T', [REPLY_THOUGHT] = 'R', [REPLY_CALL] = 'C', [REPLY_ARGUMENTS] = 'A'};
    struct reply_part part;

    while (reply_parser_next(p, &part)) {
        const char kind = kinds[part.kind];

        if (kind != *ret_last || kind == 'C')
            ck_assert_int_eq(buf_printf(out, "|%c:", kind), STATUS_OK);
        ck_assert_int_eq(buf_append(out, part.text, part.len), STATUS_OK);
        if (part.kind == REPLY_THOUGHT)
            ck_assert_int_eq(buf_append(thoughts, part.text, part.len), STATUS_OK);
        *ret_last = kind;
    }
}

/* The places of thoughts are those of their text in the reply. */
static void check_ranges(const struct reply_parser *p, const char *text, const struct buf *thoughts)
{
    size_t n, at = 0;
    const struct reply_range *ranges = reply_parser_thoughts(p, &n);

    for (size_t i = 0; i < n; i++) {
        const size_t len = ranges[i].to - ranges[i].from;

        ck_assert(ranges[i].from < ranges[i].to && ranges[i].to <= strlen(text));
        ck_assert(i == 0 || ranges[i - 1].to < ranges[i].from);
        ck_assert(len <= thoughts->len - at &&
                  memcmp(text + ranges[i].from, thoughts->data + at, len) == 0);
        at += len;
    }
    ck_assert_uint_eq(at, thoughts->len);
}

static void parse(struct buf *out, const struct reply_parser_config *config, const char *text,
                  size_t cut)
{
    const size_t len = strlen(text);
    struct reply_parser *p;
    struct buf thoughts;
    char last = ' ';

    buf_init(out, 1 << 20);
    buf_init(&thoughts, 1 << 20);
    ck_assert_int_eq(reply_parser_open(&p, config, &err), STATUS_OK);
    for (size_t at = 0; at < len; at += cut) {
        const size_t n = cut < len - at ? cut : len - at;

        ck_assert_int_eq(reply_parser_add(p, text + at, n, &err), STATUS_OK);
        add_parts(out, &thoughts, p, &last);
    }
    ck_assert_int_eq(reply_parser_end(p, &err), STATUS_OK);
    add_parts(out, &thoughts, p, &last);
    check_ranges(p, text, &thoughts);
    reply_parser_close(p);
    buf_deinit(&thoughts);
}

static void check_parts(const struct reply_parser_config *config, const char *text,
                        const char *expected)
{
    struct buf out;

    for (size_t cut = 1; cut <= strlen(text) + 1; cut++) {
        parse(&out, config, text, cut);
        ck_assert_msg(strcmp(out.len == 0 ? "" : out.data, expected) == 0,
                      "%s\nin pieces of %zu gives\n%s\nnot\n%s", text, cut,
                      out.len == 0 ? "" : out.data, expected);
        buf_deinit(&out);
    }
}

struct written {
    const char *family, *text, *expected;
};

#define ARGS "{\"city\": \"K\\\"ö}ln\"}"
#define CALLED "|C:weather|A:" ARGS

/* What each family writes is taken apart, however it is cut; calls that are none stay text. */
static const struct written written[] = {
    {"hermes", "Hello.", "|T:Hello."},
    {"hermes", "  \n", "|T:  \n"},
    {"hermes", "a < b <tool and <tool_calls", "|T:a < b <tool and <tool_calls"},
    {"hermes", "<tool_call>\n{\"name\": \"weather\", \"arguments\": " ARGS "}\n</tool_call>",
     CALLED},
    {"hermes",
     "I look. \n\n<tool_call>{\"name\":\"weather\",\"arguments\":" ARGS
     "}</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
     "|T:I look." CALLED "|C:now|A:{}"},
    {"hermes", "<tool_call>{\"arguments\": " ARGS ", \"name\": \"weather\"}</tool_call> ok",
     CALLED "|T:ok"},
    {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>", "|C:now|A:{}"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": 1}\"}",
     "|C:weather|A:{\"city\": 1}"},
    {"hermes", "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
     "|T:<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>"},
    {"hermes", "<tool_call>no</tool_call>", "|T:<tool_call>no</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"weath", "|T:<tool_call>{\"name\": \"weath"},
    /* Cut, by a limit or a stop text: text. */
    {"hermes", "Ok. <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"B",
     "|T:Ok. <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"B"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": {"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": ",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": "},
    {"hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": "
     "\"weather\", "
     "\"arguments\": {\"city\"",
     "|C:now|A:{}|T:<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\""},
    {"mistral-named",
     "[TOOL_CALLS]weather[ARGS]{\"city\": ", "|T:[TOOL_CALLS]weather[ARGS]{\"city\": "},
    {"llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"",
     "|T:{\"name\": \"weather\", \"parameters\": {\"city\": \""},
    /* No JSON: text. */
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {city: \"B\"}}</tool_call>",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": {city: \"B\"}}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": 'B'}}</tool_call> x",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": 'B'}}</tool_call> x"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"days\": 01, }}</tool_call>",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": {\"days\": 01, }}</tool_call>"},
    {"hermes", "<tool_call>{\"arguments\": {\"a\": tru}, \"name\": \"weather\"}</tool_call>",
     "|T:<tool_call>{\"arguments\": {\"a\": tru}, \"name\": \"weather\"}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": \"{oh}\"}</tool_call>",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": \"{oh}\"}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>"},
    /* What is whole is a call, whatever is missing or follows. */
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": " ARGS "\n</tool_call>\nSo.",
     CALLED "|T:So."},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": " ARGS, CALLED},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": " ARGS ", \"id\": \"7\"} So.",
     CALLED "|T:So."},
    {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": " ARGS ", and so on.",
     CALLED "|T:, and so on."},
    {"hermes",
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\n \"days\":\t[-1.5e+3, null]\n}}",
     "|C:weather|A:{\n \"days\":\t[-1.5e+3, null]\n}"},
    /* Spoken of: text. */
    {"hermes", "Write <tool_call> and </tool_call> around it.",
     "|T:Write <tool_call> and </tool_call> around it."},
    {"hermes", "Say `<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>`, please.",
     "|T:Say `<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>`, please."},
    {"hermes",
     "\"<tool_call>{\"name\": \"now\"}</tool_call>\" or <tool_call>{\"name\": \"now\"}</tool_call>",
     "|T:\"<tool_call>{\"name\": \"now\"}</tool_call>\" or|C:now|A:{}"},
    {"hermes", "<tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
     "|T:<tool_call>|C:now|A:{}"},
    {"hermes",
     "<tool_call>{\"name\": \"weather\", \"arguments\": {<tool_call>{\"name\": "
     "\"now\"}</tool_call>",
     "|T:<tool_call>{\"name\": \"weather\", \"arguments\": {|C:now|A:{}"},
    {"hermes",
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"<tool_call>\"}}</tool_call>",
     "|C:weather|A:{\"city\": \"<tool_call>\"}"},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, no]", "|C:now|A:{}|T:, no]"},
    {"hermes", "{\"name\": \"now\", \"arguments\": {}}",
     "|T:{\"name\": \"now\", \"arguments\": {}}"},
    {"llama3", " {\"name\": \"weather\", \"parameters\": " ARGS "}", CALLED},
    {"llama3",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"weather\", \"parameters\": " ARGS "}",
     CALLED},
    {"llama3",
     "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": " ARGS "}",
     "|C:now|A:{}" CALLED},
    {"llama3", "{\"answer\": [1, {}, \"x\"]}", "|T:{\"answer\": [1, {}, \"x\"]}"},
    {"llama3", "So: {\"name\": \"now\", \"parameters\": {}}",
     "|T:So: {\"name\": \"now\", \"parameters\": {}}"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": " ARGS
     ", \"id\": \"abc\"}, {\"name\": \"now\", \"arguments\": {}}]",
     CALLED "|C:now|A:{}"},
    {"mistral", "[TOOL_CALLS] and so on", "|T:[TOOL_CALLS] and so on"},
    {"mistral-named", "[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]" ARGS "[TOOL_CALLS]now[ARGS]{}",
     CALLED "|C:now|A:{}"},
    {"deepseek-v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" ARGS
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     CALLED "|C:now|A:{}"},
    {"deepseek-r1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" ARGS
     "\n```<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>",
     CALLED},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
     "<|tool_call_argument_begin|>" ARGS "<|tool_call_end|><|tool_calls_section_end|>",
     CALLED},
    {"harmony",
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" ARGS "<|call|>",
     CALLED},
    {"granite3", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": " ARGS "}]", CALLED},
    {"phi4-mini", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": " ARGS "}]<|/tool_call|>",
     CALLED},
    {"qwen3-coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n"
     "</parameter>\n</function>\n</tool_call>",
     "|C:weather|A:{\"city\": \"12\", \"days\": 3}"},
    {"qwen3-coder", "<tool_call><function=now></function></tool_call>", "|C:now|A:{}"},
    {"qwen3-coder", "<tool_call><function=now><p></function></tool_call>",
     "|T:<tool_call><function=now><p></function></tool_call>"},
    {"glm",
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n<arg_key>days"
     "</arg_key>\n<arg_value>two</arg_value>\n</tool_call>",
     "|C:weather|A:{\"city\": \"Bonn\", \"days\": \"two\"}"},
    {"seed-oss",
     "I look.\n<seed:tool_call>\n<function=weather>\n<parameter=city>Bonn</parameter>\n"
     "</function>\n</seed:tool_call>",
     "|T:I look.|C:weather|A:{\"city\": \"Bonn\"}"},
    {"nemotron-nano",
     "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": " ARGS "}, {\"name\": \"now\", "
     "\"arguments\": {}}]</TOOLCALL>",
     CALLED "|C:now|A:{}"},
    {"command-r",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
     "\"parameters\": " ARGS "}\n]<|END_ACTION|>",
     CALLED},
    {"lfm2", "<|tool_call_start|>[weather(city='Bonn', days=3), now()]<|tool_call_end|>Wait.",
     "|C:weather|A:{\"city\": \"Bonn\", \"days\": 3}|C:now|A:{}|T:Wait."},
    {"lfm2", "<|tool_call_start|>[weather(city='it's \"so\", he said', days=None)]",
     "|C:weather|A:{\"city\": \"it's \\\"so\\\", he said\", \"days\": null}"},
    {"lfm2", "<|tool_call_start|>[weather(city=\"a\\\"b\", days=[1, 2.5, {'k': True}])]",
     "|C:weather|A:{\"city\": \"a\\\"b\", \"days\": [1, 2.5, {\"k\": true}]}"},
    {"lfm2", "<|tool_call_start|>[weather('Bonn')]", "|T:<|tool_call_start|>[weather('Bonn')]"},
    {"lfm2", "<|tool_call_start|>[weather(city='Bon", "|T:<|tool_call_start|>[weather(city='Bon"},
    {"lfm2", "<|tool_call_start|>[other(a=1)]", "|T:<|tool_call_start|>[other(a=1)]"},
    {"gemma4",
     "<|tool_call>call:weather{city:<|\"|>K\"ö}, ln<|\"|>,days:3}<tool_call|><|tool_call>"
     "call:now{}<tool_call|>",
     "|C:weather|A:{\"city\": \"K\\\"ö}, ln\", \"days\": 3}|C:now|A:{}"},
    {"gemma4", "<|tool_call>call:weather{days:[1,{a:<|\"|>b<|\"|>,c:true}],city:null}<tool_call|>",
     "|C:weather|A:{\"days\": [1, {\"a\": \"b\", \"c\": true}], \"city\": null}"},
    {"gemma4", "<|tool_call>call:weather{city:<|\"|>Bonn}<tool_call|>",
     "|T:<|tool_call>call:weather{city:<|\"|>Bonn}<tool_call|>"},
    {"llama4", "{\"name\": \"weather\", \"parameters\": " ARGS "}", CALLED},
};

START_TEST(test_families)
{
    for (size_t i = 0; i < sizeof(written) / sizeof(*written); i++) {
        const struct reply_format format = {.calls = family(written[i].family)};
        const struct reply_parser_config config = {.format = &format,
                                                   .tools = {tools, sizeof(tools) - 1}};

        check_parts(&config, written[i].text, written[i].expected);
    }
}
END_TEST

/* Without tools nothing is a call, and without a format all is text as it comes. */
START_TEST(test_no_tools)
{
    const char *text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> <think>x";
    const struct reply_format format = {.calls = family("hermes")};
    struct reply_parser_config config = {.format = &format};
    struct buf out;

    parse(&out, &config, text, 3);
    ck_assert_str_eq(out.data + 3, text);
    buf_deinit(&out);
    config = (struct reply_parser_config){.tools = {tools, sizeof(tools) - 1}};
    parse(&out, &config, text, 3);
    ck_assert_str_eq(out.data + 3, text);
    buf_deinit(&out);
}
END_TEST

/* The places of control tokens: those of the marks in a text that stand behind a '!'. */
struct marked {
    char text[512];
    struct token_place tokens[64];
    size_t n;
};

static struct token_place place_at(const void *tokens, size_t i)
{
    return ((const struct token_place *)tokens)[i];
}

static bool marked_has(const void *arg, int32_t id, size_t at, size_t len)
{
    const struct marked *m = arg;

    return reply_tokens_have(&(struct reply_tokens){place_at, m->tokens, m->n}, id, at, len);
}

static void marked_read(struct marked *m, const struct reply_format *f, const char *text)
{
    size_t len = 0;

    m->n = 0;
    while (*text != '\0') {
        int32_t id = 1;
        size_t n = 1;

        if (*text == '!') {
            const struct reply_control *control = reply_format_control(f, ++text);

            ck_assert_ptr_nonnull(control);
            id = control->id;
            n = strlen(control->text);
        }
        memcpy(m->text + len, text, n);
        text += n;
        len += n;
        m->tokens[m->n++] = (struct token_place){id, (uint32_t)len};
    }
    m->text[len] = '\0';
}

/* Of a delimiter that is a control token, only that token counts; its letters are text. */
START_TEST(test_controls)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"!<think>Hm</think>.!</think>A", "|R:Hm</think>.|T:A"},
        {"<think>Hm</think>A", "|T:<think>Hm</think>A"},
        {"!<tool_call>{\"name\": \"now\"}!</tool_call>", "|C:now|A:{}"},
        {"a <tool_call>{\"name\": \"now\"}", "|T:a <tool_call>{\"name\": \"now\"}"},
        {"!<tool_call>{\"name\": \"now\"}</tool_call>", "|C:now|A:{}|T:</tool_call>"},
        {"<tool_call>!<tool_call>{\"name\": \"now\"}", "|T:<tool_call>|C:now|A:{}"},
        {" !<think>!<think>", "|R:<think>"},
    };
    static const char template[] = "{{ tools }}<tool_call> ... </think>";
    struct reply_format format;
    struct marked m;
    const struct reply_parser_config config = {
        .format = &format, .places = {marked_has, &m}, .tools = {tools, sizeof(tools) - 1}};

    reply_format_find(&format, template, sizeof(template) - 1, true);
    format.n_controls = 4;
    format.controls[0] = (struct reply_control){7, "<think>"};
    format.controls[1] = (struct reply_control){8, "</think>"};
    format.controls[2] = (struct reply_control){9, "<tool_call>"};
    format.controls[3] = (struct reply_control){10, "</tool_call>"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        marked_read(&m, &format, cases[i].text);
        check_parts(&config, m.text, cases[i].expected);
    }
}
END_TEST

/* Text that a stop text has held back came with a later token than its own. */
START_TEST(test_places)
{
    static const struct token_place tokens[] = {{1, 2}, {7, 2}, {1, 2}, {1, 11}, {7, 18}};
    const struct reply_tokens t = {place_at, tokens, 5};

    ck_assert(reply_tokens_have(&t, 7, 2, 7)); /* shown with the third behind it */
    ck_assert(!reply_tokens_have(&t, 8, 2, 7) && !reply_tokens_have(&t, 7, 1, 7));
    ck_assert(reply_tokens_have(&t, 7, 11, 7));
    ck_assert(!reply_tokens_have(&t, 7, 12, 7) && !reply_tokens_have(&t, 7, 18, 7));
    ck_assert(!reply_tokens_have(&(struct reply_tokens){place_at, tokens, 0}, 7, 0, 7));
}
END_TEST

/* A forced reply may be a bare call in any family, and one call is all where one was asked for. */
START_TEST(test_forced)
{
    const struct reply_format format = {.calls = family("mistral")};
    struct reply_parser_config config = {
        .format = &format, .tools = {tools, sizeof(tools) - 1}, .is_forced = true};
    static const char two[] =
        "{\"name\": \"weather\", \"arguments\": " ARGS "}\n{\"name\": \"now\", \"arguments\": {}}";

    check_parts(&config, two, CALLED "|C:now|A:{}");
    config.is_single = true;
    check_parts(&config, two, CALLED);
}
END_TEST

/* Thoughts are parts of their own, without the white space around them; kept if so wished. */
START_TEST(test_thoughts)
{
    struct reply_format format;
    struct reply_parser_config config = {.format = &format, .tools = {tools, sizeof(tools) - 1}};
    static const char template[] = "{{ tools }}<tool_call> ... </think>";

    reply_format_find(&format, template, sizeof(template) - 1, true);
    ck_assert_str_eq(format.calls->family, "hermes");
    check_parts(&config, "<think>\nHm, <b>.\n</think>\n\nYes.", "|R:Hm, <b>.|T:Yes.");
    check_parts(&config,
                "<think>\n\n</think>\n\n<tool_call>{\"name\": \"now\", \"arguments\": {}}"
                "</tool_call>",
                "|C:now|A:{}");
    check_parts(&config, "<think>Hm </thin", "|R:Hm </thin");
    check_parts(&config, " \n<think>Hm</think><think>, hm</think>Yes.", "|R:Hm, hm|T:Yes.");
    /* Anywhere else the delimiters are text. */
    check_parts(&config, "A <think>b</think> c", "|T:A <think>b</think> c");
    check_parts(&config, "<think>Hm</think>A<think>b</think></think>",
                "|R:Hm|T:A<think>b</think></think>");
    check_parts(&config, "<thin <think>a</think>", "|T:<thin <think>a</think>");
    check_parts(&config, "</think>a", "|T:</think>a");
    check_parts(&config, "`<think>`", "|T:`<think>`");
    check_parts(&config, "<think>`</think>` a", "|R:`|T:` a");
    check_parts(&config, "<tool_call>{\"name\": \"now\"}</tool_call><think>a</think>",
                "|C:now|A:{}|T:<think>a</think>");
    check_parts(&config, "<think><tool_call>{\"name\": \"now\"}</tool_call></think>Yes.",
                "|R:<tool_call>{\"name\": \"now\"}</tool_call>|T:Yes.");
    config.keeps_thoughts = true;
    check_parts(&config, "<think>\nHm\n</think>\n\nYes.", "|T:<think>\nHm\n</think>\n\nYes.");
    config.keeps_thoughts = false;
    format.begins_in_thought[THINKING_DEFAULT] = true;
    check_parts(&config, "Hm\n</think>\n\nYes.", "|R:Hm|T:Yes.");
    check_parts(&config, "Hm", "|R:Hm");
    check_parts(&config, "<think>\nHm</think><think> a", "|R:Hma");
    check_parts(&config, " <thi", "|R:<thi");
    check_parts(&config, "</think>{\"a\": 1}", "|T:{\"a\": 1}");
}
END_TEST

/* Behind its thoughts a reply that is JSON by a constraint comes back whole. */
START_TEST(test_json)
{
    static const char text[] = "{\"a\": \"<think>b</think> <|channel|>analysis<|message|> "
                               "<|start|>assistant <tool_call>{\\\"name\\\"\", \"name\": \"now\", "
                               "\"parameters\": {}}";
    static const char *const templates[] = {"<tool_call></think>",
                                            "<|start_header_id|>\"parameters\"</think>",
                                            "<|channel|>analysis functions."};

    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        struct reply_format format;
        struct reply_parser_config config = {
            .format = &format, .tools = {tools, sizeof(tools) - 1}, .is_json = true};
        char all[512], expected[512];

        reply_format_find(&format, templates[i], strlen(templates[i]), true);
        (void)snprintf(expected, sizeof(expected), "|T:%s", text);
        check_parts(&config, text, expected);
        (void)snprintf(all, sizeof(all), "%sHm.%s%s", format.thoughts->begin, format.thoughts->cut,
                       text);
        (void)snprintf(expected, sizeof(expected), "|R:Hm.|T:%s", text);
        check_parts(&config, all, expected);
    }
}
END_TEST

/* Arguments of a forced call may come before the call is whole; whether it has become one is known.
 */
START_TEST(test_streamed)
{
    static const char call[] = "{\"name\": \"weather\", \"arguments\": " ARGS;
    const struct reply_format format = {.calls = family("hermes")};
    const struct reply_parser_config config = {.format = &format,
                                               .tools = {tools, sizeof(tools) - 1},
                                               .is_forced = true,
                                               .streams_calls = true};

    check_parts(&config, call, CALLED);
    for (size_t n = 1; n < sizeof(call); n++) {
        struct reply_parser *p;
        struct reply_part part;
        size_t n_parts = 0;

        ck_assert_int_eq(reply_parser_open(&p, &config, &err), STATUS_OK);
        ck_assert_int_eq(reply_parser_add(p, call, n, &err), STATUS_OK);
        while (reply_parser_next(p, &part))
            n_parts += part.kind == REPLY_CALL || part.kind == REPLY_ARGUMENTS;
        ck_assert(n_parts == 0 || n_parts == 2);
        ck_assert(reply_parser_is_in_call(p) == (n_parts == 2 && n < sizeof(call) - 1));
        reply_parser_close(p);
    }
}
END_TEST

/* gpt-oss's channels: thoughts, a call, the answer. */
START_TEST(test_channels)
{
    static const char template[] = "<|channel|>analysis <|channel|>commentary functions.";
    struct reply_format format;
    struct reply_parser_config config = {.format = &format, .tools = {tools, sizeof(tools) - 1}};

    reply_format_find(&format, template, sizeof(template) - 1, true);
    ck_assert_str_eq(format.calls->family, "harmony");
    check_parts(&config,
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                "to=functions.weather <|constrain|>json<|message|>" ARGS,
                "|R:Hm." CALLED);
    check_parts(&config,
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                "<|message|>Yes.",
                "|R:Hm.|T:Yes.");
}
END_TEST

/* Where gpt-oss writes recipients and channels: behind the role, behind any channel, twice, without
 * an end between messages. A header never becomes text. */
START_TEST(test_headers)
{
    static const char template[] = "<|channel|>analysis <|channel|>commentary functions.";
    static const char *const cases[][2] = {
        {" to=functions.weather<|channel|>commentary<|constrain|>json<|message|>" ARGS "<|call|>",
         CALLED},
        {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant "
         "to=functions.weather<|channel|>"
         "commentary json<|message|>" ARGS,
         "|R:Hm." CALLED},
        {"<|channel|>analysis to=functions.weather <|message|>" ARGS "<|call|>", CALLED},
        {"<|channel|>commentary to=weather<|message|>" ARGS, CALLED},
        {"<|channel|>commentary to=functions.weather<|channel|>commentary<|message|>" ARGS, CALLED},
        {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.weather<|message|>" ARGS "<|call|>",
         "|T:I look." CALLED},
        {"<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.",
         "|R:Hm.|T:Yes."},
        {"<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.", "|R:Hm.|T:Yes."},
        {"<|channel|>analysis<|channel|>final<|message|>Yes.<|return|>", "|T:Yes."},
        {"<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>"
         "Two.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
         "|R:One.Two.|T:Yes."},
        {"<|channel|>commentary to=functions.unknown<|message|>{\"a\": 1}", "|T:{\"a\": 1}"},
        {"<|channel|>commentary to=functions.weather<|message|>no object", "|T:no object"},
        {"<|channel|>commentary to=functions.weather<|message|>{\"a\": }", "|T:{\"a\": }"},
        {"Yes. <|channel|>commentary to=functions.wea", "|T:Yes."},
        {"to be or not", "|T:to be or not"},
        {"to=me", ""},
        {"He wrote `<|channel|>` there.", "|T:He wrote `<|channel|>` there."},
    };
    struct reply_format format;
    struct reply_parser_config config = {.format = &format, .tools = {tools, sizeof(tools) - 1}};

    reply_format_find(&format, template, sizeof(template) - 1, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_parts(&config, cases[i][0], cases[i][1]);
    config.tools.len = 0;
    check_parts(&config, cases[0][0],
                "|T:"
                " to=functions.weather" ARGS);
}
END_TEST

/* A family is found by what its templates say, before those whose texts are parts of its own. */
START_TEST(test_probes)
{
    static const char *const templates[][2] = {
        {"<seed:tool_call>\n<function=name>\n<parameter=key>", "seed-oss"},
        {"<tool_call>\n<function=name>\n<parameter=key>", "qwen3-coder"},
        {"<TOOLCALL>[{\"name\": ", "nemotron-nano"},
        {"<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": ", "command-r"},
        {"<|tool_call>call:name{}<tool_call|>", "gemma4"},
        {"<|tool_call_start|>[]<|tool_call_end|>", "lfm2"},
        {"\"List of tools: <|tool_list_start|>[\" -%}", "lfm2"}, /* LFM2-8B-A1B: no call is shown */
        {"\"List of tools: [\" -%}", "lfm2"},                    /* LFM2.5 */
        {"<|header_start|>user<|header_end|> \"parameters\"", "llama4"},
        {"<tool_call>{}</tool_call>", "hermes"},
    };
    struct reply_format format;

    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        reply_format_find(&format, templates[i][0], strlen(templates[i][0]), true);
        ck_assert_str_eq(format.calls->family, templates[i][1]);
    }
}
END_TEST

/* What is held back is bounded: a head that is too long is text. */
START_TEST(test_bounds)
{
    const struct reply_format format = {.calls = family("hermes")};
    const struct reply_parser_config config = {.format = &format,
                                               .tools = {tools, sizeof(tools) - 1}};
    struct buf text, out;

    buf_init(&text, 1 << 20);
    ck_assert_int_eq(buf_append_text(&text, "<tool_call>{\"x\": \""), STATUS_OK);
    for (size_t i = 0; i < REPLY_MAX_HEAD_BYTES; i++)
        ck_assert_int_eq(buf_append(&text, "y", 1), STATUS_OK);
    for (size_t cut = 1000; cut < 30000; cut += 14000) {
        parse(&out, &config, text.data, cut);
        ck_assert_str_eq(out.data + 3, text.data);
        buf_deinit(&out);
    }
    buf_deinit(&text);
}
END_TEST

/* Marks fit the bound that their users reserve. */
START_TEST(test_marks)
{
    for (size_t i = 0; call_format_at(i) != NULL; i++) {
        static const struct thought_format thoughts = {
            .open = "a", .close = "b", .probe = "c", .between = {"d", "e"}};
        const struct reply_format format = {.calls = call_format_at(i), .thoughts = &thoughts};
        const char *marks[REPLY_FORMAT_MAX_MARKS];

        ck_assert_uint_ge(reply_format_marks(&format, true, marks), 1);
        ck_assert_uint_le(reply_format_marks(&format, true, marks), REPLY_FORMAT_MAX_MARKS);
        ck_assert_uint_eq(reply_format_marks(&format, false, marks), 4);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_families, test_no_tools, test_forced,   test_thoughts,
                                  test_json,     test_streamed, test_channels, test_probes,
                                  test_headers,  test_bounds,   test_marks,    test_controls,
                                  test_places};

    return suite_run("reply_parser", tests, sizeof(tests) / sizeof(*tests));
}
