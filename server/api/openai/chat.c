/* POST /v1/chat/completions. */
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/prompt_logprobs.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"

static const char chat_chunk_object[] = "chat.completion.chunk";

/* piece NULL: none. */
static void chat_write_logprobs(const struct generation *g, const struct choice *c,
                                const struct turn_event *piece, struct json_writer *w)
{
    if (piece == NULL || !g->request->want_logprobs || !piece->piece.has_logprobs) {
        json_write_null(w, "logprobs");
        return;
    }
    json_begin_object(w, "logprobs");
    generation_write_logprobs(g, c, "content", piece, w);
    json_end_object(w);
}

static void chat_begin_call(const struct choice *c, uint32_t call, struct json_writer *w)
{
    char id[CALL_ID_CHARS], key[CALL_KEY_CHARS];

    call_id_format(id, generation_call_seed(c), call);
    call_key_format(key, generation_call_seed(c), call);
    json_write_text(w, "id", id);
    json_write_text(w, "idempotency_key", key);
    json_write_text(w, "type", "function");
}

/* Writes a call's begin, its next arguments, or both, as an entry of the delta. Strings of deltas
 * are concatenated by clients: the id and the name of a call come once. */
static void chat_write_call(const struct generation *g, const struct choice *c,
                            const struct reply_part *name, const struct reply_part *arguments,
                            struct json_writer *w)
{
    const bool is_old = g->request->is_function_call;
    const uint32_t call = name != NULL ? name->call : arguments->call;

    if (!is_old) {
        json_begin_object(w, NULL);
        json_write_unsigned(w, "index", call);
        if (name != NULL)
            chat_begin_call(c, call, w);
    }
    json_begin_object(w, is_old ? "function_call" : "function");
    if (name != NULL)
        json_write_string(w, "name", name->text, name->len);
    json_write_string(w, "arguments", arguments != NULL ? arguments->text : NULL,
                      arguments != NULL ? arguments->len : 0);
    json_end_object(w);
    if (!is_old)
        json_end_object(w);
}

/* Writes a chunk up to the choice's delta. */
static void chat_begin_chunk(const struct generation *g, const struct choice *c,
                             struct json_writer *w)
{
    generation_write_id(g, w);
    generation_begin_chunk(g, chat_chunk_object, w);
    if (!c->has_told_ids && c->index == 0)
        generation_write_prompt_ids(g, c, w);
    json_begin_array(w, "choices");
    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", c->index);
    json_begin_object(w, "delta");
    if (!c->has_begun)
        json_write_text(w, "role", "assistant");
}

/* Writes a chunk from the delta's end. piece NULL: without log-probabilities. */
static void chat_end_chunk(const struct generation *g, struct choice *c,
                           const struct turn_event *piece, const char *finish,
                           struct json_writer *w)
{
    json_end_object(w);
    chat_write_logprobs(g, c, piece, w);
    json_write_text(w, "finish_reason", finish);
    generation_write_ids(g, c, piece, w);
    json_end_object(w);
    json_end_array(w);
    generation_write_running_usage(g, w);
    generation_end_event(w);
    c->has_told_ids = true;
    c->has_begun = true;
}

static enum status chat_passed(struct generation *g, struct choice *c,
                               const struct turn_event *part, struct error *err)
{
    struct reply_part first;
    enum status rc = generation_parse_passed(c, part->piece.len, err);

    c->has_told_ids = true;
    c->has_begun = c->was_finished || (part->piece.has_logprobs && part->piece.n_tokens > 0) ||
                   (c->parser == NULL ? part->piece.len > 0
                                      : rc == STATUS_OK && reply_parser_next(c->parser, &first));
    return rc;
}

static void chat_write_text(struct generation *g, struct choice *c, const char *text, size_t len,
                            const struct turn_event *event, struct json_writer *w)
{
    chat_begin_chunk(g, c, w);
    json_write_string(w, "content", text, len);
    chat_end_chunk(g, c, event, NULL, w);
}

/* Writes the calls' parts that come next as one member of the delta. */
static void chat_write_call_parts(struct generation *g, struct choice *c, struct json_writer *w)
{
    const bool is_old = g->request->is_function_call;
    struct reply_part part, next;

    if (!is_old)
        json_begin_array(w, "tool_calls");
    while (reply_parser_peek(c->parser, &part) &&
           (part.kind == REPLY_CALL || part.kind == REPLY_ARGUMENTS)) {
        const bool is_call = part.kind == REPLY_CALL;
        bool has_arguments = !is_call;

        (void)reply_parser_next(c->parser, &part); /* it was seen */
        if (is_call && reply_parser_peek(c->parser, &next) && next.kind == REPLY_ARGUMENTS)
            has_arguments = reply_parser_next(c->parser, &next);
        chat_write_call(g, c, is_call ? &part : NULL,
                        !has_arguments ? NULL
                        : is_call      ? &next
                                       : &part,
                        w);
    }
    if (!is_old)
        json_end_array(w);
}

