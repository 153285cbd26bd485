/* POST /api/chat and /api/generate: a stream of JSON objects, one a line, unless the request says
 * otherwise. A call of a tool comes whole, in a line of its own. */
#include <string.h>

#include "server/api/answer.h"
#include "server/api/generation.h"
#include "server/api/ollama/context.h"
#include "server/api/ollama/error.h"
#include "server/api/ollama/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/conversations.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { OLLAMA_EMPTY_MAX_BYTES = 4096, OLLAMA_CALL_MAX_BYTES = 64 << 20 };

struct ollama_reply {
    const char *model; /* as the request names it */
    bool is_chat;
    bool names_ids; /* of the prompt and of the reply, in lists of their own */
    bool gives_context;
    bool has_call; /* whose name and arguments are these, so far */
    uint32_t call;
    struct buf name, arguments;
};

/* --- output --- */

/* Writes a line up to what was said. */
static void ollama_write_head(const char *model, uint64_t unix_ms, struct json_writer *w)
{
    json_begin_object(w, NULL);
    json_write_text(w, "model", model);
    json_write_time(w, "created_at", unix_ms);
}

/* A reply with a key is the same whenever it is sent: its lines have its own time. */
static void ollama_begin_line(const struct generation *g, struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;

    ollama_write_head(r->model,
                      g->reply != NULL
                          ? g->created_s * 1000
                          : conversations_unix_ms(exchange_server(g->exchange)->conversations),
                      w);
}

/* Writes what was said up to the message's end, where calls may follow. */
static void ollama_begin_said(bool is_chat, struct text text, struct text thoughts,
                              struct json_writer *w)
{
    if (is_chat) {
        json_begin_object(w, "message");
        json_write_text(w, "role", "assistant");
    }
    json_write_string(w, is_chat ? "content" : "response", text.text, text.len);
    if (thoughts.len > 0)
        json_write_string(w, "thinking", thoughts.text, thoughts.len);
}

static void ollama_end_said(bool is_chat, struct json_writer *w)
{
    if (is_chat)
        json_end_object(w);
}

static void ollama_end_line(struct json_writer *w)
{
    json_end_object(w);
    json_write_around(w, "\n");
}

static void ollama_write_logprobs(const struct generation *g, const struct choice *c,
                                  const struct turn_event *piece, struct json_writer *w)
{
    if (!g->request->want_logprobs || !piece->piece.has_logprobs)
        return;
    generation_write_logprobs(g, c, "logprobs", piece, w);
}

static void ollama_write_call(const struct choice *c, uint32_t i, struct text name,
                              struct text arguments, struct json_writer *w)
{
    char id[CALL_ID_CHARS];

    call_id_format(id, generation_call_seed(c), i);
    json_begin_object(w, NULL);
    json_write_text(w, "id", id);
    json_begin_object(w, "function");
    json_write_unsigned(w, "index", i);
    json_write_string(w, "name", name.text, name.len);
    tools_write_arguments(w, "arguments", arguments);
    json_end_object(w);
    json_end_object(w);
}

/* piece: whose log-probabilities the line has; NULL: none. */
static void ollama_write_line(const struct generation *g, const struct choice *c, struct text text,
                              struct text thoughts, const struct turn_event *piece,
                              struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;

    ollama_begin_line(g, w);
    ollama_begin_said(r->is_chat, text, thoughts, w);
    ollama_end_said(r->is_chat, w);
    if (piece != NULL)
        ollama_write_logprobs(g, c, piece, w);
    json_write_bool(w, "done", false);
    ollama_end_line(w);
}

/* The call that was begun is complete. */
static void ollama_end_call(const struct generation *g, const struct choice *c,
                            struct json_writer *w)
{
    struct ollama_reply *r = g->renderer_state;

