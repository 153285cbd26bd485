/* Makes of the offered tools what a turn needs: their text for the template, a constraint where a
 * call is asked for, and how the reply is divided. A tool is checked once, whichever API offers it.
 */
#include "server/api/tools.h"

#include <stdlib.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "agents/reply/reply_parser.h"
#include "base/json_writer.h"
#include "base/name.h"
#include "server/conversation/completed_turn.h"
#include "server/json/fields.h"

enum status tools_check_name(const char *name, const char *field, struct error *err)
{
    if (!name_is_valid(name, strlen(name), TOOLS_MAX_NAME, NAME_MARKS))
        return error_field(err, field,
                           "is '%.70s', it must have 1 to %d letters, digits, '_', '-' or '.'",
                           name, TOOLS_MAX_NAME);
    return STATUS_OK;
}

/* JSON has line breaks only between its parts, and an answer may be a line. */
void tools_write_arguments(struct json_writer *w, const char *name, struct text arguments)
{
    struct buf line;

    buf_init(&line, SIZE_MAX);
    json_writer_fail(w, buf_append(&line, arguments.text, arguments.len));
    for (size_t i = 0; i < line.len; i++)
        if (line.data[i] == '\n' || line.data[i] == '\r')
            line.data[i] = ' ';
    if (w->rc == STATUS_OK)
        json_write_json(w, name, line.data, line.len);
    buf_deinit(&line);
}

static bool has_one_of(const json_t *schema, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_get(schema, names[i]) != NULL)
            return true;
    return false;
}

/* The schema of a call's arguments, a reference; NULL: there are none, *ret_is_short or not.
 * Members that it does not name are left out, unless it speaks of them. */
static json_t *closed_schema(const json_t *parameters, bool *ret_is_short)
{
    static const char *const composed[] = {
        "$ref", "allOf", "anyOf", "not", "oneOf", "patternProperties", "unevaluatedProperties"};
    const json_t *others = json_object_get(parameters, "additionalProperties");
    json_t *copy = NULL;

    if (parameters == NULL)
        return NULL;
    copy = json_copy((json_t *)parameters); /* it changes nothing */
    if (copy != NULL && (has_one_of(parameters, composed, sizeof(composed) / sizeof(composed[0])) ||
                         (others != NULL && !json_is_false(others))))
        return copy;
    if (copy != NULL && json_object_size(json_object_get(parameters, "properties")) == 0) {
        json_decref(copy);
        return NULL;
    }
    if (copy == NULL || json_object_set_new(copy, "additionalProperties", json_false()) != 0) {
        json_decref(copy);
        *ret_is_short = true;
        return NULL;
    }
    return copy;
}

/* The tools that a constrained reply may call; kept holds their schemas. NULL: there is no memory.
 * Where the reply need not be a call, tools that do not insist may have any arguments. */
static struct call_constraint *constrained_tools(const struct offered_tools *tools, json_t *kept,
                                                 size_t *ret_n, struct arena *arena)
{
    struct call_constraint *calls = arena_alloc(arena, tools->n, sizeof(calls[0]));
    bool is_short = calls == NULL || kept == NULL;
    size_t n = 0;

    for (size_t i = 0; !is_short && i < tools->n; i++) {
        const struct offered_tool *t = &tools->items[i];
        json_t *schema;

        if (tools->named != NULL && strcmp(tools->named, t->name) != 0)
            continue;
        schema = tools->choice == TOOLS_REQUIRED || t->is_strict
                     ? closed_schema(t->parameters, &is_short)
                     : json_pack("{s:s}", "type", "object");
        if (schema != NULL && json_array_append_new(kept, schema) != 0)
            is_short = true;
        calls[n++] = (struct call_constraint){t->name, schema, t->is_strict};
    }
    *ret_n = n;
    return is_short ? NULL : calls;
}

static bool has_strict(const struct offered_tools *tools)
{
    for (size_t i = 0; i < tools->n; i++)
        if (tools->items[i].is_strict)
            return true;
    return false;
}

/* A tool that is named is called once. So is any by a model that was never taught calls: made to
 * call, it would repeat itself up to its limit. */
static bool makes_one_call(const struct offered_tools *tools, const struct reply_format *f)
{
    return tools->is_single || tools->named != NULL ||
           (tools->choice == TOOLS_REQUIRED && f != NULL && !f->takes_tools);
}

