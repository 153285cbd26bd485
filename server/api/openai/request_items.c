/* The input items of Responses as the messages of chat completions. Reasoning goes to the
 * assistant's message behind it: templates show it, or drop it. */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/buf.h"
#include "server/api/openai/request.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"

/* A member of the item, or null. */
static json_t *item_member(const json_t *item, const char *name)
{
    json_t *value = json_object_get(item, name);

    return value == NULL ? json_null() : json_incref(value);
}

/* What is read so far. */
struct items {
    json_t *list;     /* the messages */
    json_t *thoughts; /* a string, of the assistant's next message; NULL: none */
};

/* Gives the message the thoughts that are pending. */
static bool items_think(struct items *x, json_t *message)
{
    json_t *thoughts = x->thoughts;

    x->thoughts = NULL;
    return thoughts == NULL || json_object_set_new(message, "reasoning_content", thoughts) == 0;
}

/* The calls of the assistant's message that the list ends in; of a new one if it does not. */
static json_t *last_calls(struct items *x)
{
    json_t *list = x->list;
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    if (role == NULL || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s,s:n}", "role", "assistant", "content");
        if (last == NULL || !items_think(x, last) || json_array_append(list, last) != 0) {
            json_decref(last);
            return NULL;
        }
        json_decref(last); /* the list has it */
    }
    if (json_object_get(last, "tool_calls") == NULL &&
        json_object_set_new(last, "tool_calls", json_array()) != 0)
        return NULL;
    return json_object_get(last, "tool_calls");
}

/* The id of a call; some items have it in another member. */
static json_t *item_call_id(const json_t *item)
{
    return item_member(item, json_object_get(item, "call_id") != NULL ? "call_id" : "id");
}

/* The name that the call's function was offered under; a new reference. */
static json_t *items_call_name(const json_t *item)
{
    const json_t *space = json_object_get(item, "namespace"), *name = json_object_get(item, "name");

    return json_string_length(space) == 0 || !json_is_string(name)
               ? item_member(item, "name")
               : json_pack("s%++%", json_string_value(space), json_string_length(space), "/",
                           json_string_value(name), json_string_length(name));
}

/* Takes name and arguments, NULL without memory. */
static bool items_add_call(struct items *x, const json_t *item, json_t *name, json_t *arguments)
{
    json_t *calls = last_calls(x), *call = NULL;

    if (calls != NULL && name != NULL && arguments != NULL)
        call = json_pack("{s:o,s:s,s:{s:O,s:O}}", "id", item_call_id(item), "type", "function",
                         "function", "name", name, "arguments", arguments);
    json_decref(name);
    json_decref(arguments);
    return call != NULL && json_array_append_new(calls, call) == 0;
}

static bool add_call_item(struct items *x, const json_t *item)
{
    return items_add_call(x, item, items_call_name(item), item_member(item, "arguments"));
}

static bool add_custom_item(struct items *x, const json_t *item)
{
    return items_add_call(x, item, items_call_name(item),
                          json_pack("{s:o}", "input", item_member(item, "input")));
}

/* The action without its type, which is exec. */
static bool add_local_shell_item(struct items *x, const json_t *item)
{
    json_t *action = json_copy(json_object_get(item, "action"));

    if (json_is_object(action))
        (void)json_object_del(action, "type"); /* where it is not, that is fine */
    return items_add_call(x, item, json_string("local_shell"), action);
}

static bool add_shell_item(struct items *x, const json_t *item)
{
    return items_add_call(x, item, json_string("shell"), item_member(item, "action"));
}

static bool add_patch_item(struct items *x, const json_t *item)
{
    return items_add_call(x, item, json_string("apply_patch"), item_member(item, "operation"));
}

/* Takes the content, NULL without memory. */
static bool items_add_result(struct items *x, const json_t *item, json_t *content)
{
    json_t *message = content == NULL ? NULL
                                      : json_pack("{s:s,s:o,s:o}", "role", "tool", "tool_call_id",
                                                  item_call_id(item), "content", content);

    return message != NULL && json_array_append_new(x->list, message) == 0;
}

