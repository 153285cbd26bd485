/* POST /v1/responses/compact: the model sums up a long history, and the answer is what a client
 * keeps in its place: the user's messages and the summary. POST /v1/responses/input_tokens counts
 * the tokens of a response's prompt. Neither is kept. */
#include <stdlib.h>
#include <string.h>

#include "agents/reply/whole_reply.h"
#include "server/api/answer.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/history.h"
#include "server/api/openai/references.h"
#include "server/api/openai/request.h"
#include "server/api/openai/response.h"
#include "server/api/openai/truncation.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"
#include "server/model/model.h"

enum {
    COUNT_MAX_BYTES = 64 << 20,
    COUNT_ANSWER_BYTES = 1 << 10,
    SUMMARY_SHARE = 8, /* of the context, at most */
    SUMMARY_LEAST = 64 /* tokens */
};

/* What the model is asked behind the history. */
static const char summary_wanted[] =
    "Write a summary of the conversation so far. The conversation will continue from this summary "
    "and the user's messages alone. State the user's goals, the work done, the findings, the "
    "decisions and their reasons, and the remaining work. Keep names, figures, paths and code "
    "that the remaining work needs. Write only the summary.";

/* Reads the body as a response's request that goes on from nothing. */
static enum status compaction_read(struct responses_request *out, struct exchange *x,
                                   const json_t *body, struct error *err)
{
    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    if (references_resolve(x, body, err) != STATUS_OK || history_take_in(x, body, err) != STATUS_OK)
        return err->status;
    return request_responses(out, body, exchange_arena(x), err);
}

/* The instructions come first, as a message, and what is asked last; NULL: nothing is. */
static enum status compaction_frame(struct prompt *p, const char *instructions, const char *asked,
                                    struct arena *arena, struct error *err)
{
    struct message *all = arena_alloc(arena, p->n_messages + 2, sizeof(*all));
    size_t n = 0;

    if (all == NULL)
        return error_no_memory(err, p->n_messages * sizeof(*all), "the request");
    if (instructions != NULL && instructions[0] != '\0')
        all[n++] = (struct message){
            .role = ROLE_SYSTEM, .text = instructions, .len = strlen(instructions)};
    memcpy(all + n, p->messages, p->n_messages * sizeof(*all));
    n += p->n_messages;
    if (asked != NULL)
        all[n++] = (struct message){.role = ROLE_USER, .text = asked, .len = strlen(asked)};
    p->messages = all;
    p->n_messages = n;
    return STATUS_OK;
}

/* --- input_tokens --- */

static enum status input_tokens_count(size_t *out, struct responses_request *q,
                                      const struct model *m, struct arena *arena, struct error *err)
{
    struct request *r = &q->base;
    struct prompt *p = r->prompts;
    struct buf ids;
    enum status rc;

    if (request_fit_model(r, m->info.text.reply_format, arena, err) != STATUS_OK ||
        compaction_frame(p, q->instructions, NULL, arena, err) != STATUS_OK)
        return err->status;
    if (q->truncates && truncation_apply(r, NULL, m, arena, err) != STATUS_OK)
        return err->status;
    buf_init(&ids, COUNT_MAX_BYTES);
    rc = m->agent->type->text->render(m->agent, p->messages, p->n_messages, p->tool_use.tools,
                                      r->variables.json, true, &ids, err);
    *out = ids.len / sizeof(int32_t);
    buf_deinit(&ids);
    return rc;
}

static enum status input_tokens_answer(struct exchange *x, const json_t *body, struct error *err)
{
    struct responses_request q;
    struct json_writer w;
    struct buf answer;
    struct model *m;
    size_t n = 0;

