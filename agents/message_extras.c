/* Writes and reads what a message has besides its text, as one JSON object. The ids and keys of a
 * reply's calls are made here, too, from the seed of its turn. */
#include "agents/message_extras.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/siphash.h"

void call_id_format(char out[CALL_ID_CHARS], uint64_t seed, uint32_t call)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    struct sip s = sip_start(seed, ~seed);
    uint64_t left;

    sip_word(&s, call);
    left = sip_finish(&s);

    for (size_t i = 0; i + 1 < CALL_ID_CHARS; i++, left /= sizeof(digits) - 1)
        out[i] = digits[left % (sizeof(digits) - 1)];
    out[CALL_ID_CHARS - 1] = '\0';
}

void call_key_format(char out[CALL_KEY_CHARS], uint64_t seed, uint32_t call)
{
    uint64_t halves[2];

    for (uint32_t i = 0; i < 2; i++) {
        struct sip s = sip_start(~seed, seed);

        sip_word(&s, call);
        sip_word(&s, i);
        halves[i] = sip_finish(&s);
    }
    /* version 8, and the variant of RFC 9562 */
    halves[0] = (halves[0] & ~UINT64_C(0xf000)) | 0x8000;
    halves[1] = (halves[1] & ~(UINT64_C(3) << 62)) | UINT64_C(2) << 62;
    (void)snprintf(out, CALL_KEY_CHARS, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(halves[0] >> 32),
                   (unsigned)(halves[0] >> 16 & 0xffff), (unsigned)(halves[0] & 0xffff),
                   (unsigned)(halves[1] >> 48),
                   (unsigned long long)(halves[1] & UINT64_C(0xffffffffffff)));
}

static bool is_object(struct text t)
{
    json_t *value = t.len > 0 ? json_loadb(t.text, t.len, 0, NULL) : NULL;
    const bool is = json_is_object(value);

    json_decref(value);
    return is;
}

static void extras_write_text(struct json_writer *w, const char *name, struct text t)
{
    if (t.len > 0)
        json_write_string(w, name, t.text, t.len);
}

static void extras_write_call(struct json_writer *w, const struct tool_call *c)
{
    json_begin_object(w, NULL);
    json_write_string(w, "id", c->id.text, c->id.len);
    json_write_text(w, "type", "function");
    json_begin_object(w, "function");
    json_write_string(w, "name", c->name.text, c->name.len);
    if (is_object(c->arguments))
        json_write_json(w, "arguments", c->arguments.text, c->arguments.len);
    else
        json_write_string(w, "arguments", c->arguments.text, c->arguments.len);
    json_end_object(w);
    json_end_object(w);
}

enum status message_extras_write(struct buf *out, const struct message_extras *x)
{
    struct json_writer w = json_writer_begin_spaced(out);

    if (x->n_calls == 0 && x->thoughts.len == 0 && x->call_id.len == 0 && x->name.len == 0)
        return STATUS_OK;
    json_begin_object(&w, NULL);
    if (x->n_calls > 0) {
        json_begin_array(&w, "tool_calls");
        for (size_t i = 0; i < x->n_calls; i++)
            extras_write_call(&w, &x->calls[i]);
        json_end_array(&w);
    }
    extras_write_text(&w, "reasoning_content", x->thoughts);
    extras_write_text(&w, "tool_call_id", x->call_id);
    extras_write_text(&w, "name", x->name);
    json_end_object(&w);
    return json_writer_end(&w);
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
    struct tool_call *calls = arena_alloc(arena, n, sizeof(calls[0]));
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
    more = json_loadb(m->more, m->more_len, JSON_ALLOW_NUL, NULL);
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

bool message_extras_are_all(const struct message *m)
{
    struct message_extras x;
    json_t *more, *read;
    struct arena arena;
    struct buf text;
    bool are = true;

    if (m->more_len == 0)
        return true;
    arena_init(&arena, SIZE_MAX);
    buf_init(&text, SIZE_MAX);
    more = json_loadb(m->more, m->more_len, JSON_ALLOW_NUL, NULL);
    if (more == NULL) {
        are = false;
    } else if (message_extras_read(&x, m, &arena) == STATUS_OK &&
               message_extras_write(&text, &x) == STATUS_OK) {
        read = text.len == 0 ? NULL : json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
        are = json_equal(more, read) != 0;
        json_decref(read);
    }
    json_decref(more);
    buf_deinit(&text);
    arena_deinit(&arena);
    return are;
}

bool tools_are_array(struct text tools)
{
    json_t *value = tools.len == 0 ? NULL : json_loadb(tools.text, tools.len, JSON_ALLOW_NUL, NULL);
    const bool are = tools.len == 0 || json_is_array(value);

    json_decref(value);
    return are;
}

enum status message_extras_calls_text(struct buf *out, const struct message *m)
{
    json_t *more = m->more_len > 0 ? json_loadb(m->more, m->more_len, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *calls = json_object_get(more, "tool_calls");
    struct json_writer w = json_writer_begin_spaced(out);

    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *name = json_object_get(function, "name");
        char *arguments = json_dumps(json_object_get(function, "arguments"), JSON_ENCODE_ANY);

        json_writer_fail(&w, arguments == NULL ? STATUS_EXHAUSTED : STATUS_OK);
        json_write_around(&w, i == 0 ? "" : "\n");
        json_begin_object(&w, NULL);
        json_write_string(&w, "name", json_string_value(name), json_string_length(name));
        json_write_json(&w, "arguments", arguments, arguments == NULL ? 0 : strlen(arguments));
        json_end_object(&w);
        free(arguments);
    }
    json_decref(more);
    return json_writer_end(&w);
}

void reasoning_terms_read(struct reasoning_terms *out, struct text variables)
{
    json_t *all = variables.len == 0 ? NULL : json_loadb(variables.text, variables.len, 0, NULL);
    const json_t *budget = json_object_get(all, "thinking_budget");
    const char *effort = json_string_value(json_object_get(all, "reasoning_effort"));

    *out = (struct reasoning_terms){.has_budget =
                                        json_is_integer(budget) && json_integer_value(budget) >= 0};
    if (out->has_budget)
        out->budget = (size_t)json_integer_value(budget);
    if (effort != NULL && strlen(effort) < sizeof(out->effort))
        memcpy(out->effort, effort, strlen(effort) + 1);
    json_decref(all);
}
