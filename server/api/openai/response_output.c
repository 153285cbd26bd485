/* Writes a response's items as they come out of the reply's parser: each is opened, grows and is
 * closed by events of its type. The whole list of a stored reply is gathered by the same functions.
 */
#include "server/api/openai/response_output.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/openai/request.h"
#include "server/json/field_table.h"

enum { ITEM_MAX_BYTES = 64 << 20 };

void response_output_init(struct response_output *o, const char *id, uint64_t sequence)
{
    *o = (struct response_output){.id = id, .sequence = sequence};
    buf_init(&o->name, ITEM_MAX_BYTES);
    buf_init(&o->text, ITEM_MAX_BYTES);
}

void response_output_deinit(struct response_output *o)
{
    buf_deinit(&o->name);
    buf_deinit(&o->text);
}

/* --- what a call is to the client --- */

enum call_kind {
    CALL_OF_FUNCTION,
    CALL_OF_CUSTOM,
    CALL_OF_LOCAL_SHELL,
    CALL_OF_SHELL,
    CALL_OF_PATCH,
    N_CALL_KINDS
};

/* title: of the parameters of the functions that stand for such tools. object: the item's member
 * that has the arguments; NULL: it has a name and a text. */
static const struct call_form {
    const char *title, *type, *id_prefix, *object;
} call_forms[N_CALL_KINDS] = {
    [CALL_OF_FUNCTION] = {NULL, "function_call", "fc", NULL},
    [CALL_OF_CUSTOM] = {TOOLS_CUSTOM_TITLE, "custom_tool_call", "ctc", NULL},
    [CALL_OF_LOCAL_SHELL] = {TOOLS_LOCAL_SHELL_TITLE, "local_shell_call", "lsh", "action"},
    [CALL_OF_SHELL] = {TOOLS_SHELL_TITLE, "shell_call", "sh", "action"},
    [CALL_OF_PATCH] = {TOOLS_PATCH_TITLE, "apply_patch_call", "apc", "operation"},
};

/* The title of the parameters of the tool of that name; a reference to tools, or NULL. */
static const char *tool_title(const json_t *tools, struct text name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *its = json_object_get(function, "name");

        if (json_string_length(its) == name.len &&
            memcmp(json_string_value(its), name.text, name.len) == 0)
            return json_string_value(
                json_object_get(json_object_get(function, "parameters"), "title"));
    }
    return NULL;
}

/* Most tools are functions, and their list need not be read. */
static bool tools_have_forms(struct text tools)
{
    for (size_t i = 0; i < N_CALL_KINDS; i++) {
        const char *title = call_forms[i].title;

        if (title != NULL && memmem(tools.text, tools.len, title, strlen(title)) != NULL)
            return true;
    }
    return false;
}

/* tools: as in a tool_use. */
static enum call_kind call_kind_of(struct text tools, struct text name)
{
    enum call_kind kind = CALL_OF_FUNCTION;
    const char *title;
    json_t *list;

    if (name.len == 0 || !tools_have_forms(tools))
        return kind;
    list = json_loadb(tools.text, tools.len, JSON_ALLOW_NUL, NULL);
    title = tool_title(list, name);
    for (size_t i = 0; title != NULL && i < N_CALL_KINDS; i++)
        if (call_forms[i].title != NULL && strcmp(title, call_forms[i].title) == 0)
            kind = (enum call_kind)i;
    json_decref(list);
    return kind;
}

/* Writes the text that is the input of a custom tool. Arguments that were cut stay as they are. */
static void write_custom_input(struct json_writer *w, const char *name, struct text arguments)
{
    json_t *all = json_loadb(arguments.text, arguments.len, JSON_ALLOW_NUL, NULL);
    const json_t *input = json_object_get(all, "input");

    if (json_is_string(input))
        json_write_string(w, name, json_string_value(input), json_string_length(input));
    else
        json_write_string(w, name, arguments.text, arguments.len);
    json_decref(all);
}