static bool add_output_item(struct items *x, const json_t *item)
{
    return items_add_result(x, item, item_member(item, "output"));
}

/* What the commands have printed, and how they ended. */
static enum status shell_output_write(struct buf *out, const json_t *outputs)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(outputs); i++) {
        const json_t *one = json_array_get(outputs, i), *said = json_object_get(one, "stdout");
        const json_t *wrong = json_object_get(one, "stderr");
        const json_t *outcome = json_object_get(one, "outcome");
        const json_t *code = json_object_get(outcome, "exit_code");

        rc = buf_append(out, json_string_value(said), json_string_length(said));
        if (rc == STATUS_OK && json_string_length(wrong) > 0)
            rc = buf_append_text(out, "\nstderr:\n");
        if (rc == STATUS_OK)
            rc = buf_append(out, json_string_value(wrong), json_string_length(wrong));
        if (rc == STATUS_OK && json_is_integer(code))
            rc = buf_printf(out, "\nexit code: %lld\n", (long long)json_integer_value(code));
        else if (rc == STATUS_OK && field_is_text(json_object_get(outcome, "type"), "timeout"))
            rc = buf_append_text(out, "\nThe time was over.\n");
    }
    return rc;
}

static bool add_shell_output_item(struct items *x, const json_t *item)
{
    const json_t *outputs = json_object_get(item, "output");
    json_t *text = NULL;
    struct buf all;

    if (!json_is_array(outputs))
        return add_output_item(x, item);
    buf_init(&all, SIZE_MAX);
    if (shell_output_write(&all, outputs) == STATUS_OK)
        text = json_stringn(all.len == 0 ? "" : all.data, all.len);
    buf_deinit(&all);
    return items_add_result(x, item, text);
}

/* What a patch has logged; without that, whether it went well. */
static bool add_patch_output_item(struct items *x, const json_t *item)
{
    const json_t *output = field(item, "output");
    const bool has_failed = field_is_text(json_object_get(item, "status"), "failed");
    json_t *mark, *all;

    if (output == NULL)
        return items_add_result(x, item, json_string(has_failed ? "Error" : "Done"));
    if (!has_failed || !json_is_string(output))
        return add_output_item(x, item);
    mark = json_string("Error: ");
    all = mark == NULL ? NULL : fields_join(mark, output);
    json_decref(mark);
    return items_add_result(x, item, all);
}

/* A call that the API's provider made, with its result. */
static bool add_mcp_item(struct items *x, const json_t *item)
{
    return add_call_item(x, item) && add_output_item(x, item);
}

/* A message of its own, since calls that follow may be added to it. */
static bool add_message_item(struct items *x, const json_t *item)
{
    json_t *copy = json_copy((json_t *)item); /* it changes nothing */
    const bool is_good =
        copy != NULL &&
        (!field_is_text(json_object_get(copy, "role"), "assistant") || items_think(x, copy)) &&
        json_array_append(x->list, copy) == 0;

    json_decref(copy);
    return is_good;
}

/* Appends the texts of the list's parts of this type. */
static enum status texts_write(struct buf *out, const json_t *parts, const char *type)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");

        if (json_is_string(text) && field_is_text(json_object_get(part, "type"), type))
            rc = buf_append(out, json_string_value(text), json_string_length(text));
    }
    return rc;
}

/* What a response has given out as encrypted: a text in base64 behind its mark. Of other servers'
 * nothing can be read. */
static json_t *decoded_text(const json_t *value, const char *mark)
{
    const char *text = json_string_value(value);
    json_t *decoded = NULL;
    uint8_t *bytes;
    size_t len;

    if (text == NULL || strncmp(text, mark, strlen(mark)) != 0)
        return NULL;
    text += strlen(mark);
    bytes = malloc(base64_max_bytes(strlen(text)));
    if (bytes != NULL && base64_decode(bytes, &len, text, strlen(text)))
        decoded = json_stringn((const char *)bytes, len); /* NULL: it is no UTF-8 */
    free(bytes);
    return decoded;
}

