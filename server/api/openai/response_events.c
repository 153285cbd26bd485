/* The events of a response's stream, and the whole response where there is no stream. A response
 * that a model cannot begin is also a stream: its last event says why. */
#include "server/api/openai/response_events.h"

#include "server/api/generation.h"
#include "server/conversation/completed_turn.h"
#include "server/http/exchange.h"
#include "server/model/model.h"

/* The response as it is; in progress, if is_begun, whatever its turn is. */
static void response_write_now(const struct generation *g, const char *name, bool is_begun,
                               struct json_writer *w)
{
    const struct choice *c = &g->choices[0];
    const struct turn_reader *reader = &c->reader;
    struct response_view v = {
        .response = g->renderer_state,
        .model = g->model,
        .created_s = g->created_s,
        .request = reader->turn != NULL        ? turn_request_of(reader->turn)
                   : reader->completed != NULL ? reader->completed->request
                                               : NULL,
        .completed = c->is_done && !is_begun ? reader->completed : NULL,
        .choice = c,
    };

    response_write(&v, name, w);
}

static void response_whole(struct generation *g, struct json_writer *w)
{
    response_write_now(g, NULL, false, w);
}

/* The number of the last event at the choice's place: of a delta, or of the first one behind the
 * text. */
static uint64_t response_sequence(const struct choice *c)
{
    return SEQUENCE_PART + c->place;
}

/* Writes an event up to the fields of its type. */
static void begin_event(const char *type, uint64_t sequence, struct json_writer *w)
{
    generation_begin_event(type, w);
    json_write_unsigned(w, "sequence_number", sequence);
}

/* Whether the client has this event. */
static bool response_has_sent(const struct response *r, uint64_t sequence)
{
    return r->has_after && sequence <= r->after;
}

static void response_event(const struct generation *g, const char *type, uint64_t sequence,
                           bool is_begun, struct json_writer *w)
{
    if (response_has_sent(g->renderer_state, sequence))
        return;
    begin_event(type, sequence, w);
    response_write_now(g, "response", is_begun, w);
    generation_end_event(w);
}

static void item_event(const struct response *r, const char *type, uint64_t sequence,
                       const char *status, const char *text, size_t len, const struct choice *c,
                       struct json_writer *w)
{
    if (response_has_sent(r, sequence))
        return;
    begin_event(type, sequence, w);
    json_write_unsigned(w, "output_index", 0);
    response_write_item(r->id + 5, w, "item", status, text, len, c);
    generation_end_event(w);
}

static void begin_in_part(const struct response *r, const char *type, uint64_t sequence,
                          struct json_writer *w)
{
    begin_event(type, sequence, w);
    json_write_format(w, "item_id", "msg_%s", r->id + 5);
    json_write_unsigned(w, "output_index", 0);
    json_write_unsigned(w, "content_index", 0);
}

static void part_event(const struct response *r, const char *type, uint64_t sequence,
                       const char *text, size_t len, const struct choice *c, struct json_writer *w)
{
    if (response_has_sent(r, sequence))
        return;
    begin_in_part(r, type, sequence, w);
    response_write_part(w, "part", text, len, c);
    generation_end_event(w);
}

/* piece: what the text is of; with c, its log-probabilities are told. */
static void text_event(const struct response *r, const char *type, uint64_t sequence,
                       const char *name, const struct text *text, const struct choice *c,
                       const struct turn_event *piece, struct json_writer *w)
{
    if (response_has_sent(r, sequence))
        return;
    begin_in_part(r, type, sequence, w);
    response_write_logprobs(w, c, piece);
    json_write_string(w, name, text->text, text->len);
    generation_end_event(w);
}

/* The first event may be the last of its turn: it is not done until that is sent. */
static void response_begin(struct generation *g, struct json_writer *w)
{
    struct response *r = g->renderer_state;

    r->output.has_after = r->has_after;
    r->output.after = r->after;
    response_event(g, "response.created", SEQUENCE_CREATED, true, w);
    response_event(g, "response.in_progress", SEQUENCE_IN_PROGRESS, true, w);
    if (generation_has_parts(&g->choices[0]))
        return;
    item_event(r, "response.output_item.added", SEQUENCE_ITEM, "in_progress", NULL, 0, NULL, w);
    part_event(r, "response.content_part.added", SEQUENCE_PART, "", 0, NULL, w);
}

static void response_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                           struct json_writer *w)
{
    struct response *r = g->renderer_state;
    struct error err;

    if (generation_has_parts(c)) {
        json_writer_fail(w, generation_parse(c, event->piece.text, event->piece.len, &err));
        if (w->rc == STATUS_OK)
            response_output_parts(&r->output, c, w);
        return;
    }
    generation_write_id(g, w);
    /* A token without text, too: numbers have no gaps. */
    text_event(g->renderer_state, "response.output_text.delta", response_sequence(c), "delta",
               &(struct text){event->piece.text, event->piece.len}, r->gives_logprobs ? c : NULL,
               event, w);
}

static const char *response_last_event(const struct completed_turn *t)
{
    if (t->finish == FINISH_ERROR)
        return "response.failed";
    return response_is_cut_short(t) ? "response.incomplete" : "response.completed";
}

