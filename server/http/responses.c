/* POST /v1/responses. A response's id names its conversation and its turn in it; a request that
 * goes on from it goes on in a fork of that conversation, so several may, and nothing is computed
 * again. */
#include <stdio.h>
#include <string.h>

#include "server/daemon.h"
#include "server/http/binding.h"
#include "server/http/exchange.h"
#include "server/http/generation.h"
#include "server/http/memory.h"
#include "server/http/routes.h"

enum { RESPONSE_ID_CHARS = 5 + CONVERSATION_ID_CHARS - 1 + 8 + 1 };

/* What a response is beside its reply. */
struct response {
    char id[RESPONSE_ID_CHARS];
    const char *previous, *instructions; /* NULL: none */
    uint32_t n_events;                   /* numbers them */
    bool store;
};

static void format_id(char out[RESPONSE_ID_CHARS], const struct conversation_id *id, uint32_t turn)
{
    char hex[CONVERSATION_ID_CHARS];

    conversation_id_format(id, hex);
    (void)snprintf(out, RESPONSE_ID_CHARS, "resp_%s%08x", hex, turn);
}

/* The conversation that the id names, and the turn of it. */
static enum status find_previous(struct conversation **out, uint32_t *ret_turn,
                                 struct conversations *all, const char *id, struct error *err)
{
    char hex[CONVERSATION_ID_CHARS];
    struct conversation_id key;
    struct conversation *c = NULL;
    unsigned turn = 0;

    if (strlen(id) == RESPONSE_ID_CHARS - 1 && strncmp(id, "resp_", 5) == 0 &&
        sscanf(id + 5 + CONVERSATION_ID_CHARS - 1, "%8x", &turn) == 1) {
        memcpy(hex, id + 5, CONVERSATION_ID_CHARS - 1);
        hex[CONVERSATION_ID_CHARS - 1] = '\0';
        if (conversation_id_parse(&key, hex))
            c = conversations_get(all, &key);
    }
    if (c == NULL || turn == 0 || turn > c->n_turns) {
        (void)error_set(err, STATUS_NOT_FOUND,
                        "there is no response '%.60s', or it is not kept any more", id);
        memcpy(err->field, "previous_response_id", sizeof("previous_response_id"));
        return STATUS_NOT_FOUND;
    }
    *out = c;
    *ret_turn = turn;
    return STATUS_OK;
}

/* --- what is written --- */

static enum status append_optional(struct buf *out, const char *name, const char *text)
{
    if (buf_printf(out, ",\"%s\":", name) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return text == NULL ? buf_append_text(out, "null") : buf_append_json(out, text, strlen(text));
}

static enum status append_part(struct buf *out, const char *text, size_t len)
{
    if (buf_append_text(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],"
                             "\"text\":") != STATUS_OK ||
        buf_append_json(out, text, len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "}");
}

/* The one message; text NULL: it has no content yet. */
static enum status append_item(const struct response *r, struct buf *out, const char *status,
                               const char *text, size_t len)
{
    if (buf_printf(out,
                   "{\"type\":\"message\",\"id\":\"msg_%s\",\"status\":\"%s\","
                   "\"role\":\"assistant\",\"content\":[",
                   r->id + 5, status) != STATUS_OK ||
        (text != NULL && append_part(out, text, len) != STATUS_OK))
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "]}");
}

static bool is_cut_short(const struct choice *c)
{
    return c->finish != FINISH_STOP;
}

static const char *status_of(const struct choice *c)
{
    if (!c->is_done)
        return "in_progress";
    return is_cut_short(c) ? "incomplete" : "completed";
}

static enum status append_outcome(struct buf *out, const struct choice *c)
{
    enum status rc;

    if (!c->is_done)
        return buf_append_text(out, ",\"incomplete_details\":null,\"usage\":null}");
    rc = is_cut_short(c) ? buf_printf(out, ",\"incomplete_details\":{\"reason\":\"%s\"}",
                                      c->finish == FINISH_LENGTH ? "max_output_tokens"
                                                                 : generation_finish_name(c))
                         : buf_append_text(out, ",\"incomplete_details\":null");
    if (rc != STATUS_OK)
        return rc;
    return buf_printf(out,
                      ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":"
                      "{\"cached_tokens\":%u},\"output_tokens\":%u,\"output_tokens_details\":"
                      "{\"reasoning_tokens\":0},\"total_tokens\":%u}}",
                      c->n_prompt, c->n_cached, c->n_said, c->n_prompt + c->n_said);
}

