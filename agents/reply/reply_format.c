/* The tables of families, of reasoning and of calls, with the texts around each. A template is
 * searched for a row's texts, and the first row that fits is the model's. */
#include "agents/reply/reply_format.h"

#include <string.h>

#define REASONS_IN_TAGS                                                                    \
    {                                                                                      \
        .probe = "</think>", .open = "<think>", .close = "</think>", .begin = "<think>\n", \
        .cut = "\n</think>\n\n", .after = "\n\n", .alone = ""                              \
    }
#define REASONS_IN_BRACKETS                                                              \
    {                                                                                    \
        .probe = "[/THINK]", .open = "[THINK]", .close = "[/THINK]", .begin = "[THINK]", \
        .cut = "[/THINK]", .after = "", .alone = ""                                      \
    }
#define REASONS_IN_CHANNEL                                                                \
    {                                                                                     \
        .probe = "<|channel>thought", .open = "<|channel>thought", .close = "<channel|>", \
        .begin = "<|channel>thought\n", .cut = "\n<channel|>", .after = "", .alone = ""   \
    }

#define REASONS_IN_SEED                                                            \
    {                                                                              \
        .probe = "<seed:think>", .open = "<seed:think>", .close = "</seed:think>", \
        .begin = "<seed:think>", .cut = "</seed:think>", .after = "", .alone = ""  \
    }
/* Command R7B: the answer stands between marks of its own. */
#define REASONS_IN_COMMAND                                                                        \
    {                                                                                             \
        .probe = "<|START_THINKING|>", .open = "<|START_THINKING|>", .close = "<|END_THINKING|>", \
        .between = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}, .is_anywhere = true,               \
        .begin = "<|START_THINKING|>", .cut = "<|END_THINKING|><|START_RESPONSE|>",               \
        .after = "<|START_RESPONSE|>", .alone = "<|START_RESPONSE|>"                              \
    }

/* Calls of a template that has no form of its own. */
#define BARE_CALLS                                                                             \
    {                                                                                          \
        .family = "json", .probes = {"", ""}, .shape = CALL_OBJECT, .open = "", .close = "",   \
        .before = "", .prefix = "", .arguments = "arguments", .after = "", .may_be_bare = true \
    }

/* The first that fits the template counts. Its models reason as its row says, if the
 * template has that probe, too; else as the first row says whose probe it has. The rows without a
 * form of calls are for templates of none of the families before. */
