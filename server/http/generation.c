/* Happy path: a conversation for each reply is opened and given its turn; the readers' wakes wake
 * the exchange, which pulls what there is when the connection has room, as events of a stream or,
 * at the end, as one body. Then readers and conversations are closed.
 *
 * Until the first event of a stream is there a failure is an answer of its own, with its status;
 * after it, an event. A client that goes away closes the readers, and with its last reader a turn
 * ends within a step. */
#include "server/http/generation.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/daemon.h"
#include "server/http/refusal.h"
#include "server/model.h"

/* One write's worth of events; the rest waits for the next. */
enum { EVENTS_BYTES = 64 << 10, BODY_MAX_BYTES = 64 << 20, FINGERPRINT_CHARS = 12 };

/* --- the end --- */

static void close_choice(struct choice *c, enum status why)
{
    struct conversations *all = &exchange_daemon(c->generation->exchange)->conversations;
    struct conversation *conversation;

    reader_close(&c->reader, why);
    conversation = c->is_ours ? conversations_get(all, &c->conversation) : NULL;
    if (conversation != NULL)
        conversation_close(conversation, WATCH_CLOSED, "its request is answered");
}

static void on_gone(struct exchange *x, void *state)
{
    struct generation *g = state;

    (void)x;
    for (size_t i = 0; i < g->n_choices; i++)
        close_choice(&g->choices[i], STATUS_CANCELLED);
    model_let_go(g->model);
}

/* --- what comes --- */

static enum status write_event(struct generation *g, struct choice *c,
                               const struct turn_event *event)
{
    bool is_first = !exchange_is_streaming(g->exchange);
    struct buf *out = exchange_stream(g->exchange);
    enum status rc = STATUS_OK;

    if (is_first && g->format->begin != NULL)
        rc = g->format->begin(g, out);
    if (rc == STATUS_OK && event->kind == EVENT_PIECE)
        rc = g->format->piece(g, c, event, out);
    if (rc == STATUS_OK && event->kind == EVENT_DONE)
        rc = g->format->finish(g, c, out);
    return rc;
}

static void fail(struct generation *g, const struct error *err)
{
    g->is_over = true;
    if (!exchange_is_streaming(g->exchange)) {
        exchange_fail(g->exchange, err);
        return;
    }
    /* Without memory the stream just ends. */
    (void)!g->format->failed(g, err, exchange_stream(g->exchange));
    exchange_end(g->exchange);
}

static void take_event(struct generation *g, struct choice *c, const struct turn_event *event)
{
    struct error err;

    switch (event->kind) {
    case EVENT_ACCEPTED:
        c->n_prompt = event->n_prompt;
        c->n_cached = event->n_cached;
        return;
    case EVENT_PROGRESS:
        return;
    case EVENT_PIECE:
        c->n_said += (uint32_t)event->piece.n_tokens;
        break;
    case EVENT_DONE:
        c->is_done = true;
        c->finish = event->finish;
        c->n_prompt = event->usage.n_prompt;
        c->n_cached = event->usage.n_cached;
        c->n_said = event->usage.n_completion;
        break;
    case EVENT_FAILED:
        fail(g, event->err);
        return;
    }
    if (g->request->stream && write_event(g, c, event) != STATUS_OK) {
        (void)error_set(&err, STATUS_EXHAUSTED, "out of memory for a piece of the reply");
        fail(g, &err);
    }
}

static void finish(struct generation *g)
{
    struct error err;
    struct buf body;

    g->is_over = true;
    if (g->request->stream) {
        (void)!g->format->end(g, exchange_stream(g->exchange)); /* then it just ends */
        exchange_end(g->exchange);
        return;
    }
    buf_init(&body, BODY_MAX_BYTES);
    if (g->format->whole(g, &body) == STATUS_OK) {
        exchange_reply(g->exchange, 200, "application/json", body.data, body.len);
    } else {
        (void)error_set(&err, STATUS_EXHAUSTED, "the reply is too large");
        exchange_fail(g->exchange, &err);
    }
    buf_deinit(&body);
}