    if (!r->has_call)
        return;
    r->has_call = false;
    ollama_begin_line(g, w);
    ollama_begin_said(r->is_chat, (struct text){"", 0}, (struct text){0}, w);
    json_begin_array(w, "tool_calls");
    ollama_write_call(c, r->call, (struct text){r->name.data, r->name.len},
                      (struct text){r->arguments.data, r->arguments.len}, w);
    json_end_array(w);
    ollama_end_said(r->is_chat, w);
    json_write_bool(w, "done", false);
    ollama_end_line(w);
}

static void ollama_take_call(struct ollama_reply *r, const struct reply_part *part,
                             struct json_writer *w)
{
    if (part->kind == REPLY_CALL) {
        buf_clear(&r->name);
        buf_clear(&r->arguments);
        r->has_call = true;
        r->call = part->call;
    }
    json_writer_fail(
        w, buf_append(part->kind == REPLY_CALL ? &r->name : &r->arguments, part->text, part->len));
}

/* piece: of whose text these are the parts; NULL: of the reply's end. */
static void ollama_take_parts(struct generation *g, struct choice *c,
                              const struct turn_event *piece, struct json_writer *w)
{
    struct ollama_reply *r = g->renderer_state;
    const struct text nothing = {"", 0};
    struct reply_part part;

    while (w->rc == STATUS_OK && reply_parser_next(c->parser, &part)) {
        const bool is_text = part.kind == REPLY_TEXT;

        if (part.kind != REPLY_ARGUMENTS)
            ollama_end_call(g, c, w);
        if (part.kind == REPLY_CALL || part.kind == REPLY_ARGUMENTS) {
            ollama_take_call(r, &part, w);
            continue;
        }
        ollama_write_line(g, c, is_text ? (struct text){part.text, part.len} : nothing,
                          is_text ? nothing : (struct text){part.text, part.len}, piece, w);
        piece = NULL;
    }
    if (piece != NULL && g->request->want_logprobs && piece->piece.has_logprobs)
        ollama_write_line(g, c, nothing, nothing, piece, w);
}

/* Durations are in nanoseconds. */
static void ollama_write_done(const struct choice *c, struct json_writer *w)
{
    const struct timings *t = &c->timings;

    json_write_bool(w, "done", true);
    json_write_text(w, "done_reason", generation_finish_name(c));
    json_write_unsigned(w, "total_duration", t->total_us * 1000);
    json_write_unsigned(w, "load_duration", 0);
    json_write_unsigned(w, "prompt_eval_count", c->n_prompt);
    json_write_unsigned(w, "prompt_eval_duration", t->prefill_us * 1000);
    json_write_unsigned(w, "eval_count", c->n_said);
    json_write_unsigned(w, "eval_duration", t->decode_us * 1000);
}

/* How many of a reply's tokens have a text: those that ended it have none. */
static size_t ollama_n_spoken(const struct completed_turn *t)
{
    size_t n = t->n_tokens;

    while (t->finish == FINISH_STOP && n > 0 &&
           t->tokens[n - 1].text_end == (n == 1 ? 0 : t->tokens[n - 2].text_end))
        n--;
    return n;
}

/* The ids of the prompt and of the reply as one list, by which the next request goes on. */
static void ollama_write_context(const struct choice *c, struct json_writer *w)
{
    const struct completed_turn *t = c->reader.completed;
    size_t n;
    const int32_t *ids = reader_prompt_ids(&c->reader, &n);

    if (ids == NULL || t == NULL)
        return;
    json_begin_array(w, "context");
    for (size_t i = 0; i < n; i++)
        json_write_signed(w, NULL, ids[i]);
    for (size_t i = 0; i < ollama_n_spoken(t); i++)
        json_write_signed(w, NULL, t->tokens[i].id);
    json_end_array(w);
}

static void ollama_write_ids(const struct generation *g, const struct choice *c,
                             struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;

    if (r->names_ids)
        generation_write_whole_ids(g, c, w);
    if (r->gives_context)
        ollama_write_context(c, w);
}

