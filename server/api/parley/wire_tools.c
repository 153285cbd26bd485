/* Reads the tools of a request, the choice among them and the reasoning that is asked for. Calls
 * and results of tools in messages are converted in both directions. */
#include "server/api/parley/wire_tools.h"

#include <string.h>

#include "agents/reply/reply_format.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/request.h"

static struct text wire_tools_text(const char *text)
{
    return (struct text){text, strlen(text)};
}

/* --- the turn's --- */

static enum status wire_choose(struct tool_texts *out, const Parley__V1__ToolChoice *from,
                               struct error *err)
{
    static const enum tools_choice choices[] = {
        [PARLEY__V1__TOOL_CHOICE__MODE__MODE_UNSPECIFIED] = TOOLS_AUTO,
        [PARLEY__V1__TOOL_CHOICE__MODE__MODE_AUTO] = TOOLS_AUTO,
        [PARLEY__V1__TOOL_CHOICE__MODE__MODE_NONE] = TOOLS_NONE,
        [PARLEY__V1__TOOL_CHOICE__MODE__MODE_REQUIRED] = TOOLS_REQUIRED,
    };

    if (from == NULL)
        return STATUS_OK;
    if ((unsigned)from->mode >= sizeof(choices) / sizeof(choices[0]))
        return error_field(err, "tool_choice.mode", "is %d, which is none", (int)from->mode);
    out->choice = choices[from->mode];
    out->is_single = from->no_parallel != 0;
    if (from->name[0] == '\0')
        return STATUS_OK;
    if (out->choice == TOOLS_NONE)
        return error_field(err, "tool_choice.name", "cannot be combined with MODE_NONE");
    out->named = from->name;
    return STATUS_OK;
}

static enum status wire_list(struct tool_texts *out, const Parley__V1__TurnRequest *from,
                             struct arena *arena, struct error *err)
{
    struct tool_text *items = arena_alloc(arena, from->n_tools, sizeof(items[0]));

    if (items == NULL)
        return error_no_memory(err, 0, "the tools");
    for (size_t i = 0; i < from->n_tools; i++) {
        const Parley__V1__Tool *t = from->tools[i];

        items[i] = (struct tool_text){t->name, t->description, t->parameters, t->strict != 0};
        out->has_strict = out->has_strict || t->strict != 0;
    }
    out->items = items;
    out->n = from->n_tools;
    return wire_choose(out, from->tool_choice, err);
}

static enum status wire_reasoning(struct template_variables *out, const Parley__V1__Reasoning *from,
                                  const struct reply_format *format, struct arena *arena,
                                  struct error *err)
{
    static const struct thinking_request efforts[] = {
        [PARLEY__V1__REASONING__EFFORT__EFFORT_UNSPECIFIED] = {.thinking = THINKING_DEFAULT},
        [PARLEY__V1__REASONING__EFFORT__EFFORT_NONE] = {THINKING_OFF, .effort = "none"},
        [PARLEY__V1__REASONING__EFFORT__EFFORT_LOW] = {THINKING_ON, .effort = "low"},
        [PARLEY__V1__REASONING__EFFORT__EFFORT_MEDIUM] = {THINKING_ON, .effort = "medium"},
        [PARLEY__V1__REASONING__EFFORT__EFFORT_HIGH] = {THINKING_ON, .effort = "high"},
    };
    struct thinking_request asked;

    if ((unsigned)from->effort >= sizeof(efforts) / sizeof(efforts[0]))
        return error_field(err, "reasoning.effort", "is %d, which is none", (int)from->effort);
    if (from->effort != PARLEY__V1__REASONING__EFFORT__EFFORT_NONE &&
        (format == NULL || format->thoughts == NULL))
        return error_field(err, "reasoning", "is asked of a model that does not reason");
    asked = efforts[from->effort];
    asked.has_budget = from->max_tokens != 0;
    asked.budget = from->max_tokens;
    return template_variables_make(out, &asked, NULL, arena, err);
}

static enum status wire_constrain(struct turn_request *out, const struct constraint *constraint,
                                  bool is_forced, struct arena *arena, struct error *err)
{
    struct sampling_overrides *p;

    if (out->overrides != NULL && (out->overrides->given & SAMPLING_CONSTRAINT) != 0)
        return is_forced
                   ? error_field(
                         err, "tool_choice",
                         "requires a call, and cannot be combined with a constraint of the reply")
                   : error_field(
                         err, "tools",
                         "are strict, and cannot be combined with a constraint of the reply");
    p = arena_alloc(arena, 1, sizeof(*p));
    if (p == NULL)
        return error_no_memory(err, 0, "the tools");
    if (out->overrides != NULL)
        *p = *out->overrides;
    p->values.constraint = constraint;
    p->given |= SAMPLING_CONSTRAINT;
    out->overrides = p;
    return STATUS_OK;
}

