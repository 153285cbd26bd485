/* POST /v1/messages and /v1/messages/count_tokens. A message is a list of blocks, in a stream one
 * after the other: thoughts, text, and calls of tools. */
#include <string.h>

#include "server/api/answer.h"
#include "server/api/anthropic/error.h"
#include "server/api/anthropic/request.h"
#include "server/api/generation.h"
#include "server/api/reply_end.h"
#include "server/api/reply_stop.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/model/model.h"

enum { COUNT_MAX_BYTES = 64 << 20, COUNT_ANSWER_BYTES = 256 };

/* --- why a reply ended --- */

static void anthropic_write_stop(const struct generation *g, const struct choice *c,
                                 uint32_t n_calls, struct json_writer *w)
{
    const struct text *stop = reply_stop(g, c);

    json_write_text(w, "stop_reason",
                    stop != NULL                              ? "stop_sequence"
                    : c->finish == FINISH_LENGTH              ? "max_tokens"
                    : n_calls > 0 && c->finish == FINISH_STOP ? "tool_use"
                                                              : "end_turn");
    if (stop == NULL)
        json_write_null(w, "stop_sequence");
    else
        json_write_string(w, "stop_sequence", stop->text, stop->len);
}

/* --- output --- */

/* Tokens that were read from the cache are not among those of the input. */
static void anthropic_write_usage(const struct choice *c, struct json_writer *w)
{
    json_begin_object(w, "usage");
    json_write_unsigned(w, "input_tokens", c->n_prompt - c->n_cached);
    json_write_unsigned(w, "cache_creation_input_tokens", 0);
    json_write_unsigned(w, "cache_read_input_tokens", c->n_cached);
    json_write_unsigned(w, "output_tokens", c->n_said);
    json_end_object(w);
}

/* Begins the message and the blocks of its content; the caller ends both. */
static void anthropic_begin_message(const struct generation *g, const char *name,
                                    struct json_writer *w)
{
    json_begin_object(w, name);
    json_write_format(w, "id", "msg_%s", strchr(g->id, '-') + 1);
    json_write_text(w, "type", "message");
    json_write_text(w, "role", "assistant");
    json_write_text(w, "model", g->model->name);
    json_begin_array(w, "content");
}

/* --- blocks of a stream --- */

/* Where a stream is in the content of its message. */
struct anthropic_content {
    enum reply_part_kind kind; /* of the open block, REPLY_CALL also for its arguments */
    bool is_open;
    uint32_t n_done; /* blocks that are closed: the open one's index */
};

static void content_begin_event(const struct anthropic_content *s, const char *type,
                                struct json_writer *w)
{
    generation_begin_event(type, w);
    json_write_unsigned(w, "index", s->n_done);
}

static void content_close(struct anthropic_content *s, struct json_writer *w)
{
    if (!s->is_open)
        return;
    content_begin_event(s, "content_block_stop", w);
    generation_end_event(w);
    s->is_open = false;
    s->n_done++;
}

/* Writes a block without its end; a call lacks its input, too. */
static void content_begin_block(const struct choice *c, const char *member,
                                const struct reply_part *part, struct json_writer *w)
{
    char id[CALL_ID_CHARS], key[CALL_KEY_CHARS];

    json_begin_object(w, member);
    if (part->kind != REPLY_CALL) {
        json_write_text(w, "type", part->kind == REPLY_THOUGHT ? "thinking" : "text");
        return;
    }
    call_id_format(id, generation_call_seed(c), part->call);
    call_key_format(key, generation_call_seed(c), part->call);
    json_write_text(w, "type", "tool_use");
    json_write_text(w, "id", id);
    json_write_text(w, "idempotency_key", key);
    json_write_string(w, "name", part->text, part->len);
}

/* Whether the part begins a block. */
static bool content_is_new(const struct anthropic_content *s, const struct reply_part *part)
{
    return part->kind == REPLY_CALL ||
           (part->kind != REPLY_ARGUMENTS && (!s->is_open || s->kind != part->kind));
}

static void content_open(struct anthropic_content *s, const struct choice *c,
                         const struct reply_part *part, struct json_writer *w)
{
    s->kind = part->kind;
    s->is_open = true;
    content_begin_event(s, "content_block_start", w);
    content_begin_block(c, "content_block", part, w);
    if (part->kind == REPLY_CALL)
        json_write_json(w, "input", "{}", 2);
    else
        json_write_text(w, part->kind == REPLY_THOUGHT ? "thinking" : "text", "");
    if (part->kind == REPLY_THOUGHT)
        json_write_text(w, "signature", "");
    json_end_object(w);
    generation_end_event(w);
}

static void content_add(const struct anthropic_content *s, const struct reply_part *part,
                        struct json_writer *w)
{
    static const char *const names[][2] = {
        [REPLY_TEXT] = {"text_delta", "text"},
        [REPLY_THOUGHT] = {"thinking_delta", "thinking"},
        [REPLY_ARGUMENTS] = {"input_json_delta", "partial_json"},
    };