static void ollama_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                         struct json_writer *w)
{
    struct error err;

    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    json_writer_fail(w, generation_parse(c, event->piece.text, event->piece.len, &err));
    if (w->rc == STATUS_OK && c->parser != NULL)
        ollama_take_parts(g, c, event, w);
    else
        ollama_write_line(g, c, (struct text){event->piece.text, event->piece.len},
                          (struct text){0}, event, w);
}

static void ollama_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;
    struct error err;

    json_writer_fail(w, generation_parse_end(c, &err));
    if (w->rc == STATUS_OK && c->parser != NULL)
        ollama_take_parts(g, c, NULL, w);
    ollama_end_call(g, c, w);
    ollama_begin_line(g, w);
    ollama_begin_said(r->is_chat, (struct text){"", 0}, (struct text){0}, w);
    ollama_end_said(r->is_chat, w);
    ollama_write_done(c, w);
    ollama_write_ids(g, c, w);
    ollama_end_line(w);
}

static void ollama_failed(struct generation *g, const struct error *err, struct json_writer *w)
{
    if (w->rc == STATUS_OK)
        json_writer_fail(w, exchange_append_error(g->exchange, w->out, err));
    json_write_around(w, "\n");
}

static void ollama_close(struct generation *g)
{
    struct ollama_reply *r = g->renderer_state;

    buf_deinit(&r->name);
    buf_deinit(&r->arguments);
}

static void ollama_whole(struct generation *g, struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;
    const struct choice *c = &g->choices[0];
    struct whole_reply reply;
    struct turn_event all;
    const char *ignored;
    struct error err;
    size_t len;

    if (generation_divide(c, &reply, &err) != STATUS_OK) {
        json_writer_fail(w, err.status);
        return;
    }
    generation_all(c, &all, &ignored, &len);
    ollama_begin_line(g, w);
    ollama_begin_said(r->is_chat, (struct text){reply.text.data, reply.text.len},
                      (struct text){reply.thoughts.data, reply.thoughts.len}, w);
    if (reply.n_calls > 0)
        json_begin_array(w, "tool_calls");
    for (uint32_t i = 0; i < reply.n_calls; i++) {
        struct tool_call call;

        whole_reply_call(&reply, i, &call);
        ollama_write_call(c, i, call.name, call.arguments, w);
    }
    if (reply.n_calls > 0)
        json_end_array(w);
    ollama_end_said(r->is_chat, w);
    ollama_write_logprobs(g, c, &all, w);
    ollama_write_done(c, w);
    ollama_write_ids(g, c, w);
    json_end_object(w);
    whole_reply_deinit(&reply);
}

/* --- requests --- */

static bool ollama_wants_unload(const json_t *keep)
{
    if (json_is_string(keep))
        return strcmp(json_string_value(keep), "0") == 0 ||
               strcmp(json_string_value(keep), "0s") == 0;
    return json_is_number(keep) && json_number_value(keep) == 0;
}

/* The model is loaded, or resolution_find_model has said why it is not. */
static enum status ollama_answer_empty(struct exchange *x, struct ollama_request *r, bool is_chat,
                                       const json_t *body, struct error *err)
{
    const bool wants_unload = ollama_wants_unload(field(body, "keep_alive"));
    struct json_writer w;
    struct model *model;
    struct buf out;

    if (resolution_find_model(&model, x, r->base.model, err) != STATUS_OK)
        return err->status;
    if (wants_unload && !models_release(exchange_server(x)->models, model->name) &&
        request_leave_out(&r->base, "keep_alive", exchange_arena(x), err) != STATUS_OK)
        return err->status;
    if (r->base.left_out != NULL && r->base.left_out[0] != '\0')
        exchange_set_unenforced(x, r->base.left_out);
    buf_init(&out, OLLAMA_EMPTY_MAX_BYTES);
    w = json_writer_begin(&out);
    ollama_write_head(r->base.model[0] == '\0' ? model->name : r->base.model,
                      conversations_unix_ms(exchange_server(x)->conversations), &w);
    ollama_begin_said(is_chat, (struct text){"", 0}, (struct text){0}, &w);
    ollama_end_said(is_chat, &w);
    json_write_bool(&w, "done", true);
    json_write_text(&w, "done_reason", wants_unload ? "unload" : "load");
    ollama_end_line(&w);
    answer_json(x, &w, &out);
    buf_deinit(&out);
    return STATUS_OK;
}

