/* POST /v1/completions: prompts that are continued as they are. */
#include "base/utf8.h"
#include "server/daemon.h"
#include "server/http/binding.h"
#include "server/http/exchange.h"
#include "server/http/generation.h"
#include "server/http/routes.h"

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

static enum status append_text(const struct generation *g, int32_t id, struct buf *out,
                               size_t *ret_chars)
{
    struct buf text;
    enum status rc;

    buf_init(&text, TOKEN_MAX_BYTES);
    rc = generation_token(g, id, &text);
    if (rc == STATUS_OK)
        rc = buf_append_json(out, text.len == 0 ? "" : text.data, text.len);
    *ret_chars = count_chars(&text);
    buf_deinit(&text);
    return rc;
}

static enum status append_tops(const struct generation *g, const struct piece_token *t,
                               struct buf *out)
{
    enum status rc = buf_append_text(out, "{");
    size_t ignored;

    for (size_t k = 0; rc == STATUS_OK && k < t->n_tops && k < g->request->n_top; k++) {
        if (k > 0)
            rc = buf_append_text(out, ",");
        if (rc == STATUS_OK)
            rc = append_text(g, t->tops[k].id, out, &ignored);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, ":");
        if (rc == STATUS_OK)
            rc = generation_append_number(out, t->tops[k].logprob);
    }
    return rc != STATUS_OK ? rc : buf_append_text(out, "}");
}

/* The four lists, in which a token has the same place. */
struct lists {
    struct buf tokens, logprobs, tops, offsets;
};

static enum status add_token(const struct generation *g, struct choice *c,
                             const struct piece_token *t, struct lists *l)
{
    size_t n_chars = 0;

    if ((l->tokens.len > 0 && (buf_append_text(&l->tokens, ",") != STATUS_OK ||
                               buf_append_text(&l->logprobs, ",") != STATUS_OK ||
                               buf_append_text(&l->tops, ",") != STATUS_OK ||
                               buf_append_text(&l->offsets, ",") != STATUS_OK)) ||
        append_text(g, t->id, &l->tokens, &n_chars) != STATUS_OK ||
        generation_append_number(&l->logprobs, t->logprob) != STATUS_OK ||
        append_tops(g, t, &l->tops) != STATUS_OK ||
        buf_printf(&l->offsets, "%zu", c->n_chars) != STATUS_OK)
        return STATUS_EXHAUSTED;
    c->n_chars += n_chars;
    return STATUS_OK;
}