/* A piece is one chunk, so that its id stands for all of it, unless the delta would have a member
 * twice. It has the log-probabilities of the piece's tokens. */
static void chat_write_parts(struct generation *g, struct choice *c, const struct turn_event *event,
                             struct json_writer *w)
{
    struct reply_part part;

    while (reply_parser_peek(c->parser, &part)) {
        chat_begin_chunk(g, c, w);
        if (part.kind == REPLY_THOUGHT || part.kind == REPLY_TEXT) {
            json_write_string(w, part.kind == REPLY_TEXT ? "content" : "reasoning_content",
                              part.text, part.len);
            (void)reply_parser_next(c->parser, &part); /* it was seen */
            if (reply_parser_peek(c->parser, &part) && part.kind == REPLY_CALL)
                chat_write_call_parts(g, c, w);
        } else {
            if (!c->has_begun)
                json_write_null(w, "content");
            chat_write_call_parts(g, c, w);
        }
        chat_end_chunk(g, c, event, NULL, w);
        event = NULL;
    }
    if (event != NULL && (event->piece.has_logprobs || g->request->wants_ids))
        chat_write_text(g, c, "", 0, event, w);
}

/* The role comes with the first text: a chunk of its own would count as the first token. */
static void chat_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                       struct json_writer *w)
{
    struct error err;

    if (event->piece.len == 0 && !event->piece.has_logprobs && !g->request->wants_ids)
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
        json_write_text(w, "content", "");
    chat_end_chunk(g, c, NULL, chat_finish_name(c, n_calls), w);
}

static void chat_end(struct generation *g, struct json_writer *w)
{
    generation_end_chunks(g, chat_chunk_object, w);
}

static void chat_write_function(const char *name, const struct tool_call *call,
                                struct json_writer *w)
{
    json_begin_object(w, name);
    json_write_string(w, "name", call->name.text, call->name.len);
    json_write_string(w, "arguments", call->arguments.text, call->arguments.len);
    json_end_object(w);
}

static void chat_write_calls(const struct generation *g, const struct choice *c,
                             const struct whole_reply *reply, struct json_writer *w)
{
    struct tool_call call;

    if (reply->n_calls == 0)
        return;
    if (g->request->is_function_call) {
        whole_reply_call(reply, 0, &call);
        chat_write_function("function_call", &call, w);
        return;
    }
    json_begin_array(w, "tool_calls");
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        whole_reply_call(reply, i, &call);
        json_begin_object(w, NULL);
        chat_begin_call(c, i, w);
        chat_write_function("function", &call, w);
        json_end_object(w);
    }
    json_end_array(w);
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
    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", c->index);
    json_begin_object(w, "message");
    json_write_text(w, "role", "assistant");
    if (reply.n_calls > 0 && reply.text.len == 0)
        json_write_null(w, "content");
    else
        json_write_string(w, "content", reply.text.data, reply.text.len);
    json_write_null(w, "refusal");
    if (reply.thoughts.len > 0)
        json_write_string(w, "reasoning_content", reply.thoughts.data, reply.thoughts.len);
    chat_write_calls(g, c, &reply, w);
    json_end_object(w);
    chat_write_logprobs(g, c, &all, w);
    json_write_text(w, "finish_reason", chat_finish_name(c, reply.n_calls));
    generation_write_ids(g, c, &all, w);
    json_end_object(w);
    whole_reply_deinit(&reply);
}

static void chat_whole(struct generation *g, struct json_writer *w)
{
    generation_begin_body(g, "chat.completion", w);
    json_begin_array(w, "choices");
    for (size_t i = 0; i < g->n_choices; i++)
        chat_write_choice(g, &g->choices[i], w);
    json_end_array(w);
    generation_write_usage(g, w);
    prompt_logprobs_write(g, &g->choices[0], w);
    generation_write_prompt_ids(g, &g->choices[0], w);
    json_end_object(w);
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
    if (r.prompts[0].n_ids > 0 && exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "has no place beside prompt_token_ids");
    return resolution_generate(x, &plan, &r, err);
}

static void chat_serve(struct exchange *x)
{
    resolution_serve(x, chat_begin);
}

static const struct route rows[] = {
    {"/v1/chat/completions", .methods = METHOD_POST, .serve = chat_serve, .api = &openai_api},
};
const struct route_table openai_chat_routes = {rows, sizeof(rows) / sizeof(rows[0])};
