#include "agents/reply/reply_format.h"

#include <string.h>

/* The first whose probes are all in the template counts. */
static const struct call_format families[] = {
    {.family = "harmony", /* gpt-oss */
     .probes = {"<|channel|>", "functions."},
     .shape = CALL_NAMED,
     .open = "<|channel|>commentary to=",
     .close = "",
     .before = "",
     .prefix = "functions.",
     .arguments = "<|message|>",
     .after = "<|call|>"},
    {.family = "kimi",
     .probes = {"<|tool_call_argument_begin|>", ""},
     .shape = CALL_NAMED,
     .open = "<|tool_calls_section_begin|>",
     .close = "<|tool_calls_section_end|>",
     .before = "<|tool_call_begin|>",
     .prefix = "functions.",
     .arguments = "<|tool_call_argument_begin|>",
     .after = "<|tool_call_end|>"},
    {.family = "deepseek-r1",
     .probes = {"<｜tool▁calls▁begin｜>", "```json"},
     .shape = CALL_NAMED,
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .before = "<｜tool▁call▁begin｜>",
     .prefix = "function<｜tool▁sep｜>",
     .arguments = "```json",
     .after = "```<｜tool▁call▁end｜>"},
    {.family = "deepseek-v3",
     .probes = {"<｜tool▁calls▁begin｜>", ""},
     .shape = CALL_NAMED,
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .before = "<｜tool▁call▁begin｜>",
     .prefix = "",
     .arguments = "<｜tool▁sep｜>",
     .after = "<｜tool▁call▁end｜>"},
    {.family = "mistral-named", /* Small 3.2, Devstral, Ministral 3 */
     .probes = {"[TOOL_CALLS]", "[ARGS]"},
     .shape = CALL_NAMED,
     .open = "[TOOL_CALLS]",
     .close = "",
     .before = "",
     .prefix = "",
     .arguments = "[ARGS]",
     .after = ""},
    {.family = "mistral", /* Nemo, Small 24.09 */
     .probes = {"[TOOL_CALLS]", ""},
     .shape = CALL_LIST,
     .open = "[TOOL_CALLS]",
     .close = "",
     .before = "",
     .prefix = "",
     .arguments = "arguments",
     .after = ""},
    {.family = "qwen3-coder", /* and Qwen 3.5 */
     .probes = {"<function=", "<parameter="},
     .shape = CALL_PARAMETERS,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .before = "",
     .prefix = "",
     .arguments = "",
     .after = ""},
    {.family = "glm",
     .probes = {"<arg_key>", "<arg_value>"},
     .shape = CALL_PAIRS,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .before = "",
     .prefix = "",
     .arguments = "",
     .after = ""},
    {.family = "hermes", /* Qwen 2.5 and 3, Granite 4, SmolLM3, many fine-tunes */
     .probes = {"<tool_call>", ""},
     .shape = CALL_OBJECT,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .before = "",
     .prefix = "",
     .arguments = "arguments",
     .after = ""},
    {.family = "phi4-mini",
     .probes = {"<|tool_call|>", "<|/tool_call|>"},
     .shape = CALL_LIST,
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .before = "",
     .prefix = "",
     .arguments = "arguments",
     .after = ""},
    {.family = "granite3",
     .probes = {"<|tool_call|>", ""},
     .shape = CALL_LIST,
     .open = "<|tool_call|>",
     .close = "",
     .before = "",
     .prefix = "",
     .arguments = "arguments",
     .after = ""},
    {.family = "llama3",
     .probes = {"<|start_header_id|>", "\"parameters\""},
     .shape = CALL_OBJECT,
     .open = "<|python_tag|>",
     .close = "",
     .before = "",
     .prefix = "",
     .arguments = "parameters",
     .after = "",
     .may_be_bare = true},
};

/* A template that has no form of its own. */
static const struct call_format bare = {.family = "json",
                                        .probes = {"", ""},
                                        .shape = CALL_OBJECT,
                                        .open = "",
                                        .close = "",
                                        .before = "",
                                        .prefix = "",
                                        .arguments = "arguments",
                                        .after = "",
                                        .may_be_bare = true};

static const struct thought_format thoughts[] = {
    {.open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .probe = "<|channel|>analysis",
     .between = {"<|start|>assistant", "<|channel|>final<|message|>"}},
    {.open = "[THINK]", .close = "[/THINK]", .probe = "[/THINK]"},
    {.open = "<|channel>thought", .close = "<channel|>", .probe = "<|channel>thought"},
    {.open = "<think>", .close = "</think>", .probe = "</think>"},
};

static bool template_has(const char *text, size_t len, const char *what)
{
    return memmem(text, len, what, strlen(what)) != NULL;
}

void reply_format_find(struct reply_format *out, const char *text, size_t len, bool takes_tools)
{
    *out = (struct reply_format){.calls = &bare, .takes_tools = takes_tools};
    if (text == NULL)
        return;
    for (size_t i = 0;
         takes_tools && out->calls == &bare && i < sizeof(families) / sizeof(*families); i++)
        if (template_has(text, len, families[i].probes[0]) &&
            template_has(text, len, families[i].probes[1]))
            out->calls = &families[i];
    for (size_t i = 0; out->thoughts == NULL && i < sizeof(thoughts) / sizeof(*thoughts); i++)
        if (template_has(text, len, thoughts[i].probe))
            out->thoughts = &thoughts[i];
}

size_t reply_format_marks(const struct reply_format *f, bool of_calls, const char *out[])
{
    const struct thought_format *t = f->thoughts;
    const struct call_format *c = f->calls;
    const char *const all[] = {c->open,
                               c->close,
                               c->before,
                               c->prefix,
                               c->after,
                               c->shape == CALL_NAMED ? c->arguments : "",
                               t == NULL ? NULL : t->open,
                               t == NULL ? NULL : t->close,
                               t == NULL ? NULL : t->between[0],
                               t == NULL ? NULL : t->between[1]};
    const size_t from = of_calls ? 0 : 6, to = of_calls ? 6 : 10;
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        if (all[i] != NULL && all[i][0] != '\0')
            out[n++] = all[i];
    return n;
}

const struct call_format *call_format_at(size_t i)
{
    return i < sizeof(families) / sizeof(*families) ? &families[i] : NULL;
}
