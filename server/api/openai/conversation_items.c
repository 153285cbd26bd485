/* The items of a request are made of its messages; those of a reply are written as its response
 * writes them, and read again, since only that knows how a reply is divided. */
#include "server/api/openai/conversation_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/openai/response.h"
#include "server/conversation/tool_results.h"
#include "server/json/fields.h"
#include "server/model/model.h"

enum { REPLY_MAX_BYTES = 64 << 20 };

/* As in a response's id whose request named the conversation: an item has the same id in both. */
static void format_place(char out[TURN_PLACE_CHARS], const struct completed_turn *t)
{
    const struct turn_place place = {.origin = t->origin, .turn = t->number, .is_of_named = true};

    turn_place_format(&place, out);
}

/* --- the request --- */

static size_t items_of_message(const struct conversation_item *m)
{
    const bool has_text =
        m->said->role != ROLE_ASSISTANT || m->said->len > 0 || m->extras.n_calls == 0;

    return (size_t)has_text + m->extras.n_calls;
}

static enum status read_extras(struct conversation_item *out, const struct message *m,
                               struct arena *arena, struct error *err)
{
    *out = (struct conversation_item){.said = m, .call = SIZE_MAX};
    if (m->more_len == 0 || message_extras_read(&out->extras, m, arena) == STATUS_OK)
        return STATUS_OK;
    return error_no_memory(err, m->more_len, "a message");
}

/* Appends the items of the i-th message. */
static void add_message_items(struct turn_items *t, const struct conversation_item *m, size_t i,
                              const char *place)
{
    const size_t n = items_of_message(m), n_texts = n - m->extras.n_calls;

    for (size_t k = 0; k < n; k++) {
        struct conversation_item *item = &t->items[t->n++];

        *item = *m;
        item->message = i;
        if (k < n_texts) {
            (void)snprintf(item->id, sizeof(item->id), "msg_%s_%zu", place, i);
        } else {
            item->call = k - n_texts;
            (void)snprintf(item->id, sizeof(item->id), "fc_%s_%zu_%zu", place, i, item->call);
        }
    }
}

/* --- the reply --- */

static enum status read_reply_item(struct conversation_item *out, const json_t *value,
                                   struct arena *arena, struct error *err)
{
    const char *id = json_string_value(json_object_get(value, "id"));
    char *text = json_dumps(value, 0), *kept;

    kept = text == NULL ? NULL : arena_strndup(arena, text, strlen(text));
    free(text);
    if (kept == NULL || id == NULL)
        return error_no_memory(err, 0, "a reply's items");
    *out = (struct conversation_item){
        .message = SIZE_MAX, .call = SIZE_MAX, .reply = {kept, strlen(kept)}};
    (void)snprintf(out->id, sizeof(out->id), "%s", id);
    return STATUS_OK;
}

/* The reply's items, a new reference. */
static enum status load_reply(json_t **out, const struct conversation *c,
                              const struct completed_turn *t, const char *place, struct error *err)
{
    struct json_writer w;
    json_error_t why;
    struct buf text;
    bool is_short;

    buf_init(&text, REPLY_MAX_BYTES);
    w = json_writer_begin(&text);
    json_begin_array(&w, NULL);
    response_write_items(place, t, c->host.model->info.text.reply_format, false, &w);
    json_end_array(&w);
    *out =
        json_writer_end(&w) == STATUS_OK ? fields_load(text.data, text.len, &why, &is_short) : NULL;
    buf_deinit(&text);
    return *out != NULL ? STATUS_OK : error_no_memory(err, t->len, "a reply's items");
}

/* --- a turn --- */

