/* Turns blocks of content, tools and choices into messages, tools and choices of chat completions.
 * So one reader serves both APIs from there on. */
#include "server/api/anthropic/request_chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/api/request.h"
#include "server/json/fields.h"

/* A member, or null; a new reference. */
static json_t *block_member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return value == NULL ? json_null() : json_incref(value);
}

static bool type_is(const json_t *object, const char *name)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type != NULL && strcmp(type, name) == 0;
}

/* --- messages --- */

/* A message that is read: its text, thoughts and calls so far. */
struct blocks {
    size_t i; /* its place in the list, for errors */
    bool is_user;
    bool has_results;
    json_t *left_out;      /* of the request, borrowed */
    json_t *all;           /* the messages, borrowed */
    json_t *texts, *calls; /* arrays */
    struct buf thoughts;
};

static bool append(json_t *list, json_t *value)
{
    return value != NULL && json_array_append_new(list, value) == 0;
}

static bool blocks_add_call(struct blocks *b, const json_t *block)
{
    char *arguments = json_dumps(json_object_get(block, "input"), 0);
    json_t *call = arguments == NULL
                       ? NULL
                       : json_pack("{s:o,s:s,s:{s:o,s:s}}", "id", block_member(block, "id"), "type",
                                   "function", "function", "name", block_member(block, "name"),
                                   "arguments", arguments);

    free(arguments);
    return append(b->calls, call);
}

/* Appends what there is as one message. */
static bool blocks_end(struct blocks *b, const json_t *role)
{
    const bool has_texts = json_array_size(b->texts) > 0;
    json_t *message = json_object();
    bool is_good =
        message != NULL && json_object_set(message, "role", (json_t *)role) == 0 &&
        json_object_set(message, "content",
                        has_texts || json_array_size(b->calls) == 0 ? b->texts : json_null()) == 0;

    if (is_good && json_array_size(b->calls) > 0)
        is_good = json_object_set(message, "tool_calls", b->calls) == 0;
    if (is_good && b->thoughts.len > 0)
        is_good = json_object_set_new(message, "reasoning_content",
                                      json_stringn(b->thoughts.data, b->thoughts.len)) == 0;
    if (!is_good) {
        json_decref(message);
        return false;
    }
    return append(b->all, message);
}

/* --- documents --- */

static enum status source_add_member(struct buf *out, const json_t *block, const char *name)
{
    const json_t *value = json_object_get(block, name);
    enum status rc = STATUS_OK;

    if (json_string_length(value) == 0)
        return rc;
    if ((rc = buf_printf(out, "<%s>", name)) == STATUS_OK &&
        (rc = buf_append(out, json_string_value(value), json_string_length(value))) == STATUS_OK)
        rc = buf_printf(out, "</%s>\n", name);
    return rc;
}

/* The text of a document or of what a search has found: a string, or a list of texts. False where
 * it has another part. */
static bool source_add_text(struct buf *out, const json_t *content, enum status *ret_rc)
{
    if (json_is_string(content)) {
        *ret_rc = buf_append(out, json_string_value(content), json_string_length(content));
        return true;
    }
    for (size_t i = 0; *ret_rc == STATUS_OK && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");

        if (!type_is(part, "text") || !json_is_string(text))
            return false;
        *ret_rc = buf_append(out, json_string_value(text), json_string_length(text));
    }
    return json_is_array(content);
}

/* What the text of a document, or of what a search has found, is; NULL: it has none. */
static const json_t *source_text(const json_t *block)
{
    const json_t *source = json_object_get(block, "source");

    if (type_is(block, "search_result"))
        return json_object_get(block, "content");
    if (!type_is(block, "document"))
        return NULL;
    return json_object_get(source, type_is(source, "text") ? "data" : "content");
}

/* Makes a document that is text a part between its marks, as the API's provider shows them to its
 * models. *ret_is_text: it is one; a PDF or a file is not. False without memory. */
