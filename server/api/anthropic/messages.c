/* POST /v1/messages and /v1/messages/count_tokens. A message is a list of blocks, in a stream one
 * after the other; a reply has one, of text. */
#include <string.h>

#include "base/utf8.h"
#include "server/api/answer.h"
#include "server/api/anthropic/error.h"
#include "server/api/anthropic/request.h"
#include "server/api/generation.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/model/model.h"

enum { COUNT_MAX_BYTES = 64 << 20, COUNT_ANSWER_BYTES = 256, TEXT_BLOCK = 0 };

/* --- why a reply ended --- */

/* How many of the bytes make a text of this length, in which each that is no character is U+FFFD.
 */
static size_t anthropic_shown(const struct buf *bytes, size_t text_len)
{
    size_t at = 0, shown = 0;
    uint32_t c;

    while (at < bytes->len && shown < text_len) {
        size_t n = utf8_decode(bytes->data + at, bytes->len - at, &c);

        shown += n > 0 ? n : 3;
        at += n > 0 ? n : utf8_next(bytes->data + at, bytes->len - at, &c);
    }
    return at;
}

/* The longest of the stop texts that follows the reply's text and ends within the last n bytes of
 * all. A token that ends the model's turn has a text, too, which is no stop, unless it begins so.
 */
static const struct text *anthropic_stop_in(const struct buf *all, size_t n,
                                            const struct completed_turn *t)
{
    const struct sampling *s = &t->request->overrides->values;
    size_t at = anthropic_shown(all, t->len);
    const struct text *longest = NULL;

    for (size_t i = 0; i < s->n_stops; i++) {
        const struct text *stop = &s->stops[i];

        if (stop->len <= all->len - at && at + stop->len > all->len - n &&
            (longest == NULL || stop->len > longest->len) &&
            memcmp(all->data + at, stop->text, stop->len) == 0)
            longest = stop;
    }
    return longest;
}

/* Appends the bytes of the reply's tokens; *ret_last: how many the last one has. The first token
 * stands twice, since a vocabulary may leave out the space that a text begins with. */
static enum status anthropic_decode(const struct generation *g, const struct completed_turn *t,
                                    struct buf *out, size_t *ret_last)
{
    const struct agent *agent = g->model->agent;
    int32_t *ids = arena_alloc(exchange_arena(g->exchange), t->n_tokens + 1, sizeof(ids[0]));
    const size_t n_ids[] = {1, t->n_tokens, t->n_tokens + 1};
    enum status rc = ids != NULL ? STATUS_OK : STATUS_EXHAUSTED;
    size_t lens[3];
    struct error ignored;

    for (size_t i = 0; ids != NULL && i <= t->n_tokens; i++)
        ids[i] = t->tokens[i == 0 ? 0 : i - 1].id;
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++) {
        buf_clear(out);
        rc = agent->type->detokenize(agent, ids, n_ids[i], out, &ignored);
        lens[i] = out->len;
    }
    if (rc != STATUS_OK)
        return rc;
    buf_consume(out, lens[0]);
    *ret_last = lens[2] - lens[1];
    return STATUS_OK;
}

/* The stop text that ended c's reply, NULL if none did. Its tokens belong to the reply, its text
 * does not. Without memory to tell, it is an end like any other. */
static const struct text *anthropic_stop(const struct generation *g, const struct choice *c)
{
    const struct completed_turn *t = c->reader.completed;
    const struct sampling_overrides *overrides = t->request->overrides;
    const struct text *stop = NULL;
    struct buf all;
    size_t last;

    if (c->finish != FINISH_STOP || t->n_tokens == 0 || overrides == NULL ||
        (overrides->given & SAMPLING_STOPS) == 0 || g->model->agent->type->detokenize == NULL)
        return NULL;
    buf_init(&all, COUNT_MAX_BYTES);
    if (anthropic_decode(g, t, &all, &last) == STATUS_OK)
        stop = anthropic_stop_in(&all, last, t);
    buf_deinit(&all);
    return stop;
}

static void anthropic_write_stop(const struct generation *g, const struct choice *c,
                                 struct json_writer *w)
{
    const struct text *stop = anthropic_stop(g, c);

    json_writef(w, "\"stop_reason\":\"%s\",\"stop_sequence\":",
                stop != NULL                 ? "stop_sequence"
                : c->finish == FINISH_LENGTH ? "max_tokens"
                                             : "end_turn");
    if (stop == NULL)
        json_write(w, "null");
    else
        json_write_string(w, stop->text, stop->len);
}

/* --- output --- */

/* Tokens that were read from the cache are not among those of the input. */
static void anthropic_write_usage(const struct choice *c, struct json_writer *w)
{
    json_writef(w,
                ",\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
                "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
                c->n_prompt - c->n_cached, c->n_cached, c->n_said);
}

/* Writes the message up to the blocks of its content. */
static void anthropic_begin_message(const struct generation *g, struct json_writer *w)
{
    json_writef(w,
                "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"%s\","
                "\"content\":[",
                strchr(g->id, '-') + 1, g->model->name);
}

