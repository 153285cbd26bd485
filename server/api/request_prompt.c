/* Reads the messages or prompts of a request of any HTTP API in OpenAI's form. Parts, calls of
 * tools and token ids each have one reader, whose errors name the place in the list. */
#include "server/api/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/fields.h"

/* --- messages --- */

/* The path of a part of the i-th message, for errors. */
struct place {
    const char *list;
    size_t i;
    const char *part;
};

struct place_name {
    char text[48];
};

static struct place_name name_of(const struct place *p)
{
    struct place_name name;

    (void)snprintf(name.text, sizeof(name.text), "%s[%zu]%s", p->list, p->i, p->part);
    return name;
}

static enum status take_role(enum role *out, const json_t *message, const char *list, size_t i,
                             struct error *err)
{
    const json_t *role = field(message, "role");
    const struct place at = {list, i, ".role"};
    const char *name;

    if (role == NULL)
        return error_field(err, name_of(&at).text, "is missing");
    if (!field_is_plain_text(role))
        return field_wrong(err, name_of(&at).text, "a string", role);
    name = json_string_value(role);
    if (strcmp(name, "developer") == 0) /* the name in newer models */
        name = "system";
    if (strcmp(name, "function") == 0) /* the old name */
        name = "tool";
    if (role_parse(out, name, err) == STATUS_OK)
        return STATUS_OK;
    return error_field(err, name_of(&at).text,
                       "is '%.40s', it must be system, developer, user, assistant or tool", name);
}

/* A part is {"type": "text", "text": …}; the Responses API calls the type input_text or
 * output_text. */
static enum status request_prompt_take_part(const char **out, size_t *ret_len, const json_t *part,
                                            const char *name, struct error *err)
{
    const json_t *type = field(part, "type");
    const char *kind = json_is_string(type) ? json_string_value(type) : "text";
    const bool is_refusal = strcmp(kind, "refusal") == 0;
    const json_t *text = field(part, is_refusal ? "refusal" : "text");

    if (!json_is_object(part))
        return field_wrong(err, name, "a list of objects", part);
    if (strcmp(kind, "text") != 0 && strcmp(kind, "input_text") != 0 &&
        strcmp(kind, "output_text") != 0 && !is_refusal)
        return error_field(err, name, "has a part of type '%.40s': only text is taken", kind);
    if (!json_is_string(text))
        return error_field(err, name, "has a part without a text");
    *out = json_string_value(text);
    *ret_len = json_string_length(text);
    return STATUS_OK;
}

static enum status join_parts(struct message *out, const json_t *parts, const char *name,
                              struct arena *arena, struct error *err)
{
    size_t total = 0, n = json_array_size(parts);
    const char *text;
    size_t len;
    char *joined;

    for (size_t i = 0; i < n; i++) {
        if (request_prompt_take_part(&text, &len, json_array_get(parts, i), name, err) != STATUS_OK)
            return err->status;
        total += len;
    }
    joined = arena_alloc(arena, total + 1, 1);
    if (joined == NULL)
        return error_no_memory(err, 0, "the request");
    out->text = joined;
    out->len = total;
    for (size_t i = 0; i < n; i++) {
        if (request_prompt_take_part(&text, &len, json_array_get(parts, i), name, err) != STATUS_OK)
            return err->status;
        memcpy(joined, text, len);
        joined += len;
    }
    return STATUS_OK;
}

enum status request_content(struct message *out, const json_t *value, const char *name,
                            struct arena *arena, struct error *err)
{
    if (json_is_array(value))
        return join_parts(out, value, name, arena, err);
    if (!json_is_string(value))
        return field_wrong(err, name, "a string or a list of parts", value);
    out->text = json_string_value(value);
    out->len = json_string_length(value);
    return STATUS_OK;
}

static enum status take_content(struct message *out, const json_t *message, const char *list,
                                size_t i, struct arena *arena, struct error *err)
{
    const json_t *content = field(message, "content");
    const struct place at = {list, i, ".content"};

    if (content != NULL)
        return request_content(out, content, name_of(&at).text, arena, err);
    if (out->role != ROLE_ASSISTANT && out->role != ROLE_TOOL)
        return error_field(err, name_of(&at).text, "is missing");
    out->text = "";
    out->len = 0;
    return STATUS_OK;
}