static bool source_add_part(json_t *parts, const json_t *block, bool *ret_is_text)
{
    static const char *const members[] = {"title", "source", "context"};
    const char *mark = type_is(block, "document") ? "document" : "search_result";
    const json_t *text = source_text(block);
    enum status rc = STATUS_OK;
    struct buf all;

    *ret_is_text = text != NULL;
    if (text == NULL)
        return true;
    buf_init(&all, SIZE_MAX);
    rc = buf_printf(&all, "<%s>\n", mark);
    for (size_t i = 0; rc == STATUS_OK && i < sizeof(members) / sizeof(members[0]); i++)
        rc = source_add_member(&all, block, members[i]);
    if (rc == STATUS_OK)
        *ret_is_text = source_add_text(&all, text, &rc);
    if (rc == STATUS_OK)
        rc = buf_printf(&all, "\n</%s>\n", mark);
    if (rc == STATUS_OK && *ret_is_text &&
        !append(parts, json_pack("{s:s,s:s%}", "type", "text", "text", all.data, all.len)))
        rc = STATUS_EXHAUSTED;
    buf_deinit(&all);
    return rc == STATUS_OK;
}

/* Whether a block, or one inside it, asks for citations: replies have none. */
static bool source_wants_citations(const json_t *block)
{
    const json_t *inside = json_object_get(block, "content");
    bool wants = (type_is(block, "document") || type_is(block, "search_result")) &&
                 json_is_true(json_object_get(json_object_get(block, "citations"), "enabled"));

    for (size_t i = 0; !wants && type_is(block, "tool_result") && i < json_array_size(inside); i++)
        wants = source_wants_citations(json_array_get(inside, i));
    return wants;
}

/* --- results --- */

/* A tool that a search has found is named, a document is text; other parts are text, or refused
 * where messages are read. */
static bool result_add_part(json_t *parts, json_t *part)
{
    json_t *name = json_object_get(part, "tool_name");
    bool is_text;

    if (!source_add_part(parts, part, &is_text))
        return false;
    if (is_text)
        return true;
    if (type_is(part, "tool_reference") && json_is_string(name))
        return append(parts, json_pack("{s:s,s:O}", "type", "text", "text", name));
    return json_array_append(parts, part) == 0;
}

/* The text of a result, as parts; one that is an error says so. */
static json_t *result_parts(const json_t *block)
{
    const json_t *content = field(block, "content");
    json_t *parts = json_array();
    bool is_good = parts != NULL;

    if (is_good && json_is_true(json_object_get(block, "is_error")))
        is_good = append(parts, json_pack("{s:s,s:s}", "type", "text", "text", "Error: "));
    if (is_good && json_is_string(content))
        is_good = append(parts, json_pack("{s:s,s:O}", "type", "text", "text", content));
    for (size_t i = 0; is_good && i < json_array_size(content); i++)
        is_good = result_add_part(parts, json_array_get(content, i));
    if (is_good)
        return parts;
    json_decref(parts);
    return NULL;
}

/* Results come first; text before one is a message before it. */
static enum status blocks_add_result(struct blocks *b, const json_t *role, const json_t *block,
                                     struct error *err)
{
    const json_t *content = field(block, "content");
    json_t *parts;

    if (content != NULL && !json_is_string(content) && !json_is_array(content))
        return error_field(err, field_path_of("messages", b->i, ".content").text,
                           "has a tool_result whose content is neither text nor a list");
    if (json_array_size(b->texts) > 0) {
        if (!blocks_end(b, role))
            return error_no_memory(err, 0, "the request");
        json_decref(b->texts); /* the message has it */
        b->texts = json_array();
    }
    b->has_results = true;
    parts = result_parts(block);
    if (parts == NULL || b->texts == NULL ||
        !append(b->all, json_pack("{s:s,s:o,s:O}", "role", "tool", "tool_call_id",
                                  block_member(block, "tool_use_id"), "content", parts))) {
        json_decref(parts);
        return error_no_memory(err, 0, "the request");
    }
    json_decref(parts);
    return STATUS_OK;
}

/* Blocks of tools that the provider runs, which are not offered here, and thoughts that only it can
 * read: models do without them. */
static bool is_of_provider(const char *type)
{
    static const char *const types[] = {"redacted_thinking", "server_tool_use", "mcp_tool_use",
                                        "mcp_tool_result", "container_upload"};
    const size_t len = strlen(type);

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return len > 12 && strcmp(type + len - 12, "_tool_result") == 0;
}

