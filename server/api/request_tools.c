/* The tools of a request, in the spelling of chat completions, which is also Ollama's and into
 * which Anthropic's is brought, in that of Responses, and in the old one (functions,
 * function_call). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/reply/reply_parser.h"
#include "base/buf.h"
#include "server/api/request.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"

enum { MAX_LEFT_OUT = 32, MAX_SKILLS = 512 };

/* The body's own member, a list of functions. */
#define MADE_TOOLS "tools as functions"

/* function: the object that has the name. is_made: out of another tool. */
static enum status take_tool(struct offered_tool *out, const json_t *function, const char *list,
                             size_t i, const char *member, bool is_made, struct error *err)
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
    return is_made && strchr(t.name, '/') != NULL ? STATUS_OK /* they are checked */
                                                  : tools_check_name(t.name, name.text, err);
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
    if (!json_is_object(tool))
        return field_wrong(err, field_path_of("tools", i, "").text, "an object", tool);
    if (!json_is_string(json_object_get(tool, "type")))
        return error_field(err, field_path_of("tools", i, ".type").text,
                           "is missing, it must be function");
    return STATUS_OK;
}

/* --- tools that are no functions --- */

static bool tool_type_is(const json_t *tool, const char *type)
{
    return field_is_text(json_object_get(tool, "type"), type);
}

bool request_list_left_out(json_t *list, const char *type)
{
    char name[48];
    size_t n = 0;

    for (; type[n] != '\0' && n + 1 < sizeof(name); n++)
        name[n] = isalnum((unsigned char)type[n]) || strchr("._-", type[n]) != NULL ? type[n] : '?';
    name[n] = '\0';
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return json_array_size(list) >= MAX_LEFT_OUT ||
           json_array_append_new(list, json_string(name)) == 0;
}

/* Appends the head and the string, which may be none. */
static bool append_string(struct buf *out, const char *head, const json_t *string)
{
    return buf_append_text(out, head) == STATUS_OK &&
           buf_append(out, json_string_value(string), json_string_length(string)) == STATUS_OK;
}

/* A tool whose input is a text, in a grammar or free, as a function of one argument. */
static json_t *custom_function(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    const json_t *says = json_object_get(tool, "description");
    const json_t *syntax = json_object_get(format, "syntax");
    const json_t *grammar = json_object_get(format, "definition");
    json_t *description;
    struct buf text;
    bool is_good;

    buf_init(&text, SIZE_MAX);
    is_good = append_string(&text, "", says);
    if (is_good && json_is_string(syntax) && json_is_string(grammar))
        is_good = append_string(&text, "\n\nThe input is in this ", syntax) &&
                  append_string(&text, " grammar:\n", grammar);
    description = is_good ? json_stringn(text.len == 0 ? "" : text.data, text.len) : NULL;
    buf_deinit(&text);
    if (description == NULL)
        return NULL;
    return json_pack("{s:O,s:o,s:{s:s,s:s,s:{s:{s:s,s:s}},s:[s],s:b}}", "name",
                     json_object_get(tool, "name"), "description", description, "parameters",
                     "type", "object", "title", TOOLS_CUSTOM_TITLE, "properties", "input", "type",
                     "string", "description", "The input of the tool, as text.", "required",
                     "input", "additionalProperties", 0);
}

/* Tools that have no schema in the request, since OpenAI's models know them. The client runs them,
 * and their names are their types. */