    if (compaction_read(&q, x, body, err) != STATUS_OK ||
        resolution_find_model(&m, x, q.base.model, err) != STATUS_OK)
        return err->status;
    if (m->agent->type->text == NULL)
        return error_field(err, "model", "'%s' has no vocabulary", m->name);
    if (input_tokens_count(&n, &q, m, exchange_arena(x), err) != STATUS_OK)
        return request_name_error(&q.base, err);
    if (q.base.left_out != NULL && q.base.left_out[0] != '\0')
        exchange_set_unenforced(x, q.base.left_out);
    buf_init(&answer, COUNT_ANSWER_BYTES);
    w = json_writer_begin(&answer);
    json_begin_object(&w, NULL);
    json_write_text(&w, "object", "response.input_tokens");
    json_write_unsigned(&w, "input_tokens", n);
    json_end_object(&w);
    answer_json(x, &w, &answer);
    buf_deinit(&answer);
    return STATUS_OK;
}

/* --- compact --- */

/* The state of the renderer: the user's messages as items, without the brackets of a list. */
struct compaction {
    struct text kept;
};

/* The id behind that of every generation, which is "compaction-…". */
static const char *compaction_id(const struct generation *g)
{
    const char *dash = strchr(g->id, '-');

    return dash == NULL ? g->id : dash + 1;
}

static void compaction_write_summary(const struct generation *g, struct json_writer *w)
{
    static const char mark[] = RESPONSE_SUMMARY_MARK;
    struct whole_reply reply = {0};
    struct json_writer content;
    struct error ignored;
    struct buf encoded;

    buf_init(&encoded, w->out->limit_bytes);
    json_writer_fail(w, generation_divide(&g->choices[0], &reply, &ignored));
    content = json_writer_begin(&encoded);
    json_write_base64(&content, NULL, reply.text.data, reply.text.len);
    json_writer_fail(w, json_writer_end(&content));
    json_begin_object(w, NULL);
    json_write_format(w, "id", "cmp_%s", compaction_id(g));
    json_write_text(w, "type", "compaction");
    if (w->rc == STATUS_OK) /* the quotes of a JSON string stand around it */
        json_write_format(w, "encrypted_content", "%s%.*s", mark, (int)(encoded.len - 2),
                          encoded.data + 1);
    json_end_object(w);
    buf_deinit(&encoded);
    whole_reply_deinit(&reply);
}

static void compaction_whole(struct generation *g, struct json_writer *w)
{
    const struct compaction *c = g->renderer_state;
    const struct completed_turn *t = g->choices[0].reader.completed;

    json_begin_object(w, NULL);
    json_write_format(w, "id", "resp_%s", compaction_id(g));
    json_write_text(w, "object", "response.compaction");
    json_write_unsigned(w, "created_at", g->created_s);
    json_write_text(w, "model", g->model->name);
    json_begin_array(w, "output");
    if (c->kept.len > 0)
        json_write_json(w, NULL, c->kept.text, c->kept.len);
    compaction_write_summary(g, w);
    json_end_array(w);
    response_write_usage(t, g->model, w);
    json_end_object(w);
}

/* The user's messages as items, in the arena. */
static enum status compaction_keep(struct compaction *out, const struct prompt *p,
                                   struct arena *arena, struct error *err)
{
    enum status rc = STATUS_OK;
    struct json_writer w;
    struct buf items;
    char *kept = NULL;

    buf_init(&items, COUNT_MAX_BYTES);
    for (size_t i = 0; rc == STATUS_OK && i < p->n_messages; i++) {
        const struct message *m = &p->messages[i];

        if (m->role != ROLE_USER)
            continue;
        if (items.len > 0)
            rc = buf_append(&items, ",", 1);
        w = json_writer_begin(&items);
        json_begin_object(&w, NULL);
        json_write_format(&w, "id", "msg_%zu", i);
        json_write_text(&w, "type", "message");
        json_write_text(&w, "status", "completed");
        json_write_text(&w, "role", "user");
        json_begin_array(&w, "content");
        json_begin_object(&w, NULL);
        json_write_text(&w, "type", "input_text");
        json_write_string(&w, "text", m->text, m->len);
        json_end_object(&w);
        json_end_array(&w);
        json_end_object(&w);
        if (rc == STATUS_OK)
            rc = json_writer_end(&w);
    }
    if (rc == STATUS_OK)
        kept = arena_strndup(arena, items.len == 0 ? "" : items.data, items.len);
    *out = (struct compaction){.kept = {kept, items.len}};
    buf_deinit(&items);
    return kept != NULL ? STATUS_OK : error_no_memory(err, 0, "the user's messages");
}

