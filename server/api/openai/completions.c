/* POST /v1/completions: raw prompts. */
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/prompt_logprobs.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"

#define DATA "data: "

enum { TOKEN_MAX_BYTES = 4096, BODY_MAX_BYTES = 64 << 20 };

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
        json_raw_string(w, text.len == 0 ? "" : text.data, text.len);
    else
        write_token_bytes(w, text.data, text.len);
    *ret_chars = count_chars(&text);
    buf_deinit(&text);
}

/* Keys and values of one object. */
struct top_list {
    struct buf keys;
    size_t ends[SAMPLING_MAX_LOGPROBS + 1]; /* [n] */
    size_t n;
};

/* Writes a key and its value. Different tokens may have the same text: the first and likeliest
 * stays. */
static void write_top(const struct generation *g, struct top_list *l, int32_t id, float logprob,
                      struct json_writer *w)
{
    size_t start = l->n == 0 ? 0 : l->ends[l->n - 1], from = 0, ignored;
    struct json_writer key = json_writer_begin(&l->keys);

    write_token_text(g, id, &key, &ignored);
    json_writer_fail(w, json_writer_end(&key));
    for (size_t i = 0; i < l->n; from = l->ends[i++])
        if (l->ends[i] - from == l->keys.len - start &&
            memcmp(l->keys.data + from, l->keys.data + start, l->ends[i] - from) == 0) {
            l->keys.len = start;
            return;
        }
    json_write(w, l->n == 0 ? "" : ",");
    json_write_bytes(w, l->keys.data + start, l->keys.len - start);
    json_write(w, ":");
    generation_write_logprob(w, logprob);
    l->ends[l->n++] = l->keys.len;
}

/* The likeliest tokens, and the token itself. */
static void write_tops(const struct generation *g, const struct piece_token *t,
                       struct json_writer *w)
{
    struct top_list list = {.n = 0};
    bool has_own = false;

    buf_init(&list.keys, 8 * (SAMPLING_MAX_LOGPROBS + 1) * TOKEN_MAX_BYTES);
    json_write(w, "{");
    for (size_t k = 0; w->rc == STATUS_OK && k < t->n_tops && k < g->request->n_top; k++) {
        write_top(g, &list, t->tops[k].id, t->tops[k].logprob, w);
        has_own = has_own || t->tops[k].id == t->id;
    }
    if (!has_own && w->rc == STATUS_OK)
        write_top(g, &list, t->id, t->logprob, w);
    json_write(w, "}");
    buf_deinit(&list.keys);
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

/* Bytes of the first token that are in the prompt's text. */
static size_t completions_first_bytes(const struct generation *g, const struct prompt *prompt,
                                      const struct prompt_token *tokens, size_t n)
{
    size_t n_all = 0, n_first = 0;
    struct buf text;

    buf_init(&text, TOKEN_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        buf_clear(&text);
        if (generation_token(g, tokens[i].id, &text) != STATUS_OK)
            break;
        n_first = i == 0 ? text.len : n_first;
        n_all += text.len;
    }
    buf_deinit(&text);
    return n_all == prompt->messages[0].len + n_first ? 0 : n_first;
}

/* The prompt's tokens. The first has no log-probability. Where it is one that the text lacks (the
 * model's mark of a beginning), it has no characters. */
static void completions_add_prompt(const struct generation *g, struct choice *c,
                                   struct token_list lists[N_LISTS])
{
    const struct prompt *prompt = &g->request->prompts[c->index / g->request->n];
    size_t n = 0, n_chars = 0, n_bytes = 0;
    const struct prompt_token *tokens = reader_prompt(&c->reader, &n);

    for (size_t i = 0; i < n; i++) {
        const struct piece_token t = {.id = tokens[i].id,
                                      .logprob = tokens[i].logprob,
                                      .tops = tokens[i].top,
                                      .n_tops = tokens[i].n_top};

        if (i > 0) {
            completions_add_token(g, c, &t, lists);
            continue;
        }
        write_token_text(g, t.id, &lists[LIST_TOKENS].w, &n_chars);
        json_write(&lists[LIST_LOGPROBS].w, "null");
        json_write(&lists[LIST_TOPS].w, "null");
        json_writef(&lists[LIST_OFFSETS].w, "%zu", c->n_chars);
        n_bytes = prompt->n_messages > 0 ? completions_first_bytes(g, prompt, tokens, n) : 1;
        c->n_chars += n_bytes > 0 ? n_chars : 0;
    }
}

/* The part of a choice that is written at once: its prompt, if has_prompt, and a piece of its
 * reply, or NULL. */
struct completion_part {
    const struct turn_event *piece;
    bool has_prompt;
};

static void completions_write_logprobs(const struct generation *g, struct choice *c,
                                       const struct completion_part *part, struct json_writer *w)
{
    const struct turn_event *piece = part->piece;
    struct token_list lists[N_LISTS];

    if (!g->request->want_logprobs ||
        (!part->has_prompt && (piece == NULL || !piece->piece.has_logprobs))) {
        json_write(w, ",\"logprobs\":null");
        return;
    }
    for (size_t i = 0; i < N_LISTS; i++) {
        buf_init(&lists[i].text, w->out->limit_bytes);
        lists[i].w = json_writer_begin(&lists[i].text);
    }
    if (part->has_prompt)
        completions_add_prompt(g, c, lists);
    for (size_t i = 0; piece != NULL && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        completions_add_token(g, c, &t, lists);
    }
    json_write(w, ",\"logprobs\":{\"tokens\":");
    write_list(w, &lists[LIST_TOKENS]);
    json_write(w, ",\"token_logprobs\":");
    write_list(w, &lists[LIST_LOGPROBS]);
    json_write(w, ",\"top_logprobs\":");
    if (g->request->n_top == 0 && lists[LIST_TOKENS].text.len > 0)
        json_write(w, "null");
    else
        write_list(w, &lists[LIST_TOPS]);
    json_write(w, ",\"text_offset\":");
    write_list(w, &lists[LIST_OFFSETS]);
    json_write(w, "}");
    for (size_t i = 0; i < N_LISTS; i++)
        buf_deinit(&lists[i].text);
}

/* The prompt's own text, or that of its ids. */
static enum status completions_echo(const struct generation *g, const struct choice *c,
                                    struct buf *out)
{
    const struct prompt *prompt = &g->request->prompts[c->index / g->request->n];