/* Sets what the client looks for and the model has left out. */
static bool call_object_complete(json_t *object, enum call_kind call)
{
    static const char *const whole[N_CALL_KINDS] = {
        [CALL_OF_LOCAL_SHELL] = "{\"command\": [], \"env\": {}}",
        [CALL_OF_SHELL] = "{\"commands\": []}",
        [CALL_OF_PATCH] = "{\"type\": \"update_file\", \"path\": \"\"}",
    };
    json_t *rest = json_loads(whole[call], 0, NULL);
    bool is_good = rest != NULL && json_object_update_missing(object, rest) == 0;

    json_decref(rest);
    if (is_good && call == CALL_OF_LOCAL_SHELL)
        is_good = json_object_set_new(object, "type", json_string("exec")) == 0;
    if (is_good && call == CALL_OF_PATCH && json_object_get(object, "diff") == NULL &&
        !field_is_text(json_object_get(object, "type"), "delete_file"))
        is_good = json_object_set_new(object, "diff", json_string("")) == 0;
    return is_good;
}

/* Writes what the shell is to do, or what becomes of a file. */
static void write_call_object(struct json_writer *w, enum call_kind call, struct text arguments)
{
    json_t *object = json_loadb(arguments.text, arguments.len, JSON_ALLOW_NUL, NULL);
    char *text;

    if (!json_is_object(object)) {
        json_decref(object);
        object = json_object();
    }
    text = call_object_complete(object, call) ? json_dumps(object, 0) : NULL;
    if (text == NULL)
        json_writer_fail(w, STATUS_EXHAUSTED);
    else
        json_write_json(w, call_forms[call].object, text, strlen(text));
    free(text);
    json_decref(object);
}

/* Writes a call's name, and its namespace if it has one. */
static void write_call_name(struct json_writer *w, struct text name)
{
    const char *slash = name.len == 0 ? NULL : memchr(name.text, '/', name.len);

    if (slash != NULL) {
        json_write_string(w, "namespace", name.text, (size_t)(slash - name.text));
        name.len -= (size_t)(slash + 1 - name.text);
        name.text = slash + 1;
    }
    json_write_string(w, "name", name.text, name.len);
}

/* --- items --- */

/* What an item is called: its id, and the id and the key of a call. */
struct item_id {
    char text[96], call[CALL_ID_CHARS], key[CALL_KEY_CHARS];
};

static struct item_id item_id_of(const char *id, enum reply_part_kind kind, enum call_kind call,
                                 uint32_t number, uint64_t seed)
{
    struct item_id out = {0};

    call_id_format(out.call, seed, number);
    call_key_format(out.key, seed, number);
    if (kind == REPLY_CALL)
        (void)snprintf(out.text, sizeof(out.text), "%s_%s", call_forms[call].id_prefix, out.call);
    else if (kind == REPLY_THOUGHT)
        (void)snprintf(out.text, sizeof(out.text), "rs_%s", id);
    else if (number == 0)
        (void)snprintf(out.text, sizeof(out.text), "msg_%s", id);
    else
        (void)snprintf(out.text, sizeof(out.text), "msg_%s_r%u", id,
                       number); /* "_1" is of the request */
    return out;
}

static void write_text_part(struct json_writer *w, const char *name, enum reply_part_kind kind,
                            struct text text)
{
    json_begin_object(w, name);
    json_write_text(w, "type", kind == REPLY_THOUGHT ? "reasoning_text" : "output_text");
    json_write_string(w, "text", text.text, text.len);
    if (kind != REPLY_THOUGHT) {
        json_write_empty_array(w, "annotations");
        json_write_empty_array(w, "logprobs");
    }
    json_end_object(w);
}

static void write_call_item(struct json_writer *w, const char *member, const struct item_id *id,
                            enum call_kind call, const char *status, struct text name,
                            struct text text)
{
    json_begin_object(w, member);
    json_write_text(w, "type", call_forms[call].type);
    json_write_text(w, "id", id->text);
    json_write_text(w, "call_id", id->call);
    json_write_text(w, "idempotency_key", id->key);
    json_write_text(w, "status", status);
    if (call_forms[call].object != NULL)
        write_call_object(w, call, text);
    else
        write_call_name(w, name);
    if (call == CALL_OF_FUNCTION)
        json_write_string(w, "arguments", text.text, text.len);
    else if (call == CALL_OF_CUSTOM)
        write_custom_input(w, "input", text);
    json_end_object(w);
}

