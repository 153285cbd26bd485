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

/* Writes a call's begin, its next arguments, or both, as an entry of the delta. Strings of deltas
 * are concatenated by clients: the id and the name of a call come once. */
static void chat_write_call(const struct generation *g, const struct choice *c,
                            const struct reply_part *name, const struct reply_part *arguments,
                            struct json_writer *w)
{
    const bool is_old = g->request->is_function_call;
    const uint32_t call = name != NULL ? name->call : arguments->call;
    char id[CALL_ID_CHARS];

    call_id_format(id, generation_call_seed(c), call);
    if (!is_old)
        json_writef(w, "{\"index\":%u,", call);
    if (!is_old && name != NULL)
        json_writef(w, "\"id\":\"%s\",\"type\":\"function\",", id);
    json_write(w, is_old ? "{" : "\"function\":{");
    if (name != NULL) {
        json_write(w, "\"name\":");
        json_raw_string(w, name->text, name->len);
        json_write(w, ",");
    }
    json_write(w, "\"arguments\":");
    json_raw_string(w, arguments != NULL ? arguments->text : "",
                    arguments != NULL ? arguments->len : 0);
    json_write(w, is_old ? "}" : "}}");
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
    struct reply_part first;
    enum status rc = generation_parse_passed(c, part->piece.len, err);

    (void)g;
    c->has_begun = c->was_finished || (part->piece.has_logprobs && part->piece.n_tokens > 0) ||
                   (c->parser == NULL ? part->piece.len > 0
                                      : rc == STATUS_OK && reply_parser_next(c->parser, &first));
    return rc;
}

static void chat_begin_delta(struct generation *g, struct choice *c, struct json_writer *w)
{
    chat_begin_chunk(g, c, w);
    c->has_begun = true;
}

static void chat_end_delta(struct generation *g, struct choice *c, const struct turn_event *event,
                           struct json_writer *w)
{
    json_write(w, "}");
    if (event != NULL)
        chat_write_logprobs(g, c, event, w);
    else
        json_write(w, ",\"logprobs\":null");
    json_write(w, ",\"finish_reason\":null}");
    chat_end_chunk(g, w);
}

static void chat_write_text(struct generation *g, struct choice *c, const char *text, size_t len,
                            const struct turn_event *event, struct json_writer *w)
{
    chat_begin_delta(g, c, w);
    json_write(w, "\"content\":");
    json_raw_string(w, text, len);
    chat_end_delta(g, c, event, w);
}

/* Writes the calls' parts that come next as one member of the delta. */
static void chat_write_call_parts(struct generation *g, struct choice *c, struct json_writer *w)
{
    const bool is_old = g->request->is_function_call;
    struct reply_part part, next;
    bool is_first = true;

    json_write(w, is_old ? "\"function_call\":" : "\"tool_calls\":[");
    while (reply_parser_peek(c->parser, &part) &&
           (part.kind == REPLY_CALL || part.kind == REPLY_ARGUMENTS)) {
        const bool is_call = part.kind == REPLY_CALL;
        bool has_arguments = !is_call;

        (void)reply_parser_next(c->parser, &part); /* it was seen */
        if (is_call && reply_parser_peek(c->parser, &next) && next.kind == REPLY_ARGUMENTS)
            has_arguments = reply_parser_next(c->parser, &next);
        json_write(w, is_first ? "" : ",");
        chat_write_call(g, c, is_call ? &part : NULL,
                        !has_arguments ? NULL
                        : is_call      ? &next
                                       : &part,
                        w);
        is_first = false;
    }
    json_write(w, is_old ? "" : "]");
}

/* A piece is one chunk, so that its id stands for all of it, unless the delta would have a member
 * twice. It has the log-probabilities of the piece's tokens. */
static void chat_write_parts(struct generation *g, struct choice *c, const struct turn_event *event,
                             struct json_writer *w)
{
    struct reply_part part;