/* --- calls and their results --- */

static struct text json_text(const json_t *value)
{
    return json_is_string(value)
               ? (struct text){json_string_value(value), json_string_length(value)}
               : (struct text){0};
}

/* A member that is a string, or is not there. */
static enum status take_text_member(struct text *out, const json_t *object, const char *name,
                                    const struct place *at, struct error *err)
{
    const json_t *value = field(object, name);
    char path[64];

    if (value != NULL && !json_is_string(value)) {
        (void)snprintf(path, sizeof(path), "%s.%s", name_of(at).text, name);
        return field_wrong(err, path, "a string", value);
    }
    *out = json_text(value);
    return STATUS_OK;
}

/* Arguments that are JSON's own values, as text. */
static enum status take_arguments(struct text *out, const json_t *value, const struct place *at,
                                  struct arena *arena, struct error *err)
{
    char *text;

    *out = json_text(value);
    if (value != NULL && !json_is_string(value) && !json_is_object(value))
        return error_field(err, name_of(at).text,
                           "has a call whose arguments are neither a string nor an object");
    if (json_is_object(value)) {
        text = json_dumps(value, 0);
        out->text = text == NULL ? NULL : arena_strndup(arena, text, strlen(text));
        out->len = text == NULL ? 0 : strlen(text);
        free(text);
        if (out->text == NULL)
            return error_no_memory(err, 0, "the request");
    }
    if (out->len == 0)
        *out = (struct text){"{}", 2};
    return STATUS_OK;
}

/* A call's function; a name is wanted, arguments may be any text. */
static enum status take_function(struct tool_call *out, const json_t *function,
                                 const struct place *at, struct arena *arena, struct error *err)
{
    const json_t *name = json_object_get(function, "name");

    if (!json_is_string(name))
        return error_field(err, name_of(at).text, "has a call without a name");
    out->name = json_text(name);
    return take_arguments(&out->arguments, field(function, "arguments"), at, arena, err);
}

static enum status take_calls(struct message_extras *x, const json_t *message,
                              const struct place *at, struct arena *arena, struct error *err)
{
    const json_t *list = field(message, "tool_calls"), *old = field(message, "function_call");
    const size_t n = json_array_size(list);
    struct tool_call *calls;

    if (list != NULL && !json_is_array(list))
        return field_wrong(err, name_of(at).text, "a list of calls", list);
    if (n > REQUEST_MAX_CALLS)
        return error_field(err, name_of(at).text, "has %zu calls, at most %d are allowed", n,
                           REQUEST_MAX_CALLS);
    calls = arena_alloc(arena, n + 1, sizeof(calls[0]));
    if (calls == NULL)
        return error_no_memory(err, 0, "the request");
    x->calls = calls;
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(list, i);
        char part[40];
        const struct place of_call = {at->list, at->i, part};

        (void)snprintf(part, sizeof(part), ".tool_calls[%zu]", i);
        if (take_text_member(&calls[i].id, call, "id", &of_call, err) != STATUS_OK ||
            take_function(&calls[i], json_object_get(call, "function"), at, arena, err) !=
                STATUS_OK)
            return err->status;
        x->n_calls++;
    }
    if (n == 0 && old != NULL) {
        x->n_calls = 1;
        return take_function(&calls[0], old, at, arena, err);
    }
    return STATUS_OK;
}

/* The name of the tool that a call in the messages before the n-th has asked for. */
static struct text called_name(const json_t *list, size_t n, struct text id)
{
    while (n-- > 0) {
        const json_t *calls = json_object_get(json_array_get(list, n), "tool_calls");

        for (size_t i = 0; i < json_array_size(calls); i++) {
            const json_t *call = json_array_get(calls, i);
            const struct text its = json_text(json_object_get(call, "id"));

            if (its.len == id.len && its.len > 0 && memcmp(its.text, id.text, id.len) == 0)
                return json_text(json_object_get(json_object_get(call, "function"), "name"));
        }
    }
    return (struct text){0};
}

