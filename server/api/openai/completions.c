/* POST /v1/completions: raw prompts. */
#include <stdbool.h>

#include "base/utf8.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"

#define DATA "data: "

enum { TOKEN_MAX_BYTES = 4096 };

static size_t count_chars(const struct buf *text)
{
    size_t n = 0, at = 0;
    uint32_t ignored;

    for (; at < text->len; n++)
        at += utf8_next(text->data + at, text->len - at, &ignored);
    return n;
}

/* OpenAI's form: bytes:\xe4\xbd. As U+FFFD, different parts of characters would be one key. */
static void write_token_bytes(struct json_writer *w, const char *bytes, size_t len)
{
    json_write(w, "\"bytes:");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c >= ' ' && c <= '~' && c != '"' && c != '\\')
            json_write_bytes(w, bytes + i, 1);
        else
            json_writef(w, "\\\\x%02x", c);
    }
    json_write(w, "\"");
}

static void write_token_text(const struct generation *g, int32_t id, struct json_writer *w,
                             size_t *ret_chars)
{
    struct buf text;

    buf_init(&text, TOKEN_MAX_BYTES);
    json_writer_fail(w, generation_token(g, id, &text));
    if (utf8_is_valid(text.data, text.len))
        json_write_string(w, text.len == 0 ? "" : text.data, text.len);
    else
        write_token_bytes(w, text.data, text.len);
    *ret_chars = count_chars(&text);
    buf_deinit(&text);
}

static void write_tops(const struct generation *g, const struct piece_token *t,
                       struct json_writer *w)
{
    size_t ignored;

    json_write(w, "{");
    for (size_t k = 0; k < t->n_tops && k < g->request->n_top; k++) {
        json_write(w, k == 0 ? "" : ",");
        write_token_text(g, t->tops[k].id, w, &ignored);
        json_write(w, ":");
        generation_write_logprob(w, t->tops[k].logprob);
    }
    json_write(w, "}");
}

/* A list that is built in parallel with the others. */
struct token_list {
    struct buf text;
    struct json_writer w;
};

/* The four lists; a token has the same index in each. */
enum { LIST_TOKENS, LIST_LOGPROBS, LIST_TOPS, LIST_OFFSETS, N_LISTS };

static void completions_add_token(const struct generation *g, struct choice *c,
                                  const struct piece_token *t, struct token_list lists[N_LISTS])
{
    size_t n_chars = 0;

    for (size_t i = 0; i < N_LISTS && lists[LIST_TOKENS].text.len > 0; i++)
        json_write(&lists[i].w, ",");
    write_token_text(g, t->id, &lists[LIST_TOKENS].w, &n_chars);
    generation_write_logprob(&lists[LIST_LOGPROBS].w, t->logprob);
    write_tops(g, t, &lists[LIST_TOPS].w);
    json_writef(&lists[LIST_OFFSETS].w, "%zu", c->n_chars);
    c->n_chars += n_chars;
}

static void write_list(struct json_writer *w, const struct token_list *l)
{
    json_writer_fail(w, l->w.rc);
    json_write(w, "[");
    json_write_bytes(w, l->text.data, l->text.len);
    json_write(w, "]");
}

static void completions_write_logprobs(const struct generation *g, struct choice *c,
                                       const struct turn_event *piece, struct json_writer *w)
{
    struct token_list lists[N_LISTS];

    if (!g->request->want_logprobs || !piece->piece.has_logprobs) {
        json_write(w, ",\"logprobs\":null");
        return;
    }
    for (size_t i = 0; i < N_LISTS; i++) {
        buf_init(&lists[i].text, w->out->limit_bytes);
        lists[i].w = json_writer_begin(&lists[i].text);
    }
    for (size_t i = 0; i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        completions_add_token(g, c, &t, lists);
    }
    json_write(w, ",\"logprobs\":{\"tokens\":");
    write_list(w, &lists[LIST_TOKENS]);
    json_write(w, ",\"token_logprobs\":");
    write_list(w, &lists[LIST_LOGPROBS]);
    json_write(w, ",\"top_logprobs\":");
    if (g->request->n_top == 0 && piece->piece.n_tokens > 0)
        json_write(w, "null");
    else
        write_list(w, &lists[LIST_TOPS]);
    json_write(w, ",\"text_offset\":");
    write_list(w, &lists[LIST_OFFSETS]);
    json_write(w, "}");
    for (size_t i = 0; i < N_LISTS; i++)
        buf_deinit(&lists[i].text);
}

