/* Items of an input that name an item of an earlier response. */
#include "server/api/openai/references.h"

#include <string.h>

#include "server/api/openai/response.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/conversation.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/model/model.h"

enum { ITEMS_MAX_BYTES = 64 << 20 };

static enum status reference_missing(const char *id, struct error *err)
{
    (void)error_because(err, STATUS_NOT_FOUND, REASON_CONVERSATION_NOT_FOUND, "input",
                        "there is no item '%.60s', or its response is not kept any more", id);
    return STATUS_NOT_FOUND;
}

/* The items of a turn's reply, a new reference; id: of the response, behind "resp_". */
static enum status reference_items(json_t **out, const char *id, const struct conversation *c,
                                   const struct completed_turn *t, struct error *err)
{
    struct json_writer w;
    struct buf text;
    bool was_short = false;
    enum status rc;

    buf_init(&text, ITEMS_MAX_BYTES);
    w = json_writer_begin(&text);
    json_begin_array(&w, NULL);
    response_write_items(id, t, c->host.model->info.text.reply_format, false, &w);
    json_end_array(&w);
    rc = json_writer_end(&w);
    *out = rc == STATUS_OK ? fields_load(text.data, text.len, NULL, &was_short) : NULL;
    buf_deinit(&text);
    return *out != NULL ? STATUS_OK : error_no_memory(err, 0, "the input");
}

/* The item of that id, a new reference. Its id begins with that of its response. */
static enum status reference_find(json_t **out, const struct exchange *x, const char *id,
                                  struct error *err)
{
    const char *rest = strchr(id, '_');
    char response[RESPONSE_ID_CHARS] = "resp_";
    struct turn_place place;
    struct conversation *c;
    json_t *items = NULL;

    if (rest == NULL || turn_place_read(&place, rest + 1) == NULL) /* a number may follow */
        return reference_missing(id, err);
    turn_place_format(&place, response + 5);
    if (response_find(&c, &place, x, response, "input", err) != STATUS_OK ||
        place.turn > c->host.n_turns)
        return reference_missing(id, err);
    if (reference_items(&items, response + 5, c, completed_turn_find(c->host.newest, place.turn),
                        err) != STATUS_OK)
        return err->status;
    *out = NULL;
    for (size_t i = 0; i < json_array_size(items); i++)
        if (field_is_text(json_object_get(json_array_get(items, i), "id"), id))
            *out = json_incref(json_array_get(items, i));
    json_decref(items);
    return *out != NULL ? STATUS_OK : reference_missing(id, err);
}

static bool is_reference(const json_t *item)
{
    return field_is_text(json_object_get(item, "type"), "item_reference");
}

enum status references_resolve(const struct exchange *x, const json_t *body, struct error *err)
{
    const bool is_known =
        field(body, "previous_response_id") != NULL || field(body, "conversation") != NULL;
    json_t *input = json_object_get(body, "input");

    for (size_t i = 0; i < json_array_size(input);) {
        const char *id = json_string_value(json_object_get(json_array_get(input, i), "id"));
        json_t *item = NULL;

        if (!is_reference(json_array_get(input, i))) {
            i++;
        } else if (is_known) {
            (void)json_array_remove(input, i); /* it is there */
        } else {
            if (id == NULL)
                return error_field(err, "input", "has an item_reference without an id");
            if (reference_find(&item, x, id, err) != STATUS_OK)
                return err->status;
            if (json_array_set_new(input, i++, item) != 0)
                return error_no_memory(err, 0, "the input");
        }
    }
    return STATUS_OK;
}