static const struct client_tool {
    const char *type, *description, *parameters;
} client_tools[] = {
    {"local_shell", "Runs a program on the user's machine, and returns its output.",
     "{\"type\": \"object\", \"title\": \"" TOOLS_LOCAL_SHELL_TITLE
     "\", \"properties\": {\"command\": "
     "{\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"description\": \"The program and "
     "its "
     "arguments.\"}, \"working_directory\": {\"type\": \"string\"}, \"timeout_ms\": {\"type\": "
     "\"integer\", \"description\": \"The time after which the program is ended.\"}}, "
     "\"required\": "
     "[\"command\"]}"},
    {"shell", "Runs commands in a shell on the user's machine, and returns what they print.",
     "{\"type\": \"object\", \"title\": \"" TOOLS_SHELL_TITLE "\", \"properties\": {\"commands\": "
     "{\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"description\": \"The commands, "
     "each a "
     "line for the shell.\"}, \"timeout_ms\": {\"type\": \"integer\", \"description\": \"The time "
     "after "
     "which they are ended.\"}, \"max_output_length\": {\"type\": \"integer\", \"description\": "
     "\"How many "
     "characters of what they print are returned.\"}}, \"required\": [\"commands\"]}"},
    {"apply_patch", "Creates, changes or deletes a file on the user's machine.",
     "{\"type\": \"object\", \"title\": \"" TOOLS_PATCH_TITLE
     "\", \"properties\": {\"type\": {\"type\": "
     "\"string\", \"enum\": [\"create_file\", \"update_file\", \"delete_file\"]}, \"path\": "
     "{\"type\": "
     "\"string\", \"description\": \"The file, relative to the working directory.\"}, \"diff\": "
     "{\"type\": "
     "\"string\", \"description\": \"What changes: lines that begin with a space stay, with - go, "
     "with + "
     "come; @@ begins a part. A file that is created has lines with + alone, one that is deleted "
     "needs no "
     "diff.\"}}, \"required\": [\"type\", \"path\"]}"},
};

/* NULL: it is none of those, or it is run in a container of the provider's. */
static const struct client_tool *client_tool_find(const json_t *tool)
{
    const json_t *kind = json_object_get(json_object_get(tool, "environment"), "type");

    if (json_is_string(kind) && !field_is_text(kind, "local"))
        return NULL;
    for (size_t i = 0; i < sizeof(client_tools) / sizeof(client_tools[0]); i++)
        if (tool_type_is(tool, client_tools[i].type))
            return &client_tools[i];
    return NULL;
}

/* The description, and the skills that the environment has. */
static json_t *client_tool_description(const struct client_tool *t, const json_t *tool)
{
    const json_t *skills = json_object_get(json_object_get(tool, "environment"), "skills");
    bool is_good;
    json_t *all;
    struct buf text;

    buf_init(&text, SIZE_MAX);
    is_good = buf_append_text(&text, t->description) == STATUS_OK;
    for (size_t i = 0; is_good && i < json_array_size(skills); i++) {
        const json_t *skill = json_array_get(skills, i);

        is_good = append_string(&text, "\nSkill ", json_object_get(skill, "name")) &&
                  append_string(&text, " in ", json_object_get(skill, "path")) &&
                  append_string(&text, ": ", json_object_get(skill, "description"));
    }
    all = is_good ? json_stringn(text.data, text.len) : NULL;
    buf_deinit(&text);
    return all;
}

static enum status check_skills(const json_t *tool, size_t i, struct error *err)
{
    const struct field_path name = field_path_of("tools", i, ".environment.skills");
    const json_t *skills = field(json_object_get(tool, "environment"), "skills");

    if (skills != NULL && !json_is_array(skills))
        return field_wrong(err, name.text, "a list", skills);
    if (json_array_size(skills) > MAX_SKILLS)
        return error_field(err, name.text, "has %zu entries, at most %d are allowed",
                           json_array_size(skills), MAX_SKILLS);
    for (size_t k = 0; k < json_array_size(skills); k++)
        if (!json_is_string(json_object_get(json_array_get(skills, k), "name")))
            return error_field(err, name.text, "has a skill without a name");
    return STATUS_OK;
}

static json_t *client_tool_function(const struct client_tool *t, const json_t *tool)
{
    json_t *description = client_tool_description(t, tool);
    json_t *parameters = json_loads(t->parameters, 0, NULL);

    if (description == NULL || parameters == NULL) {
        json_decref(description);
        json_decref(parameters);
        return NULL;
    }
    return json_pack("{s:s,s:o,s:o}", "name", t->type, "description", description, "parameters",
                     parameters);
}

static bool list_made(json_t *all, json_t *function)
{
    json_t *tool =
        function == NULL ? NULL : json_pack("{s:s,s:o}", "type", "function", "function", function);

    return tool != NULL && json_array_append_new(all, tool) == 0;
}

/* A function of the form of chat completions, of a flat one; a new reference. */
static json_t *function_of(const json_t *tool, enum tools_spelling spelling)
{
    json_t *inner = json_object_get(tool, "function"), *flat;

    if (spelling == TOOLS_OF_CHAT || json_is_object(inner))
        return json_copy(inner);
    flat = json_copy((json_t *)tool); /* it changes nothing */
    if (flat != NULL)
        (void)json_object_del(flat, "type"); /* where it is not, that is fine */
    return flat;
}

