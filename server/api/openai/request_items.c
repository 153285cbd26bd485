/* The input items of Responses as the messages of chat completions. */
#include <string.h>

#include "server/api/openai/request.h"
#include "server/json/fields.h"

/* A member of the item, or null. */
static json_t *item_member(const json_t *item, const char *name)
{
    json_t *value = json_object_get(item, name);

    return value == NULL ? json_null() : json_incref(value);
}

/* The calls of the assistant's message that list ends in; of a new one if it does not. */
static json_t *last_calls(json_t *list)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    if (role == NULL || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s,s:n}", "role", "assistant", "content");
        if (last == NULL || json_array_append_new(list, last) != 0)
            return NULL;
    }
    if (json_object_get(last, "tool_calls") == NULL &&
        json_object_set_new(last, "tool_calls", json_array()) != 0)
        return NULL;
    return json_object_get(last, "tool_calls");
}

static bool add_call_item(json_t *list, const json_t *item)
{
    json_t *calls = last_calls(list);
    json_t *call = json_pack("{s:o,s:s,s:{s:o,s:o}}", "id", item_member(item, "call_id"), "type",
                             "function", "function", "name", item_member(item, "name"), "arguments",
                             item_member(item, "arguments"));

    if (calls != NULL && call != NULL)
        return json_array_append_new(calls, call) == 0;
    json_decref(call);
    return false;
}

static bool add_output_item(json_t *list, const json_t *item)
{
    json_t *message =
        json_pack("{s:s,s:o,s:o}", "role", "tool", "tool_call_id", item_member(item, "call_id"),
                  "content", item_member(item, "output"));

    return message != NULL && json_array_append_new(list, message) == 0;
}

/* A message of its own, since calls that follow may be added to it. */
static bool add_message_item(json_t *list, const json_t *item)
{
    json_t *copy = json_copy((json_t *)item); /* it changes nothing */

    return copy != NULL && json_array_append_new(list, copy) == 0;
}

static enum status add_item(json_t *list, const json_t *item, const char *name, struct error *err)
{
    const char *type = "message";
    bool is_good;

    if (!json_is_object(item))
        return field_wrong(err, name, "a list of messages", item);
    if (field_text(&type, item, "type", err) != STATUS_OK)
        return err->status;
    if (strcmp(type, "reasoning") == 0)
        return STATUS_OK; /* templates drop the thoughts of earlier turns */
    if (strcmp(type, "message") == 0)
        is_good = add_message_item(list, item);
    else if (strcmp(type, "function_call") == 0)
        is_good = add_call_item(list, item);
    else if (strcmp(type, "function_call_output") == 0)
        is_good = add_output_item(list, item);
    else
        return error_field(err, name,
                           "has an item of type '%.40s': messages, function_call, "
                           "function_call_output and reasoning are taken",
                           type);
    return is_good ? STATUS_OK : error_no_memory(err, 0, "the input");
}

enum status request_items(json_t **out, const json_t *input, const char *name, struct error *err)
{
    json_t *list = json_array();
    enum status rc = list == NULL ? error_no_memory(err, 0, "the input") : STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(input); i++)
        rc = add_item(list, json_array_get(input, i), name, err);
    if (rc != STATUS_OK) {
        json_decref(list);
        return rc;
    }
    *out = list;
    return STATUS_OK;
}
