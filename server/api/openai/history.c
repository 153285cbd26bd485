/* Writes the items of a conversation's turns as JSON, and reads that again as input: only the
 * writers of items know how a reply is divided, and only the reader of input how items are read. */
#include "server/api/openai/history.h"

#include <string.h>

#include "server/access/access.h"
#include "server/api/openai/conversation_items.h"
#include "server/api/openai/instructions.h"
#include "server/api/openai/request.h"
#include "server/api/openai/response.h"
#include "server/conversation/keeping.h"
#include "server/conversation/names.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { HISTORY_MAX_BYTES = 64 << 20 };

const char *history_conversation(struct exchange *x)
{
    struct error ignored; /* the request's own reader reports it */
    json_t *body = NULL;
    struct response_conversation of_previous;
    const char *text, *previous, *named;
    size_t len;

    text = exchange_body(x, &len);
    if (exchange_server(x)->conversations->keeping.journal == NULL ||
        fields_parse(&body, text, len, &ignored) != STATUS_OK)
        return "";
    previous = json_string_value(json_object_get(body, "previous_response_id"));
    named = request_conversation(json_object_get(body, "conversation"));
    of_previous = response_conversation_of(previous == NULL ? "" : previous);
    if (named == NULL)
        named = of_previous.text;
    named = arena_strndup(exchange_arena(x), named, strlen(named));
    json_decref(body);
    return named == NULL ? "" : named; /* without memory it is not found */
}

/* Finds the conversation and its last turn that the request goes on from; NULL: none. */
static enum status history_find(struct conversation **out, struct turn_place *ret_place,
                                struct exchange *x, const json_t *body, struct error *err)
{
    const json_t *previous = field(body, "previous_response_id"),
                 *named = field(body, "conversation");

    *out = NULL;
    if (previous != NULL && named != NULL)
        return error_field(err, "conversation",
                           "and previous_response_id exclude each other: give one of them");
    if (previous != NULL && !json_is_string(previous))
        return field_wrong(err, "previous_response_id", "a string", previous);
    if (named != NULL && request_conversation(named) == NULL)
        return field_wrong(err, "conversation", "an id, or an object with an id", named);
    if (named != NULL) {
        if (conversation_names_get(out, exchange_server(x)->names, exchange_principal(x)->id,
                                   request_conversation(named), err) != STATUS_OK)
            return err->status;
        *ret_place = (struct turn_place){.turn = (*out)->host.n_turns, .is_of_named = true};
    } else if (previous != NULL) {
        if (response_find(out, ret_place, x, json_string_value(previous), "previous_response_id",
                          err) != STATUS_OK)
            return err->status;
        if (ret_place->turn > (*out)->host.n_turns)
            return error_because(err, STATUS_ABORTED, REASON_CONVERSATION_BUSY,
                                 "previous_response_id", "the response is not complete yet");
    }
    return *out == NULL ? STATUS_OK : conversation_check_model(*out, err);
}

static void history_write_system(const char *text, size_t len, struct json_writer *w)
{
    if (len == 0)
        return;
    json_begin_object(w, NULL);
    json_write_text(w, "role", "system");
    json_write_string(w, "content", text, len);
    json_end_object(w);
}

/* The items up to the turn at place, a new reference: the conversation's own instructions, the
 * turns, and the request's instructions where they are others. */
static enum status history_load(json_t **out, const struct conversation *c,
                                const struct turn_place *place, const char *instructions,
                                struct arena *arena, struct error *err)
{
    const struct conversation_options *options = c->host.options;
    const struct text have = instructions_behind(
        c, completed_turn_find(c->host.newest, place->turn), place->is_of_named);
    const size_t len = instructions == NULL ? 0 : strlen(instructions);
    enum status rc = STATUS_OK;
    bool was_short = false;
    struct json_writer w;
    struct buf text;

    buf_init(&text, HISTORY_MAX_BYTES);
    w = json_writer_begin(&text);
    json_begin_array(&w, NULL);
    history_write_system(options->system, options->system_len, &w);
    for (uint32_t i = 1; rc == STATUS_OK && w.rc == STATUS_OK && i <= place->turn; i++) {
        struct turn_items items;

        rc = turn_items_read(&items, c, completed_turn_find(c->host.newest, i), arena, err);
        for (size_t k = 0; rc == STATUS_OK && k < items.n; k++)
            conversation_item_write(&items.items[k], &w);
    }
    if (len > 0 && (len != have.len || memcmp(have.text, instructions, len) != 0))
        history_write_system(instructions, len, &w);
    json_end_array(&w);
    *out = rc == STATUS_OK && json_writer_end(&w) == STATUS_OK
               ? fields_load(text.data, text.len, NULL, &was_short)
               : NULL;
    if (rc == STATUS_OK && *out == NULL)
        rc = error_no_memory(err, text.len, "the history");
    buf_deinit(&text);
    return rc;
}

/* Appends the input: a text, or a list of items. */
static bool history_append_input(json_t *items, const json_t *input)
{
    json_t *message;

    if (json_is_array(input))
        return json_array_extend(items, (json_t *)input) == 0; /* it changes nothing of input */
    if (input == NULL)
        return true;
    message = json_pack("{s:s,s:O}", "role", "user", "content", (json_t *)input);
    return message != NULL && json_array_append_new(items, message) == 0;
}

/* The model is the conversation's, which the request may leave out. */
static enum status history_check_model(const struct conversation *c, json_t *body,
                                       struct error *err)
{
    const json_t *given = field(body, "model");
    const char *name = json_string_value(given);
    const size_t len = strlen(c->host.model->name);

    if (given != NULL && name == NULL)
        return field_wrong(err, "model", "a string", given);
    if (name == NULL || name[0] == '\0')
        return json_object_set_new(body, "model", json_string(c->host.model->name)) == 0
                   ? STATUS_OK
                   : error_no_memory(err, 0, "the request");
    if (strncmp(name, c->host.model->name, len) != 0 ||
        (name[len] != '\0' && strcmp(name + len, ":latest") != 0))
        return error_field(err, "model", "is another: the conversation is with model '%s'",
                           c->host.model->name);
    return STATUS_OK;
}

enum status history_take_in(struct exchange *x, const json_t *body, struct error *err)
{
    json_t *own = (json_t *)body, *items; /* the body is the request's own */
    const json_t *input = field(body, "input"), *instructions = field(body, "instructions");
    struct conversation *c;
    struct turn_place place;

    if (history_find(&c, &place, x, body, err) != STATUS_OK)
        return err->status;
    if (c == NULL)
        return STATUS_OK;
    if (instructions != NULL && !json_is_string(instructions))
        return field_wrong(err, "instructions", "a string", instructions);
    if (input != NULL && !json_is_string(input) && !json_is_array(input))
        return field_wrong(err, "input", "a string or a list of messages", input);
    if (history_check_model(c, own, err) != STATUS_OK ||
        history_load(&items, c, &place, json_string_value(instructions), exchange_arena(x), err) !=
            STATUS_OK)
        return err->status;
    if (!history_append_input(items, input) || json_object_set(own, "input", items) != 0) {
        json_decref(items);
        return error_no_memory(err, 0, "the history");
    }
    json_decref(items);
    (void)json_object_del(own, "previous_response_id"); /* the one that is not there stays away */
    (void)json_object_del(own, "conversation");
    (void)json_object_del(own, "instructions");
    return STATUS_OK;
}