/* What an item is written from. is_new: as it is added, without content. */
struct item_form {
    struct item_id id;
    enum reply_part_kind kind;
    enum call_kind call;
    struct text name, text;
    bool is_new, gives_thoughts;
};

/* Thoughts that the client keeps and sends back: see request.h. */
static void write_kept_thoughts(struct json_writer *w, struct text text)
{
    struct json_writer inner;
    struct buf quoted, all;

    buf_init(&quoted, ITEM_MAX_BYTES);
    buf_init(&all, ITEM_MAX_BYTES);
    inner = json_writer_begin(&quoted);
    json_write_base64(&inner, NULL, text.text, text.len);
    json_writer_fail(w, json_writer_end(&inner));
    json_writer_fail(w, buf_append(&all, RESPONSE_THOUGHTS_MARK, strlen(RESPONSE_THOUGHTS_MARK)));
    if (w->rc == STATUS_OK)
        json_writer_fail(w, buf_append(&all, quoted.data + 1, quoted.len - 2));
    if (w->rc == STATUS_OK)
        json_write_string(w, "encrypted_content", all.data, all.len);
    buf_deinit(&quoted);
    buf_deinit(&all);
}

static void write_output_item(struct json_writer *w, const char *member,
                              const struct item_form *form, const char *status)
{
    const enum reply_part_kind kind = form->kind;
    const struct text text = form->text;

    if (kind == REPLY_CALL) {
        write_call_item(w, member, &form->id, form->call, status, form->name, text);
        return;
    }
    json_begin_object(w, member);
    json_write_text(w, "type", kind == REPLY_THOUGHT ? "reasoning" : "message");
    json_write_text(w, "id", form->id.text);
    json_write_text(w, "status", status);
    if (kind == REPLY_THOUGHT) {
        json_write_empty_array(w, "summary");
        if (form->gives_thoughts && !form->is_new)
            write_kept_thoughts(w, text);
    } else
        json_write_text(w, "role", "assistant");
    json_begin_array(w, "content");
    if (!form->is_new)
        write_text_part(w, NULL, kind, text);
    json_end_array(w);
    json_end_object(w);
}

/* --- events --- */

static void output_event(struct response_output *o, const struct choice *c, const char *type,
                         struct json_writer *w)
{
    o->event_at = w->out->len;
    if (o->has_id)
        generation_write_id(c->generation, w);
    o->has_id = false;
    generation_begin_event(type, w);
    json_write_unsigned(w, "sequence_number", o->sequence++);
    json_write_unsigned(w, "output_index", o->index);
}

/* An event that the client has is taken back. */
static void output_end_event(const struct response_output *o, struct json_writer *w)
{
    generation_end_event(w);
    if (w->rc == STATUS_OK && o->has_after && o->sequence - 1 <= o->after)
        w->out->len = o->event_at;
}

static struct item_id output_item_id(const struct response_output *o, const struct choice *c)
{
    return item_id_of(o->id, o->kind, (enum call_kind)o->call_kind,
                      o->kind == REPLY_CALL ? o->call : o->n_messages - 1, generation_call_seed(c));
}

static void output_item_event(struct response_output *o, const struct choice *c, const char *type,
                              const char *status, bool is_new, struct json_writer *w)
{
    const struct item_form form = {
        .id = output_item_id(o, c),
        .kind = o->kind,
        .call = (enum call_kind)o->call_kind,
        .name = {o->name.data, o->name.len},
        .text = {o->text.data, is_new ? 0 : o->text.len},
        .is_new = is_new,
        .gives_thoughts = o->gives_thoughts,
    };

    output_event(o, c, type, w);
    write_output_item(w, "item", &form, status);
    output_end_event(o, w);
}

/* An event about the content of the open item, up to its own fields. */
static void output_content_event(struct response_output *o, const struct choice *c,
                                 const char *type, struct json_writer *w)
{
    const struct item_id id = output_item_id(o, c);

    output_event(o, c, type, w);
    json_write_text(w, "item_id", id.text);
    if (o->kind != REPLY_CALL)
        json_write_unsigned(w, "content_index", 0);
}