enum status wire_tools(struct turn_request *out, const Parley__V1__TurnRequest *from,
                       const struct reply_format *format, struct arena *arena, struct error *err)
{
    struct tool_texts texts = {0};
    const struct constraint *constraint;
    const char *left_out;

    if (from->reasoning != NULL &&
        wire_reasoning(&out->variables, from->reasoning, format, arena, err) != STATUS_OK)
        return err->status;
    if (wire_list(&texts, from, arena, err) != STATUS_OK ||
        tools_use_texts(&out->tool_use, &constraint, &left_out, &texts, format, arena, err) !=
            STATUS_OK)
        return err->status;
    /* What is left out could not be named in the answer. */
    if (texts.has_strict && out->tool_use.tools.len > 0 && left_out[0] != '\0')
        return error_field(err, "tools",
                           "are strict, and this cannot be enforced (%.60s) where the model "
                           "chooses to call",
                           left_out);
    return constraint == NULL
               ? STATUS_OK
               : wire_constrain(out, constraint, out->tool_use.is_forced, arena, err);
}

/* --- messages --- */

/* The name of the tool that a call in the messages before the n-th has asked for. */
static const char *wire_called_name(const Parley__V1__TurnRequest *from, size_t n, const char *id)
{
    while (n-- > 0) {
        const Parley__V1__Message *m = from->messages[n];

        for (size_t i = 0; id[0] != '\0' && i < m->n_tool_calls; i++)
            if (strcmp(m->tool_calls[i]->id, id) == 0)
                return m->tool_calls[i]->name;
    }
    return "";
}

static enum status wire_refuse_extra(size_t i, const char *member, const char *role,
                                     struct error *err)
{
    char field[sizeof(err->field)];

    (void)snprintf(field, sizeof(field), "messages[%zu].%s", i, member);
    return error_field(err, field, "is only for messages of role %s", role);
}

static enum status wire_calls(struct message_extras *out, const Parley__V1__Message *m, size_t i,
                              struct arena *arena, struct error *err)
{
    struct tool_call *calls = arena_alloc(arena, m->n_tool_calls, sizeof(calls[0]));
    char field[sizeof(err->field)];

    (void)snprintf(field, sizeof(field), "messages[%zu].tool_calls", i);
    if (m->n_tool_calls > REQUEST_MAX_CALLS)
        return error_field(err, field, "has %zu calls, at most %d are allowed", m->n_tool_calls,
                           REQUEST_MAX_CALLS);
    if (calls == NULL)
        return error_no_memory(err, 0, "the tools");
    for (size_t k = 0; k < m->n_tool_calls; k++) {
        const Parley__V1__ToolCall *c = m->tool_calls[k];

        if (c->name[0] == '\0')
            return error_field(err, field, "has a call without a name");
        calls[k] =
            (struct tool_call){wire_tools_text(c->id), wire_tools_text(c->name),
                               wire_tools_text(c->arguments[0] == '\0' ? "{}" : c->arguments)};
    }
    out->calls = calls;
    out->n_calls = m->n_tool_calls;
    return STATUS_OK;
}

enum status wire_extras(struct message *out, const Parley__V1__TurnRequest *from, size_t i,
                        struct arena *arena, struct error *err)
{
    const Parley__V1__Message *m = from->messages[i];
    struct message_extras x = {.thoughts = wire_tools_text(m->reasoning),
                               .call_id = wire_tools_text(m->tool_call_id),
                               .name = wire_tools_text(m->name)};

    if (out->role != ROLE_ASSISTANT && (m->n_tool_calls > 0 || x.thoughts.len > 0))
        return wire_refuse_extra(i, x.thoughts.len > 0 ? "reasoning" : "tool_calls", "assistant",
                                 err);
    if (out->role != ROLE_TOOL && (x.call_id.len > 0 || x.name.len > 0))
        return wire_refuse_extra(i, x.name.len > 0 ? "name" : "tool_call_id", "tool", err);
    if (out->role == ROLE_TOOL && x.name.len == 0)
        x.name = wire_tools_text(wire_called_name(from, i, m->tool_call_id));
    if (wire_calls(&x, m, i, arena, err) != STATUS_OK)
        return err->status;
    return request_message_extras(out, &x, arena, err);
}

enum status wire_fill_extras(Parley__V1__Message *out, const struct message *m, struct arena *arena)
{
    struct message_extras x;
    Parley__V1__ToolCall *calls;

    if (message_extras_read(&x, m, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    out->name = wire_shown(x.name, arena);
    out->tool_call_id = wire_shown(x.call_id, arena);
    out->reasoning = wire_shown(x.thoughts, arena);
    if (out->name == NULL || out->tool_call_id == NULL || out->reasoning == NULL)
        return STATUS_EXHAUSTED;
    if (x.n_calls == 0)
        return STATUS_OK;
    calls = arena_alloc(arena, x.n_calls, sizeof(calls[0]));
    out->tool_calls = arena_alloc(arena, x.n_calls, sizeof(out->tool_calls[0]));
    if (calls == NULL || out->tool_calls == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < x.n_calls; i++) {
        parley__v1__tool_call__init(&calls[i]);
        calls[i].id = wire_shown(x.calls[i].id, arena);
        calls[i].name = wire_shown(x.calls[i].name, arena);
        calls[i].arguments = wire_shown(x.calls[i].arguments, arena);
        if (calls[i].id == NULL || calls[i].name == NULL || calls[i].arguments == NULL)
            return STATUS_EXHAUSTED;
        out->tool_calls[out->n_tool_calls++] = &calls[i];
    }
    return STATUS_OK;
}