enum status request_message_extras(struct message *out, const struct message_extras *x,
                                   struct arena *arena, struct error *err)
{
    enum status rc = STATUS_OK;
    struct buf more;

    buf_init(&more, SIZE_MAX);
    if (message_extras_write(&more, x) != STATUS_OK)
        rc = error_no_memory(err, 0, "the request");
    if (rc == STATUS_OK && more.len > 0) {
        out->more = arena_strndup(arena, more.data, more.len);
        out->more_len = more.len;
        if (out->more == NULL)
            rc = error_no_memory(err, 0, "the request");
    }
    buf_deinit(&more);
    return rc;
}

static enum status take_extras(struct message *out, bool *ret_has_name, const json_t *list,
                               size_t i, const char *name, struct arena *arena, struct error *err)
{
    const struct place at = {name, i, ""}, of_calls = {name, i, ".tool_calls"};
    const json_t *message = json_array_get(list, i);
    struct message_extras x = {0};

    if (take_text_member(&x.name, message, "name", &at, err) != STATUS_OK)
        return err->status;
    *ret_has_name = *ret_has_name || (x.name.len > 0 && out->role != ROLE_TOOL);
    if (out->role == ROLE_ASSISTANT) {
        if (take_text_member(&x.thoughts, message, "reasoning_content", &at, err) != STATUS_OK ||
            (x.thoughts.len == 0 &&
             take_text_member(&x.thoughts, message, "reasoning", &at, err) != STATUS_OK) ||
            take_calls(&x, message, &of_calls, arena, err) != STATUS_OK)
            return err->status;
    } else if (out->role == ROLE_TOOL) {
        if (take_text_member(&x.call_id, message, "tool_call_id", &at, err) != STATUS_OK)
            return err->status;
        if (x.name.len == 0)
            x.name = called_name(list, i, x.call_id);
    }
    return request_message_extras(out, &x, arena, err);
}

enum status request_messages(struct prompt *out, const json_t *list, const char *name,
                             struct arena *arena, struct error *err)
{
    size_t n = json_array_size(list);
    struct message *messages;
    bool has_names = false;

    if (n == 0)
        return error_field(err, name, "is empty");
    if (n > REQUEST_MAX_MESSAGES)
        return error_field(err, name, "has %zu messages, at most %d are allowed", n,
                           REQUEST_MAX_MESSAGES);
    messages = arena_alloc(arena, n, sizeof(messages[0]));
    if (messages == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, i);
        const struct place at = {name, i, ""};

        if (!json_is_object(message))
            return field_wrong(err, name_of(&at).text, "an object", message);
        if (take_role(&messages[i].role, message, name, i, err) != STATUS_OK ||
            take_content(&messages[i], message, name, i, arena, err) != STATUS_OK ||
            take_extras(&messages[i], &has_names, list, i, name, arena, err) != STATUS_OK)
            return err->status;
    }
    *out = (struct prompt){.messages = messages, .n_messages = n, .has_names = has_names};
    return STATUS_OK;
}

bool request_ends_with_reply(const struct prompt *p)
{
    return p->n_messages > 0 && p->messages[p->n_messages - 1].role == ROLE_ASSISTANT;
}

/* --- raw prompts --- */

/* A field, its other name, and the rule that it sets; is_not: where it is false. */
struct raw_field {
    const char *names[2];
    size_t to;
    bool is_not;
};

enum status request_raw_rules(struct raw_rules *out, const json_t *body, struct error *err)
{
    static const struct raw_field fields[] = {
        {{"parse_special", NULL}, offsetof(struct raw_rules, parses_control), false},
        {{"add_special_tokens", "add_special"}, offsetof(struct raw_rules, adds_no_bos), true},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        for (size_t k = 0; k < 2 && fields[i].names[k] != NULL; k++) {
            const json_t *value = field(body, fields[i].names[k]);
            bool *to = (bool *)((char *)out + fields[i].to);

            if (value == NULL)
                continue;
            if (!json_is_boolean(value))
                return field_wrong(err, fields[i].names[k], "true or false", value);
            *to = json_is_true(value) != fields[i].is_not;
        }
    return STATUS_OK;
}

static enum status request_prompt_take_ids(struct prompt *out, const json_t *list, const char *name,
                                           struct arena *arena, struct error *err)
{
    size_t n = json_array_size(list);
    int32_t *ids;