static void output_part_event(struct response_output *o, const struct choice *c, const char *type,
                              struct json_writer *w)
{
    if (o->kind != REPLY_TEXT)
        return;
    output_content_event(o, c, type, w);
    write_text_part(w, "part", o->kind, (struct text){o->text.data, o->text.len});
    output_end_event(o, w);
}

static void output_text_event(struct response_output *o, const struct choice *c, const char *what,
                              const char *name, struct text text, struct json_writer *w)
{
    static const char *const types[] = {[REPLY_TEXT] = "response.output_text",
                                        [REPLY_THOUGHT] = "response.reasoning_text",
                                        [REPLY_CALL] = "response.function_call_arguments"};
    char type[64];

    (void)snprintf(type, sizeof(type), "%s.%s", types[o->kind], what);
    output_content_event(o, c, type, w);
    if (o->kind == REPLY_CALL && strcmp(what, "done") == 0)
        write_call_name(w, (struct text){o->name.data, o->name.len});
    if (o->kind == REPLY_TEXT)
        json_write_empty_array(w, "logprobs");
    json_write_string(w, name, text.text, text.len);
    output_end_event(o, w);
}

/* A call's input comes at once, when it is complete: a custom tool's is inside the arguments. */
static void output_custom_event(struct response_output *o, const struct choice *c, const char *what,
                                const char *name, struct json_writer *w)
{
    char type[64];

    (void)snprintf(type, sizeof(type), "response.custom_tool_call_input.%s", what);
    output_content_event(o, c, type, w);
    write_custom_input(w, name, (struct text){o->text.data, o->text.len});
    output_end_event(o, w);
}

static void output_close_text(struct response_output *o, const struct choice *c,
                              struct json_writer *w)
{
    if (o->kind != REPLY_CALL || o->call_kind == CALL_OF_FUNCTION) {
        output_text_event(o, c, "done", o->kind == REPLY_CALL ? "arguments" : "text",
                          (struct text){o->text.data, o->text.len}, w);
    } else if (o->call_kind == CALL_OF_CUSTOM) {
        output_custom_event(o, c, "delta", "delta", w);
        output_custom_event(o, c, "done", "input", w);
    }
}

static void output_close(struct response_output *o, const struct choice *c, const char *status,
                         struct json_writer *w)
{
    if (!o->is_open)
        return;
    output_close_text(o, c, w);
    output_part_event(o, c, "response.content_part.done", w);
    output_item_event(o, c, "response.output_item.done", status, false, w);
    o->is_open = false;
    o->index++;
}

static void output_open(struct response_output *o, const struct choice *c,
                        const struct reply_part *part, bool is_last, struct json_writer *w)
{
    output_close(o, c, "completed", w);
    o->has_id = is_last && part->kind == REPLY_CALL;
    buf_clear(&o->name);
    buf_clear(&o->text);
    o->kind = part->kind;
    o->call = part->call;
    o->n_messages += part->kind == REPLY_TEXT;
    o->is_open = true;
    o->call_kind = CALL_OF_FUNCTION;
    if (part->kind == REPLY_CALL) {
        json_writer_fail(w, buf_append(&o->name, part->text, part->len));
        o->call_kind = call_kind_of(generation_tools(c), (struct text){part->text, part->len});
    }
    output_item_event(o, c, "response.output_item.added", "in_progress", true, w);
    output_part_event(o, c, "response.content_part.added", w);
}

static void output_add(struct response_output *o, const struct choice *c,
                       const struct reply_part *part, struct json_writer *w)
{
    if (o->kind != REPLY_CALL || o->call_kind == CALL_OF_FUNCTION)
        output_text_event(o, c, "delta", "delta", (struct text){part->text, part->len}, w);
    if (part->len > 0)
        json_writer_fail(w, buf_append(&o->text, part->text, part->len));
}