static const struct reply_family families[] = {
    {.calls = {.family = "harmony", /* gpt-oss */
               .probes = {"<|channel|>", "functions."},
               .shape = CALL_NAMED,
               .open = "<|channel|>commentary to=",
               .close = "",
               .before = "",
               .prefix = "functions.",
               .arguments = "<|message|>",
               .after = "<|call|>"},
     .thoughts = {.probe = "<|channel|>analysis",
                  .open = "<|channel|>analysis<|message|>",
                  .close = "<|end|>",
                  .between = {"<|start|>assistant", "<|channel|>final<|message|>"},
                  .has_headers = true,
                  .is_anywhere = true,
                  .begin = "<|channel|>analysis<|message|>",
                  .cut = "<|end|><|start|>assistant<|channel|>final<|message|>",
                  .after = "<|start|>assistant<|channel|>final<|message|>",
                  .alone = "<|channel|>final<|message|>"}},
    {.calls = {.family = "kimi",
               .probes = {"<|tool_call_argument_begin|>", ""},
               .shape = CALL_NAMED,
               .open = "<|tool_calls_section_begin|>",
               .close = "<|tool_calls_section_end|>",
               .before = "<|tool_call_begin|>",
               .prefix = "functions.",
               .arguments = "<|tool_call_argument_begin|>",
               .after = "<|tool_call_end|>"},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "deepseek-r1",
               .probes = {"<｜tool▁calls▁begin｜>", "```json"},
               .shape = CALL_NAMED,
               .open = "<｜tool▁calls▁begin｜>",
               .close = "<｜tool▁calls▁end｜>",
               .before = "<｜tool▁call▁begin｜>",
               .prefix = "function<｜tool▁sep｜>",
               .arguments = "```json",
               .after = "```<｜tool▁call▁end｜>"},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "deepseek-v3",
               .probes = {"<｜tool▁calls▁begin｜>", ""},
               .shape = CALL_NAMED,
               .open = "<｜tool▁calls▁begin｜>",
               .close = "<｜tool▁calls▁end｜>",
               .before = "<｜tool▁call▁begin｜>",
               .prefix = "",
               .arguments = "<｜tool▁sep｜>",
               .after = "<｜tool▁call▁end｜>"},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "mistral-named", /* Small 3.2, Devstral, Ministral 3 */
               .probes = {"[TOOL_CALLS]", "[ARGS]"},
               .shape = CALL_NAMED,
               .open = "[TOOL_CALLS]",
               .close = "",
               .before = "",
               .prefix = "",
               .arguments = "[ARGS]",
               .after = ""},
     .thoughts = REASONS_IN_BRACKETS},
    {.calls = {.family = "mistral", /* Nemo, Small 24.09 */
               .probes = {"[TOOL_CALLS]", ""},
               .shape = CALL_LIST,
               .open = "[TOOL_CALLS]",
               .close = "",
               .before = "",
               .prefix = "",
               .arguments = "arguments",
               .after = ""},
     .thoughts = REASONS_IN_BRACKETS},
    {.calls = {.family = "seed-oss",
               .probes = {"<seed:tool_call>", "<function="},
               .shape = CALL_PARAMETERS,
               .open = "<seed:tool_call>",
               .close = "</seed:tool_call>",
               .before = "",
               .prefix = "",
               .arguments = "",
               .after = ""},
     .thoughts = REASONS_IN_SEED},
    {.calls = {.family = "nemotron-nano", /* Nemotron Nano v2 */
               .probes = {"<TOOLCALL>", ""},
               .shape = CALL_LIST,
               .open = "<TOOLCALL>",
               .close = "</TOOLCALL>",
               .before = "",
               .prefix = "",
               .arguments = "arguments",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "command-r", /* Command R7B, A */
               .probes = {"<|START_ACTION|>", "tool_name"},
               .shape = CALL_LIST,
               .open = "<|START_ACTION|>",
               .close = "<|END_ACTION|>",
               .before = "",
               .prefix = "",
               .arguments = "parameters",
               .after = ""},
     .thoughts = REASONS_IN_COMMAND},
    {.calls = {.family = "gemma4",
               .probes = {"<|tool_call>", "<tool_call|>"},
               .shape = CALL_BRACES,
               .open = "<|tool_call>",
               .close = "<tool_call|>",
               .before = "",
               .prefix = "call:",
               .arguments = "",
               .after = ""},
     .thoughts = REASONS_IN_CHANNEL},
    {.calls = {.family = "lfm2", /* and LFM2.5; templates need not show calls */
               .probes = {"<|tool_call_start|>", ""},
               .alone = {"<|tool_list_start|>", "List of tools: ["},
               .shape = CALL_PYTHON,
               .open = "<|tool_call_start|>",
               .close = "<|tool_call_end|>",
               .before = "",
               .prefix = "",
               .arguments = "",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "qwen3-coder", /* and Qwen 3.5, Nemotron 3 */
               .probes = {"<function=", "<parameter="},
               .shape = CALL_PARAMETERS,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .before = "",
               .prefix = "",
               .arguments = "",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "glm",
               .probes = {"<arg_key>", "<arg_value>"},
               .shape = CALL_PAIRS,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .before = "",
               .prefix = "",
               .arguments = "",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "hermes", /* Qwen 2.5 and 3, Granite 4, SmolLM3, many fine-tunes */
               .probes = {"<tool_call>", ""},
               .shape = CALL_OBJECT,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .before = "",
               .prefix = "",
               .arguments = "arguments",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "phi4-mini",
               .probes = {"<|tool_call|>", "<|/tool_call|>"},
               .shape = CALL_LIST,
               .open = "<|tool_call|>",
               .close = "<|/tool_call|>",
               .before = "",
               .prefix = "",
               .arguments = "arguments",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "granite3",
               .probes = {"<|tool_call|>", ""},
               .shape = CALL_LIST,
               .open = "<|tool_call|>",
               .close = "",
               .before = "",
               .prefix = "",
               .arguments = "arguments",
               .after = ""},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "llama3",
               .probes = {"<|start_header_id|>", "\"parameters\""},
               .shape = CALL_OBJECT,
               .open = "<|python_tag|>",
               .close = "",
               .before = "",
               .prefix = "",
               .arguments = "parameters",
               .after = "",
               .may_be_bare = true},
     .thoughts = REASONS_IN_TAGS},
    {.calls = {.family = "llama4",
               .probes = {"<|header_start|>", "\"parameters\""},
               .shape = CALL_OBJECT,
               .open = "<|python_start|>",
               .close = "<|python_end|>",
               .before = "",
               .prefix = "",
               .arguments = "parameters",
               .after = "",
               .may_be_bare = true},
     .thoughts = REASONS_IN_TAGS},
    {.calls = BARE_CALLS, .thoughts = REASONS_IN_BRACKETS},
    {.calls = BARE_CALLS, .thoughts = REASONS_IN_CHANNEL},
    {.calls = BARE_CALLS, .thoughts = REASONS_IN_TAGS},
};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static bool template_has(const char *text, size_t len, const char *what)
{
    return memmem(text, len, what, strlen(what)) != NULL;
}

static bool template_fits(const char *text, size_t len, const struct call_format *c)
{
    for (size_t i = 0; i < 2; i++)
        if (c->alone[i] != NULL && template_has(text, len, c->alone[i]))
            return true;
    return template_has(text, len, c->probes[0]) && template_has(text, len, c->probes[1]);
}

void reply_format_find(struct reply_format *out, const char *text, size_t len, bool takes_tools)
{
    const struct reply_family *family = &families[N_FAMILIES - 1];

    for (size_t i = 0; text != NULL && takes_tools && i < N_FAMILIES; i++) {
        family = &families[i];
        if (template_fits(text, len, &family->calls))
            break;
    }
    *out = (struct reply_format){.calls = &family->calls, .takes_tools = takes_tools};
    if (text != NULL && template_has(text, len, family->thoughts.probe))
        out->thoughts = &family->thoughts;
    for (size_t i = 0; text != NULL && out->thoughts == NULL && i < N_FAMILIES; i++)
        if (template_has(text, len, families[i].thoughts.probe))
            out->thoughts = &families[i].thoughts;
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
    return i < N_FAMILIES && families[i].calls.open[0] != '\0' ? &families[i].calls : NULL;
}

const struct reply_control *reply_format_control(const struct reply_format *f, const char *mark)
{
    for (size_t i = 0; i < f->n_controls; i++)
        if (strncmp(mark, f->controls[i].text, strlen(f->controls[i].text)) == 0)
            return &f->controls[i];
    return NULL;
}