static enum status join_lists(const struct generation *g, const struct lists *l, struct buf *out)
{
    if (l->tokens.len == 0)
        return buf_append_text(out, ",\"logprobs\":{\"tokens\":[],\"token_logprobs\":[],"
                                    "\"top_logprobs\":[],\"text_offset\":[]}");
    if (buf_append_text(out, ",\"logprobs\":{\"tokens\":[") != STATUS_OK ||
        buf_append(out, l->tokens.data, l->tokens.len) != STATUS_OK ||
        buf_append_text(out, "],\"token_logprobs\":[") != STATUS_OK ||
        buf_append(out, l->logprobs.data, l->logprobs.len) != STATUS_OK ||
        buf_append_text(out, "],\"top_logprobs\":") != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (g->request->n_top == 0) {
        if (buf_append_text(out, "null") != STATUS_OK)
            return STATUS_EXHAUSTED;
    } else if (buf_append_text(out, "[") != STATUS_OK ||
               buf_append(out, l->tops.data, l->tops.len) != STATUS_OK ||
               buf_append_text(out, "]") != STATUS_OK) {
        return STATUS_EXHAUSTED;
    }
    if (buf_append_text(out, ",\"text_offset\":[") != STATUS_OK ||
        buf_append(out, l->offsets.data, l->offsets.len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "]}");
}

static enum status append_logprobs(const struct generation *g, struct choice *c,
                                   const struct turn_event *piece, struct buf *out)
{
    struct lists l;
    enum status rc = STATUS_OK;

    if (!g->request->want_logprobs || !piece->piece.has_logprobs)
        return buf_append_text(out, ",\"logprobs\":null");
    buf_init(&l.tokens, out->limit_bytes);
    buf_init(&l.logprobs, out->limit_bytes);
    buf_init(&l.tops, out->limit_bytes);
    buf_init(&l.offsets, out->limit_bytes);
    for (size_t i = 0; rc == STATUS_OK && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        rc = add_token(g, c, &t, &l);
    }
    if (rc == STATUS_OK)
        rc = join_lists(g, &l, out);
    buf_deinit(&l.tokens);
    buf_deinit(&l.logprobs);
    buf_deinit(&l.tops);
    buf_deinit(&l.offsets);
    return rc;
}

/* A choice with this text; finish NULL: not yet. */
static enum status append_choice(const struct generation *g, struct choice *c,
                                 const struct turn_event *piece, const char *text, size_t len,
                                 const char *finish, struct buf *out)
{
    enum status rc = buf_printf(out, "{\"index\":%u,\"text\":", c->index);

    if (rc == STATUS_OK)
        rc = buf_append_json(out, text, len);
    if (rc == STATUS_OK)
        rc = piece == NULL ? buf_append_text(out, ",\"logprobs\":null")
                           : append_logprobs(g, c, piece, out);
    if (rc == STATUS_OK)
        rc = finish == NULL ? buf_append_text(out, ",\"finish_reason\":null}")
                            : buf_printf(out, ",\"finish_reason\":\"%s\"}", finish);
    return rc;
}

static enum status begin_chunk(const struct generation *g, struct buf *out)
{
    if (buf_append_text(out, DATA) != STATUS_OK ||
        generation_append_head(g, "text_completion", out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, ",\"choices\":[");
}

static enum status end_chunk(const struct generation *g, struct buf *out)
{
    if (buf_append_text(out, "]") != STATUS_OK ||
        generation_append_running_usage(g, out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "}\n\n");
}

static enum status completion_piece(struct generation *g, struct choice *c,
                                    const struct turn_event *event, struct buf *out)
{
    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return STATUS_OK; /* tokens that make no text yet */
    if (begin_chunk(g, out) != STATUS_OK ||
        append_choice(g, c, event, event->piece.text, event->piece.len, NULL, out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_chunk(g, out);
}

static enum status completion_finish(struct generation *g, struct choice *c, struct buf *out)
{
    if (begin_chunk(g, out) != STATUS_OK ||
        append_choice(g, c, NULL, "", 0, generation_finish_name(c), out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_chunk(g, out);
}

static enum status completion_end(struct generation *g, struct buf *out)
{
    if (g->request->include_usage &&
        (buf_append_text(out, DATA) != STATUS_OK ||
         generation_append_head(g, "text_completion", out) != STATUS_OK ||
         buf_append_text(out, ",\"choices\":[],\"usage\":") != STATUS_OK ||
         generation_append_usage(g, out) != STATUS_OK ||
         buf_append_text(out, "}\n\n") != STATUS_OK))
        return STATUS_EXHAUSTED;
    return buf_append_text(out, DATA "[DONE]\n\n");
}

static enum status completion_whole(struct generation *g, struct buf *out)
{
    enum status rc = generation_append_head(g, "text_completion", out);

    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"choices\":[");
    for (size_t i = 0; rc == STATUS_OK && i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        struct turn_event all;
        const char *text;
        size_t len;

        generation_all(c, &all, &text, &len);
        if (i > 0)
            rc = buf_append_text(out, ",");
        if (rc == STATUS_OK)
            rc = append_choice(g, c, &all, text, len, generation_finish_name(c), out);
    }
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "],\"usage\":");
    if (rc == STATUS_OK)
        rc = generation_append_usage(g, out);
    return rc != STATUS_OK ? rc : buf_append_text(out, "}");
}

static enum status begin(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct format format = {
        .object = "cmpl",
        .piece = completion_piece,
        .finish = completion_finish,
        .end = completion_end,
        .failed = generation_append_failure,
        .whole = completion_whole,
    };
    struct request r;
    struct model *model;

    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    if (request_completion(&r, body, exchange_arena(x), err) != STATUS_OK ||
        binding_model(&model, x, r.model, err) != STATUS_OK)
        return err->status;
    return generation_start(x, &format, &r, model, NULL, true, NULL, err);
}

void completions_serve(struct exchange *x)
{
    binding_serve(x, begin);
}
