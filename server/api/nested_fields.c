/* Walks the members of a request's objects and lists beside a table of their paths. Readers of
 * these members may take one of another kind for one that is not there: here it is refused. */
#include "server/api/nested_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/field_table.h"
#include "server/json/fields.h"

enum nested_kind {
    TEXT = 1 << 0,
    NUMBER = 1 << 1,
    BOOL = 1 << 2,
    LIST = 1 << 3,
    OBJECT = 1 << 4,
    ANYTHING = TEXT | NUMBER | BOOL | LIST | OBJECT,
    OPEN = 1 << 5, /* what is inside is not looked at: it has a reader that checks, or no effect */
};

struct nested_row {
    const char *path; /* "messages[].content[].text" */
    unsigned kinds;
    /* The types of an object whose members are looked at, the last NULL; others are refused, or
     * left out, by type. NULL: any. An object without a type is looked at. */
    const char *const *types;
};

static const char *const of_blocks[] = {"document", "redacted_thinking", "search_result", "text",
                                        "thinking", "tool_result",       "tool_use",      NULL};
static const char *const of_functions[] = {"custom", "function", NULL};
static const char *const of_functions_alone[] = {"function", NULL};
static const char *const of_items[] = {"apply_patch_call",
                                       "apply_patch_call_output",
                                       "compaction",
                                       "compaction_summary",
                                       "custom_tool_call",
                                       "custom_tool_call_output",
                                       "function_call",
                                       "function_call_output",
                                       "local_shell_call",
                                       "local_shell_call_output",
                                       "message",
                                       "reasoning",
                                       "shell_call",
                                       "shell_call_output",
                                       NULL};
static const char *const of_texts[] = {"input_text", "output_text", "reasoning_text",
                                       "refusal",    "text",        NULL};

