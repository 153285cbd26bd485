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

static const char completions_object[] = "text_completion";

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
static enum status append_token_bytes(struct buf *out, const char *bytes, size_t len)
{
    enum status rc = buf_append_text(out, "bytes:");

    for (size_t i = 0; rc == STATUS_OK && i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool is_plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';

        rc = is_plain ? buf_append(out, bytes + i, 1) : buf_printf(out, "\\x%02x", c);
    }
    return rc;
}

static enum status append_token_text(const struct generation *g, int32_t id, struct buf *out,
                                     size_t *ret_chars)
{
    struct buf text;
    enum status rc;

    buf_init(&text, TOKEN_MAX_BYTES);
    rc = generation_token(g, id, &text);
    if (rc == STATUS_OK && g->request->names_ids)
        rc = buf_printf(out, GENERATION_ID_NAME, id);
    else if (rc == STATUS_OK && utf8_is_valid(text.data, text.len))
        rc = buf_append(out, text.data, text.len);
    else if (rc == STATUS_OK)
        rc = append_token_bytes(out, text.data, text.len);
    *ret_chars = count_chars(&text);
    buf_deinit(&text);
    return rc;
}

/* The names of one object's members. */
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

    json_writer_fail(w, append_token_text(g, id, &l->keys, &ignored));
    for (size_t i = 0; i < l->n; from = l->ends[i++])
        if (l->ends[i] - from == l->keys.len - start &&
            memcmp(l->keys.data + from, l->keys.data + start, l->ends[i] - from) == 0) {
            l->keys.len = start;
            return;
        }
    json_write_name(w, l->keys.data + start, l->keys.len - start);
    generation_write_logprob(w, NULL, logprob);
    l->ends[l->n++] = l->keys.len;
}

/* The likeliest tokens, and the token itself. */
static void write_tops(const struct generation *g, const struct piece_token *t,
                       struct json_writer *w)
{
    struct top_list list = {.n = 0};
    bool has_own = false;

    buf_init(&list.keys, 8 * (SAMPLING_MAX_LOGPROBS + 1) * TOKEN_MAX_BYTES);
    json_begin_object(w, NULL);
    for (size_t k = 0; w->rc == STATUS_OK && k < t->n_tops && k < g->request->n_top; k++) {
        write_top(g, &list, t->tops[k].id, t->tops[k].logprob, w);
        has_own = has_own || t->tops[k].id == t->id;
    }
    if (!has_own && w->rc == STATUS_OK)
        write_top(g, &list, t->id, t->logprob, w);
    json_end_object(w);
    buf_deinit(&list.keys);
}

/* A list that is built in parallel with the others. */
struct token_list {
    struct buf text;
    struct json_writer w;
};

/* The four lists; a token has the same index in each. */
enum { LIST_TOKENS, LIST_LOGPROBS, LIST_TOPS, LIST_OFFSETS, N_LISTS };

static size_t completions_add_text(const struct generation *g, const struct choice *c, int32_t id,
                                   struct token_list lists[N_LISTS])
{
    struct json_writer *w = &lists[LIST_TOKENS].w;
    size_t n_chars = 0;
    struct buf text;

    buf_init(&text, 4 * TOKEN_MAX_BYTES);
    json_writer_fail(w, append_token_text(g, id, &text, &n_chars));
    json_write_string(w, NULL, text.data, text.len);
    buf_deinit(&text);
    json_write_unsigned(&lists[LIST_OFFSETS].w, NULL, c->n_chars);
    return n_chars;
}

static void completions_add_token(const struct generation *g, struct choice *c,
                                  const struct piece_token *t, struct token_list lists[N_LISTS])
{
    c->n_chars += completions_add_text(g, c, t->id, lists);
    generation_write_logprob(&lists[LIST_LOGPROBS].w, NULL, t->logprob);
    write_tops(g, t, &lists[LIST_TOPS].w);
}

