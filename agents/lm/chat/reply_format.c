#include "agents/lm/chat/reply_format.h"

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
    {"<|channel|>analysis<|message|>", "<|end|>", "<|channel|>analysis"},
    {"[THINK]", "[/THINK]", "[/THINK]"},
    {"<|channel>thought", "<channel|>", "<|channel>thought"},
    {"<think>", "</think>", "</think>"},
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
    for (size_t i = 0; takes_tools && out->calls == &bare && i < sizeof families / sizeof *families;
         i++)
        if (template_has(text, len, families[i].probes[0]) &&
            template_has(text, len, families[i].probes[1]))
            out->calls = &families[i];
    for (size_t i = 0; out->thoughts == NULL && i < sizeof thoughts / sizeof *thoughts; i++)
        if (template_has(text, len, thoughts[i].probe))
            out->thoughts = &thoughts[i];
}

size_t reply_format_marks(const struct reply_format *f, const char *out[])
{
    const struct call_format *c = f->calls;
    const char *const of_calls[] = {
        c->open,  c->close, c->before, c->after, c->shape == CALL_NAMED ? c->arguments : "",
        c->prefix};
    size_t n = 0;

    for (size_t i = 0; i < sizeof of_calls / sizeof *of_calls; i++)
        if (of_calls[i][0] != '\0')
            out[n++] = of_calls[i];
    if (f->thoughts != NULL) {
        out[n++] = f->thoughts->open;
        out[n++] = f->thoughts->close;
    }
    return n;
}

const struct call_format *call_format_at(size_t i)
{
    return i < sizeof families / sizeof *families ? &families[i] : NULL;
}