/* The functions of a namespace, each called NAMESPACE/NAME, which no function's own name can be. */
static enum status list_namespace(json_t *all, const json_t *tool, enum tools_spelling spelling,
                                  size_t i, struct error *err)
{
    const json_t *space = json_object_get(tool, "name");
    const json_t *tools = json_object_get(tool, "tools");

    if (!field_is_plain_text(space) ||
        tools_check_name(json_string_value(space), "name", err) != STATUS_OK)
        return error_field(err, field_path_of("tools", i, ".name").text,
                           "is not the name of a namespace");
    for (size_t k = 0; k < json_array_size(tools); k++) {
        const json_t *one = json_array_get(tools, k);
        json_t *function =
            tool_type_is(one, "custom") ? custom_function(one) : function_of(one, spelling);
        const json_t *name = json_object_get(function, "name");
        char full[2 * TOOLS_MAX_NAME + 2];

        if (!field_is_plain_text(name) ||
            tools_check_name(json_string_value(name), "name", err) != STATUS_OK) {
            json_decref(function);
            return error_field(err, field_path_of("tools", i, ".tools").text,
                               "has a function without a name, or with a bad one");
        }
        (void)snprintf(full, sizeof(full), "%s/%s", json_string_value(space),
                       json_string_value(name));
        if (json_object_set_new(function, "name", json_string(full)) != 0 ||
            !list_made(all, function))
            return error_no_memory(err, 0, "the tools");
    }
    return STATUS_OK;
}

static enum status list_as_function(json_t *all, json_t *left_out, const json_t *tool,
                                    enum tools_spelling spelling, size_t i, struct error *err)
{
    const struct client_tool *known =
        spelling == TOOLS_OF_RESPONSES ? client_tool_find(tool) : NULL;
    bool is_good;

    if (check_type(tool, i, err) != STATUS_OK)
        return err->status;
    if (tool_type_is(tool, "namespace"))
        return list_namespace(all, tool, spelling, i, err);
    if (known != NULL && check_skills(tool, i, err) != STATUS_OK)
        return err->status;
    if (tool_type_is(tool, "function"))
        is_good = list_made(all, function_of(tool, spelling));
    else if (known != NULL)
        is_good = list_made(all, client_tool_function(known, tool));
    else if (!tool_type_is(tool, "custom") || spelling != TOOLS_OF_RESPONSES)
        is_good = request_list_left_out(left_out, json_string_value(json_object_get(tool, "type")));
    else if (!json_is_string(json_object_get(tool, "name")))
        return error_field(err, field_path_of("tools", i, ".name").text, "is missing");
    else
        is_good = list_made(all, custom_function(tool));
    return is_good ? STATUS_OK : error_no_memory(err, 0, "the tools");
}

static bool are_functions(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i);

        if (json_is_string(json_object_get(tool, "type")) && !tool_type_is(tool, "function"))
            return false;
    }
    return true;
}

/* Brings a list that has other tools than functions into a list of functions, which the body owns,
 * and leaves out what runs elsewhere than at the client's. */
static enum status tools_as_functions(struct request *r, const json_t **list,
                                      enum tools_spelling *ret_spelling, const json_t *body,
                                      struct arena *arena, struct error *err)
{
    json_t *all, *left_out;
    enum status rc = STATUS_OK;

    if (*ret_spelling == TOOLS_AS_FUNCTIONS || are_functions(*list))
        return STATUS_OK;
    all = json_array();
    left_out = json_array();
    if (json_object_set_new((json_t *)body, MADE_TOOLS, all) != 0 || left_out == NULL)
        rc = error_no_memory(err, 0, "the tools");
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(*list); i++)
        rc = list_as_function(all, left_out, json_array_get(*list, i), *ret_spelling, i, err);
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(left_out); i++)
        rc = request_leave_out(r, json_string_value(json_array_get(left_out, i)), arena, err);
    json_decref(left_out);
    *list = all;
    *ret_spelling = TOOLS_OF_CHAT;
    return rc;
}

/* --- */

