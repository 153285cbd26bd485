/* Logs of conversations as ParlAI writes them: a line an episode, {"dialog": [[first, second], …]}
 * with acts as objects. What the first speaker says is the text, the second one's answer its label
 * (ParlAI's label_turns secondspeaker); acts whose id is "context" are left out.
 *
 * And conversations as 'parley conversations export' writes them: a line for the conversation, one
 * for each turn, and others, which are left out. A turn's messages of the user, a line each, are
 * the text, its reply is the label. Turns without one of the two are left out. */
#include <jansson.h>
#include <string.h>

#include "worlds/teachers/format.h"

static struct text conversations_stripped(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\n\r\v\f", text[len - 1]) != NULL && text[len - 1] != '\0')
        len--;
    while (len > 0 && strchr(" \t\n\r\v\f", text[0]) != NULL && text[0] != '\0') {
        text++;
        len--;
    }
    return (struct text){text, len};
}

/* The act's text into the arena. */
static enum status conversations_text_of(struct source *s, const json_t *act, struct text *out,
                                         struct error *err)
{
    const json_t *text = json_object_get(act, "text");

    if (!json_is_string(text))
        return error_set(err, STATUS_INVALID, "an act of the dialog has no text");
    *out = conversations_stripped(json_string_value(text), json_string_length(text));
    out->text = arena_strndup(s->arena, out->text, out->len);
    return out->text == NULL ? error_no_memory(err, out->len, "a text") : STATUS_OK;
}

static enum status conversations_give(struct source *s, struct text text, struct text reply,
                                      bool begins, struct error *err)
{
    struct text *label = arena_alloc(s->arena, 1, sizeof(*label));
    struct act a;

    if (label == NULL)
        return error_no_memory(err, sizeof(*label), "a label");
    *label = reply;
    act_init(&a, s->arena);
    if (act_set(&a, ACT_TEXT, value_text(text), err) != STATUS_OK ||
        act_set(&a, ACT_LABELS, value_list(label, 1), err) != STATUS_OK)
        return err->status;
    return source_give(s, &a, begins, err);
}

static enum status conversations_give_example(struct source *s, const json_t *first,
                                              const json_t *second, bool begins, struct error *err)
{
    struct text text, label;

    if (conversations_text_of(s, first, &text, err) != STATUS_OK ||
        conversations_text_of(s, second, &label, err) != STATUS_OK)
        return err->status;
    return conversations_give(s, text, label, begins, err);
}

static bool is_context(const json_t *act)
{
    const char *id = json_string_value(json_object_get(act, "id"));

    return id != NULL && strcmp(id, "context") == 0;
}

/* All acts of the dialog in a row, two and two. */
static enum status give_dialog(struct source *s, const json_t *dialog, struct error *err)
{
    const json_t *first = NULL;
    bool begins = true;

    for (size_t i = 0; i < json_array_size(dialog); i++) {
        const json_t *pair = json_array_get(dialog, i);

        if (!json_is_array(pair))
            return error_set(err, STATUS_INVALID, "turn %zu of the dialog is not a list", i + 1);
        for (size_t k = 0; k < json_array_size(pair); k++) {
            const json_t *act = json_array_get(pair, k);

            if (!json_is_object(act))
                return error_set(err, STATUS_INVALID, "an act of the dialog is not an object");
            if (is_context(act))
                continue;
            if (first == NULL) {
                first = act;
                continue;
            }
            if (conversations_give_example(s, first, act, begins, err) != STATUS_OK)
                return err->status;
            first = NULL;
            begins = false;
        }
    }
    return STATUS_OK;
}

/* --- what Parley exports --- */

/* The user's messages, a line each. */
static enum status conversations_asked(struct source *s, const json_t *messages, struct text *out,
                                       struct error *err)
{
    size_t len = 0;
    char *text;

    for (size_t i = 0; i < json_array_size(messages); i++)
        len += json_string_length(json_object_get(json_array_get(messages, i), "text")) + 1;
    text = arena_alloc(s->arena, len + 1, 1);
    if (text == NULL)
        return error_no_memory(err, len, "a text");
    *out = (struct text){text, 0};
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *said = json_object_get(m, "text");
        const char *role = json_string_value(json_object_get(m, "role"));

        if (role == NULL || strcmp(role, "user") != 0 || !json_is_string(said))
            continue;
        if (out->len > 0)
            text[out->len++] = '\n';
        memcpy(text + out->len, json_string_value(said), json_string_length(said));
        out->len += json_string_length(said);
    }
    return STATUS_OK;
}

static enum status conversations_read_turn(struct source *s, const json_t *turn, struct error *err)
{
    const json_t *reply = json_object_get(turn, "reply");
    const size_t len = json_string_length(reply);
    struct text text, label = {NULL, len};
    const bool begins = s->begins;

    if (!json_is_array(json_object_get(turn, "messages")))
        return error_set(err, STATUS_INVALID, "a turn has no list \"messages\"");
    if (conversations_asked(s, json_object_get(turn, "messages"), &text, err) != STATUS_OK)
        return err->status;
    if (text.len == 0 || len == 0)
        return STATUS_OK;
    label.text = arena_strndup(s->arena, json_string_value(reply), len);
    if (label.text == NULL)
        return error_no_memory(err, len, "a label");
    s->begins = false;
    return conversations_give(s, text, label, begins, err);
}

/* A line that has a type. */
static enum status conversations_read_export(struct source *s, const json_t *line, const char *type,
                                             struct error *err)
{
    if (strcmp(type, "turn") == 0)
        return conversations_read_turn(s, line, err);
    s->begins |= strcmp(type, "conversation") == 0;
    return STATUS_OK;
}

static enum status conversations_read_line(struct source *s, const char *text, size_t len,
                                           struct error *err)
{
    json_error_t why;
    json_t *conversation;
    const json_t *dialog;
    const char *type;
    enum status rc;

    if (conversations_stripped(text, len).len == 0)
        return STATUS_OK;
    conversation = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (conversation == NULL)
        return error_set(err, STATUS_INVALID, "not JSON: %s", why.text);
    dialog = json_object_get(conversation, "dialog");
    type = json_string_value(json_object_get(conversation, "type"));
    if (json_is_array(dialog))
        rc = give_dialog(s, dialog, err);
    else if (type != NULL)
        rc = conversations_read_export(s, conversation, type, err);
    else
        rc = error_set(err, STATUS_INVALID, "not an object with a list \"dialog\"");
    json_decref(conversation);
    return rc;
}

const struct data_format conversations_format = {.name = "conversations",
                                                 .line = conversations_read_line};