void response_output_parts(struct response_output *o, struct choice *c, struct json_writer *w)
{
    struct reply_part part, next;

    while (w->rc == STATUS_OK && reply_parser_next(c->parser, &part)) {
        const bool is_last = !reply_parser_peek(c->parser, &next);

        if (part.kind == REPLY_CALL ||
            (part.kind != REPLY_ARGUMENTS && (!o->is_open || o->kind != part.kind)))
            output_open(o, c, &part, is_last, w);
        o->has_id = is_last && part.kind != REPLY_CALL;
        if (part.kind != REPLY_CALL)
            output_add(o, c, &part, w);
    }
}

void response_output_end(struct response_output *o, struct choice *c, const char *status,
                         struct json_writer *w)
{
    static const struct reply_part nothing = {.kind = REPLY_TEXT, .text = ""};

    if (!o->is_open && o->index == 0)
        output_open(o, c, &nothing, false, w);
    output_close(o, c, status, w);
}

/* --- a whole reply --- */

/* The item that is being gathered. */
struct gathered_item {
    const char *id;
    uint64_t seed;
    struct text tools;
    enum reply_part_kind kind;
    bool is_open, gives_thoughts;
    uint32_t call, n_messages;
    struct buf name, text;
};

static void gathered_write(struct gathered_item *g, const char *status, struct json_writer *w)
{
    struct item_form form = {
        .kind = g->kind,
        .name = {g->name.data, g->name.len},
        .text = {g->text.data, g->text.len},
        .gives_thoughts = g->gives_thoughts,
    };

    if (g->kind == REPLY_CALL)
        form.call = call_kind_of(g->tools, form.name);
    form.id = item_id_of(g->id, g->kind, form.call,
                         g->kind == REPLY_CALL ? g->call : g->n_messages - 1, g->seed);
    if (g->is_open)
        write_output_item(w, NULL, &form, status);
    buf_clear(&g->name);
    buf_clear(&g->text);
    g->is_open = false;
}

static void gathered_take(struct gathered_item *g, const struct reply_part *part,
                          struct json_writer *w)
{
    const bool is_call = part->kind == REPLY_CALL;

    if (is_call || (part->kind != REPLY_ARGUMENTS && (!g->is_open || g->kind != part->kind))) {
        gathered_write(g, "completed", w);
        g->kind = part->kind;
        g->call = part->call;
        g->n_messages += part->kind == REPLY_TEXT;
        g->is_open = true;
    }
    json_writer_fail(w, buf_append(is_call ? &g->name : &g->text, part->text, part->len));
}

static enum status gathered_take_all(struct gathered_item *g, struct reply_parser *p,
                                     struct json_writer *w)
{
    struct reply_part part;

    while (w->rc == STATUS_OK && reply_parser_next(p, &part))
        gathered_take(g, &part, w);
    return w->rc;
}

void response_output_whole(const char *id, const struct completed_turn *t,
                           const struct reply_parser_config *config, const char *status,
                           bool gives_thoughts, struct json_writer *w)
{
    static const struct reply_part nothing = {.kind = REPLY_TEXT, .text = ""};
    struct gathered_item g = {.id = id,
                              .seed = t->request->tool_use.seed,
                              .tools = t->request->tool_use.tools,
                              .gives_thoughts = gives_thoughts};
    struct reply_parser_config whole = *config;
    struct reply_parser *p = NULL;
    struct error err;

    whole.streams_calls = false;
    whole.places = (struct reply_places){completed_turn_has_token, t};
    buf_init(&g.name, ITEM_MAX_BYTES);
    buf_init(&g.text, ITEM_MAX_BYTES);
    json_writer_fail(w, reply_parser_open(&p, &whole, &err));
    if (w->rc == STATUS_OK)
        json_writer_fail(w, reply_parser_add(p, t->len == 0 ? "" : t->text, t->len, &err));
    if (w->rc == STATUS_OK && gathered_take_all(&g, p, w) == STATUS_OK)
        json_writer_fail(w, reply_parser_end(p, &err));
    if (w->rc == STATUS_OK && gathered_take_all(&g, p, w) == STATUS_OK && !g.is_open)
        gathered_take(&g, &nothing, w);
    if (w->rc == STATUS_OK)
        gathered_write(&g, status, w);
    reply_parser_close(p);
    buf_deinit(&g.name);
    buf_deinit(&g.text);
}