    content_begin_event(s, "content_block_delta", w);
    json_begin_object(w, "delta");
    json_write_text(w, "type", names[part->kind][0]);
    json_write_string(w, names[part->kind][1], part->text, part->len);
    json_end_object(w);
    generation_end_event(w);
}

/* is_last: the last event of the part stands for all of the piece. */
static void content_take(struct anthropic_content *s, const struct choice *c,
                         const struct reply_part *part, bool is_last, struct json_writer *w)
{
    if (content_is_new(s, part)) {
        content_close(s, w);
        if (is_last && part->kind == REPLY_CALL)
            generation_write_id(c->generation, w);
        content_open(s, c, part, w);
    }
    if (part->kind == REPLY_CALL || part->len == 0)
        return;
    if (is_last)
        generation_write_id(c->generation, w);
    content_add(s, part, w);
}

static void content_take_parts(struct anthropic_content *s, struct choice *c, bool has_id,
                               struct json_writer *w)
{
    struct reply_part part, next;

    while (reply_parser_next(c->parser, &part))
        content_take(s, c, &part, has_id && !reply_parser_peek(c->parser, &next), w);
}

static void anthropic_begin(struct generation *g, struct json_writer *w)
{
    generation_begin_event("message_start", w);
    anthropic_begin_message(g, "message", w);
    json_end_array(w);
    json_write_null(w, "stop_reason");
    json_write_null(w, "stop_sequence");
    anthropic_write_usage(&g->choices[0], w);
    json_end_object(w);
    generation_end_event(w);
    generation_begin_event("ping", w);
    generation_end_event(w);
}

/* Goes through the blocks that the client has. */
static enum status anthropic_passed(struct generation *g, struct choice *c,
                                    const struct turn_event *passed, struct error *err)
{
    struct anthropic_content *s = g->renderer_state;
    struct reply_part part;
    enum status rc = generation_parse_passed(c, passed->piece.len, err);

    if (rc != STATUS_OK || c->parser == NULL) {
        s->is_open = passed->piece.len > 0;
        s->kind = REPLY_TEXT;
        return rc;
    }
    while (reply_parser_next(c->parser, &part)) {
        if (content_is_new(s, &part)) {
            s->n_done += s->is_open;
            s->is_open = true;
            s->kind = part.kind;
        }
    }
    return STATUS_OK;
}

static void anthropic_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                            struct json_writer *w)
{
    const struct reply_part text = {
        .kind = REPLY_TEXT, .text = event->piece.text, .len = event->piece.len};
    struct error err;

    if (event->piece.len == 0)
        return; /* tokens without text so far */
    json_writer_fail(w, generation_parse(c, event->piece.text, event->piece.len, &err));
    if (w->rc == STATUS_OK && c->parser != NULL)
        content_take_parts(g->renderer_state, c, true, w);
    else
        content_take(g->renderer_state, c, &text, true, w);
}

/* A reply without anything has a block of empty text. */
static void anthropic_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    static const struct reply_part nothing = {.kind = REPLY_TEXT, .text = ""};
    struct anthropic_content *s = g->renderer_state;
    uint32_t n_calls = 0;
    struct error err;

    json_writer_fail(w, generation_parse_end(c, &err));
    if (w->rc == STATUS_OK && c->parser != NULL) {
        content_take_parts(s, c, false, w);
        n_calls = reply_parser_n_calls(c->parser);
    }
    if (!s->is_open && s->n_done == 0)
        content_open(s, c, &nothing, w);
    content_close(s, w);
    generation_begin_event("message_delta", w);
    json_begin_object(w, "delta");
    anthropic_write_stop(g, c, n_calls, w);
    json_end_object(w);
    anthropic_write_usage(c, w);
    generation_write_whole_ids(g, c, w);
    generation_end_event(w);
    generation_write_id(g, w); /* the last: who has only some of these gets all of them again */
    generation_begin_event("message_stop", w);
    generation_end_event(w);
}

static void anthropic_failed(struct generation *g, const struct error *err, struct json_writer *w)
{
    json_write_around(w, "event: error\ndata: ");
    if (w->rc == STATUS_OK)
        json_writer_fail(w, exchange_append_error(g->exchange, w->out, err));
    json_write_around(w, "\n\n");
}

/* Writes a text or thoughts, [len], as a block. */
static void anthropic_write_block(const struct choice *c, enum reply_part_kind kind,
                                  const char *text, size_t len, struct json_writer *w)
{
    content_begin_block(c, NULL, &(struct reply_part){.kind = kind}, w);
    if (kind == REPLY_THOUGHT)
        json_write_text(w, "signature", "");
    json_write_string(w, kind == REPLY_THOUGHT ? "thinking" : "text", text, len);
    json_end_object(w);
}