    while (reply_parser_peek(c->parser, &part)) {
        const bool is_first = !c->has_begun;

        chat_begin_delta(g, c, w);
        if (part.kind == REPLY_THOUGHT || part.kind == REPLY_TEXT) {
            json_write(w, part.kind == REPLY_TEXT ? "\"content\":" : "\"reasoning_content\":");
            json_raw_string(w, part.text, part.len);
            (void)reply_parser_next(c->parser, &part); /* it was seen */
            if (reply_parser_peek(c->parser, &part) && part.kind == REPLY_CALL) {
                json_write(w, ",");
                chat_write_call_parts(g, c, w);
            }
        } else {
            json_write(w, is_first ? "\"content\":null," : "");
            chat_write_call_parts(g, c, w);
        }
        chat_end_delta(g, c, event, w);
        event = NULL;
    }
    if (event != NULL && event->piece.has_logprobs)
        chat_write_text(g, c, "", 0, event, w);
}

/* The role comes with the first text: a chunk of its own would count as the first token. */
static void chat_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                       struct json_writer *w)
{
    struct error err;

    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    json_writer_fail(w, generation_parse(c, event->piece.text, event->piece.len, &err));
    if (w->rc == STATUS_OK && c->parser != NULL)
        chat_write_parts(g, c, event, w);
    else
        chat_write_text(g, c, event->piece.text, event->piece.len, event, w);
}

static const char *chat_finish_name(const struct choice *c, uint32_t n_calls)
{
    if (n_calls == 0 || c->finish != FINISH_STOP)
        return generation_finish_name(c);
    return c->generation->request->is_function_call ? "function_call" : "tool_calls";
}

static void chat_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    uint32_t n_calls = 0;
    struct error err;

    json_writer_fail(w, generation_parse_end(c, &err));
    if (w->rc == STATUS_OK && c->parser != NULL) {
        chat_write_parts(g, c, NULL, w);
        n_calls = reply_parser_n_calls(c->parser);
    }
    chat_begin_chunk(g, c, w);
    if (!c->has_begun)
        json_write(w, "\"content\":\"\"");
    json_writef(w, "},\"logprobs\":null,\"finish_reason\":\"%s\"}", chat_finish_name(c, n_calls));
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

static void chat_write_function(const struct tool_call *call, struct json_writer *w)
{
    json_write(w, "{\"name\":");
    json_raw_string(w, call->name.text, call->name.len);
    json_write(w, ",\"arguments\":");
    json_raw_string(w, call->arguments.text, call->arguments.len);
    json_write(w, "}");
}

static void chat_write_calls(const struct generation *g, const struct choice *c,
                             const struct whole_reply *reply, struct json_writer *w)
{
    char id[CALL_ID_CHARS];
    struct tool_call call;

    if (reply->n_calls == 0)
        return;
    if (g->request->is_function_call) {
        whole_reply_call(reply, 0, &call);
        json_write(w, ",\"function_call\":");
        chat_write_function(&call, w);
        return;
    }
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        whole_reply_call(reply, i, &call);
        call_id_format(id, generation_call_seed(c), i);
        json_writef(w, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":",
                    i == 0 ? ",\"tool_calls\":[" : ",", id);
        chat_write_function(&call, w);
        json_write(w, "}");
    }
    json_write(w, "]");
}

static void chat_write_choice(struct generation *g, const struct choice *c, struct json_writer *w)
{
    struct whole_reply reply;
    struct turn_event all;
    const char *text;
    struct error err;
    size_t len;

    if (generation_divide(c, &reply, &err) != STATUS_OK) {
        json_writer_fail(w, err.status);
        return;
    }
    generation_all(c, &all, &text, &len);
    json_writef(w, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":",
                c->index == 0 ? "" : ",", c->index);
    if (reply.n_calls > 0 && reply.text.len == 0)
        json_write(w, "null");
    else
        json_raw_string(w, reply.text.data, reply.text.len);
    json_write(w, ",\"refusal\":null");
    if (reply.thoughts.len > 0) {
        json_write(w, ",\"reasoning_content\":");
        json_raw_string(w, reply.thoughts.data, reply.thoughts.len);
    }
    chat_write_calls(g, c, &reply, w);
    json_write(w, "}");
    chat_write_logprobs(g, c, &all, w);
    json_writef(w, ",\"finish_reason\":\"%s\"}", chat_finish_name(c, reply.n_calls));
    whole_reply_deinit(&reply);
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
        .has_parts = true,
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