/* What stands in the place of a part of the history. */
static bool blocks_add_summary(struct blocks *b, const json_t *block)
{
    json_t *summary = json_object_get(block, "content");

    return !json_is_string(summary) ||
           append(b->texts, json_pack("{s:s,s:O}", "type", "text", "text", summary));
}

static enum status blocks_add_own(struct blocks *b, const char *type, const json_t *block,
                                  struct error *err)
{
    const struct field_path path = field_path_of("messages", b->i, ".content");
    const json_t *thought = json_object_get(block, "thinking");
    bool is_good = true;

    if (strcmp(type, "thinking") == 0) {
        if (!json_is_string(thought))
            return error_field(err, path.text, "has a thinking block without a text");
        is_good = buf_append(&b->thoughts, json_string_value(thought),
                             json_string_length(thought)) == STATUS_OK;
    } else if (strcmp(type, "tool_use") == 0) {
        if (!json_is_object(json_object_get(block, "input")))
            return error_field(err, path.text, "has a tool_use whose input is not an object");
        is_good = blocks_add_call(b, block);
    } else if (strcmp(type, "compaction") == 0) {
        is_good = blocks_add_summary(b, block);
    } else if (!is_of_provider(type)) {
        return error_field(err, path.text,
                           "has a block of type '%.40s': text, thinking and tool_use are taken "
                           "from an assistant",
                           type);
    }
    return is_good ? STATUS_OK : error_no_memory(err, 0, "the request");
}

static enum status blocks_add(struct blocks *b, const json_t *role, json_t *block,
                              struct error *err)
{
    const struct field_path path = field_path_of("messages", b->i, ".content");
    const char *type = json_string_value(json_object_get(block, "type"));
    bool is_text;

    if (type == NULL)
        return error_field(err, path.text, "has a block without a type");
    if (strcmp(type, "text") == 0)
        return json_array_append(b->texts, block) == 0 ? STATUS_OK
                                                       : error_no_memory(err, 0, "the request");
    if (!b->is_user)
        return blocks_add_own(b, type, block, err);
    if (strcmp(type, "tool_result") == 0)
        return blocks_add_result(b, role, block, err);
    if (strcmp(type, "compaction") == 0)
        return blocks_add_summary(b, block) ? STATUS_OK : error_no_memory(err, 0, "the request");
    if (strcmp(type, "container_upload") == 0)
        return STATUS_OK;
    if (!source_add_part(b->texts, block, &is_text))
        return error_no_memory(err, 0, "the request");
    if (is_text)
        return STATUS_OK;
    return error_field(err, path.text,
                       "has a block of type '%.40s' that is not text: text, documents of text and "
                       "tool_result are taken from a user",
                       type);
}

static enum status blocks_read(struct blocks *b, const json_t *message, struct error *err)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *role = json_object_get(message, "role");
    const char *name = json_string_value(role);

    b->is_user = name == NULL || strcmp(name, "assistant") != 0;
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *block = json_array_get(content, i);

        if (blocks_add(b, role, block, err) != STATUS_OK)
            return err->status;
        if (source_wants_citations(block) && !request_list_left_out(b->left_out, "citations"))
            return error_no_memory(err, 0, "the request");
    }
    if (b->has_results && json_array_size(b->texts) == 0)
        return STATUS_OK;
    return blocks_end(b, role) ? STATUS_OK : error_no_memory(err, 0, "the request");
}

static enum status add_message(json_t *all, json_t *left_out, const json_t *messages, size_t i,
                               struct error *err)
{
    json_t *message = json_array_get(messages, i);
    struct blocks b = {.i = i, .left_out = left_out, .all = all};
    enum status rc;

    if (!json_is_object(message))
        return field_wrong(err, field_path_of("messages", i, "").text, "an object", message);
    if (!json_is_array(json_object_get(message, "content")))
        return json_array_append(all, message) == 0 ? STATUS_OK
                                                    : error_no_memory(err, 0, "the request");
    buf_init(&b.thoughts, SIZE_MAX);
    b.texts = json_array();
    b.calls = json_array();
    rc = b.texts == NULL || b.calls == NULL ? error_no_memory(err, 0, "the request")
                                            : blocks_read(&b, message, err);
    json_decref(b.texts);
    buf_deinit(&b.thoughts);
    json_decref(b.calls);
    return rc;
}