/* A reply of /api/generate has a context, unless its model has no ids, or the reply has a key: one
 * that is stored has none. */
static enum status ollama_fit_context(struct exchange *x, struct ollama_request *r, bool *ret_gives,
                                      struct error *err)
{
    const struct agent_text *text;
    struct model *m;

    if (r->n_context > 0 && exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "has no place beside context");
    if (resolution_find_model(&m, x, r->base.model, err) != STATUS_OK)
        return err->status;
    text = m->agent->type->text;
    *ret_gives = text != NULL && text->gives_prompt_results && exchange_key(x) == NULL;
    r->base.wants_ids = r->base.wants_ids || *ret_gives;
    if (r->n_context == 0)
        return STATUS_OK;
    return ollama_context_continue(r, m, exchange_arena(x), err);
}

static enum status ollama_start(struct exchange *x, struct ollama_request *r, bool is_chat,
                                const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "ollama",
        .stream_type = "application/x-ndjson",
        .has_parts = true,
        .has_whole_calls = true,
        .piece = ollama_piece,
        .finish = ollama_finish,
        .failed = ollama_failed,
        .close = ollama_close,
        .whole = ollama_whole,
    };
    struct arena *arena = exchange_arena(x);
    struct ollama_reply *reply = arena_alloc(arena, 1, sizeof(*reply));
    struct generation_plan plan = {.renderer = &renderer, .renderer_state = reply};
    size_t len;

    if (r->is_empty)
        return ollama_answer_empty(x, r, is_chat, body, err);
    if (exchange_last_event(x, &len) != NULL)
        return error_field(err, "Last-Event-ID", "is for server-sent events");
    if (reply == NULL)
        return error_no_memory(err, sizeof(*reply), "a reply");
    reply->is_chat = is_chat;
    reply->names_ids = r->base.wants_ids;
    if (!is_chat && r->is_chat && ollama_fit_context(x, r, &reply->gives_context, err) != STATUS_OK)
        return err->status;
    buf_init(&reply->name, OLLAMA_CALL_MAX_BYTES);
    buf_init(&reply->arguments, OLLAMA_CALL_MAX_BYTES);
    reply->model = arena_strndup(arena, r->base.model, strlen(r->base.model));
    if (reply->model == NULL)
        return error_no_memory(err, strlen(r->base.model), "a reply");
    return resolution_generate(x, &plan, &r->base, err);
}

static enum status ollama_begin_chat(struct exchange *x, const json_t *body, struct error *err)
{
    struct ollama_request r;

    if (ollama_request_chat(&r, body, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return ollama_start(x, &r, true, body, err);
}

static enum status ollama_begin_generate(struct exchange *x, const json_t *body, struct error *err)
{
    struct ollama_request r;

    if (ollama_request_generate(&r, body, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return ollama_start(x, &r, false, body, err);
}

static void ollama_chat_serve(struct exchange *x)
{
    resolution_serve(x, ollama_begin_chat);
}

static void ollama_generate_serve(struct exchange *x)
{
    resolution_serve(x, ollama_begin_generate);
}

static const struct route rows[] = {
    {"/api/chat", .methods = METHOD_POST, .serve = ollama_chat_serve, .api = &ollama_api},
    {"/api/generate", .methods = METHOD_POST, .serve = ollama_generate_serve, .api = &ollama_api},
};
const struct route_table ollama_chat_routes = {rows, sizeof(rows) / sizeof(rows[0])};