enum status turn_items_read(struct turn_items *out, const struct conversation *c,
                            const struct completed_turn *t, struct arena *arena, struct error *err)
{
    const struct stored_request *r = t->request;
    struct conversation_item *messages;
    char place[TURN_PLACE_CHARS];
    json_t *reply = NULL;
    size_t n = 0;
    enum status rc = STATUS_OK;

    format_place(place, t);
    messages = arena_alloc(arena, r->n_messages + 1, sizeof(*messages));
    if (messages == NULL)
        return error_no_memory(err, 0, "items");
    for (size_t i = 0; rc == STATUS_OK && i < r->n_messages; i++) {
        rc = read_extras(&messages[i], &r->messages[i], arena, err);
        n += rc == STATUS_OK ? items_of_message(&messages[i]) : 0;
    }
    if (rc == STATUS_OK && !r->is_observed)
        rc = load_reply(&reply, c, t, place, err);
    if (rc != STATUS_OK)
        return rc;
    *out = (struct turn_items){.turn = t};
    out->items = arena_alloc(arena, n + json_array_size(reply) + 1, sizeof(out->items[0]));
    if (out->items == NULL)
        rc = error_no_memory(err, 0, "items");
    for (size_t i = 0; rc == STATUS_OK && i < r->n_messages; i++)
        add_message_items(out, &messages[i], i, place);
    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(reply); i++)
        rc = read_reply_item(&out->items[out->n++], json_array_get(reply, i), arena, err);
    json_decref(reply);
    return rc;
}

/* The turn that an id names; NULL: none. */
static const struct completed_turn *turn_of_item(const struct conversation *c, const char *id)
{
    const char *at = strchr(id, '_');
    const struct completed_turn *t;
    struct turn_place place;

    if (at == NULL)
        return NULL;
    if (turn_place_read(&place, ++at) != NULL)
        return turn_place_find(&place, c);
    for (t = c->host.newest; t != NULL && !tool_call_may_be_of(t->request, at, strlen(at));
         t = t->before)
        continue;
    return t;
}

enum status turn_items_find(struct turn_items *out, size_t *ret_at, const struct conversation *c,
                            const char *id, struct arena *arena, struct error *err)
{
    const struct completed_turn *t = turn_of_item(c, id);

    if (t != NULL && turn_items_read(out, c, t, arena, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; t != NULL && i < out->n; i++) {
        if (strcmp(out->items[i].id, id) == 0) {
            *ret_at = i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_NOT_FOUND, "the conversation has no item '%.80s'", id);
}

/* --- writing --- */

static void write_message_text(const struct message *m, struct json_writer *w)
{
    const bool is_reply = m->role == ROLE_ASSISTANT;

    json_write_text(w, "role", role_name(m->role));
    json_begin_array(w, "content");
    json_begin_object(w, NULL);
    json_write_text(w, "type", is_reply ? "output_text" : "input_text");
    json_write_string(w, "text", m->text, m->len);
    if (is_reply) {
        json_write_empty_array(w, "annotations");
        json_write_empty_array(w, "logprobs");
    }
    json_end_object(w);
    json_end_array(w);
}

void conversation_item_write(const struct conversation_item *item, struct json_writer *w)
{
    const struct tool_call *call;

    if (item->message == SIZE_MAX) {
        json_write_json(w, NULL, item->reply.text, item->reply.len);
        return;
    }
    json_begin_object(w, NULL);
    json_write_text(w, "id", item->id);
    json_write_text(w, "status", "completed");
    if (item->call != SIZE_MAX) {
        call = &item->extras.calls[item->call];
        json_write_text(w, "type", "function_call");
        json_write_string(w, "call_id", call->id.text, call->id.len);
        json_write_string(w, "name", call->name.text, call->name.len);
        json_write_string(w, "arguments", call->arguments.text, call->arguments.len);
    } else if (item->said->role == ROLE_TOOL) {
        json_write_text(w, "type", "function_call_output");
        json_write_string(w, "call_id", item->extras.call_id.text, item->extras.call_id.len);
        json_write_string(w, "output", item->said->text, item->said->len);
    } else {
        json_write_text(w, "type", "message");
        write_message_text(item->said, w);
    }
    json_end_object(w);
}