static enum status chat_messages(json_t *out, const json_t *body, struct error *err)
{
    const json_t *messages = NULL;
    json_t *all;
    enum status rc = field_array(&messages, body, "messages", err);

    if (rc == STATUS_OK && messages == NULL)
        rc = error_field(err, "messages", "is missing");
    if (rc != STATUS_OK)
        return rc;
    all = json_array();
    if (json_object_set_new(out, "messages", all) != 0)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(messages); i++)
        rc = add_message(all, json_object_get(out, "left out"), messages, i, err);
    return rc;
}

/* --- tools --- */

/* Tools that have no schema in the request, since models of the API's provider know them. The
 * client runs them. A type goes on with a date. */
static const struct known_tool {
    const char *type, *description, *schema;
} known_tools[] = {
    {"bash_",
     "Runs a command in a bash shell that stays open between calls, and returns its output.",
     "{\"type\": \"object\", \"properties\": {\"command\": {\"type\": \"string\", "
     "\"description\": \"The command to run.\"}, \"restart\": {\"type\": \"boolean\", "
     "\"description\": \"true restarts the shell; then no command is run.\"}}}"},
    {"text_editor_",
     "Views, creates and edits files. command says what to do: view shows a file or a folder; "
     "create "
     "writes a file with file_text; str_replace replaces old_str, which must be in the file once, "
     "by "
     "new_str; insert puts insert_text behind the line insert_line; undo_edit takes the last edit "
     "back.",
     "{\"type\": \"object\", \"properties\": {\"command\": {\"type\": \"string\", \"enum\": "
     "[\"view\", \"create\", \"str_replace\", \"insert\", \"undo_edit\"]}, \"path\": {\"type\": "
     "\"string\", \"description\": \"The absolute path of the file or folder.\"}, \"file_text\": "
     "{\"type\": \"string\"}, \"old_str\": {\"type\": \"string\"}, \"new_str\": {\"type\": "
     "\"string\"}, \"insert_line\": {\"type\": \"integer\"}, \"insert_text\": {\"type\": "
     "\"string\"}, \"view_range\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}, "
     "\"required\": [\"command\", \"path\"]}"},
    {"memory_",
     "Keeps notes in files under /memories. command says what to do: view, create, str_replace, "
     "insert, delete or rename.",
     "{\"type\": \"object\", \"properties\": {\"command\": {\"type\": \"string\", \"enum\": "
     "[\"view\", \"create\", \"str_replace\", \"insert\", \"delete\", \"rename\"]}, \"path\": "
     "{\"type\": \"string\"}, \"file_text\": {\"type\": \"string\"}, \"old_str\": {\"type\": "
     "\"string\"}, \"new_str\": {\"type\": \"string\"}, \"insert_line\": {\"type\": \"integer\"}, "
     "\"insert_text\": {\"type\": \"string\"}, \"old_path\": {\"type\": \"string\"}, "
     "\"new_path\": {\"type\": \"string\"}}, \"required\": [\"command\"]}"},
};

static const struct known_tool *known_tool_find(const char *type)
{
    for (size_t i = 0; i < sizeof(known_tools) / sizeof(known_tools[0]); i++)
        if (strncmp(type, known_tools[i].type, strlen(known_tools[i].type)) == 0)
            return &known_tools[i];
    return NULL;
}

static enum status chat_known_tool(json_t *all, const json_t *tool, size_t i,
                                   const struct known_tool *known, struct error *err)
{
    json_t *name = json_object_get(tool, "name");
    json_t *schema, *made;

    if (!json_is_string(name))
        return error_field(err, field_path_of("tools", i, ".name").text, "is missing");
    schema = json_loads(known->schema, 0, NULL);
    made = schema == NULL
               ? NULL
               : json_pack("{s:s,s:{s:O,s:s,s:O}}", "type", "function", "function", "name", name,
                           "description", known->description, "parameters", schema);
    json_decref(schema);
    return append(all, made) ? STATUS_OK : error_no_memory(err, 0, "the request");
}