static enum status take_list(struct offered_tools *out, json_t *all, const json_t *list,
                             enum tools_spelling spelling, bool is_made, struct error *err)
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
        if (take_tool(&out->items[i], function, name, i, member, is_made, err) != STATUS_OK)
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
        const char *slash = strchr(t->items[i].name, '/');

        if (strcmp(slash != NULL ? slash + 1 : t->items[i].name, name) == 0) {
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
    } modes[] = {{"any", TOOLS_REQUIRED}, /* Mistral's name */
                 {"auto", TOOLS_AUTO},
                 {"none", TOOLS_NONE},
                 {"required", TOOLS_REQUIRED}};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, mode) == 0) {
            t->choice = modes[i].choice;
            return STATUS_OK;
        }
    }
    return error_field(err, field_name, "is '%.40s', it must be none, auto, required or a tool",
                       mode);
}

/* The name of the tool that a choice means; of a tool without a schema that is its type. */
static const char *name_in(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *name = json_object_get(function != NULL ? function : tool, "name");
    const struct client_tool *known = name == NULL ? client_tool_find(tool) : NULL;

    return known != NULL ? known->type : json_string_value(name);
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

    if (json_array_size(list) > TOOLS_MAX)
        return error_field(err, "tool_choice", "allows %zu tools, at most %d are allowed",
                           json_array_size(list), TOOLS_MAX);
    for (size_t i = 0; i < t->n; i++) {
        bool is_allowed = false;

        for (size_t k = 0; !is_allowed && k < json_array_size(list); k++) {
            const char *name = name_in(json_array_get(list, k));

            is_allowed = name != NULL && strcmp(name, t->items[i].name) == 0;
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

    if (take_list(t, all, list, spelling, list == json_object_get(body, MADE_TOOLS), err) !=
            STATUS_OK ||
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
    if (tools_as_functions(out, &list, &spelling, body, arena, err) != STATUS_OK)
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

enum status request_leave_out(struct request *r, const char *what, struct arena *arena,
                              struct error *err)
{
    const char *so_far = r->left_out == NULL ? "" : r->left_out;
    const size_t len = strlen(so_far) + strlen(what) + 3;
    char *list;

    if (what[0] == '\0')
        return STATUS_OK;
    list = arena_alloc(arena, len, 1);
    if (list == NULL)
        return error_no_memory(err, len, "the request");
    (void)snprintf(list, len, "%s%s%s", so_far, so_far[0] == '\0' ? "" : ", ", what);
    r->left_out = list;
    return STATUS_OK;
}

enum status request_name_error(const struct request *r, struct error *err)
{
    for (const struct field_name *n = r->names; n != NULL && n->ours != NULL; n++)
        if (strcmp(err->field, n->ours) == 0)
            return field_rename(err, n->ours, n->theirs);
    return err->status;
}

/* Takes the names out of messages whose model's template does not read them. */
static enum status drop_names(struct request *r, struct prompt *p, struct arena *arena,
                              struct error *err)
{
    struct message *own = arena_alloc(arena, p->n_messages, sizeof(own[0]));

    if (own == NULL)
        return error_no_memory(err, p->n_messages * sizeof(own[0]), "the request");
    memcpy(own, p->messages, p->n_messages * sizeof(own[0]));
    for (size_t i = 0; i < p->n_messages; i++) {
        struct message_extras x;

        if (own[i].role == ROLE_TOOL || own[i].more_len == 0)
            continue;
        if (message_extras_read(&x, &own[i], arena) != STATUS_OK)
            return error_no_memory(err, own[i].more_len, "the request");
        own[i].more_len = 0;
        x.name.len = 0;
        if (request_message_extras(&own[i], &x, arena, err) != STATUS_OK)
            return err->status;
    }
    p->messages = own;
    p->has_names = false;
    return request_leave_out(r, "messages.name", arena, err);
}

static enum status fit_names(struct request *r, const struct reply_format *format,
                             struct arena *arena, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < r->n_prompts; i++)
        if (r->prompts[i].has_names && (format == NULL || !format->takes_names))
            rc = drop_names(r, &r->prompts[i], arena, err);
    return rc;
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
    if (fit_names(r, format, arena, err) != STATUS_OK)
        return err->status;
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
    if (request_leave_out(r, left_out, arena, err) != STATUS_OK)
        return err->status;
    if (constraint == NULL || (r->overrides.given & SAMPLING_CONSTRAINT) != 0)
        return STATUS_OK;
    r->overrides.given |= SAMPLING_CONSTRAINT;
    r->overrides.values.constraint = constraint;
    return STATUS_OK;
}