/* Writes an event up to the fields of its type. */
static void anthropic_begin_event(const char *type, struct json_writer *w)
{
    json_writef(w, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void anthropic_end_event(struct json_writer *w)
{
    json_write(w, "}\n\n");
}

static void anthropic_begin_in_block(const char *type, uint32_t block, struct json_writer *w)
{
    anthropic_begin_event(type, w);
    json_writef(w, ",\"index\":%u", block);
}

static void anthropic_begin(struct generation *g, struct json_writer *w)
{
    anthropic_begin_event("message_start", w);
    json_write(w, ",\"message\":");
    anthropic_begin_message(g, w);
    json_write(w, "],\"stop_reason\":null,\"stop_sequence\":null");
    anthropic_write_usage(&g->choices[0], w);
    json_write(w, "}");
    anthropic_end_event(w);
    anthropic_begin_in_block("content_block_start", TEXT_BLOCK, w);
    json_write(w, ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    anthropic_end_event(w);
    anthropic_begin_event("ping", w);
    anthropic_end_event(w);
}

static void anthropic_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                            struct json_writer *w)
{
    (void)c;
    if (event->piece.len == 0)
        return; /* tokens without text so far */
    generation_write_id(g, w);
    anthropic_begin_in_block("content_block_delta", TEXT_BLOCK, w);
    json_write(w, ",\"delta\":{\"type\":\"text_delta\",\"text\":");
    json_write_string(w, event->piece.text, event->piece.len);
    json_write(w, "}");
    anthropic_end_event(w);
}

static void anthropic_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    anthropic_begin_in_block("content_block_stop", TEXT_BLOCK, w);
    anthropic_end_event(w);
    anthropic_begin_event("message_delta", w);
    json_write(w, ",\"delta\":{");
    anthropic_write_stop(g, c, w);
    json_write(w, "}");
    anthropic_write_usage(c, w);
    anthropic_end_event(w);
    generation_write_id(g, w); /* the last: who has only some of these gets all of them again */
    anthropic_begin_event("message_stop", w);
    anthropic_end_event(w);
}

static void anthropic_failed(struct generation *g, const struct error *err, struct json_writer *w)
{
    json_write(w, "event: error\ndata: ");
    if (w->rc == STATUS_OK)
        json_writer_fail(w, exchange_append_error(g->exchange, w->out, err));
    json_write(w, "\n\n");
}

static void anthropic_whole(struct generation *g, struct json_writer *w)
{
    const struct choice *c = &g->choices[0];
    struct turn_event all;
    const char *text;
    size_t len;

    generation_all(c, &all, &text, &len);
    anthropic_begin_message(g, w);
    json_write(w, "{\"type\":\"text\",\"text\":");
    json_write_string(w, text, len);
    json_write(w, "}],");
    anthropic_write_stop(g, c, w);
    anthropic_write_usage(c, w);
    json_write(w, "}");
}

/* --- requests --- */

static enum status anthropic_begin_reply(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "msg",
        .begin = anthropic_begin,
        .piece = anthropic_piece,
        .finish = anthropic_finish,
        .failed = anthropic_failed,
        .whole = anthropic_whole,
    };
    struct generation_plan plan = {.renderer = &renderer};
    struct request r;

    if (anthropic_request(&r, body, false, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return resolution_generate(x, &plan, &r, err);
}

static enum status anthropic_count(struct exchange *x, const json_t *body, struct error *err)
{
    struct json_writer w;
    struct buf ids, out;
    struct request r;
    struct model *m;
    enum status rc;

    if (anthropic_request(&r, body, true, exchange_arena(x), err) != STATUS_OK ||
        resolution_find_model(&m, x, r.model, err) != STATUS_OK)
        return err->status;
    if (m->agent->type->render == NULL)
        return error_field(err, "messages", "have no form that '%s' reads", m->name);
    buf_init(&ids, COUNT_MAX_BYTES);
    buf_init(&out, COUNT_ANSWER_BYTES);
    rc = m->agent->type->render(m->agent, r.prompts->messages, r.prompts->n_messages, true, &ids,
                                err);
    if (rc == STATUS_OK) {
        w = json_writer_begin(&out);
        json_writef(&w, "{\"input_tokens\":%zu}", ids.len / sizeof(int32_t));
        answer_json(x, &w, &out);
    }
    buf_deinit(&ids);
    buf_deinit(&out);
    return rc;
}

static void anthropic_messages_serve(struct exchange *x)
{
    resolution_serve(x, anthropic_begin_reply);
}

static void anthropic_count_serve(struct exchange *x)
{
    resolution_serve(x, anthropic_count);
}

static const struct route rows[] = {
    {"/v1/messages", .methods = METHOD_POST, .serve = anthropic_messages_serve,
     .api = &anthropic_api},
    {"/v1/messages/count_tokens", .methods = METHOD_POST, .serve = anthropic_count_serve,
     .api = &anthropic_api},
};
const struct route_table anthropic_routes = {rows, sizeof(rows) / sizeof(rows[0])};
