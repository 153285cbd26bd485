/* POST /v1/chat/completions. */
#include <string.h>

#include "server/daemon.h"
#include "server/http/binding.h"
#include "server/http/fields.h"
#include "server/http/generation.h"
#include "server/http/routes.h"

#define DATA "data: "

/* {"token": "…", "logprob": …, "bytes": […] without the brace that closes it. */
static enum status append_token(const struct generation *g, int32_t id, float logprob,
                                struct buf *out)
{
    struct buf text;
    enum status rc;

    buf_init(&text, 4096);
    rc = generation_token(g, id, &text);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "{\"token\":");
    if (rc == STATUS_OK)
        rc = buf_append_json(out, text.len == 0 ? "" : text.data, text.len);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"logprob\":");
    if (rc == STATUS_OK)
        rc = generation_append_number(out, logprob);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"bytes\":[");
    for (size_t i = 0; rc == STATUS_OK && i < text.len; i++)
        rc = buf_printf(out, i == 0 ? "%u" : ",%u", (unsigned char)text.data[i]);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "]");
    buf_deinit(&text);
    return rc;
}

static enum status append_logprobs(const struct generation *g, const struct choice *c,
                                   const struct turn_event *piece, struct buf *out)
{
    enum status rc = STATUS_OK;

    if (!g->request->want_logprobs || !piece->piece.has_logprobs)
        return buf_append_text(out, ",\"logprobs\":null");
    rc = buf_append_text(out, ",\"logprobs\":{\"content\":[");
    for (size_t i = 0; rc == STATUS_OK && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        if (i > 0)
            rc = buf_append_text(out, ",");
        if (rc == STATUS_OK)
            rc = append_token(g, t.id, t.logprob, out);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, ",\"top_logprobs\":[");
        for (size_t k = 0; rc == STATUS_OK && k < t.n_tops && k < g->request->n_top; k++) {
            if (k > 0)
                rc = buf_append_text(out, ",");
            if (rc == STATUS_OK)
                rc = append_token(g, t.tops[k].id, t.tops[k].logprob, out);
            if (rc == STATUS_OK)
                rc = buf_append_text(out, "}");
        }
        if (rc == STATUS_OK)
            rc = buf_append_text(out, "]}");
    }
    return rc != STATUS_OK ? rc : buf_append_text(out, "]}");
}

/* As far as the choice's delta. */
static enum status begin_chunk(const struct generation *g, const struct choice *c, struct buf *out)
{
    if (buf_append_text(out, DATA) != STATUS_OK ||
        generation_append_head(g, "chat.completion.chunk", out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_printf(out, ",\"choices\":[{\"index\":%u,\"delta\":{%s", c->index,
                      c->has_begun ? "" : "\"role\":\"assistant\",");
}

static enum status end_chunk(const struct generation *g, struct buf *out)
{
    enum status rc = buf_append_text(out, "]");

    if (rc == STATUS_OK)
        rc = generation_append_running_usage(g, out);
    return rc != STATUS_OK ? rc : buf_append_text(out, "}\n\n");
}

/* The role comes with the first text: a chunk of its own would pass for a first token. */
static enum status chat_piece(struct generation *g, struct choice *c,
                              const struct turn_event *event, struct buf *out)
{
    enum status rc;

    if (event->piece.len == 0 && !event->piece.has_logprobs)
        return STATUS_OK; /* tokens that make no text yet */
    rc = begin_chunk(g, c, out);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "\"content\":");
    if (rc == STATUS_OK)
        rc = buf_append_json(out, event->piece.text, event->piece.len);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "}");
    if (rc == STATUS_OK)
        rc = append_logprobs(g, c, event, out);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"finish_reason\":null}");
    c->has_begun = true;
    return rc != STATUS_OK ? rc : end_chunk(g, out);
}

static enum status chat_finish(struct generation *g, struct choice *c, struct buf *out)
{
    enum status rc = begin_chunk(g, c, out);

    if (rc == STATUS_OK && !c->has_begun)
        rc = buf_append_text(out, "\"content\":\"\"");
    if (rc == STATUS_OK)
        rc = buf_printf(out, "},\"logprobs\":null,\"finish_reason\":\"%s\"}",
                        generation_finish_name(c));
    c->has_begun = true;
    return rc != STATUS_OK ? rc : end_chunk(g, out);
}

static enum status chat_end(struct generation *g, struct buf *out)
{
    enum status rc = STATUS_OK;

    if (g->request->include_usage) {
        rc = buf_append_text(out, DATA);
        if (rc == STATUS_OK)
            rc = generation_append_head(g, "chat.completion.chunk", out);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, ",\"choices\":[],\"usage\":");
        if (rc == STATUS_OK)
            rc = generation_append_usage(g, out);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, "}\n\n");
    }
    return rc != STATUS_OK ? rc : buf_append_text(out, DATA "[DONE]\n\n");
}

static enum status append_choice(struct generation *g, const struct choice *c, struct buf *out)
{
    struct turn_event all;
    const char *text;
    size_t len;
    enum status rc;

    generation_all(c, &all, &text, &len);
    rc = buf_printf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":",
                    c->index == 0 ? "" : ",", c->index);
    if (rc == STATUS_OK)
        rc = buf_append_json(out, text, len);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"refusal\":null}");
    if (rc == STATUS_OK)
        rc = append_logprobs(g, c, &all, out);
    return rc != STATUS_OK
               ? rc
               : buf_printf(out, ",\"finish_reason\":\"%s\"}", generation_finish_name(c));
}

static enum status chat_whole(struct generation *g, struct buf *out)
{
    enum status rc = generation_append_head(g, "chat.completion", out);

    if (rc == STATUS_OK)
        rc = buf_append_text(out, ",\"choices\":[");
    for (size_t i = 0; rc == STATUS_OK && i < g->n_choices; i++)
        rc = append_choice(g, &g->choices[i], out);
    if (rc == STATUS_OK)
        rc = buf_append_text(out, "],\"usage\":");
    if (rc == STATUS_OK)
        rc = generation_append_usage(g, out);
    return rc != STATUS_OK ? rc : buf_append_text(out, "}");
}

static enum status begin(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct format format = {
        .object = "chatcmpl",
        .piece = chat_piece,
        .finish = chat_finish,
        .end = chat_end,
        .failed = generation_append_failure,
        .whole = chat_whole,
    };
    struct conversation *bound = NULL;
    struct request r;
    struct model *model;

    if (request_chat(&r, body, exchange_arena(x), err) != STATUS_OK ||
        binding_model(&model, x, r.model, err) != STATUS_OK)
        return err->status;
    if (exchange_conversation(x)[0] != '\0' &&
        binding_conversation(&bound, x, &r, &model, err) != STATUS_OK)
        return err->status;
    return generation_start(x, &format, &r, model, bound, bound == NULL, NULL, err);
}

void chat_serve(struct exchange *x)
{
    binding_serve(x, begin);
}