static enum status append_response(struct generation *g, struct buf *out)
{
    const struct response *r = g->of_format;
    const struct choice *c = &g->choices[0];
    struct turn_event all;
    const char *text;
    size_t len;

    if (buf_printf(out,
                   "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%llu,"
                   "\"status\":\"%s\",\"model\":\"%s\",\"error\":null,\"metadata\":{},"
                   "\"parallel_tool_calls\":false,\"tool_choice\":\"none\",\"tools\":[],"
                   "\"store\":%s,\"text\":{\"format\":{\"type\":\"text\"}},\"output\":[",
                   r->id, (unsigned long long)g->created_s, status_of(c), g->model->name,
                   r->store ? "true" : "false") != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (c->is_done) {
        generation_all(c, &all, &text, &len);
        if (append_item(r, out, status_of(c), text, len) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    if (buf_append_text(out, "]") != STATUS_OK ||
        append_optional(out, "instructions", r->instructions) != STATUS_OK ||
        append_optional(out, "previous_response_id", r->previous) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return append_outcome(out, c);
}

/* --- events --- */

/* As far as what this kind of event has of its own. */
static enum status begin_event(struct response *r, const char *type, struct buf *out)
{
    return buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", type, type,
                      r->n_events++);
}

static enum status end_event(struct buf *out)
{
    return buf_append_text(out, "}\n\n");
}

static enum status response_event(struct generation *g, const char *type, struct buf *out)
{
    if (begin_event(g->of_format, type, out) != STATUS_OK ||
        buf_append_text(out, ",\"response\":") != STATUS_OK || append_response(g, out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_event(out);
}

static enum status item_event(struct response *r, const char *type, const char *status,
                              const char *text, size_t len, struct buf *out)
{
    if (begin_event(r, type, out) != STATUS_OK ||
        buf_append_text(out, ",\"output_index\":0,\"item\":") != STATUS_OK ||
        append_item(r, out, status, text, len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_event(out);
}

static enum status begin_in_part(struct response *r, const char *type, struct buf *out)
{
    if (begin_event(r, type, out) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_printf(out, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0",
                      r->id + 5);
}

static enum status part_event(struct response *r, const char *type, const char *text, size_t len,
                              struct buf *out)
{
    if (begin_in_part(r, type, out) != STATUS_OK ||
        buf_append_text(out, ",\"part\":") != STATUS_OK || append_part(out, text, len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_event(out);
}

static enum status text_event(struct response *r, const char *type, const char *name,
                              const char *text, size_t len, struct buf *out)
{
    if (begin_in_part(r, type, out) != STATUS_OK ||
        buf_printf(out, ",\"logprobs\":[],\"%s\":", name) != STATUS_OK ||
        buf_append_json(out, text, len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_event(out);
}

static enum status response_begin(struct generation *g, struct buf *out)
{
    struct response *r = g->of_format;
    struct choice *c = &g->choices[0];
    bool is_done = c->is_done;
    enum status rc;

    c->is_done = false; /* its first event may be its last: it has not been said yet */
    rc = response_event(g, "response.created", out);
    if (rc == STATUS_OK)
        rc = response_event(g, "response.in_progress", out);
    c->is_done = is_done;
    if (rc == STATUS_OK)
        rc = item_event(r, "response.output_item.added", "in_progress", NULL, 0, out);
    return rc != STATUS_OK ? rc : part_event(r, "response.content_part.added", "", 0, out);
}

static enum status response_piece(struct generation *g, struct choice *c,
                                  const struct turn_event *event, struct buf *out)
{
    (void)c;
    if (event->piece.len == 0)
        return STATUS_OK;
    return text_event(g->of_format, "response.output_text.delta", "delta", event->piece.text,
                      event->piece.len, out);
}

static enum status response_finish(struct generation *g, struct choice *c, struct buf *out)
{
    struct response *r = g->of_format;
    struct turn_event all;
    const char *text;
    size_t len;
    enum status rc;

    generation_all(c, &all, &text, &len);
    rc = text_event(r, "response.output_text.done", "text", text, len, out);
    if (rc == STATUS_OK)
        rc = part_event(r, "response.content_part.done", text, len, out);
    if (rc == STATUS_OK)
        rc = item_event(r, "response.output_item.done", status_of(c), text, len, out);
    if (rc == STATUS_OK)
        rc = response_event(g, is_cut_short(c) ? "response.incomplete" : "response.completed", out);
    return rc;
}

static enum status response_end(struct generation *g, struct buf *out)
{
    (void)g;
    (void)out; /* the last event was the end */
    return STATUS_OK;
}

static enum status response_failed(struct generation *g, const struct error *err, struct buf *out)
{
    if (begin_event(g->of_format, "error", out) != STATUS_OK ||
        buf_printf(out, ",\"code\":\"%s\",\"param\":null,\"message\":", status_name(err->status)) !=
            STATUS_OK ||
        buf_append_json(out, err->text, strlen(err->text)) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return end_event(out);
}

/* --- what is asked --- */

static const struct format format = {
    .object = "resp",
    .begin = response_begin,
    .piece = response_piece,
    .finish = response_finish,
    .end = response_end,
    .failed = response_failed,
    .whole = append_response,
};

static enum status fork_previous(struct conversation **out, struct exchange *x,
                                 struct responses_request *q, struct model **model,
                                 struct error *err)
{
    struct conversation *c;
    uint32_t turn;

    if (find_previous(&c, &turn, &exchange_daemon(x)->conversations, q->previous, err) != STATUS_OK)
        return err->status;
    if (q->base.model[0] == '\0')
        *model = c->model;
    if (c->model != *model)
        return error_field(err, "previous_response_id", "is a response of model '%s'",
                           c->model->name);
    if (q->instructions != NULL && strcmp(q->instructions, c->terms->system) != 0)
        return error_field(err, "instructions",
                           "cannot change with previous_response_id: those of its response hold");
    q->instructions = c->terms->system_len == 0 ? NULL : c->terms->system;
    return conversation_fork(out, c, turn, NULL, 0, err);
}

static enum status open_first(struct conversation **out, struct exchange *x,
                              const struct responses_request *q, struct model *model,
                              struct error *err)
{
    const struct open_request open = {
        .system = q->instructions == NULL ? "" : q->instructions,
        .system_len = q->instructions == NULL ? 0 : strlen(q->instructions),
    };

    return conversation_open(out, &exchange_daemon(x)->conversations, model, &open, err);
}

static enum status keep_text(const char **text, struct arena *arena, struct error *err)
{
    if (*text == NULL)
        return STATUS_OK;
    *text = arena_strndup(arena, *text, strlen(*text));
    return *text != NULL ? STATUS_OK : error_no_memory(err, 0, "the request");
}

static enum status begin(struct exchange *x, const json_t *body, struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct response *r = arena_alloc(arena, 1, sizeof(*r));
    struct conversation *c = NULL;
    struct responses_request q;
    struct conversation_id id;
    struct model *model;
    enum status rc;

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a response");
    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    if (request_responses(&q, body, arena, err) != STATUS_OK ||
        binding_model(&model, x, q.base.model, err) != STATUS_OK)
        return err->status;
    rc = q.previous != NULL ? fork_previous(&c, x, &q, &model, err)
                            : open_first(&c, x, &q, model, err);
    if (rc != STATUS_OK)
        return rc;
    id = c->id;
    format_id(r->id, &id, c->n_turns + 1);
    r->store = q.store;
    r->previous = q.previous;
    r->instructions = q.instructions;
    rc = keep_text(&r->previous, arena, err);
    if (rc == STATUS_OK)
        rc = keep_text(&r->instructions, arena, err);
    if (rc == STATUS_OK)
        rc = generation_start(x, &format, &q.base, model, c, !q.store, r, err);
    if (rc != STATUS_OK) {
        c = conversations_get(&exchange_daemon(x)->conversations, &id);
        if (c != NULL)
            conversation_close(c, WATCH_CLOSED, "its request was refused");
        return rc;
    }
    if (q.store)
        memory_keep(exchange_memory(x), &id);
    return STATUS_OK;
}

void responses_serve(struct exchange *x)
{
    binding_serve(x, begin);
}
