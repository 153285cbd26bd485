/* The tools of a request, in the spelling of chat completions, which is also Ollama's and into
 * which Anthropic's is brought, in that of Responses, and in the old one (functions,
 * function_call). */
#include <stdlib.h>
#include <string.h>

#include "agents/reply/reply_parser.h"
#include "server/api/request.h"
#include "server/json/fields.h"

/* function: the object that has the name. */
static enum status take_tool(struct offered_tool *out, const json_t *function, const char *list,
                             size_t i, const char *member, struct error *err)
{
    const struct field_path name = field_path_of(list, i, member);
    const json_t *parameters = NULL;
    struct offered_tool t = {0};

    if (field_text(&t.name, function, "name", err) != STATUS_OK ||
        field_object(&parameters, function, "parameters", err) != STATUS_OK ||
        field_bool(&t.is_strict, function, "strict", err) != STATUS_OK)
        return error_name_field(err, field_path_of(list, i, "").text);
    if (t.name == NULL)
        return error_field(err, name.text, "is missing");
    if (json_object_size(parameters) > 0)
        t.parameters = parameters;
    *out = t;
    return tools_check_name(t.name, name.text, err);
}

/* Appends the tool in the form of chat completions. */
static enum status list_tool(json_t *all, const json_t *function, bool is_flat)
{
    json_t *copy = json_copy((json_t *)function), *tool; /* it changes nothing */

    if (is_flat)
        (void)json_object_del(copy, "type"); /* where it is not, that is fine */
    tool = json_pack("{s:s,s:o}", "type", "function", "function", copy);
    return tool != NULL && json_array_append_new(all, tool) == 0 ? STATUS_OK : STATUS_EXHAUSTED;
}

static enum status check_type(const json_t *tool, size_t i, struct error *err)
{
    const struct field_path type = field_path_of("tools", i, ".type");
    const char *is = json_string_value(json_object_get(tool, "type"));

    if (!json_is_object(tool))
        return field_wrong(err, field_path_of("tools", i, "").text, "an object", tool);
    if (is == NULL)
        return error_field(err, type.text, "is missing, it must be function");
    return strcmp(is, "function") == 0
               ? STATUS_OK
               : error_field(err, type.text, "is '%.40s', only functions can be called", is);
}

static enum status take_list(struct offered_tools *out, json_t *all, const json_t *list,
                             enum tools_spelling spelling, struct error *err)
{
    const char *name = spelling == TOOLS_AS_FUNCTIONS ? "functions" : "tools";

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *function = json_array_get(list, i);
        const char *member = ".name";

        if (spelling != TOOLS_AS_FUNCTIONS && check_type(function, i, err) != STATUS_OK)
            return err->status;
        if (spelling == TOOLS_OF_CHAT) {
            function = json_object_get(function, "function");
            member = ".function.name";
        }
        if (!json_is_object(function))
            return error_field(err, field_path_of(name, i, ".function").text, "is not an object");
        if (take_tool(&out->items[i], function, name, i, member, err) != STATUS_OK)
            return err->status;
        if (list_tool(all, function, spelling != TOOLS_OF_CHAT) != STATUS_OK)
            return error_no_memory(err, 0, "the tools");
        out->n++;
    }
    return STATUS_OK;
}

static enum status keep_json(struct text *out, const json_t *all, struct arena *arena,
                             struct error *err)
{
    char *text = json_dumps(all, 0);

    if (text == NULL)
        return error_no_memory(err, 0, "the tools");
    out->len = strlen(text);
    out->text = arena_strndup(arena, text, out->len);
    free(text);
    return out->text != NULL ? STATUS_OK : error_no_memory(err, 0, "the tools");
}

/* --- the choice --- */

static enum status choose_named(struct offered_tools *t, const char *name, const char *field_name,
                                struct error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->items[i].name, name) == 0) {
            t->choice = TOOLS_REQUIRED;
            t->named = t->items[i].name;
            return STATUS_OK;
        }
    }
    return error_field(err, field_name, "names '%.64s', which is not a tool of the request", name);
}

static enum status choose_mode(struct offered_tools *t, const char *mode, const char *field_name,
                               struct error *err)
{
    static const struct {
        const char *name;
        enum tools_choice choice;
    } modes[] = {{"auto", TOOLS_AUTO}, {"none", TOOLS_NONE}, {"required", TOOLS_REQUIRED}};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, mode) == 0) {
            t->choice = modes[i].choice;
            return STATUS_OK;
        }
    }
    return error_field(err, field_name, "is '%.40s', it must be none, auto, required or a tool",
                       mode);
}

static const char *name_in(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");

    return json_string_value(json_object_get(function != NULL ? function : tool, "name"));
}

/* {"type": "allowed_tools", …}: the others are not offered. */
static enum status choose_allowed(struct offered_tools *t, json_t *all, const json_t *choice,
                                  struct error *err)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *holder = json_is_object(inner) ? inner : choice;
    const json_t *list = json_object_get(holder, "tools");
    const char *mode = json_string_value(json_object_get(holder, "mode"));
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        bool is_allowed = false;

        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *name = name_in(json_array_get(list, k));

            is_allowed = is_allowed || (name != NULL && strcmp(name, t->items[i].name) == 0);
        }
        if (is_allowed)
            t->items[n++] = t->items[i];
        else
            (void)json_array_remove(all, n);
    }
    t->n = n;
    if (n == 0)
        return error_field(err, "tool_choice", "allows no tool of the request");
    return choose_mode(t, mode == NULL ? "auto" : mode, "tool_choice", err);
}