/* Tools that the provider of the API runs itself have a type of their own: they are left out. */
static enum status chat_tool(json_t *all, json_t *left_out, const json_t *tool, size_t i,
                             struct error *err)
{
    static const char *const taken[] = {"name", "description", "strict"};
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *schema = json_object_get(tool, "input_schema");
    json_t *function;
    bool is_good;

    if (!json_is_object(tool))
        return field_wrong(err, field_path_of("tools", i, "").text, "an object", tool);
    if (type != NULL && known_tool_find(type) != NULL)
        return chat_known_tool(all, tool, i, known_tool_find(type), err);
    if (type != NULL && strcmp(type, "custom") != 0)
        return request_list_left_out(left_out, type) ? STATUS_OK
                                                     : error_no_memory(err, 0, "the request");
    if (!json_is_string(json_object_get(tool, "name")))
        return error_field(err, field_path_of("tools", i, ".name").text, "is missing");
    if (!json_is_object(schema))
        return error_field(err, field_path_of("tools", i, ".input_schema").text, "is not a schema");
    function = json_pack("{s:O}", "parameters", schema);
    is_good = function != NULL;
    for (size_t k = 0; is_good && k < sizeof(taken) / sizeof(taken[0]); k++) {
        json_t *value = json_object_get(tool, taken[k]);

        is_good = value == NULL || json_object_set(function, taken[k], value) == 0;
    }
    is_good =
        is_good && append(all, json_pack("{s:s,s:O}", "type", "function", "function", function));
    json_decref(function);
    return is_good ? STATUS_OK : error_no_memory(err, 0, "the request");
}

static enum status chat_tools(json_t *out, const json_t *body, struct error *err)
{
    json_t *all, *left_out = json_object_get(out, "left out");
    const json_t *tools = NULL;
    enum status rc = field_array(&tools, body, "tools", err);

    if (rc != STATUS_OK || tools == NULL)
        return rc;
    all = json_array();
    if (json_object_set_new(out, "tools", all) != 0)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(tools); i++)
        rc = chat_tool(all, left_out, json_array_get(tools, i), i, err);
    return rc;
}

static enum status chat_choice(json_t *out, const json_t *body, struct error *err)
{
    const json_t *choice = NULL;
    const char *name = NULL;
    bool is_single = false;
    json_t *mode;

    if (field_object(&choice, body, "tool_choice", err) != STATUS_OK)
        return err->status;
    if (choice == NULL)
        return STATUS_OK;
    if (field_bool(&is_single, choice, "disable_parallel_tool_use", err) != STATUS_OK ||
        field_text(&name, choice, "name", err) != STATUS_OK)
        return error_name_field(err, "tool_choice");
    if (type_is(choice, "auto") || type_is(choice, "none"))
        mode = json_incref(json_object_get(choice, "type"));
    else if (type_is(choice, "any"))
        mode = json_string("required");
    else if (!type_is(choice, "tool"))
        return error_field(err, "tool_choice.type", "must be auto, any, tool or none");
    else if (name == NULL)
        return error_field(err, "tool_choice.name", "is missing");
    else
        mode = json_pack("{s:s,s:{s:s}}", "type", "function", "function", "name", name);
    if (json_object_set_new(out, "tool_choice", mode) != 0 ||
        json_object_set_new(out, "parallel_tool_calls", json_boolean(!is_single)) != 0)
        return error_no_memory(err, 0, "the request");
    return STATUS_OK;
}

enum status anthropic_chat(json_t **out, const json_t *body, struct error *err)
{
    json_t *chat = json_object();

    if (chat == NULL || json_object_set_new(chat, "left out", json_array()) != 0) {
        json_decref(chat);
        return error_no_memory(err, 0, "the request");
    }
    if (chat_messages(chat, body, err) != STATUS_OK || chat_tools(chat, body, err) != STATUS_OK ||
        chat_choice(chat, body, err) != STATUS_OK) {
        json_decref(chat);
        return err->status;
    }
    *out = chat;
    return STATUS_OK;
}