static void write_list(struct json_writer *w, const char *name, struct token_list *l)
{
    json_end_array(&l->w);
    json_writer_fail(w, json_writer_end(&l->w));
    json_write_json(w, name, l->text.data, l->text.len);
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
        n_chars = completions_add_text(g, c, t.id, lists);
        json_write_null(&lists[LIST_LOGPROBS].w, NULL);
        json_write_null(&lists[LIST_TOPS].w, NULL);
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
    bool has_tops;

    if (!g->request->want_logprobs ||
        (!part->has_prompt && (piece == NULL || !piece->piece.has_logprobs))) {
        json_write_null(w, "logprobs");
        return;
    }
    for (size_t i = 0; i < N_LISTS; i++) {
        buf_init(&lists[i].text, w->out->limit_bytes);
        lists[i].w = json_writer_begin(&lists[i].text);
        json_begin_array(&lists[i].w, NULL);
    }
    if (part->has_prompt)
        completions_add_prompt(g, c, lists);
    for (size_t i = 0; piece != NULL && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        completions_add_token(g, c, &t, lists);
    }
    has_tops = g->request->n_top > 0 || !lists[LIST_TOKENS].w.has_before;
    json_begin_object(w, "logprobs");
    write_list(w, "tokens", &lists[LIST_TOKENS]);
    write_list(w, "token_logprobs", &lists[LIST_LOGPROBS]);
    if (has_tops)
        write_list(w, "top_logprobs", &lists[LIST_TOPS]);
    else
        json_write_null(w, "top_logprobs");
    write_list(w, "text_offset", &lists[LIST_OFFSETS]);
    json_end_object(w);
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
    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", c->index);
    json_write_string(w, "text", whole.data, whole.len);
    buf_deinit(&whole);
    completions_write_logprobs(g, c, part, w);
    json_write_text(w, "finish_reason", finish);
    if (!c->has_told_ids)
        generation_write_prompt_ids(g, c, w);
    c->has_told_ids = true;
    generation_write_ids(g, c, part->piece, w);
    prompt_logprobs_write(g, c, w);
    json_end_object(w);
}

static void completions_write_chunk(const struct generation *g, struct choice *c,
                                    const struct completion_part *part, const char *text,
                                    size_t len, const char *finish, struct json_writer *w)
{
    generation_write_id(g, w);
    generation_begin_chunk(g, completions_object, w);
    json_begin_array(w, "choices");
    completions_write_choice(g, c, part, text, len, finish, w);
    json_end_array(w);
    generation_write_running_usage(g, w);
    generation_end_event(w);
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
    c->has_told_ids = true;
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
    completions_write_chunk(g, c, &part, "", 0, NULL, w);
}

static void completion_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                             struct json_writer *w)
{
    const struct completion_part part = {.piece = event};

    completion_echo(g, c, w);
    if (event->piece.len == 0 && !event->piece.has_logprobs && !g->request->wants_ids)
        return; /* tokens without text so far */
    completions_write_chunk(g, c, &part, event->piece.text, event->piece.len, NULL, w);
}

static void completion_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    const struct completion_part part = {.has_prompt = false};

    completion_echo(g, c, w);
    completions_write_chunk(g, c, &part, "", 0, generation_finish_name(c), w);
}

static void completion_end(struct generation *g, struct json_writer *w)
{
    generation_end_chunks(g, completions_object, w);
}

static void completion_whole(struct generation *g, struct json_writer *w)
{
    generation_begin_body(g, completions_object, w);
    json_begin_array(w, "choices");
    for (size_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        struct turn_event all;
        const struct completion_part part = {.piece = &all, .has_prompt = g->request->echo};
        const char *text;
        size_t len;

        generation_all(c, &all, &text, &len);
        completions_write_choice(g, c, &part, text, len, generation_finish_name(c), w);
    }
    json_end_array(w);
    generation_write_usage(g, w);
    json_end_object(w);
}

/* The request's texts outlive its JSON where they are written with the reply, or where their turns
 * begin later. */
static enum status completions_keep_prompts(struct request *r, struct arena *arena,
                                            struct error *err)
{
    for (size_t i = 0; (r->echo || request_wants_prompt_logprobs(r)) && i < r->n_prompts; i++) {
        struct prompt *p = &r->prompts[i];
        struct message *own = arena_alloc(arena, p->n_messages + 1, sizeof(*own));

        if (own == NULL)
            return error_no_memory(err, p->n_messages * sizeof(*own), "a prompt");
        for (size_t k = 0; k < p->n_messages; k++) {
            own[k] = p->messages[k];
            own[k].text = arena_strndup(arena, p->messages[k].text, p->messages[k].len);
            if (own[k].text == NULL)
                return error_no_memory(err, p->messages[k].len + 1, "a prompt");
        }
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
const struct route_table openai_completions_routes = {rows, sizeof(rows) / sizeof(rows[0])};