static struct calls_form calls_form_of(const struct offered_tools *tools,
                                       const struct reply_format *f)
{
    const bool is_object = f->calls->shape == CALL_OBJECT;
    struct calls_form form = {.before = "{\"name\": \"",
                              .between = is_object && strcmp(f->calls->arguments, "parameters") == 0
                                             ? "\", \"parameters\": "
                                             : "\", \"arguments\": ",
                              .after = "}",
                              .is_single = makes_one_call(tools, f)};

    if (f->marks_calls) { /* the one family with marks and objects */
        form.before = "<tool_call>\n{\"name\": \"";
        form.after = "}\n</tool_call>";
    }
    return form;
}

static enum status constrain(const struct constraint **out, const char **ret_left_out,
                             const struct offered_tools *tools, const struct reply_format *format,
                             struct arena *arena, struct error *err)
{
    struct calls_form form = calls_form_of(tools, format);
    json_t *kept = json_array();
    struct call_constraint *calls;
    size_t n;
    enum status rc;

    if (tools->choice != TOOLS_REQUIRED)
        form.trigger = format->calls->open;
    calls = constrained_tools(tools, kept, &n, arena);
    rc = calls == NULL ? error_no_memory(err, tools->n * sizeof(calls[0]), "the tools")
                       : constraint_of_calls(out, calls, n, &form, ret_left_out, arena, err);
    json_decref(kept);
    return rc == STATUS_INVALID ? error_name_field(err, "tools") : rc;
}

enum status tools_use(struct tool_use *out, const struct constraint **ret_constraint,
                      const char **ret_left_out, const struct offered_tools *tools,
                      const struct reply_format *format, struct arena *arena, struct error *err)
{
    const bool is_forced = tools->choice == TOOLS_REQUIRED;

    *out = (struct tool_use){.is_forced = is_forced, .is_single = makes_one_call(tools, format)};
    *ret_constraint = NULL;
    *ret_left_out = "";
    if (tools->choice == TOOLS_NONE || tools->n == 0)
        return STATUS_OK;
    if (format == NULL && is_forced)
        return error_field(err, "tool_choice", "is for language models, the model is none");
    if (format == NULL || (!is_forced && !format->takes_tools))
        return STATUS_OK; /* it answers in text */
    out->tools = tools->json;
    if (is_forced)
        return constrain(ret_constraint, ret_left_out, tools, format, arena, err);
    if (!has_strict(tools))
        return STATUS_OK;
    if (!format->marks_calls) {
        *ret_left_out = "tools strict";
        return STATUS_OK;
    }
    return constrain(ret_constraint, ret_left_out, tools, format, arena, err);
}

/* --- tools as texts --- */

static enum status texts_take(struct offered_tool *out, json_t *all, const struct tool_text *t,
                              size_t i, struct error *err)
{
    bool was_short = false, is_good;
    json_t *parameters = NULL, *function, *tool;
    char name[48];

    (void)snprintf(name, sizeof(name), "tools[%zu].name", i);
    if (tools_check_name(t->name, name, err) != STATUS_OK)
        return err->status;
    if (t->parameters[0] != '\0') {
        parameters = fields_load(t->parameters, strlen(t->parameters), NULL, &was_short);
        if (!was_short && !json_is_object(parameters)) {
            json_decref(parameters);
            (void)snprintf(name, sizeof(name), "tools[%zu].parameters", i);
            return error_field(err, name, "are no JSON object");
        }
    }
    function = json_pack("{s:s}", "name", t->name);
    is_good = !was_short && function != NULL &&
              (t->description[0] == '\0' ||
               json_object_set_new(function, "description", json_string(t->description)) == 0) &&
              (parameters == NULL || json_object_set(function, "parameters", parameters) == 0) &&
              (!t->is_strict || json_object_set_new(function, "strict", json_true()) == 0);
    *out = (struct offered_tool){.name = t->name,
                                 .parameters = json_object_size(parameters) > 0 ? parameters : NULL,
                                 .is_strict = t->is_strict};
    tool = is_good ? json_pack("{s:s,s:O}", "type", "function", "function", function) : NULL;
    json_decref(function);
    json_decref(parameters); /* the list has it */
    return tool != NULL && json_array_append_new(all, tool) == 0
               ? STATUS_OK
               : error_no_memory(err, 0, "the tools");
}

static enum status texts_choose(struct offered_tools *out, const struct tool_texts *texts,
                                struct error *err)
{
    out->choice = texts->choice;
    out->is_single = texts->is_single;
    if (texts->named == NULL)
        return STATUS_OK;
    for (size_t i = 0; i < out->n; i++) {
        if (strcmp(out->items[i].name, texts->named) == 0) {
            out->choice = TOOLS_REQUIRED;
            out->named = out->items[i].name;
            return STATUS_OK;
        }
    }
    return error_field(err, "tool_choice", "names '%.64s', which is not a tool of the request",
                       texts->named);
}