/* Writes a choice with this text; finish NULL: not finished. */
static void completions_write_choice(const struct generation *g, struct choice *c,
                                     const struct turn_event *piece, const char *text, size_t len,
                                     const char *finish, struct json_writer *w)
{
    json_writef(w, "{\"index\":%u,\"text\":", c->index);
    json_write_string(w, text, len);
    if (piece == NULL)
        json_write(w, ",\"logprobs\":null");
    else
        completions_write_logprobs(g, c, piece, w);
    if (finish == NULL)
        json_write(w, ",\"finish_reason\":null}");
    else
        json_writef(w, ",\"finish_reason\":\"%s\"}", finish);
}

static void completions_begin_chunk(const struct generation *g, struct json_writer *w)
{
    generation_write_id(g, w);
    json_write(w, DATA);
    generation_write_head(g, "text_completion", w);
    json_write(w, ",\"choices\":[");
}

static void completions_end_chunk(const struct generation *g, struct json_writer *w)
{
    json_write(w, "]");
    generation_write_running_usage(g, w);
    json_write(w, "}\n\n");
}

/* Counts the characters of the tokens, where text_offset goes on. */
static enum status completion_passed(struct generation *g, struct choice *c,
                                     const struct turn_event *part, struct error *err)
{
    size_t n = g->request->want_logprobs ? part->piece.n_tokens : 0;
    enum status rc = STATUS_OK;
    struct buf text;

    buf_init(&text, TOKEN_MAX_BYTES);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        struct piece_token t;

        reader_token(&c->reader, part, i, &t);
        buf_clear(&text);
        rc = generation_token(g, t.id, &text);
        c->n_chars += count_chars(&text);
    }
    buf_deinit(&text);
    return rc == STATUS_OK ? rc : error_no_memory(err, TOKEN_MAX_BYTES, "a token's text");
}

static void completion_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                             struct json_writer *w)
{
    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    completions_begin_chunk(g, w);
    completions_write_choice(g, c, event, event->piece.text, event->piece.len, NULL, w);
    completions_end_chunk(g, w);
}

static void completion_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    completions_begin_chunk(g, w);
    completions_write_choice(g, c, NULL, "", 0, generation_finish_name(c), w);
    completions_end_chunk(g, w);
}

static void completion_end(struct generation *g, struct json_writer *w)
{
    if (g->request->include_usage) {
        json_write(w, DATA);
        generation_write_head(g, "text_completion", w);
        json_write(w, ",\"choices\":[],\"usage\":");
        generation_write_usage(g, w);
        json_write(w, "}\n\n");
    }
    json_write(w, DATA "[DONE]\n\n");
}

static void completion_whole(struct generation *g, struct json_writer *w)
{
    generation_write_head(g, "text_completion", w);
    json_write(w, ",\"choices\":[");
    for (size_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        struct turn_event all;
        const char *text;
        size_t len;

        generation_all(c, &all, &text, &len);
        json_write(w, i == 0 ? "" : ",");
        completions_write_choice(g, c, &all, text, len, generation_finish_name(c), w);
    }
    json_write(w, "],\"usage\":");
    generation_write_usage(g, w);
    json_write(w, "}");
}

static enum status completions_begin(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "cmpl",
        .passed = completion_passed,
        .piece = completion_piece,
        .finish = completion_finish,
        .end = completion_end,
        .failed = generation_write_failure,
        .whole = completion_whole,
    };
    struct generation_plan plan = {.renderer = &renderer};
    struct request r;

    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    if (request_completion(&r, body, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return resolution_generate(x, &plan, &r, err);
}

static void completions_serve(struct exchange *x)
{
    resolution_serve(x, completions_begin);
}

static const struct route rows[] = {
    {"/v1/completions", .methods = METHOD_POST, .serve = completions_serve, .api = &openai_api},
};
const struct route_table completions_routes = {rows, sizeof(rows) / sizeof(rows[0])};