/* What only a whole response can have. */
static enum status compaction_check(const struct request *r, struct error *err)
{
    if (r->stream)
        return error_field(err, "stream", "is not supported: a compaction comes whole");
    if (r->is_background)
        return error_field(err, "background", "is not supported: a compaction is not stored");
    return STATUS_OK;
}

/* Greedy, unless the request says how; at most a share of the context. */
static void compaction_set_sampling(struct sampling_overrides *o, size_t context)
{
    if ((o->given & SAMPLING_TEMPERATURE) == 0) {
        o->given |= SAMPLING_TEMPERATURE;
        o->values.temperature = 0;
    }
    if ((o->given & SAMPLING_MAX_TOKENS) == 0) {
        o->given |= SAMPLING_MAX_TOKENS;
        o->values.max_tokens = (uint32_t)(context / SUMMARY_SHARE);
        if (o->values.max_tokens < SUMMARY_LEAST)
            o->values.max_tokens = SUMMARY_LEAST;
    }
}

/* A history that does not fit loses its beginning, but not all of it. */
static enum status compaction_cut(struct request *r, const struct model *m, struct arena *arena,
                                  struct error *err)
{
    const struct prompt all = *r->prompts;
    size_t n_system = 0;

    if (truncation_apply(r, NULL, m, arena, err) != STATUS_OK)
        return err->status;
    while (n_system < r->prompts->n_messages && r->prompts->messages[n_system].role == ROLE_SYSTEM)
        n_system++;
    if (r->prompts->n_messages == n_system + 1)
        *r->prompts = all;
    return STATUS_OK;
}

static enum status compact(struct exchange *x, const json_t *body, struct error *err)
{
    static const struct response_renderer renderer = {
        .object = "compaction",
        .failed = generation_write_failure,
        .whole = compaction_whole,
    };
    struct arena *arena = exchange_arena(x);
    struct compaction *c = arena_alloc(arena, 1, sizeof(*c));
    struct generation_plan plan = {.renderer = &renderer, .renderer_state = c};
    struct responses_request q;
    struct model *m;

    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a compaction");
    if (compaction_read(&q, x, body, err) != STATUS_OK ||
        compaction_check(&q.base, err) != STATUS_OK ||
        resolution_find_model(&m, x, q.base.model, err) != STATUS_OK ||
        compaction_keep(c, q.base.prompts, arena, err) != STATUS_OK ||
        compaction_frame(q.base.prompts, q.instructions, summary_wanted, arena, err) != STATUS_OK)
        return err->status;
    compaction_set_sampling(&q.base.overrides, m->info.text.context);
    if (compaction_cut(&q.base, m, arena, err) != STATUS_OK)
        return err->status;
    return resolution_generate(x, &plan, &q.base, err);
}

/* --- routes --- */

static void compact_serve(struct exchange *x)
{
    resolution_serve_from(x, history_conversation(x), compact);
}

static void input_tokens_serve(struct exchange *x)
{
    resolution_serve_from(x, history_conversation(x), input_tokens_answer);
}

static const struct route rows[] = {
    {"/v1/responses/compact", .methods = METHOD_POST, .serve = compact_serve, .api = &openai_api},
    {"/v1/responses/input_tokens", .methods = METHOD_POST, .serve = input_tokens_serve,
     .api = &openai_api},
};
const struct route_table openai_compaction_routes = {rows, sizeof(rows) / sizeof(rows[0])};