    if (n == 0)
        return error_field(err, name, "is empty");
    if (field_token_ids(&ids, list, name, "text, or a list of token ids", arena, err) != STATUS_OK)
        return err->status;
    *out = (struct prompt){.ids = ids, .n_ids = n, .is_plain = true, .raw = {.adds_no_bos = true}};
    return STATUS_OK;
}

enum status request_chat_ids(struct prompt *out, const json_t *value, const char *name,
                             struct arena *arena, struct error *err)
{
    if (!json_is_array(value))
        return field_wrong(err, name, "a list of token ids", value);
    if (request_prompt_take_ids(out, value, name, arena, err) != STATUS_OK)
        return err->status;
    out->raw.is_chat = true;
    return STATUS_OK;
}

static enum status take_prompt(struct prompt *out, const json_t *value,
                               const struct raw_rules *rules, struct arena *arena,
                               struct error *err)
{
    struct message *message;

    if (json_is_array(value))
        return request_prompt_take_ids(out, value, "prompt", arena, err);
    if (!json_is_string(value))
        return field_wrong(err, "prompt", "a string, or a list of token ids", value);
    message = arena_alloc(arena, 1, sizeof(*message));
    if (message == NULL)
        return error_no_memory(err, 0, "the request");
    *message = (struct message){
        .role = ROLE_USER, .text = json_string_value(value), .len = json_string_length(value)};
    *out = (struct prompt){.messages = message, .n_messages = 1, .is_plain = true, .raw = *rules};
    return STATUS_OK;
}

enum status request_fill_in(struct request *out, const json_t *suffix, struct arena *arena,
                            struct error *err)
{
    if (suffix != NULL && !json_is_string(suffix))
        return field_wrong(err, "suffix", "a string", suffix);
    for (size_t i = 0; i < out->n_prompts; i++) {
        struct prompt *p = &out->prompts[i];
        struct message *texts;

        if (json_string_length(suffix) == 0) {
            if (p->n_ids == 0 && p->messages[0].len == 0)
                return error_field(err, "prompt", "is empty");
            continue;
        }
        if (p->n_ids > 0)
            return error_field(err, "suffix", "needs a prompt of text, not of token ids");
        texts = arena_alloc(arena, 2, sizeof(texts[0]));
        if (texts == NULL)
            return error_no_memory(err, 0, "the request");
        texts[0] = p->messages[0];
        texts[1] = (struct message){.role = ROLE_USER,
                                    .text = json_string_value(suffix),
                                    .len = json_string_length(suffix)};
        p->messages = texts;
        p->n_messages = 2;
        p->raw.fills_in = true;
    }
    return STATUS_OK;
}

enum status request_prompts(struct request *out, const json_t *value, const struct raw_rules *rules,
                            struct arena *arena, struct error *err)
{
    const json_t *first = json_array_get(value, 0);
    bool is_one = !json_is_array(value) || json_is_integer(first);
    size_t n = is_one ? 1 : json_array_size(value);

    if (value == NULL)
        return error_field(err, "prompt", "is missing");
    if (n == 0)
        return error_field(err, "prompt", "is empty");
    if (n > REQUEST_MAX_PROMPTS)
        return error_field(err, "prompt", "has %zu entries, at most %d are allowed", n,
                           REQUEST_MAX_PROMPTS);
    out->prompts = arena_alloc(arena, n, sizeof(out->prompts[0]));
    if (out->prompts == NULL)
        return error_no_memory(err, 0, "the request");
    out->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = is_one ? value : json_array_get(value, i);

        if (take_prompt(&out->prompts[i], one, rules, arena, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}
