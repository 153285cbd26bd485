#include "agents/message_extras.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

void call_id_format(char out[CALL_ID_CHARS], uint64_t seed, uint32_t call)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    struct sip s = sip_start(seed, ~seed);
    uint64_t left;

    sip_word(&s, call);
    left = sip_finish(&s);

    for (size_t i = 0; i + 1 < CALL_ID_CHARS; i++, left /= sizeof digits - 1)
        out[i] = digits[left % (sizeof digits - 1)];
    out[CALL_ID_CHARS - 1] = '\0';
}

static bool is_object(struct text t)
{
    json_t *value = t.len > 0 ? json_loadb(t.text, t.len, 0, NULL) : NULL;
    const bool is = json_is_object(value);

    json_decref(value);
    return is;
}

static enum status put_call(struct buf *out, const struct tool_call *c)
{
    enum status rc = buf_append_text(out, "{\"id\": ");

    if (rc == STATUS_OK)
        rc = buf_append_json(out, c->id.text, c->id.len);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ", \"type\": \"function\", \"function\": {\"name\": ");
    if (rc == STATUS_OK)
        rc = buf_append_json(out, c->name.text, c->name.len);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ", \"arguments\": ");
    if (rc == STATUS_OK)
        rc = is_object(c->arguments) ? buf_append(out, c->arguments.text, c->arguments.len)
                                     : buf_append_json(out, c->arguments.text, c->arguments.len);
    return rc == STATUS_OK ? buf_append_text(out, "}}") : rc;
}

static enum status put_calls(struct buf *out, const struct message_extras *x)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < x->n_calls; i++) {
        rc = buf_append_text(out, i == 0 ? "\"tool_calls\": [" : ", ");
        if (rc == STATUS_OK)
            rc = put_call(out, &x->calls[i]);
    }
    return rc == STATUS_OK && x->n_calls > 0 ? buf_append_text(out, "]") : rc;
}

static enum status put_text(struct buf *out, size_t start, const char *name, struct text t)
{
    enum status rc;

    if (t.len == 0)
        return STATUS_OK;
    rc = buf_printf(out, "%s\"%s\": ", out->len == start ? "" : ", ", name);
    return rc == STATUS_OK ? buf_append_json(out, t.text, t.len) : rc;
}

enum status message_extras_write(struct buf *out, const struct message_extras *x)
{
    size_t start;
    enum status rc;

    if (x->n_calls == 0 && x->thoughts.len == 0 && x->call_id.len == 0 && x->name.len == 0)
        return STATUS_OK;
    rc = buf_append_text(out, "{");
    start = out->len;
    if (rc == STATUS_OK)
        rc = put_calls(out, x);
    if (rc == STATUS_OK)
        rc = put_text(out, start, "reasoning_content", x->thoughts);
    if (rc == STATUS_OK)
        rc = put_text(out, start, "tool_call_id", x->call_id);
    if (rc == STATUS_OK)
        rc = put_text(out, start, "name", x->name);
    return rc == STATUS_OK ? buf_append_text(out, "}") : rc;
}

static enum status extras_keep_text(struct text *out, const json_t *value, struct arena *arena)
{
    if (!json_is_string(value))
        return STATUS_OK;
    out->len = json_string_length(value);
    out->text = arena_strndup(arena, json_string_value(value), out->len);
    return out->text == NULL ? STATUS_EXHAUSTED : STATUS_OK;
}

static enum status extras_keep_arguments(struct text *out, const json_t *value, struct arena *arena)
{
    char *text;

    if (!json_is_object(value))
        return extras_keep_text(out, value, arena);
    text = json_dumps(value, 0);
    if (text == NULL)
        return STATUS_EXHAUSTED;
    out->len = strlen(text);
    out->text = arena_strndup(arena, text, out->len);
    free(text);
    return out->text == NULL ? STATUS_EXHAUSTED : STATUS_OK;
}

static enum status extras_keep_calls(struct message_extras *x, const json_t *list,
                                     struct arena *arena)
{
    const size_t n = json_array_size(list);
    struct tool_call *calls = arena_alloc(arena, n, sizeof calls[0]);
    enum status rc = n > 0 && calls == NULL ? STATUS_EXHAUSTED : STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        const json_t *call = json_array_get(list, i);
        const json_t *function = json_object_get(call, "function");

        calls[i] = (struct tool_call){{"", 0}, {"", 0}, {"", 0}};
        rc = extras_keep_text(&calls[i].id, json_object_get(call, "id"), arena);
        if (rc == STATUS_OK)
            rc = extras_keep_text(&calls[i].name, json_object_get(function, "name"), arena);
        if (rc == STATUS_OK)
            rc = extras_keep_arguments(&calls[i].arguments, json_object_get(function, "arguments"),
                                       arena);
    }
    x->calls = calls;
    x->n_calls = n;
    return rc;
}

enum status message_extras_read(struct message_extras *out, const struct message *m,
                                struct arena *arena)
{
    const struct text none = {"", 0};
    struct message_extras x = {.thoughts = none, .call_id = none, .name = none};
    json_t *more;
    enum status rc;

    if (m->more_len == 0) {
        *out = x;
        return STATUS_OK;
    }
    more = json_loadb(m->more, m->more_len, 0, NULL);
    rc = more == NULL ? STATUS_EXHAUSTED : STATUS_OK; /* we wrote it */
    if (rc == STATUS_OK)
        rc = extras_keep_calls(&x, json_object_get(more, "tool_calls"), arena);
    if (rc == STATUS_OK)
        rc = extras_keep_text(&x.thoughts, json_object_get(more, "reasoning_content"), arena);
    if (rc == STATUS_OK)
        rc = extras_keep_text(&x.call_id, json_object_get(more, "tool_call_id"), arena);
    if (rc == STATUS_OK)
        rc = extras_keep_text(&x.name, json_object_get(more, "name"), arena);
    json_decref(more);
    if (rc == STATUS_OK)
        *out = x;
    return rc;
}

enum status message_extras_calls_text(struct buf *out, const struct message *m)
{
    json_t *more = m->more_len > 0 ? json_loadb(m->more, m->more_len, 0, NULL) : NULL;
    const json_t *calls = json_object_get(more, "tool_calls");
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *name = json_object_get(function, "name");
        char *arguments = json_dumps(json_object_get(function, "arguments"), JSON_ENCODE_ANY);

        rc = arguments == NULL ? STATUS_EXHAUSTED
                               : buf_append_text(out, i == 0 ? "{\"name\": " : "\n{\"name\": ");
        if (rc == STATUS_OK)
            rc = buf_append_json(out, json_string_value(name), json_string_length(name));
        if (rc == STATUS_OK)
            rc = buf_printf(out, ", \"arguments\": %s}", arguments);
        free(arguments);
    }
    json_decref(more);
    return rc;
}