/* Everything that choice c has to say now, or all that one write holds. */
static void read_choice(struct generation *g, struct choice *c)
{
    struct turn_event event;

    while (!g->is_over && !c->is_done && reader_next(&c->reader, &event)) {
        take_event(g, c, &event);
        if (!g->is_over && g->request->stream && exchange_is_streaming(g->exchange) &&
            exchange_stream(g->exchange)->len > EVENTS_BYTES)
            return;
    }
}

static void on_room(struct exchange *x, void *state)
{
    struct generation *g = state;
    bool all_done = true, has_more = false;

    if (g->is_over)
        return;
    for (size_t i = 0; i < g->n_choices && !g->is_over; i++) {
        struct choice *c = &g->choices[i];

        read_choice(g, c);
        all_done = all_done && c->is_done;
        has_more = has_more || (!c->is_done && reader_has_more(&c->reader));
    }
    if (g->is_over)
        return;
    if (all_done)
        finish(g);
    else if (has_more)
        exchange_wake(x);
}

/* --- the beginning --- */

static void wake(void *arg)
{
    struct choice *c = arg;

    exchange_wake(c->generation->exchange);
}

static enum status begin_turn(struct choice *c, const struct prompt *prompt, uint32_t nth,
                              struct conversation *conversation, struct error *err)
{
    const struct request *r = c->generation->request;
    struct sampling_patch patch = r->patch;
    struct turn_request turn = {
        .messages = prompt->messages,
        .n_messages = prompt->n_messages,
        .is_plain = prompt->is_plain,
        .plain_ids = prompt->ids,
        .n_plain_ids = prompt->n_ids,
        .patch = &patch,
        .n_logprobs = !r->want_logprobs ? 0
                      : r->n_top == 0   ? 1
                                        : r->n_top,
    };

    patch.values.seed += nth; /* the same for all would make them the same reply */
    c->conversation = conversation->id;
    reader_init(&c->reader, wake, c);
    return conversation_turn(conversation, &turn, &c->reader, err);
}

/* A model that only speaks takes what is raw as a message. */
static struct prompt fit(const struct prompt *prompt, const struct model *model)
{
    struct prompt p = *prompt;

    if (p.is_plain && p.n_ids == 0 && model->agent->type->tokenize == NULL)
        p.is_plain = false;
    return p;
}

static enum status begin_choice(struct generation *g, uint32_t i, struct conversation *given,
                                bool is_ours, struct error *err)
{
    static const struct open_request nothing = {.system = ""};
    struct conversations *all = &exchange_daemon(g->exchange)->conversations;
    struct choice *c = &g->choices[i];
    struct prompt prompt = fit(&g->request->prompts[i / g->request->n], g->model);
    struct conversation *conversation = given;
    enum status rc = STATUS_OK;

    *c = (struct choice){.generation = g, .index = i, .is_ours = is_ours};
    if (given == NULL)
        rc = conversation_open(&conversation, all, g->model, &nothing, err);
    if (rc != STATUS_OK)
        return rc;
    rc = begin_turn(c, &prompt, i % g->request->n, conversation, err);
    if (rc != STATUS_OK && is_ours)
        conversation_close(conversation, WATCH_CLOSED, "its request was refused");
    return rc;
}

static void name_it(struct generation *g)
{
    const struct conversations *all = &exchange_daemon(g->exchange)->conversations;
    char id[CONVERSATION_ID_CHARS];

    conversation_id_format(&g->choices[0].conversation, id);
    (void)snprintf(g->id, sizeof(g->id), "%s-%s", g->format->object, id);
    g->created_s = conversations_unix_ms(all) / 1000;
}

enum status generation_start(struct exchange *x, const struct format *format,
                             const struct request *r, struct model *model,
                             struct conversation *conversation, bool is_ours, void *of_format,
                             struct error *err)
{
    static const struct exchange_handler handler = {.room = on_room, .gone = on_gone};
    struct arena *arena = exchange_arena(x);
    size_t n = r->n_prompts * r->n;
    struct generation *g = arena_alloc(arena, 1, sizeof(*g));
    struct choice *choices = arena_alloc(arena, n, sizeof(*choices));
    struct request *request = arena_alloc(arena, 1, sizeof(*request));
    enum status rc = STATUS_OK;