static enum status texts_list(struct offered_tools *out, json_t *all,
                              const struct tool_texts *texts, struct arena *arena,
                              struct error *err)
{
    char *json;

    out->items = arena_alloc(arena, texts->n, sizeof(out->items[0]));
    if (all == NULL || out->items == NULL)
        return error_no_memory(err, 0, "the tools");
    for (; out->n < texts->n; out->n++)
        if (texts_take(&out->items[out->n], all, &texts->items[out->n], out->n, err) != STATUS_OK)
            return err->status;
    json = json_dumps(all, 0);
    if (json == NULL)
        return error_no_memory(err, 0, "the tools");
    out->json.len = strlen(json);
    out->json.text = arena_strndup(arena, json, out->json.len);
    free(json);
    return out->json.text == NULL ? error_no_memory(err, 0, "the tools")
                                  : texts_choose(out, texts, err);
}

enum status tools_use_texts(struct tool_use *out, const struct constraint **ret_constraint,
                            const char **ret_left_out, const struct tool_texts *texts,
                            const struct reply_format *format, struct arena *arena,
                            struct error *err)
{
    struct offered_tools tools = {0};
    json_t *all;
    enum status rc;

    if (texts->n > TOOLS_MAX)
        return error_field(err, "tools", "has %zu entries, at most %d are allowed", texts->n,
                           TOOLS_MAX);
    if (texts->n == 0 && (texts->choice == TOOLS_REQUIRED || texts->named != NULL))
        return error_field(err, "tool_choice", "needs tools, and there are none");
    all = json_array();
    rc = texts_list(&tools, all, texts, arena, err);
    if (rc == STATUS_OK)
        rc = tools_use(out, ret_constraint, ret_left_out, &tools, format, arena, err);
    json_decref(all);
    return rc;
}

bool tools_is_json(const struct stored_request *asked)
{
    const struct sampling_overrides *o = asked->overrides;
    const struct constraint *c =
        o == NULL || (o->given & SAMPLING_CONSTRAINT) == 0 ? NULL : o->values.constraint;

    return c != NULL && c->form == CONSTRAINT_SCHEMA;
}

bool tools_divide(struct reply_parser_config *out, const struct stored_request *asked,
                  const struct reply_format *format)
{
    *out = (struct reply_parser_config){0};
    if (asked == NULL || (asked->is_plain && !asked->raw.is_chat))
        return false;
    out->format = format;
    out->tools = asked->tool_use.tools;
    out->is_forced = asked->tool_use.is_forced;
    out->is_single = asked->tool_use.is_single;
    out->thinking = asked->variables.thinking;
    out->is_json = tools_is_json(asked);
    return format != NULL && (out->tools.len > 0 || format->thoughts != NULL);
}

enum status tools_cut_call(struct error *err, enum finish finish)
{
    return error_set(err, STATUS_RANGE,
                     "the reply ended (%s) inside a call, which is none so: allow more tokens, or "
                     "no stop texts that the arguments may have",
                     finish_name(finish));
}

/* A token that only ends a thought's mark, or is the white space around one, is not of it. */
static uint32_t tools_count_tokens(const struct completed_turn *t, const struct reply_range *ranges,
                                   size_t n_ranges)
{
    size_t from = 0, k = 0;
    uint32_t n = 0;

    for (size_t i = 0; i < t->n_tokens; i++) {
        const size_t to = t->tokens[i].text_end;

        while (k < n_ranges && ranges[k].to <= from)
            k++;
        n += k < n_ranges && from < to && ranges[k].from < to;
        from = to;
    }
    return n;
}

uint32_t tools_thought_tokens(const struct completed_turn *t, const struct reply_format *format)
{
    struct reply_parser_config config;
    struct reply_parser *p = NULL;
    const struct reply_range *ranges;
    struct error ignored;
    uint32_t n = 0;
    size_t n_ranges;

    if (!tools_divide(&config, t->request, format) || format->thoughts == NULL)
        return 0;
    config.places = (struct reply_places){completed_turn_has_token, t};
    if (reply_parser_open(&p, &config, &ignored) == STATUS_OK &&
        reply_parser_add(p, t->len == 0 ? "" : t->text, t->len, &ignored) == STATUS_OK &&
        reply_parser_end(p, &ignored) == STATUS_OK) {
        ranges = reply_parser_thoughts(p, &n_ranges);
        n = tools_count_tokens(t, ranges, n_ranges);
    }
    reply_parser_close(p);
    return n;
}