static void response_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    struct response *r = g->renderer_state;
    const struct completed_turn *t = c->reader.completed;
    const struct choice *whole = r->gives_logprobs ? c : NULL;
    uint64_t sequence = response_sequence(c);
    struct turn_event all;
    struct error err;
    const char *text;
    size_t len;

    if (generation_has_parts(c)) {
        json_writer_fail(w, generation_parse_end(c, &err));
        if (w->rc == STATUS_OK)
            response_output_parts(&r->output, c, w);
        response_output_end(&r->output, c, response_item_status(t), w);
        generation_write_id(g, w);
        response_event(g, response_is_cut_short(t) ? "response.incomplete" : "response.completed",
                       r->output.sequence, false, w);
        return;
    }
    generation_all(c, &all, &text, &len);
    text_event(r, "response.output_text.done", sequence, "text", &(struct text){text, len}, whole,
               &all, w);
    part_event(r, "response.content_part.done", sequence + 1, text, len, whole, w);
    item_event(r, "response.output_item.done", sequence + 2, response_item_status(t), text, len,
               whole, w);
    generation_write_id(g, w); /* the last: who has only some of these gets all of them again */
    response_event(g, response_last_event(t), sequence + 3, false, w);
}

static void response_failed(struct generation *g, const struct error *err, struct json_writer *w)
{
    const struct response *r = g->renderer_state;
    const struct choice *c = &g->choices[0];

    begin_event("error", generation_has_parts(c) ? r->output.sequence : response_sequence(c) + 1,
                w);
    json_write_text(w, "code", status_name(err->status));
    json_write_null(w, "param");
    json_write_text(w, "message", err->text);
    generation_end_event(w);
}

/* Counts the events of what an earlier stream had. */
static enum status response_passed(struct generation *g, struct choice *c,
                                   const struct turn_event *part, struct error *err)
{
    struct turn_event piece = {.kind = EVENT_PIECE};
    size_t at = 0;
    struct json_writer w;
    struct buf scratch;
    enum status rc = STATUS_OK;

    if (!generation_has_parts(c))
        return STATUS_OK;
    buf_init(&scratch, SIZE_MAX);
    for (size_t i = 0; rc == STATUS_OK && at < part->piece.len; i++) {
        piece.piece.text = generation_passed_token(c, i, at, part, &piece.piece.len);
        at += piece.piece.len;
        buf_clear(&scratch);
        w = json_writer_begin(&scratch);
        response_piece(g, c, &piece, &w);
        rc = json_writer_end(&w);
    }
    buf_deinit(&scratch);
    return rc == STATUS_OK ? rc : error_no_memory(err, part->piece.len, "a response");
}

static void response_close(struct generation *g)
{
    struct response *r = g->renderer_state;

    response_output_deinit(&r->output);
}

const struct response_renderer response_renderer = {
    .object = "resp",
    .has_parts = true,
    .passed = response_passed,
    .close = response_close,
    .is_by_token = true,
    .begin = response_begin,
    .piece = response_piece,
    .finish = response_finish,
    .failed = response_failed,
    .whole = response_whole,
};

/* A stream whose prompt the context does not hold. It fails as a response that has begun: programs
 * that make their history shorter then look for that. */
struct refused_response {
    struct response *response;
    struct model *model; /* held */
    uint64_t created_s;
    struct error err;
};

static void refused_event(const struct refused_response *f, const char *type, uint64_t sequence,
                          struct json_writer *w)
{
    const struct response_view v = {
        .response = f->response, .model = f->model, .created_s = f->created_s};

    begin_event(type, sequence, w);
    response_write(&v, "response", w);
    generation_end_event(w);
}

static void refused_write(struct exchange *x, void *state)
{
    struct refused_response *f = state;
    struct json_writer w = json_writer_begin(exchange_stream(x));

    refused_event(f, "response.created", SEQUENCE_CREATED, &w);
    refused_event(f, "response.in_progress", SEQUENCE_IN_PROGRESS, &w);
    f->response->failure = &f->err;
    refused_event(f, "response.failed", SEQUENCE_ITEM, &w);
    (void)!json_writer_end(&w); /* without memory the stream just ends */
    exchange_end(x);
}

static void refused_close(struct exchange *x, void *state)
{
    struct refused_response *f = state;

    response_output_deinit(&f->response->output);
    model_release(f->model);
}

enum status response_refuse_in_stream(struct exchange *x, struct response *r, struct model *model,
                                      uint64_t created_s, struct error *err)
{
    static const struct exchange_handler handler = {.on_write_ready = refused_write,
                                                    .on_close = refused_close};
    struct refused_response *f = arena_alloc(exchange_arena(x), 1, sizeof(*f));

    if (f == NULL)
        return error_no_memory(err, sizeof(*f), "a response");
    *f = (struct refused_response){
        .response = r, .model = model, .created_s = created_s, .err = *err};
    model_hold(model);
    exchange_set_handler(x, &handler, f);
    exchange_notify(x);
    return STATUS_OK;
}
