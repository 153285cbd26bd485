#include "server/api/ollama/request_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/fields.h"

/* What is brought into the other form, from the first message on. */
struct ollama_history {
    json_t *open; /* calls that have no result yet */
    size_t n_calls;
};

static const char *text_member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text == NULL ? "" : text;
}

/* Ids are of nine letters and digits, which all templates take. */
static bool history_name_call(struct ollama_history *h, json_t *call)
{
    char id[16];

    (void)snprintf(id, sizeof(id), "call%05zu", h->n_calls++ % 100000);
    return text_member(call, "id")[0] != '\0' ||
           json_object_set_new(call, "id", json_string(id)) == 0;
}

static bool history_add_call(struct ollama_history *h, json_t *call)
{
    json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments");
    char *text;
    bool is_good;

    if (!json_is_object(call) || !json_is_object(function))
        return true; /* it is refused where messages are read */
    if (json_is_object(arguments)) {
        text = json_dumps(arguments, 0);
        is_good =
            text != NULL && json_object_set_new(function, "arguments", json_string(text)) == 0;
        free(text);
        if (!is_good)
            return false;
    }
    return history_name_call(h, call) && json_array_append(h->open, call) == 0;
}

/* Whether the call with this index is the one that the result is of. */
static bool history_answers(const struct ollama_history *h, size_t i, const json_t *message)
{
    const json_t *call = json_array_get(h->open, i);
    const char *id = text_member(message, "tool_call_id");
    const char *name = text_member(message, "tool_name");

    if (id[0] != '\0')
        return strcmp(id, text_member(call, "id")) == 0;
    return name[0] == '\0' ||
           strcmp(name, text_member(json_object_get(call, "function"), "name")) == 0;
}

static bool history_add_result(struct ollama_history *h, json_t *message)
{
    json_t *name = json_object_get(message, "tool_name");

    for (size_t i = 0; i < json_array_size(h->open); i++) {
        if (history_answers(h, i, message)) {
            json_t *id = json_object_get(json_array_get(h->open, i), "id");

            if (json_object_set(message, "tool_call_id", id) != 0)
                return false;
            (void)json_array_remove(h->open, i); /* the index is good */
            break;
        }
    }
    return name == NULL || json_object_set(message, "name", name) == 0;
}

/* message: the history's own. */
static bool history_take(struct ollama_history *h, json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *thoughts = json_object_get(message, "thinking");
    bool is_good = true;

    if (thoughts != NULL)
        is_good = json_object_set(message, "reasoning_content", thoughts) == 0;
    for (size_t i = 0; is_good && i < json_array_size(calls); i++)
        is_good = history_add_call(h, json_array_get(calls, i));
    if (is_good && strcmp(text_member(message, "role"), "tool") == 0)
        is_good = history_add_result(h, message);
    return is_good;
}

static bool is_chat_alike(const json_t *message)
{
    return json_object_get(message, "tool_calls") == NULL &&
           json_object_get(message, "thinking") == NULL &&
           strcmp(text_member(message, "role"), "tool") != 0;
}

enum status ollama_chat_messages(json_t **out, const json_t *messages, struct error *err)
{
    struct ollama_history h = {.open = json_array()};
    json_t *all = json_array();
    bool is_good = h.open != NULL && all != NULL;

    for (size_t i = 0; is_good && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        json_t *own = is_chat_alike(message) ? json_incref(message) : json_deep_copy(message);

        is_good = own != NULL && json_array_append(all, own) == 0 && history_take(&h, own);
        json_decref(own);
    }
    json_decref(h.open);
    if (!is_good) {
        json_decref(all);
        return error_no_memory(err, 0, "the messages");
    }
    *out = all;
    return STATUS_OK;
}