    if (prompt->n_messages > 0)
        return buf_append(out, prompt->messages[0].text, prompt->messages[0].len);
    return generation_text(g, prompt->ids, prompt->n_ids, out);
}

/* Writes a choice with this text; finish NULL: not finished. */
static void completions_write_choice(const struct generation *g, struct choice *c,
                                     const struct completion_part *part, const char *text,
                                     size_t len, const char *finish, struct json_writer *w)
{
    struct buf whole;

    buf_init(&whole, w->out->limit_bytes);
    if (part->has_prompt)
        json_writer_fail(w, completions_echo(g, c, &whole));
    if (len > 0)
        json_writer_fail(w, buf_append(&whole, text, len));
    json_writef(w, "{\"index\":%u,\"text\":", c->index);
    json_raw_string(w, whole.len == 0 ? "" : whole.data, whole.len);
    buf_deinit(&whole);
    completions_write_logprobs(g, c, part, w);
    if (finish == NULL)
        json_write(w, ",\"finish_reason\":null");
    else
        json_writef(w, ",\"finish_reason\":\"%s\"", finish);
    prompt_logprobs_write(g, c, w);
    json_write(w, "}");
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

    buf_init(&text, BODY_MAX_BYTES);
    c->has_echoed = g->request->echo;
    if (g->request->echo && g->request->want_logprobs)
        rc = completions_echo(g, c, &text);
    c->n_chars += count_chars(&text);
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

/* The prompt comes as a chunk of its own, before the first of the reply. */
static void completion_echo(struct generation *g, struct choice *c, struct json_writer *w)
{
    const struct completion_part part = {.has_prompt = true};

    if (!g->request->echo || c->has_echoed)
        return;
    c->has_echoed = true;
    completions_begin_chunk(g, w);
    completions_write_choice(g, c, &part, "", 0, NULL, w);
    completions_end_chunk(g, w);
}

static void completion_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                             struct json_writer *w)
{
    const struct completion_part part = {.piece = event};

    completion_echo(g, c, w);
    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return; /* tokens without text so far */
    completions_begin_chunk(g, w);
    completions_write_choice(g, c, &part, event->piece.text, event->piece.len, NULL, w);
    completions_end_chunk(g, w);
}

static void completion_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    const struct completion_part part = {.has_prompt = false};

    completion_echo(g, c, w);
    completions_begin_chunk(g, w);
    completions_write_choice(g, c, &part, "", 0, generation_finish_name(c), w);
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
        const struct completion_part part = {.piece = &all, .has_prompt = g->request->echo};
        const char *text;
        size_t len;

        generation_all(c, &all, &text, &len);
        json_write(w, i == 0 ? "" : ",");
        completions_write_choice(g, c, &part, text, len, generation_finish_name(c), w);
    }
    json_write(w, "],\"usage\":");
    generation_write_usage(g, w);
    json_write(w, "}");
}

/* The request's texts outlive its JSON where they are written with the reply, or where their turns
 * begin later. */
static enum status completions_keep_prompts(struct request *r, struct arena *arena,
                                            struct error *err)
{
    for (size_t i = 0; (r->echo || request_wants_prompt_logprobs(r)) && i < r->n_prompts; i++) {
        struct prompt *p = &r->prompts[i];
        struct message *own;
        char *text;

        if (p->n_messages == 0)
            continue;
        own = arena_alloc(arena, 1, sizeof(*own));
        text = arena_alloc(arena, p->messages[0].len + 1, 1);
        if (own == NULL || text == NULL)
            return error_no_memory(err, p->messages[0].len + 1, "a prompt");
        memcpy(text, p->messages[0].text, p->messages[0].len + 1);
        *own = p->messages[0];
        own->text = text;
        p->messages = own;
    }
    return STATUS_OK;
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
    if (request_completion(&r, body, exchange_arena(x), err) != STATUS_OK ||
        completions_keep_prompts(&r, exchange_arena(x), err) != STATUS_OK)
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
