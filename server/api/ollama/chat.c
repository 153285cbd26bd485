/* POST /api/chat and /api/generate: a stream of JSON objects, one a line, unless the request says
 * otherwise. */
#include <string.h>

#include "server/api/answer.h"
#include "server/api/generation.h"
#include "server/api/ollama/error.h"
#include "server/api/ollama/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversations.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { OLLAMA_EMPTY_MAX_BYTES = 4096 };

struct ollama_reply {
    const char *model; /* as the request names it */
    bool is_chat;
};

/* --- output --- */

/* Writes a line up to what was said. */
static void ollama_begin_line(const struct exchange *x, const char *model, struct json_writer *w)
{
    json_write(w, "{\"model\":");
    json_write_string(w, model, strlen(model));
    json_write(w, ",\"created_at\":");
    json_write_time(w, conversations_unix_ms(exchange_server(x)->conversations));
}

static void ollama_write_said(bool is_chat, const char *text, size_t len, struct json_writer *w)
{
    json_write(w, is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    json_write_string(w, text, len);
    json_write(w, is_chat ? "}" : "");
}

static void ollama_write_piece(const struct generation *g, const struct choice *c,
                               const struct turn_event *piece, struct json_writer *w)
{
    const struct ollama_reply *r = g->renderer_state;

    ollama_begin_line(g->exchange, r->model, w);
    ollama_write_said(r->is_chat, piece->piece.text, piece->piece.len, w);
    if (g->request->want_logprobs && piece->piece.has_logprobs) {
        json_write(w, ",\"logprobs\":");
        generation_write_logprobs(g, c, piece, w);
    }
}

/* Durations are in nanoseconds. */
static void ollama_write_done(const struct choice *c, struct json_writer *w)
{
    const struct timings *t = &c->timings;

    json_writef(w,
                ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,"
                "\"load_duration\":0,\"prompt_eval_count\":%u,\"prompt_eval_duration\":%llu,"
                "\"eval_count\":%u,\"eval_duration\":%llu}",
                generation_finish_name(c), (unsigned long long)t->total_us * 1000, c->n_prompt,
                (unsigned long long)t->prefill_us * 1000, c->n_said,
                (unsigned long long)t->decode_us * 1000);
}

static void ollama_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                         struct json_writer *w)
{
    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    ollama_write_piece(g, c, event, w);
    json_write(w, ",\"done\":false}\n");
}

static void ollama_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    static const struct turn_event nothing = {.kind = EVENT_PIECE, .piece.text = ""};

    ollama_write_piece(g, c, &nothing, w);
    ollama_write_done(c, w);
    json_write(w, "\n");
}

static void ollama_failed(struct generation *g, const struct error *err, struct json_writer *w)
{
    if (w->rc == STATUS_OK)
        json_writer_fail(w, exchange_append_error(g->exchange, w->out, err));
    json_write(w, "\n");
}

static void ollama_whole(struct generation *g, struct json_writer *w)
{
    const struct choice *c = &g->choices[0];
    struct turn_event all;
    const char *text;
    size_t len;

    generation_all(c, &all, &text, &len);
    all.piece.text = text;
    ollama_write_piece(g, c, &all, w);
    ollama_write_done(c, w);
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
static enum status ollama_answer_empty(struct exchange *x, const struct ollama_request *r,
                                       bool is_chat, const json_t *body, struct error *err)
{
    const json_t *keep = field(body, "keep_alive");
    struct json_writer w;
    struct model *model;
    struct buf out;

    if (resolution_find_model(&model, x, r->base.model, err) != STATUS_OK)
        return err->status;
    if (ollama_wants_unload(keep))
        return error_field(
            err, "keep_alive",
            "is 0, and no request unloads a model: 'parley models unload %.80s' does", model->name);
    buf_init(&out, OLLAMA_EMPTY_MAX_BYTES);
    w = json_writer_begin(&out);
    ollama_begin_line(x, r->base.model[0] == '\0' ? model->name : r->base.model, &w);
    ollama_write_said(is_chat, "", 0, &w);
    json_write(&w, ",\"done\":true,\"done_reason\":\"load\"}\n");
    answer_json(x, &w, &out);
    buf_deinit(&out);
    return STATUS_OK;
}

static enum status ollama_start(struct exchange *x, struct ollama_request *r, bool is_chat,
                                const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "ollama",
        .stream_type = "application/x-ndjson",
        .piece = ollama_piece,
        .finish = ollama_finish,
        .failed = ollama_failed,
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