static bool add_reasoning_item(struct items *x, const json_t *item)
{
    bool is_good;
    struct buf all;

    buf_init(&all, SIZE_MAX);
    is_good = texts_write(&all, json_object_get(item, "content"), "reasoning_text") == STATUS_OK;
    json_decref(x->thoughts);
    x->thoughts = all.len > 0 ? json_stringn(all.data, all.len)
                              : decoded_text(json_object_get(item, "encrypted_content"),
                                             RESPONSE_THOUGHTS_MARK);
    is_good = is_good && (all.len == 0 || x->thoughts != NULL);
    buf_deinit(&all);
    return is_good;
}

/* The summary that /v1/responses/compact has given out; a user's message, so that a reply may
 * follow it at once. */
static bool add_compaction_item(struct items *x, const json_t *item)
{
    json_t *summary =
        decoded_text(json_object_get(item, "encrypted_content"), RESPONSE_SUMMARY_MARK);
    json_t *head, *all, *message;

    if (summary == NULL)
        return true;
    head = json_string("This summary stands for the conversation before it:\n\n");
    all = head == NULL ? NULL : fields_join(head, summary);
    json_decref(head);
    json_decref(summary);
    message = all == NULL ? NULL : json_pack("{s:s,s:o}", "role", "user", "content", all);
    return message != NULL && json_array_append_new(x->list, message) == 0;
}

static bool skip_item(struct items *x, const json_t *item)
{
    return true;
}

/* Items of tools that the API's provider runs are read and left out, as the tools are. So is what
 * another provider has made of a long history, which only that can read. */
static const struct item_type {
    const char *type;
    bool (*add)(struct items *x, const json_t *item);
} item_types[] = {
    {"apply_patch_call", add_patch_item},
    {"apply_patch_call_output", add_patch_output_item},
    {"code_interpreter_call", skip_item},
    {"compaction", add_compaction_item},
    {"compaction_summary", add_compaction_item},
    {"computer_call", skip_item},
    {"computer_call_output", skip_item},
    {"custom_tool_call", add_custom_item},
    {"custom_tool_call_output", add_output_item},
    {"file_search_call", skip_item},
    {"function_call", add_call_item},
    {"function_call_output", add_output_item},
    {"image_generation_call", skip_item},
    {"local_shell_call", add_local_shell_item},
    {"local_shell_call_output", add_output_item},
    {"mcp_approval_request", skip_item},
    {"mcp_approval_response", skip_item},
    {"mcp_call", add_mcp_item},
    {"mcp_list_tools", skip_item},
    {"message", add_message_item},
    {"program", skip_item},
    {"program_output", skip_item},
    {"reasoning", add_reasoning_item},
    {"shell_call", add_shell_item},
    {"shell_call_output", add_shell_output_item},
    {"tool_search_call", skip_item},
    {"tool_search_output", skip_item},
    {"web_search_call", skip_item},
};

static const struct item_type *item_type_find(const char *type)
{
    for (size_t i = 0; i < sizeof(item_types) / sizeof(item_types[0]); i++)
        if (strcmp(item_types[i].type, type) == 0)
            return &item_types[i];
    return NULL;
}

static enum status add_item(struct items *x, const json_t *item, const char *name,
                            struct error *err)
{
    const struct item_type *known;
    const char *type = "message";

    if (!json_is_object(item))
        return field_wrong(err, name, "a list of messages", item);
    if (field_text(&type, item, "type", err) != STATUS_OK)
        return err->status;
    known = item_type_find(type);
    if (known == NULL)
        return error_field(err, name,
                           "has an item of type '%.40s', which is not known: messages, calls, "
                           "their outputs and reasoning are taken",
                           type);
    return known->add(x, item) ? STATUS_OK : error_no_memory(err, 0, "the input");
}

enum status request_items(json_t **out, const json_t *input, const char *name, struct error *err)
{
    struct items x = {.list = json_array()};
    enum status rc = x.list == NULL ? error_no_memory(err, 0, "the input") : STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(input); i++)
        rc = add_item(&x, json_array_get(input, i), name, err);
    json_decref(x.thoughts);
    if (rc != STATUS_OK) {
        json_decref(x.list);
        return rc;
    }
    *out = x.list;
    return STATUS_OK;
}