/* Sorted by strcmp of their paths. The members of the body itself are checked by their readers. */
/* clang-format off */
static const struct nested_row chat_rows[] = {
    {"function_call", ANYTHING, NULL},
    {"function_call.name", TEXT, NULL},
    {"functions", ANYTHING, NULL},
    {"functions[]", OBJECT, NULL},
    {"functions[].description", TEXT, NULL},
    {"functions[].name", TEXT, NULL},
    {"functions[].parameters", OBJECT | OPEN, NULL},
    {"functions[].strict", BOOL, NULL},
    {"messages", ANYTHING, NULL},
    {"messages[]", OBJECT, NULL},
    {"messages[].annotations", ANYTHING | OPEN, NULL},
    {"messages[].cache_control", ANYTHING | OPEN, NULL},
    {"messages[].content", TEXT | LIST, NULL},
    {"messages[].content[]", OBJECT, of_texts},
    {"messages[].content[].annotations", ANYTHING | OPEN, NULL},
    {"messages[].content[].cache_control", ANYTHING | OPEN, NULL},
    {"messages[].content[].logprobs", ANYTHING | OPEN, NULL},
    {"messages[].content[].prompt_cache_breakpoint", ANYTHING | OPEN, NULL},
    {"messages[].content[].refusal", TEXT, NULL},
    {"messages[].content[].text", TEXT, NULL},
    {"messages[].content[].type", TEXT, NULL},
    {"messages[].function_call", OBJECT, NULL},
    {"messages[].function_call.arguments", TEXT | OBJECT | OPEN, NULL},
    {"messages[].function_call.name", TEXT, NULL},
    {"messages[].name", TEXT, NULL},
    {"messages[].prefix", BOOL, NULL},
    {"messages[].reasoning", TEXT, NULL},
    {"messages[].reasoning_content", TEXT, NULL},
    {"messages[].role", TEXT, NULL},
    {"messages[].thinking", TEXT, NULL},
    {"messages[].tool_call_id", TEXT, NULL},
    {"messages[].tool_calls", LIST, NULL},
    {"messages[].tool_calls[]", OBJECT, NULL},
    {"messages[].tool_calls[].custom", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].function", OBJECT, NULL},
    {"messages[].tool_calls[].function.arguments", TEXT | OBJECT | OPEN, NULL},
    {"messages[].tool_calls[].function.description", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].function.index", NUMBER, NULL},
    {"messages[].tool_calls[].function.name", TEXT, NULL},
    {"messages[].tool_calls[].id", TEXT, NULL},
    {"messages[].tool_calls[].idempotency_key", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].index", NUMBER, NULL},
    {"messages[].tool_calls[].type", TEXT, NULL},
    {"response_format", ANYTHING, NULL},
    {"response_format.description", TEXT, NULL},
    {"response_format.json_schema", OBJECT, NULL},
    {"response_format.json_schema.description", TEXT, NULL},
    {"response_format.json_schema.name", TEXT, NULL},
    {"response_format.json_schema.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"response_format.json_schema.strict", BOOL, NULL},
    {"response_format.name", TEXT, NULL},
    {"response_format.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"response_format.strict", BOOL, NULL},
    {"response_format.type", TEXT, NULL},
    {"tool_choice", ANYTHING, NULL},
    {"tool_choice.allowed_tools", OBJECT, NULL},
    {"tool_choice.allowed_tools.mode", TEXT, NULL},
    {"tool_choice.allowed_tools.tools", LIST, NULL},
    {"tool_choice.allowed_tools.tools[]", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function.name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].type", TEXT, NULL},
    {"tool_choice.custom", OBJECT | OPEN, NULL},
    {"tool_choice.function", OBJECT, NULL},
    {"tool_choice.function.name", TEXT, NULL},
    {"tool_choice.mode", TEXT, NULL},
    {"tool_choice.name", TEXT, NULL},
    {"tool_choice.server_label", ANYTHING | OPEN, NULL},
    {"tool_choice.tools", LIST | OPEN, NULL},
    {"tool_choice.type", TEXT, NULL},
    {"tools", ANYTHING, NULL},
    {"tools[]", OBJECT, of_functions_alone},
    {"tools[].cache_control", ANYTHING | OPEN, NULL},
    {"tools[].function", OBJECT, NULL},
    {"tools[].function.description", TEXT, NULL},
    {"tools[].function.name", TEXT, NULL},
    {"tools[].function.parameters", OBJECT | OPEN, NULL},
    {"tools[].function.strict", BOOL, NULL},
    {"tools[].type", TEXT, NULL},
};

static const struct nested_row completion_rows[] = {
    {"response_format", ANYTHING, NULL},
    {"response_format.description", TEXT, NULL},
    {"response_format.json_schema", OBJECT, NULL},
    {"response_format.json_schema.description", TEXT, NULL},
    {"response_format.json_schema.name", TEXT, NULL},
    {"response_format.json_schema.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"response_format.json_schema.strict", BOOL, NULL},
    {"response_format.name", TEXT, NULL},
    {"response_format.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"response_format.strict", BOOL, NULL},
    {"response_format.type", TEXT, NULL},
};

static const struct nested_row messages_rows[] = {
    {"messages", ANYTHING, NULL},
    {"messages[]", OBJECT, NULL},
    {"messages[].content", TEXT | LIST, NULL},
    {"messages[].content[]", OBJECT, of_blocks},
    {"messages[].content[].cache_control", ANYTHING | OPEN, NULL},
    {"messages[].content[].caller", ANYTHING | OPEN, NULL},
    {"messages[].content[].citations", ANYTHING | OPEN, NULL},
    {"messages[].content[].content", TEXT | LIST, NULL},
    {"messages[].content[].content[]", OBJECT, of_texts},
    {"messages[].content[].content[].cache_control", ANYTHING | OPEN, NULL},
    {"messages[].content[].content[].citations", ANYTHING | OPEN, NULL},
    {"messages[].content[].content[].text", TEXT, NULL},
    {"messages[].content[].content[].type", TEXT, NULL},
    {"messages[].content[].context", TEXT, NULL},
    {"messages[].content[].data", ANYTHING | OPEN, NULL},
    {"messages[].content[].id", TEXT, NULL},
    {"messages[].content[].idempotency_key", ANYTHING | OPEN, NULL},
    {"messages[].content[].input", OBJECT | OPEN, NULL},
    {"messages[].content[].is_error", BOOL, NULL},
    {"messages[].content[].name", TEXT, NULL},
    {"messages[].content[].signature", ANYTHING | OPEN, NULL},
    {"messages[].content[].source", TEXT | OBJECT | OPEN, NULL},
    {"messages[].content[].text", TEXT, NULL},
    {"messages[].content[].thinking", TEXT, NULL},
    {"messages[].content[].title", TEXT, NULL},
    {"messages[].content[].tool_use_id", TEXT, NULL},
    {"messages[].content[].type", TEXT, NULL},
    {"messages[].role", TEXT, NULL},
    {"output_config", ANYTHING, NULL},
    {"output_config.effort", ANYTHING | OPEN, NULL},
    {"output_config.format", OBJECT, NULL},
    {"output_config.format.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"output_config.format.type", TEXT, NULL},
    {"output_config.task_budget", ANYTHING | OPEN, NULL},
    {"output_format", OBJECT, NULL},
    {"output_format.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"output_format.type", TEXT, NULL},
    {"system", ANYTHING, NULL},
    {"system[]", OBJECT, of_texts},
    {"system[].cache_control", ANYTHING | OPEN, NULL},
    {"system[].citations", ANYTHING | OPEN, NULL},
    {"system[].text", TEXT, NULL},
    {"system[].type", TEXT, NULL},
    {"tool_choice", ANYTHING, NULL},
    {"tool_choice.disable_parallel_tool_use", BOOL, NULL},
    {"tool_choice.name", TEXT, NULL},
    {"tool_choice.type", TEXT, NULL},
    {"tools", ANYTHING, NULL},
    {"tools[]", OBJECT, of_functions},
    {"tools[].allowed_callers", ANYTHING | OPEN, NULL},
    {"tools[].cache_control", ANYTHING | OPEN, NULL},
    {"tools[].defer_loading", ANYTHING | OPEN, NULL},
    {"tools[].description", TEXT, NULL},
    {"tools[].eager_input_streaming", ANYTHING | OPEN, NULL},
    {"tools[].input_schema", OBJECT | OPEN, NULL},
    {"tools[].name", TEXT, NULL},
    {"tools[].strict", BOOL, NULL},
    {"tools[].type", TEXT, NULL},
};

static const struct nested_row ollama_rows[] = {
    {"function_call", ANYTHING, NULL},
    {"function_call.name", TEXT, NULL},
    {"functions", ANYTHING, NULL},
    {"functions[]", OBJECT, NULL},
    {"functions[].description", TEXT, NULL},
    {"functions[].name", TEXT, NULL},
    {"functions[].parameters", OBJECT | OPEN, NULL},
    {"functions[].strict", BOOL, NULL},
    {"messages", ANYTHING, NULL},
    {"messages[]", OBJECT, NULL},
    {"messages[].content", TEXT | LIST, NULL},
    {"messages[].content[]", OBJECT, of_texts},
    {"messages[].content[].annotations", ANYTHING | OPEN, NULL},
    {"messages[].content[].cache_control", ANYTHING | OPEN, NULL},
    {"messages[].content[].logprobs", ANYTHING | OPEN, NULL},
    {"messages[].content[].prompt_cache_breakpoint", ANYTHING | OPEN, NULL},
    {"messages[].content[].refusal", TEXT, NULL},
    {"messages[].content[].text", TEXT, NULL},
    {"messages[].content[].type", TEXT, NULL},
    {"messages[].images", ANYTHING | OPEN, NULL},
    {"messages[].name", TEXT, NULL},
    {"messages[].reasoning_content", TEXT, NULL},
    {"messages[].role", TEXT, NULL},
    {"messages[].thinking", TEXT, NULL},
    {"messages[].tool_call_id", TEXT, NULL},
    {"messages[].tool_calls", LIST, NULL},
    {"messages[].tool_calls[]", OBJECT, NULL},
    {"messages[].tool_calls[].custom", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].function", OBJECT, NULL},
    {"messages[].tool_calls[].function.arguments", TEXT | OBJECT | OPEN, NULL},
    {"messages[].tool_calls[].function.description", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].function.index", NUMBER, NULL},
    {"messages[].tool_calls[].function.name", TEXT, NULL},
    {"messages[].tool_calls[].id", TEXT, NULL},
    {"messages[].tool_calls[].idempotency_key", ANYTHING | OPEN, NULL},
    {"messages[].tool_calls[].index", NUMBER, NULL},
    {"messages[].tool_calls[].type", TEXT, NULL},
    {"messages[].tool_name", TEXT, NULL},
    {"tool_choice", ANYTHING, NULL},
    {"tool_choice.allowed_tools", OBJECT, NULL},
    {"tool_choice.allowed_tools.mode", TEXT, NULL},
    {"tool_choice.allowed_tools.tools", LIST, NULL},
    {"tool_choice.allowed_tools.tools[]", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function.name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].type", TEXT, NULL},
    {"tool_choice.custom", OBJECT | OPEN, NULL},
    {"tool_choice.function", OBJECT, NULL},
    {"tool_choice.function.name", TEXT, NULL},
    {"tool_choice.mode", TEXT, NULL},
    {"tool_choice.name", TEXT, NULL},
    {"tool_choice.server_label", ANYTHING | OPEN, NULL},
    {"tool_choice.tools", LIST | OPEN, NULL},
    {"tool_choice.type", TEXT, NULL},
    {"tools", ANYTHING, NULL},
    {"tools[]", OBJECT, of_functions_alone},
    {"tools[].cache_control", ANYTHING | OPEN, NULL},
    {"tools[].function", OBJECT, NULL},
    {"tools[].function.description", TEXT, NULL},
    {"tools[].function.name", TEXT, NULL},
    {"tools[].function.parameters", OBJECT | OPEN, NULL},
    {"tools[].function.strict", BOOL, NULL},
    {"tools[].type", TEXT, NULL},
};

static const struct nested_row responses_rows[] = {
    {"input", ANYTHING, NULL},
    {"input[]", OBJECT, of_items},
    {"input[].action", OBJECT | OPEN, NULL},
    {"input[].arguments", TEXT | OBJECT | OPEN, NULL},
    {"input[].call_id", TEXT, NULL},
    {"input[].caller", ANYTHING | OPEN, NULL},
    {"input[].content", TEXT | LIST, NULL},
    {"input[].content[]", OBJECT, of_texts},
    {"input[].content[].annotations", ANYTHING | OPEN, NULL},
    {"input[].content[].cache_control", ANYTHING | OPEN, NULL},
    {"input[].content[].logprobs", ANYTHING | OPEN, NULL},
    {"input[].content[].prompt_cache_breakpoint", ANYTHING | OPEN, NULL},
    {"input[].content[].refusal", TEXT, NULL},
    {"input[].content[].text", TEXT, NULL},
    {"input[].content[].type", TEXT, NULL},
    {"input[].encrypted_content", TEXT, NULL},
    {"input[].environment", ANYTHING | OPEN, NULL},
    {"input[].id", ANYTHING | OPEN, NULL},
    {"input[].idempotency_key", ANYTHING | OPEN, NULL},
    {"input[].input", TEXT, NULL},
    {"input[].max_output_length", NUMBER, NULL},
    {"input[].name", TEXT, NULL},
    {"input[].namespace", TEXT, NULL},
    {"input[].operation", OBJECT | OPEN, NULL},
    {"input[].output", TEXT | LIST, NULL},
    {"input[].output[]", OBJECT, of_texts},
    {"input[].output[].annotations", ANYTHING | OPEN, NULL},
    {"input[].output[].outcome", OBJECT | OPEN, NULL},
    {"input[].output[].stderr", TEXT, NULL},
    {"input[].output[].stdout", TEXT, NULL},
    {"input[].output[].text", TEXT, NULL},
    {"input[].output[].type", TEXT, NULL},
    {"input[].phase", ANYTHING | OPEN, NULL},
    {"input[].role", TEXT, NULL},
    {"input[].status", ANYTHING | OPEN, NULL},
    {"input[].summary", LIST, NULL},
    {"input[].summary[]", OBJECT, NULL},
    {"input[].summary[].text", TEXT, NULL},
    {"input[].summary[].type", TEXT, NULL},
    {"input[].type", TEXT, NULL},
    {"text", ANYTHING, NULL},
    {"text.format", ANYTHING, NULL},
    {"text.format.description", TEXT, NULL},
    {"text.format.json_schema", OBJECT, NULL},
    {"text.format.json_schema.description", TEXT, NULL},
    {"text.format.json_schema.name", TEXT, NULL},
    {"text.format.json_schema.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"text.format.json_schema.strict", BOOL, NULL},
    {"text.format.name", TEXT, NULL},
    {"text.format.schema", TEXT | BOOL | OBJECT | OPEN, NULL},
    {"text.format.strict", BOOL, NULL},
    {"text.format.type", TEXT, NULL},
    {"text.verbosity", ANYTHING | OPEN, NULL},
    {"tool_choice", ANYTHING, NULL},
    {"tool_choice.allowed_tools", OBJECT, NULL},
    {"tool_choice.allowed_tools.mode", TEXT, NULL},
    {"tool_choice.allowed_tools.tools", LIST, NULL},
    {"tool_choice.allowed_tools.tools[]", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function", OBJECT, NULL},
    {"tool_choice.allowed_tools.tools[].function.name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].name", TEXT, NULL},
    {"tool_choice.allowed_tools.tools[].type", TEXT, NULL},
    {"tool_choice.custom", OBJECT | OPEN, NULL},
    {"tool_choice.function", OBJECT, NULL},
    {"tool_choice.function.name", TEXT, NULL},
    {"tool_choice.mode", TEXT, NULL},
    {"tool_choice.name", TEXT, NULL},
    {"tool_choice.server_label", ANYTHING | OPEN, NULL},
    {"tool_choice.tools", LIST | OPEN, NULL},
    {"tool_choice.type", TEXT, NULL},
    {"tools", ANYTHING, NULL},
    {"tools[]", OBJECT, of_functions},
    {"tools[].cache_control", ANYTHING | OPEN, NULL},
    {"tools[].defer_loading", ANYTHING | OPEN, NULL},
    {"tools[].description", TEXT, NULL},
    {"tools[].format", OBJECT, NULL},
    {"tools[].format.definition", TEXT, NULL},
    {"tools[].format.syntax", TEXT, NULL},
    {"tools[].format.type", TEXT, NULL},
    {"tools[].function", OBJECT | OPEN, NULL},
    {"tools[].name", TEXT, NULL},
    {"tools[].parameters", OBJECT | OPEN, NULL},
    {"tools[].strict", BOOL, NULL},
    {"tools[].type", TEXT, NULL},
};
/* clang-format on */

static const struct nested_table {
    unsigned apis;
    const struct nested_row *rows;
    size_t n;
} nested_tables[] = {
    {FIELDS_OF_CHAT | FIELDS_OF_TOKENS, chat_rows, sizeof(chat_rows) / sizeof(chat_rows[0])},
    {FIELDS_OF_COMPLETIONS, completion_rows, sizeof(completion_rows) / sizeof(completion_rows[0])},
    {FIELDS_OF_MESSAGES, messages_rows, sizeof(messages_rows) / sizeof(messages_rows[0])},
    {FIELDS_OF_OLLAMA_CHAT, ollama_rows, sizeof(ollama_rows) / sizeof(ollama_rows[0])},
    {FIELDS_OF_RESPONSES, responses_rows, sizeof(responses_rows) / sizeof(responses_rows[0])},
};

enum { NESTED_PATH_MAX = 160 };

struct nested_walk {
    const struct nested_table *table;
    nested_unknown_fn unknown;
    void *arg;
    char path[NESTED_PATH_MAX];    /* "messages[3].content" */
    char pattern[NESTED_PATH_MAX]; /* "messages[].content" */
};

static int nested_by_path(const void *key, const void *row)
{
    return strcmp(key, ((const struct nested_row *)row)->path);
}

static const struct nested_row *nested_row_find(const struct nested_walk *w)
{
    return bsearch(w->pattern, w->table->rows, w->table->n, sizeof(w->table->rows[0]),
                   nested_by_path);
}

static unsigned nested_kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return TEXT;
    case JSON_INTEGER:
    case JSON_REAL:
        return NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return BOOL;
    case JSON_ARRAY:
        return LIST;
    case JSON_OBJECT:
        return OBJECT;
    case JSON_NULL:
        return ANYTHING; /* it counts as not given */
    }
    return 0;
}

static enum status nested_refuse(const struct nested_walk *w, const struct nested_row *row,
                                 const json_t *value, struct error *err)
{
    static const char *const names[] = {"a string", "a number", "a boolean", "a list", "an object"};
    char want[80] = "";
    size_t len = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((row->kinds & 1u << i) != 0)
            len += (size_t)snprintf(want + len, sizeof(want) - len, "%s%s", len > 0 ? " or " : "",
                                    names[i]);
    return field_wrong(err, w->path, want, value);
}

static bool nested_is_looked_at(const struct nested_row *row, const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    for (size_t i = 0; row->types != NULL && type != NULL; i++) {
        if (row->types[i] == NULL)
            return false;
        if (strcmp(row->types[i], type) == 0)
            break;
    }
    return true;
}

static enum status nested_visit(struct nested_walk *w, const struct nested_row *row,
                                const json_t *value, struct error *err);

/* Goes on to a member, or to an entry of a list; path and pattern are as before afterwards. step
 * and sign are what path and pattern get. */
static enum status nested_enter(struct nested_walk *w, const char *step, const char *sign,
                                const char *name, const json_t *value, struct error *err)
{
    const size_t path_len = strlen(w->path), pattern_len = strlen(w->pattern);
    const struct nested_row *row = NULL;
    enum status rc = STATUS_OK;

    if (json_is_null(value))
        return STATUS_OK;
    if (strlen(step) < sizeof(w->path) - path_len &&
        strlen(sign) < sizeof(w->pattern) - pattern_len) {
        memcpy(w->path + path_len, step, strlen(step) + 1);
        memcpy(w->pattern + pattern_len, sign, strlen(sign) + 1);
        row = nested_row_find(w);
    }
    if (row != NULL)
        rc = nested_visit(w, row, value, err);
    w->path[path_len] = '\0';
    w->pattern[pattern_len] = '\0';
    if (row == NULL && name != NULL)
        rc = w->unknown(w->arg, w->pattern, name, err);
    return rc;
}

static enum status nested_visit(struct nested_walk *w, const struct nested_row *row,
                                const json_t *value, struct error *err)
{
    json_t *members = json_is_object(value) ? (json_t *)value : NULL; /* iterators change nothing */
    enum status rc = STATUS_OK;
    char step[NESTED_PATH_MAX] = ".";

    if ((row->kinds & nested_kind_of(value)) == 0)
        return nested_refuse(w, row, value, err);
    if ((row->kinds & OPEN) != 0 || (members != NULL && !nested_is_looked_at(row, value)))
        return STATUS_OK;
    for (void *at = json_object_iter(members); rc == STATUS_OK && at != NULL;
         at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);

        (void)memccpy(step + 1, name, '\0', sizeof(step) - 1);
        step[sizeof(step) - 1] = '\0'; /* a longer one is in no row */
        rc = nested_enter(w, step, step, name, json_object_iter_value(at), err);
    }
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(value); i++) {
        (void)snprintf(step, sizeof(step), "[%zu]", i);
        rc = nested_enter(w, step, "[]", NULL, json_array_get(value, i), err);
    }
    return rc;
}

enum status nested_fields_check(const json_t *body, enum field_owner api, nested_unknown_fn unknown,
                                void *arg, struct error *err)
{
    struct nested_walk w = {.unknown = unknown, .arg = arg};
    json_t *members = json_is_object(body) ? (json_t *)body : NULL; /* as in nested_visit */
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < sizeof(nested_tables) / sizeof(nested_tables[0]); i++)
        if ((nested_tables[i].apis & api) != 0)
            w.table = &nested_tables[i];
    for (void *at = json_object_iter(members); w.table != NULL && rc == STATUS_OK && at != NULL;
         at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);

        if ((!json_is_object(value) && !json_is_array(value)) || strpbrk(name, ".[") != NULL)
            continue;
        w.path[0] = w.pattern[0] = '\0';
        rc = nested_enter(&w, name, name, NULL, value, err);
    }
    return rc;
}