    assert(conversation == NULL || n == 1);
    if (g == NULL || choices == NULL || request == NULL) {
        if (conversation != NULL && is_ours)
            conversation_close(conversation, WATCH_CLOSED, "its request was refused");
        return error_set(err, STATUS_EXHAUSTED, "out of memory for the request");
    }
    *request = *r;
    *g = (struct generation){.exchange = x,
                             .format = format,
                             .request = request,
                             .model = model,
                             .choices = choices,
                             .of_format = of_format};
    model_hold(model);
    for (uint32_t i = 0; i < n && rc == STATUS_OK; i++) {
        rc = begin_choice(g, i, conversation, is_ours, err);
        g->n_choices += rc == STATUS_OK;
    }
    if (rc != STATUS_OK) {
        on_gone(x, g);
        return rc;
    }
    name_it(g);
    exchange_set_handler(x, &handler, g);
    exchange_wake(x);
    return STATUS_OK;
}

/* --- what all formats write --- */

void generation_all(const struct choice *c, struct turn_event *out, const char **ret_text,
                    size_t *ret_len)
{
    const struct record *r = c->reader.record;

    *out = (struct turn_event){.kind = EVENT_PIECE};
    out->piece.text = r->text;
    out->piece.len = r->len;
    out->piece.n_tokens = r->n_tokens;
    out->piece.has_logprobs = r->logprobs != NULL;
    *ret_text = r->len == 0 ? "" : r->text;
    *ret_len = r->len;
}

enum status generation_append_head(const struct generation *g, const char *object, struct buf *out)
{
    const char *version = g->model->info.version;

    if (buf_printf(out,
                   "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%llu,\"model\":\"%s\","
                   "\"system_fingerprint\":\"",
                   g->id, object, (unsigned long long)g->created_s, g->model->name) != STATUS_OK ||
        buf_append(out, version, strnlen(version, FINGERPRINT_CHARS)) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "\"");
}

enum status generation_append_usage(const struct generation *g, struct buf *out)
{
    uint64_t n_prompt = 0, n_cached = 0, n_said = 0;

    for (size_t i = 0; i < g->n_choices; i++) {
        const struct choice *c = &g->choices[i];

        n_said += c->n_said;
        if (i % g->request->n != 0)
            continue; /* a prompt counts once */
        n_prompt += c->n_prompt;
        n_cached += c->n_cached;
    }
    return buf_printf(out,
                      "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                      (unsigned long long)n_prompt, (unsigned long long)n_said,
                      (unsigned long long)(n_prompt + n_said), (unsigned long long)n_cached);
}

enum status generation_append_running_usage(const struct generation *g, struct buf *out)
{
    if (!g->request->continuous_usage)
        return g->request->include_usage ? buf_append_text(out, ",\"usage\":null") : STATUS_OK;
    if (buf_append_text(out, ",\"usage\":") != STATUS_OK)
        return STATUS_EXHAUSTED;
    return generation_append_usage(g, out);
}

enum status generation_append_failure(struct generation *g, const struct error *err,
                                      struct buf *out)
{
    (void)g;
    if (buf_append_text(out, "data: ") != STATUS_OK ||
        refusal_body(out, refusal_http_status(err->status), err) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append_text(out, "\n\ndata: [DONE]\n\n");
}

const char *generation_finish_name(const struct choice *c)
{
    return finish_name(c->finish);
}

enum status generation_token(const struct generation *g, int32_t id, struct buf *out)
{
    const struct agent *agent = g->model->agent;
    struct error ignored;

    if (agent->type->detokenize == NULL)
        return STATUS_OK;
    return agent->type->detokenize(agent, &id, 1, out, &ignored);
}

/* JSON knows no infinity: what cannot be is as unlikely as can be said. */
enum status generation_append_number(struct buf *out, float value)
{
    return buf_printf(out, "%.6g", isfinite(value) ? (double)value : -9999.0);
}