static void anthropic_write_call(const struct choice *c, const struct whole_reply *reply,
                                 uint32_t i, struct json_writer *w)
{
    struct reply_part part = {.kind = REPLY_CALL, .call = i};
    struct tool_call call;

    whole_reply_call(reply, i, &call);
    part.text = call.name.text;
    part.len = call.name.len;
    content_begin_block(c, NULL, &part, w);
    tools_write_arguments(w, "input", call.arguments);
    json_end_object(w);
}

/* In the order in which the model wrote them, as a stream has them. */
static void anthropic_write_blocks(const struct choice *c, const struct whole_reply *reply,
                                   struct json_writer *w)
{
    const struct whole_run *runs = (const struct whole_run *)(const void *)reply->runs.data;
    const size_t n = reply->runs.len / sizeof(*runs);
    const char *text = reply->text.data, *thoughts = reply->thoughts.data;
    uint32_t n_calls = 0;

    for (size_t i = 0; i < n; i++) {
        if (runs[i].kind == REPLY_CALL) {
            anthropic_write_call(c, reply, n_calls++, w);
        } else if (runs[i].kind == REPLY_THOUGHT) {
            anthropic_write_block(c, REPLY_THOUGHT, thoughts, runs[i].len, w);
            thoughts += runs[i].len;
        } else {
            anthropic_write_block(c, REPLY_TEXT, text, runs[i].len, w);
            text += runs[i].len;
        }
    }
    if (n == 0)
        anthropic_write_block(c, REPLY_TEXT, "", 0, w);
}

static void anthropic_whole(struct generation *g, struct json_writer *w)
{
    const struct choice *c = &g->choices[0];
    struct whole_reply reply;
    struct error err;

    if (generation_divide(c, &reply, &err) != STATUS_OK) {
        json_writer_fail(w, err.status);
        return;
    }
    anthropic_begin_message(g, NULL, w);
    anthropic_write_blocks(c, &reply, w);
    json_end_array(w);
    anthropic_write_stop(g, c, reply.n_calls, w);
    anthropic_write_usage(c, w);
    generation_write_whole_ids(g, c, w);
    json_end_object(w);
    whole_reply_deinit(&reply);
}

/* --- requests --- */

static enum status anthropic_begin_reply(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "msg",
        .has_parts = true,
        .begin = anthropic_begin,
        .passed = anthropic_passed,
        .piece = anthropic_piece,
        .finish = anthropic_finish,
        .failed = anthropic_failed,
        .whole = anthropic_whole,
    };
    struct anthropic_content *content = arena_alloc(exchange_arena(x), 1, sizeof(*content));
    struct generation_plan plan = {.renderer = &renderer, .renderer_state = content};
    struct request r;

    if (content == NULL)
        return error_no_memory(err, sizeof(*content), "a reply");
    if (anthropic_request(&r, body, false, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return resolution_generate(x, &plan, &r, err);
}

static enum status anthropic_count(struct exchange *x, const json_t *body, struct error *err)
{
    struct json_writer w;
    struct buf ids, out;
    struct request r;
    struct model *m;
    enum status rc;

    if (anthropic_request(&r, body, true, exchange_arena(x), err) != STATUS_OK ||
        resolution_find_model(&m, x, r.model, err) != STATUS_OK)
        return err->status;
    if (m->agent->type->text == NULL)
        return error_field(err, "messages", "have no form that '%s' reads", m->name);
    if (r.left_out != NULL && r.left_out[0] != '\0')
        exchange_set_unenforced(x, r.left_out);
    buf_init(&ids, COUNT_MAX_BYTES);
    buf_init(&out, COUNT_ANSWER_BYTES);
    rc = request_fit_model(&r, m->info.text.reply_format, exchange_arena(x), err);
    if (rc == STATUS_OK)
        rc = request_continue(&r, m, exchange_arena(x), err);
    if (rc == STATUS_OK && r.prompts->n_messages > 0)
        rc = m->agent->type->text->render(m->agent, r.prompts->messages, r.prompts->n_messages,
                                          r.prompts->tool_use.tools, r.variables.json, true, &ids,
                                          err);
    if (rc == STATUS_OK) {
        w = json_writer_begin(&out);
        json_begin_object(&w, NULL);
        json_write_unsigned(&w, "input_tokens", r.prompts->n_ids + ids.len / sizeof(int32_t));
        json_end_object(&w);
        answer_json(x, &w, &out);
    }
    buf_deinit(&ids);
    buf_deinit(&out);
    return rc;
}

static void anthropic_messages_serve(struct exchange *x)
{
    resolution_serve(x, anthropic_begin_reply);
}

static void anthropic_count_serve(struct exchange *x)
{
    resolution_serve(x, anthropic_count);
}

static const struct route rows[] = {
    {"/v1/messages", .methods = METHOD_POST, .serve = anthropic_messages_serve,
     .api = &anthropic_api},
    {"/v1/messages/count_tokens", .methods = METHOD_POST, .serve = anthropic_count_serve,
     .api = &anthropic_api},
};
const struct route_table anthropic_messages_routes = {rows, sizeof(rows) / sizeof(rows[0])};