static enum status take_tool_choice(struct offered_tools *t, json_t *all, const json_t *choice,
                                    const char *field_name, struct error *err)
{
    const char *type = json_string_value(json_object_get(choice, "type"));

    if (choice == NULL)
        return STATUS_OK;
    if (json_is_string(choice))
        return choose_mode(t, json_string_value(choice), field_name, err);
    if (!json_is_object(choice))
        return field_wrong(err, field_name, "a string or an object", choice);
    if (type != NULL && strcmp(type, "allowed_tools") == 0)
        return choose_allowed(t, all, choice, err);
    if (name_in(choice) == NULL)
        return error_field(err, field_name, "has no name of a tool");
    return choose_named(t, name_in(choice), field_name, err);
}

/* Without tools none and auto are equal. */
static enum status refuse_choice(const json_t *body, const char *name, struct error *err)
{
    const json_t *choice = field(body, name);
    const char *mode = json_string_value(choice);

    if (choice == NULL ||
        (mode != NULL && (strcmp(mode, "none") == 0 || strcmp(mode, "auto") == 0)))
        return STATUS_OK;
    return error_field(err, name, "needs tools, and there are none");
}

/* --- */

/* The name of the list that the body has, and how it is spelt. */
static enum status find_list(const json_t **out, enum tools_spelling *ret_spelling,
                             const json_t *body, struct error *err)
{
    const json_t *functions = NULL;

    if (field_array(out, body, "tools", err) != STATUS_OK)
        return err->status;
    if (*ret_spelling != TOOLS_OF_CHAT || json_array_size(*out) > 0)
        return STATUS_OK;
    if (field_array(&functions, body, "functions", err) != STATUS_OK)
        return err->status;
    if (json_array_size(functions) > 0) {
        *out = functions;
        *ret_spelling = TOOLS_AS_FUNCTIONS;
    }
    return STATUS_OK;
}

static enum status fill_tools(struct offered_tools *t, json_t *all, const json_t *body,
                              const json_t *list, enum tools_spelling spelling, struct arena *arena,
                              struct error *err)
{
    const char *choice = spelling == TOOLS_AS_FUNCTIONS ? "function_call" : "tool_choice";
    bool is_parallel = true;

    if (take_list(t, all, list, spelling, err) != STATUS_OK ||
        take_tool_choice(t, all, field(body, choice), choice, err) != STATUS_OK ||
        field_bool(&is_parallel, body, "parallel_tool_calls", err) != STATUS_OK)
        return err->status;
    t->is_single = !is_parallel || spelling == TOOLS_AS_FUNCTIONS;
    return keep_json(&t->json, all, arena, err);
}

enum status request_tools(struct request *out, const json_t *body, enum tools_spelling spelling,
                          struct arena *arena, struct error *err)
{
    struct offered_tools *t = arena_alloc(arena, 1, sizeof(*t));
    const json_t *list = NULL;
    json_t *all;
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, 0, "the tools");
    if (find_list(&list, &spelling, body, err) != STATUS_OK)
        return err->status;
    if (json_array_size(list) == 0)
        return refuse_choice(body, "tool_choice", err) != STATUS_OK ||
                       refuse_choice(body, "function_call", err) != STATUS_OK
                   ? err->status
                   : STATUS_OK;
    if (json_array_size(list) > TOOLS_MAX)
        return error_field(err, "tools", "has %zu entries, at most %d are allowed",
                           json_array_size(list), TOOLS_MAX);
    t->items = arena_alloc(arena, json_array_size(list), sizeof(t->items[0]));
    all = json_array();
    rc = t->items == NULL || all == NULL ? error_no_memory(err, 0, "the tools")
                                         : fill_tools(t, all, body, list, spelling, arena, err);
    json_decref(all);
    if (rc != STATUS_OK)
        return rc;
    out->tools = t;
    out->is_function_call = spelling == TOOLS_AS_FUNCTIONS;
    return STATUS_OK;
}

enum status request_fit_model(struct request *r, const struct reply_format *format,
                              struct arena *arena, struct error *err)
{
    const struct constraint *constraint;
    struct offered_tools tools;
    const char *left_out;
    struct tool_use use;

    if (r->thinks != NULL && (format == NULL || format->thoughts == NULL))
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, r->thinks,
                             "\"%.80s\" does not support thinking", r->model);
    if (r->tools == NULL)
        return STATUS_OK;
    tools = *r->tools;
    /* A format is one of the text, and a reply that must call has none. */
    if (r->tools->choice == TOOLS_REQUIRED)
        r->overrides.given &= ~(unsigned)SAMPLING_CONSTRAINT;
    if (tools_use(&use, &constraint, &left_out, &tools, format, arena, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < r->n_prompts; i++)
        r->prompts[i].tool_use = use;
    if (constraint == NULL || (r->overrides.given & SAMPLING_CONSTRAINT) != 0) {
        if (r->left_out == NULL || r->left_out[0] == '\0')
            r->left_out = left_out;
        return STATUS_OK;
    }
    r->left_out = left_out;
    r->overrides.given |= SAMPLING_CONSTRAINT;
    r->overrides.values.constraint = constraint;
    return STATUS_OK;
}
