/* POST /v1/chat/completions. */
#include <string.h>

#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/prompt_logprobs.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"

#define DATA "data: "

static void chat_write_logprobs(const struct generation *g, const struct choice *c,
                                const struct turn_event *piece, struct json_writer *w)
{
    if (!g->request->want_logprobs || !piece->piece.has_logprobs) {
        json_write(w, ",\"logprobs\":null");
        return;
    }
    json_write(w, ",\"logprobs\":{\"content\":");
    generation_write_logprobs(g, c, piece, w);
    json_write(w, "}");
}

/* Writes a chunk up to the choice's delta. */
static void chat_begin_chunk(const struct generation *g, const struct choice *c,
                             struct json_writer *w)
{
    generation_write_id(g, w);
    json_write(w, DATA);
    generation_write_head(g, "chat.completion.chunk", w);
    json_writef(w, ",\"choices\":[{\"index\":%u,\"delta\":{%s", c->index,
                c->has_begun ? "" : "\"role\":\"assistant\",");
}

static void chat_end_chunk(const struct generation *g, struct json_writer *w)
{
    json_write(w, "]");
    generation_write_running_usage(g, w);
    json_write(w, "}\n\n");
}

static enum status chat_passed(struct generation *g, struct choice *c,
                               const struct turn_event *part, struct error *err)
{
    (void)g;
    (void)err;
    c->has_begun = part->piece.len > 0 || c->was_finished ||
                   (part->piece.has_logprobs && part->piece.n_tokens > 0);
    return STATUS_OK;
}

/* The role comes with the first text: a chunk of its own would count as the first token. */
static void chat_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                       struct json_writer *w)
{
    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    chat_begin_chunk(g, c, w);
    json_write(w, "\"content\":");
    json_write_string(w, event->piece.text, event->piece.len);
    json_write(w, "}");
    chat_write_logprobs(g, c, event, w);
    json_write(w, ",\"finish_reason\":null}");
    c->has_begun = true;
    chat_end_chunk(g, w);
}

static void chat_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    chat_begin_chunk(g, c, w);
    if (!c->has_begun)
        json_write(w, "\"content\":\"\"");
    json_writef(w, "},\"logprobs\":null,\"finish_reason\":\"%s\"}", generation_finish_name(c));
    c->has_begun = true;
    chat_end_chunk(g, w);
}

static void chat_end(struct generation *g, struct json_writer *w)
{
    if (g->request->include_usage) {
        json_write(w, DATA);
        generation_write_head(g, "chat.completion.chunk", w);
        json_write(w, ",\"choices\":[],\"usage\":");
        generation_write_usage(g, w);
        json_write(w, "}\n\n");
    }
    json_write(w, DATA "[DONE]\n\n");
}

static void chat_write_choice(struct generation *g, const struct choice *c, struct json_writer *w)
{
    struct turn_event all;
    const char *text;
    size_t len;

    generation_all(c, &all, &text, &len);
    json_writef(w, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":",
                c->index == 0 ? "" : ",", c->index);
    json_write_string(w, text, len);
    json_write(w, ",\"refusal\":null}");
    chat_write_logprobs(g, c, &all, w);
    json_writef(w, ",\"finish_reason\":\"%s\"}", generation_finish_name(c));
}

static void chat_whole(struct generation *g, struct json_writer *w)
{
    generation_write_head(g, "chat.completion", w);
    json_write(w, ",\"choices\":[");
    for (size_t i = 0; i < g->n_choices; i++)
        chat_write_choice(g, &g->choices[i], w);
    json_write(w, "],\"usage\":");
    generation_write_usage(g, w);
    prompt_logprobs_write(g, &g->choices[0], w);
    json_write(w, "}");
}

static enum status chat_begin(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "chatcmpl",
        .passed = chat_passed,
        .piece = chat_piece,
        .finish = chat_finish,
        .end = chat_end,
        .failed = generation_write_failure,
        .whole = chat_whole,
    };
    struct generation_plan plan = {.renderer = &renderer};
    struct request r;

    if (request_chat(&r, body, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return resolution_generate(x, &plan, &r, err);
}

static void chat_serve(struct exchange *x)
{
    resolution_serve(x, chat_begin);
}

static const struct route rows[] = {
    {"/v1/chat/completions", .methods = METHOD_POST, .serve = chat_serve, .api = &openai_api},
};
const struct route_table chat_routes = {rows, sizeof(rows) / sizeof(rows[0])};
