/* Happy path: a conversation for each reply is opened and given its turn. A reader's notification
 * notifies the exchange, which reads the events when the connection is write-ready, and sends them
 * as a stream or, at the end, as one body. Then readers and conversations are closed.
 *
 * A request with a key gives its turns and conversations to a keyed reply, which ends them. The
 * same request sent again joins that reply (generation_rejoin), from the start or from a place.
 *
 * A failure before a stream's first event is a whole answer with its status; a later one is an
 * event. When a client goes away its readers are closed, and a turn without readers ends within a
 * step. */
#include "server/api/generation.h"
#include "server/access/access.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/api/request_key.h"
#include "server/conversation/conversation.h"
#include "server/conversation/keeping.h"
#include "server/conversation/keyed_replies.h"
#include "server/journal/journal.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* EVENTS_BYTES: of one write; further events wait for the next. */
enum {
    ALIKE_TOKENS = 32,
    ALIKE_BYTES = 128,
    EVENTS_BYTES = 64 << 10,
    BODY_MAX_BYTES = 64 << 20,
    KEY_BODY_MAX_BYTES = 4 << 20, /* with the instructions */
    FINGERPRINT_CHARS = 12
};

/* --- the end --- */

static void close_choice(struct choice *c, enum status why)
{
    struct conversations *all = exchange_server(c->generation->exchange)->conversations;
    struct conversation *conversation;

    reply_parser_close(c->parser);
    reader_close(&c->reader, why);
    conversation = c->is_ephemeral ? conversations_get(all, &c->conversation) : NULL;
    if (conversation != NULL)
        conversation_close(conversation, WATCH_CLOSED, "its request is answered");
}

static void on_close(struct exchange *x, void *state)
{
    struct generation *g = state;

    if (g->renderer->close != NULL)
        g->renderer->close(g);
    for (size_t i = 0; i < g->n_choices; i++)
        close_choice(&g->choices[i], STATUS_CANCELLED);
    if (g->reply != NULL)
        keyed_reply_leave(g->reply);
    model_release(g->model);
}

/* --- events --- */

static enum status write_event(struct generation *g, struct choice *c,
                               const struct turn_event *event)
{
    struct json_writer w = json_writer_begin(exchange_stream(g->exchange));

    if (!g->has_begun && g->renderer->begin != NULL)
        g->renderer->begin(g, &w);
    g->has_begun = true;
    if (event->kind == EVENT_PIECE)
        g->renderer->piece(g, c, event, &w);
    if (event->kind == EVENT_DONE && !c->was_finished)
        g->renderer->finish(g, c, &w);
    return json_writer_end(&w);
}

static void generation_fail(struct generation *g, const struct error *ended)
{
    struct error why = *ended, *err = &why;
    struct json_writer w;

    (void)request_name_error(g->request, err);
    g->is_over = true;
    if (!exchange_is_streaming(g->exchange)) {
        exchange_fail(g->exchange, err);
        return;
    }
    w = json_writer_begin(exchange_stream(g->exchange));
    g->renderer->failed(g, err, &w);
    (void)!json_writer_end(&w); /* without memory the stream just ends */
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
        c->place = event->piece.next_index;
        break;
    case EVENT_DONE:
        c->is_done = true;
        c->place += !c->was_finished;
        c->finish = event->finish;
        c->timings = event->timings;
        c->n_prompt = event->usage.n_prompt;
        c->n_cached = event->usage.n_cached;
        c->n_cached_host = event->usage.n_cached_host;
        c->n_cached_disk = event->usage.n_cached_disk;
        c->n_said = event->usage.n_completion;
        c->n_thought = tools_thought_tokens(c->reader.completed, g->model->info.text.reply_format);
        break;
    case EVENT_FAILED:
        generation_fail(g, event->err);
        return;
    }
    if (!g->request->stream)
        return;
    if (event->kind == EVENT_DONE && c->parser != NULL && reply_parser_is_in_call(c->parser)) {
        (void)tools_cut_call(&err, c->finish);
        generation_fail(g, &err);
    } else if (write_event(g, c, event) != STATUS_OK) {
        (void)error_no_memory(&err, 0, "a piece of the reply");
        generation_fail(g, &err);
    }
}

static void generation_end_stream(struct generation *g)
{
    struct json_writer w = json_writer_begin(exchange_stream(g->exchange));

    if (g->renderer->end != NULL)
        g->renderer->end(g, &w);
    (void)!json_writer_end(&w); /* without memory the stream just ends */
    exchange_end(g->exchange);
}

static void generation_reply(struct generation *g)
{
    struct json_writer w;
    struct error err;
    struct buf body;

    buf_init(&body, BODY_MAX_BYTES);
    w = json_writer_begin(&body);
    g->renderer->whole(g, &w);
    if (json_writer_end(&w) == STATUS_OK) {
        exchange_reply(g->exchange, 200, "application/json", body.data, body.len);
    } else {
        if (body.is_full)
            (void)error_because(&err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                                "the reply is longer than %d bytes: ask for less", BODY_MAX_BYTES);
        else
            (void)error_no_memory(&err, body.len, "a reply");
        exchange_fail(g->exchange, &err);
    }
    buf_deinit(&body);
}

static void generation_finish(struct generation *g)
{
    g->is_over = true;
    if (g->request->stream)
        generation_end_stream(g);
    else
        generation_reply(g);
}

/* Moves c behind this index, with all that the renderer knows there. */
static enum status choice_seek(struct choice *c, uint64_t index, struct error *err)
{
    struct generation *g = c->generation;
    struct turn_event passed = {.kind = EVENT_PIECE};
    const struct completed_turn *completed = c->reader.completed;
    enum status rc = reader_seek(&c->reader, index, err);

    if (rc != STATUS_OK && completed != NULL && reader_index(&c->reader) + 1 == index) {
        c->was_finished = true;
        rc = STATUS_OK;
    }
    if (rc != STATUS_OK)
        return error_name_field(err, "Last-Event-ID");
    c->place = index;
    c->is_seeking = c->reader.is_ahead;
    if (c->is_seeking) /* what is passed is not there yet */
        return STATUS_OK;
    c->n_said = (uint32_t)c->reader.token_at;
    passed.piece.len = c->reader.text_at;
    passed.piece.n_tokens = c->reader.token_at;
    passed.piece.has_logprobs =
        c->reader.turn != NULL || (completed != NULL && completed->logprobs != NULL);
    return g->renderer->passed == NULL ? STATUS_OK : g->renderer->passed(g, c, &passed, err);
}

/* Whether c has come to its place, or never will. */
static bool choice_is_at_place(struct choice *c)
{
    struct turn_reader *r = &c->reader;
    struct error err;

    if (!c->is_seeking)
        return true;
    if (r->turn != NULL && !reader_has_more(r))
        return false;
    c->is_seeking = false;
    if (r->turn == NULL && r->completed == NULL) /* its failure is read */
        return true;
    r->is_ahead = false;
    if (choice_seek(c, c->place, &err) != STATUS_OK)
        generation_fail(c->generation, &err);
    return !c->is_seeking;
}

/* What a stream says of one choice, its usage, depends on the places of all. */
static bool generation_is_at_place(struct generation *g)
{
    bool are_all = true;

    for (size_t i = 0; i < g->n_choices && !g->is_over; i++)
        are_all = choice_is_at_place(&g->choices[i]) && are_all;
    return are_all;
}

/* Reads all of choice c's events, up to the bound of one write. */
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

/* --- start --- */

static void generation_notify(void *arg)
{
    struct choice *c = arg;

    exchange_notify(c->generation->exchange);
}

/* Results of a prompt are not in the journal, and a reply with them is not found by a key there. */
static bool generation_keeps_key(const struct generation *g)
{
    return g->reply != NULL && !request_wants_prompt_logprobs(g->request) &&
           !g->request->wants_ids && !g->request->no_reply;
}

static enum status generation_begin_turn(struct choice *c, const struct prompt *prompt,
                                         uint32_t nth, struct conversation *conversation,
                                         bool is_ephemeral, struct error *err)
{
    const struct request *r = c->generation->request;
    struct sampling_overrides overrides = r->overrides;
    struct turn_key key;
    struct buf key_body;
    enum status rc = STATUS_OK;
    struct turn_request turn = {
        .messages = prompt->messages,
        .n_messages = prompt->n_messages,
        .is_plain = prompt->is_plain,
        .is_detached = r->is_background,
        .plain_ids = prompt->ids,
        .n_plain_ids = prompt->n_ids,
        .raw = prompt->raw,
        .overrides = &overrides,
        .tool_use = prompt->tool_use,
        .variables = r->variables,
        .n_logprobs = !r->want_logprobs ? 0
                      : r->n_top == 0   ? 1
                                        : r->n_top,
        .wants = {.logprobs = request_wants_prompt_logprobs(r),
                  .ids = r->wants_ids,
                  .no_reply = r->no_reply},
    };

    if (r->echo && r->want_logprobs)
        turn.wants.n_tops = r->n_top;
    if (r->has_prompt_logprobs && r->n_prompt_top > turn.wants.n_tops)
        turn.wants.n_tops = r->n_prompt_top;

    overrides.values.seed += nth; /* with the same seed all replies would be the same */
    c->conversation = conversation->id;
    buf_init(&key_body, KEY_BODY_MAX_BYTES);
    if (conversation->host.is_kept && generation_keeps_key(c->generation)) {
        rc = keyed_reply_key(c->generation->reply, c->index, conversation, is_ephemeral, &key,
                             &key_body, err);
        turn.key = &key;
    }
    if (rc == STATUS_OK)
        rc = conversation_turn(conversation, &turn, &c->reader, err);
    buf_deinit(&key_body);
    return rc;
}

/* A model without chat and raw prompts takes a raw prompt as a message. */
static struct prompt generation_fit(const struct prompt *prompt, const struct model *model)
{
    struct prompt p = *prompt;

    if (p.is_plain && p.n_ids == 0 && !p.raw.fills_in && model->agent->type->text == NULL)
        p.is_plain = false;
    return p;
}

/* From now on the reply of the key, if there is one, ends the turn and its conversation. */
static void choice_begun(struct choice *c, const struct conversation *conversation,
                         bool is_ephemeral)
{
    struct keyed_reply *reply = c->generation->reply;

    c->is_ephemeral = is_ephemeral && reply == NULL;
    if (reply != NULL)
        keyed_reply_add(reply, c->index, conversation, is_ephemeral, &c->reader);
}

/* Before its first turn, in this conversation. */
static void generation_name(struct generation *g, const struct conversation *c, bool is_ephemeral)
{
    const struct env *env = c->all->config.env;
    struct conversation_id id = c->id;
    char text[CONVERSATION_ID_CHARS];

    if (!is_ephemeral) /* it has several responses */
        env->random(env->self, &id, sizeof(id));
    conversation_id_format(&id, text);
    (void)snprintf(g->id, sizeof(g->id), "%s-%s", g->renderer->object, text);
    if (g->created_s == 0)
        g->created_s = conversations_unix_ms(c->all) / 1000;
    if (g->reply != NULL)
        keyed_reply_name(g->reply, g->id, g->created_s);
}

static enum status begin_choice(struct generation *g, uint32_t i, struct conversation *given,
                                bool is_ephemeral, struct error *err)
{
    const struct open_request nothing = {.principal = exchange_principal(g->exchange)->id,
                                         .system = ""};
    struct conversations *all = exchange_server(g->exchange)->conversations;
    struct prompt prompt = generation_fit(&g->request->prompts[i / g->request->n], g->model);
    struct conversation *conversation = given;
    enum status rc = STATUS_OK;

    if (given == NULL)
        rc = conversation_open(&conversation, all, g->model, &nothing, err);
    if (rc != STATUS_OK)
        return rc;
    if (i == 0)
        generation_name(g, conversation, is_ephemeral);
    if (is_ephemeral && generation_keeps_key(g))
        rc = keeping_begin(conversation, NULL, err);
    if (rc != STATUS_OK) /* it is not there any more */
        return rc;
    rc = generation_begin_turn(&g->choices[i], &prompt, i % g->request->n, conversation,
                               is_ephemeral, err);
    if (rc == STATUS_OK)
        choice_begun(&g->choices[i], conversation, is_ephemeral);
    else if (is_ephemeral)
        conversation_close(conversation, WATCH_CLOSED, "its request was refused");
    return rc;
}

static size_t generation_n_wanted(const struct generation *g)
{
    return g->request->n_prompts * g->request->n;
}

/* Raw prompts that begin alike for long enough to share what is computed of it. */
static bool prompts_begin_alike(const struct prompt *a, const struct prompt *b)
{
    if (a->n_messages == 0 && b->n_messages == 0)
        return a->n_ids >= ALIKE_TOKENS && b->n_ids >= ALIKE_TOKENS &&
               memcmp(a->ids, b->ids, ALIKE_TOKENS * sizeof(a->ids[0])) == 0;
    return a->n_messages > 0 && b->n_messages > 0 && a->messages[0].len >= ALIKE_BYTES &&
           b->messages[0].len >= ALIKE_BYTES &&
           memcmp(a->messages[0].text, b->messages[0].text, ALIKE_BYTES) == 0;
}

/* Where log-probabilities of raw prompts are wanted, one that begins as the one before begins when
 * those of that are known: in the same steps both would compute all. */
static bool choice_waits(const struct generation *g, uint32_t i)
{
    const struct request *r = g->request;
    size_t n_known;

    if (i == 0 || g->reply != NULL || !request_wants_prompt_logprobs(r) || !r->prompts[0].is_plain)
        return false;
    if (i % r->n == 0 && !prompts_begin_alike(&r->prompts[i / r->n - 1], &r->prompts[i / r->n]))
        return false;
    return !g->choices[i - 1].is_done && reader_prompt(&g->choices[i - 1].reader, &n_known) == NULL;
}

/* Begins choices up to one that waits. */
static enum status generation_begin(struct generation *g, struct conversation *given,
                                    bool is_ephemeral, struct error *err)
{
    for (uint32_t i = (uint32_t)g->n_choices; i < generation_n_wanted(g) && !choice_waits(g, i);
         i++) {
        if (begin_choice(g, i, given, is_ephemeral, err) != STATUS_OK)
            return err->status;
        g->n_choices++;
    }
    return STATUS_OK;
}

static void on_write_ready(struct exchange *x, void *state)
{
    struct generation *g = state;
    bool all_done = true, all_accepted = true, has_more = false;
    struct error err;

    if (g->is_over || !generation_is_at_place(g) || g->is_over)
        return;
    for (size_t i = 0; i < g->n_choices && !g->is_over; i++) {
        struct choice *c = &g->choices[i];

        read_choice(g, c);
        all_done = all_done && c->is_done;
        all_accepted = all_accepted && c->reader.has_accepted; /* durably, with a journal */
        has_more = has_more || (!c->is_done && reader_has_more(&c->reader));
    }
    if (g->is_over)
        return;
    if (g->n_choices < generation_n_wanted(g)) {
        if (generation_begin(g, NULL, true, &err) != STATUS_OK)
            generation_fail(g, &err);
        else if (has_more)
            exchange_notify(x);
    } else if (all_done || (all_accepted && g->request->is_background && !g->request->stream))
        generation_finish(g);
    else if (has_more)
        exchange_notify(x);
}

/* Lines without ids, which are the same when the request is sent again: pieces are not joined. */
static bool is_line_by_line(const struct generation_plan *plan)
{
    return plan->renderer->stream_type != NULL && plan->key != NULL && plan->key->text != NULL;
}

/* Without its choices. */
static enum status generation_make(struct generation **out, struct exchange *x,
                                   const struct generation_plan *plan, struct model *model,
                                   struct error *err)
{
    struct arena *arena = exchange_arena(x);
    size_t n = plan->request->n_prompts * plan->request->n;
    struct generation *g = arena_alloc(arena, 1, sizeof(*g));
    struct choice *choices = arena_alloc(arena, n, sizeof(*choices));
    struct request *request = arena_alloc(arena, 1, sizeof(*request));

    if (g == NULL || choices == NULL || request == NULL)
        return error_no_memory(err, 0, "the request");
    *request = *plan->request;
    exchange_set_stream_type(x, plan->renderer->stream_type);
    *g = (struct generation){.exchange = x,
                             .renderer = plan->renderer,
                             .request = request,
                             .model = model,
                             .choices = choices,
                             .renderer_state = plan->renderer_state};
    for (uint32_t i = 0; i < n; i++) {
        struct choice *c = &choices[i];

        *c = (struct choice){.generation = g, .index = i};
        reader_init(&c->reader, generation_notify, c);
        c->reader.max_piece_tokens = plan->renderer->is_by_token || is_line_by_line(plan);
    }
    *out = g;
    return STATUS_OK;
}

static void generation_cut(struct exchange *x, void *state, const struct error *err)
{
    generation_fail(state, err);
}

static const struct exchange_handler generation_handler = {
    .on_write_ready = on_write_ready, .cut = generation_cut, .on_close = on_close};

static enum status generation_open_reply(struct generation *g, const struct generation_plan *plan,
                                         struct error *err)
{
    struct keyed_replies *all = exchange_server(g->exchange)->keyed;
    size_t n = g->request->n_prompts * g->request->n;

    if (plan->key->text == NULL)
        return STATUS_OK;
    return keyed_reply_open(&g->reply, all, exchange_principal(g->exchange)->id, plan->key->text,
                            plan->key->digest, g->model, plan->instructions, n, err);
}

enum status generation_start(struct exchange *x, const struct generation_plan *plan,
                             struct error *err)
{
    struct journal *journal;
    struct generation *g = NULL;
    enum status rc;

    if (plan->request->left_out != NULL && plan->request->left_out[0] != '\0')
        exchange_set_unenforced(x, plan->request->left_out);
    rc = generation_make(&g, x, plan, plan->model, err);
    if (rc == STATUS_OK)
        rc = generation_open_reply(g, plan, err);
    if (rc != STATUS_OK) {
        if (plan->conversation != NULL && (plan->is_ephemeral || plan->is_to_keep))
            conversation_close(plan->conversation, WATCH_CLOSED, "its request was refused");
        return rc;
    }
    model_hold(g->model);
    g->created_s = plan->created_s;
    journal = exchange_server(x)->conversations->keeping.journal;
    if (g->reply == NULL && !plan->is_to_keep)
        journal = NULL; /* what is not found again need not be there as a whole */
    if (journal != NULL)
        journal_hold(journal);
    if (plan->is_to_keep)
        rc = keeping_begin(plan->conversation, plan->name, err);
    if (rc == STATUS_OK)
        rc = generation_begin(g, plan->conversation,
                              plan->conversation == NULL || plan->is_ephemeral, err);
    if (journal != NULL)
        journal_release(journal);
    if (rc != STATUS_OK) {
        if (g->reply != NULL)
            keyed_reply_forget(g->reply);
        on_close(x, g);
        return rc;
    }
    exchange_set_handler(x, &generation_handler, g);
    exchange_notify(x);
    return STATUS_OK;
}

/* --- joining a reply --- */

static enum status find_reply_model(struct model **out, struct exchange *x,
                                    const struct keyed_reply *reply, struct error *err)
{
    enum status rc = models_get(out, exchange_server(x)->models, reply->model, err);

    if (rc == STATUS_OK && strcmp((*out)->info.version, reply->version) != 0)
        return error_set(err, STATUS_PRECONDITION,
                         "model '%s' was replaced since this request was answered", reply->model);
    return rc;
}

static enum status rejoin_choices(struct generation *g, const struct event_id *from,
                                  struct error *err)
{
    for (size_t i = 0; i < g->reply->n_turns; i++) {
        struct choice *c = &g->choices[i];

        c->conversation = g->reply->turns[i].conversation;
        keyed_reply_attach(g->reply, i, &c->reader);
        g->n_choices++;
        if (from != NULL && choice_seek(c, from->indexes[i], err) != STATUS_OK)
            return err->status;
    }
    g->has_begun = from != NULL;
    return STATUS_OK;
}

enum status generation_rejoin(struct exchange *x, const struct generation_plan *plan,
                              struct error *err)
{
    struct keyed_reply *reply = plan->key->reply;
    struct generation *g;
    struct model *model;

    if (plan->key->from != NULL && !plan->request->stream)
        return error_field(err, "Last-Event-ID", "is for streams: stream must be true");
    if (find_reply_model(&model, x, reply, err) != STATUS_OK ||
        generation_make(&g, x, plan, model, err) != STATUS_OK)
        return err->status;
    model_hold(model);
    keyed_reply_join(reply);
    g->reply = reply;
    memcpy(g->id, reply->id, sizeof(g->id));
    g->created_s = reply->created_s;
    if (rejoin_choices(g, plan->key->from, err) != STATUS_OK) {
        on_close(x, g);
        return err->status;
    }
    exchange_set_handler(x, &generation_handler, g);
    exchange_notify(x);
    return STATUS_OK;
}

/* --- reading a reply again --- */

enum status generation_reread(struct exchange *x, const struct generation_plan *plan, uint32_t turn,
                              bool is_cancelled, struct error *err)
{
    struct conversation *conversation = plan->conversation;
    const struct turn_request again = {
        .number = turn,
        .resume = {.is_wanted = true, .generation = conversation->host.generation},
    };
    struct generation *g;
    struct choice *c;

    if (generation_make(&g, x, plan, plan->model, err) != STATUS_OK)
        return err->status;
    c = &g->choices[0];
    c->conversation = conversation->id;
    if (conversation_turn(conversation, &again, &c->reader, err) != STATUS_OK)
        return err->status;
    if (is_cancelled)
        reader_cancel(&c->reader);
    g->n_choices = 1;
    g->created_s = plan->created_s;
    model_hold(g->model);
    exchange_set_handler(x, &generation_handler, g);
    exchange_notify(x);
    return STATUS_OK;
}

/* --- parts --- */

/* NULL: the turn is not there yet, or failed. */
static const struct stored_request *choice_request(const struct choice *c)
{
    return c->reader.turn != NULL        ? turn_request_of(c->reader.turn)
           : c->reader.completed != NULL ? c->reader.completed->request
                                         : NULL;
}

static bool choice_divides(const struct choice *c, struct reply_parser_config *out)
{
    const struct stored_request *asked = choice_request(c);
    const struct generation *g = c->generation;

    const bool divides = tools_divide(out, asked, g->model->info.text.reply_format);

    out->places = (struct reply_places){reader_has_token, &c->reader};
    out->keeps_thoughts = g->request->keeps_thoughts;
    out->streams_calls = !g->renderer->has_whole_calls;
    return divides && g->renderer->has_parts;
}

bool generation_has_parts(const struct choice *c)
{
    struct reply_parser_config ignored;

    return choice_divides(c, &ignored);
}

static enum status choice_open_parser(struct choice *c, struct error *err)
{
    struct reply_parser_config config;

    if (c->has_parser)
        return STATUS_OK;
    c->has_parser = true;
    return choice_divides(c, &config) ? reply_parser_open(&c->parser, &config, err) : STATUS_OK;
}

enum status generation_parse(struct choice *c, const char *text, size_t len, struct error *err)
{
    if (choice_open_parser(c, err) != STATUS_OK)
        return err->status;
    return c->parser == NULL ? STATUS_OK : reply_parser_add(c->parser, text, len, err);
}

enum status generation_parse_end(struct choice *c, struct error *err)
{
    if (choice_open_parser(c, err) != STATUS_OK)
        return err->status;
    return c->parser == NULL ? STATUS_OK : reply_parser_end(c->parser, err);
}

const char *generation_passed_token(const struct choice *c, size_t i, size_t from,
                                    const struct turn_event *part, size_t *ret_len)
{
    const struct turn_reader *r = &c->reader;
    size_t end = part->piece.len;

    if (i < part->piece.n_tokens)
        end = r->turn != NULL ? r->turn->agent.reply.tokens[i].text_end
                              : r->completed->tokens[i].text_end;
    *ret_len = (end < part->piece.len ? end : part->piece.len) - from;
    return (r->turn != NULL ? r->turn->agent.reply.text.data : r->completed->text) + from;
}

enum status generation_parse_passed(struct choice *c, size_t len, struct error *err)
{
    const struct turn_reader *r = &c->reader;
    const char *text = r->turn != NULL        ? r->turn->agent.reply.text.data
                       : r->completed != NULL ? r->completed->text
                                              : NULL;

    return len == 0 || text == NULL ? STATUS_OK : generation_parse(c, text, len, err);
}

enum status generation_divide(const struct choice *c, struct whole_reply *out, struct error *err)
{
    struct reply_parser_config config;
    struct turn_event all;
    const char *text;
    size_t len;

    generation_all(c, &all, &text, &len);
    if (!choice_divides(c, &config))
        config.format = NULL;
    return whole_reply_read(out, &config, text, len, err);
}

uint64_t generation_call_seed(const struct choice *c)
{
    const struct stored_request *asked = choice_request(c);

    return asked == NULL ? 0 : asked->tool_use.seed;
}

struct text generation_tools(const struct choice *c)
{
    const struct stored_request *asked = choice_request(c);

    return asked == NULL ? (struct text){0} : asked->tool_use.tools;
}

/* --- shared by several APIs --- */

void generation_all(const struct choice *c, struct turn_event *out, const char **ret_text,
                    size_t *ret_len)
{
    const struct completed_turn *r = c->reader.completed;

    *out = (struct turn_event){.kind = EVENT_PIECE};
    out->piece.text = r->text;
    out->piece.len = r->len;
    out->piece.n_tokens = r->n_tokens;
    out->piece.has_logprobs = r->logprobs != NULL;
    *ret_text = r->len == 0 ? "" : r->text;
    *ret_len = r->len;
}

void generation_begin_body(const struct generation *g, const char *object, struct json_writer *w)
{
    const char *version = g->model->info.version;

    json_begin_object(w, NULL);
    json_write_text(w, "id", g->id);
    json_write_text(w, "object", object);
    json_write_unsigned(w, "created", g->created_s);
    json_write_text(w, "model", g->model->name);
    json_write_string(w, "system_fingerprint", version, strnlen(version, FINGERPRINT_CHARS));
}

void generation_begin_chunk(const struct generation *g, const char *object, struct json_writer *w)
{
    json_write_around(w, "data: ");
    generation_begin_body(g, object, w);
}

void generation_begin_event(const char *type, struct json_writer *w)
{
    json_write_aroundf(w, "event: %s\ndata: ", type);
    json_begin_object(w, NULL);
    json_write_text(w, "type", type);
}

void generation_end_event(struct json_writer *w)
{
    json_end_object(w);
    json_write_around(w, "\n\n");
}

void generation_end_chunks(const struct generation *g, const char *object, struct json_writer *w)
{
    if (g->request->include_usage) {
        generation_begin_chunk(g, object, w);
        json_begin_array(w, "choices");
        json_end_array(w);
        generation_write_usage(g, w);
        generation_end_event(w);
    }
    json_write_around(w, "data: [DONE]\n\n");
}

/* cached_tokens, and which level of the cache answered where it was not memory alone. */
void generation_write_cached(struct json_writer *w, uint64_t n_cached, uint64_t n_host,
                             uint64_t n_disk)
{
    json_write_unsigned(w, "cached_tokens", n_cached);
    if (n_host + n_disk == 0)
        return;
    json_begin_object(w, "cached_tokens_details");
    json_write_unsigned(w, "memory_tokens", n_cached - n_host - n_disk);
    json_write_unsigned(w, "host_tokens", n_host);
    json_write_unsigned(w, "disk_tokens", n_disk);
    json_end_object(w);
}

void generation_write_usage(const struct generation *g, struct json_writer *w)
{
    uint64_t n_prompt = 0, n_cached = 0, n_host = 0, n_disk = 0, n_said = 0, n_thought = 0;

    for (size_t i = 0; i < g->n_choices; i++) {
        const struct choice *c = &g->choices[i];

        n_said += c->n_said;
        n_thought += c->n_thought;
        if (i % g->request->n != 0)
            continue; /* count a prompt once */
        n_prompt += c->n_prompt;
        n_cached += c->n_cached;
        n_host += c->n_cached_host;
        n_disk += c->n_cached_disk;
    }
    json_begin_object(w, "usage");
    json_write_unsigned(w, "prompt_tokens", n_prompt);
    json_write_unsigned(w, "completion_tokens", n_said);
    json_write_unsigned(w, "total_tokens", n_prompt + n_said);
    json_begin_object(w, "prompt_tokens_details");
    generation_write_cached(w, n_cached, n_host, n_disk);
    json_end_object(w);
    json_begin_object(w, "completion_tokens_details");
    json_write_unsigned(w, "reasoning_tokens", n_thought);
    json_end_object(w);
    json_end_object(w);
}

void generation_write_running_usage(const struct generation *g, struct json_writer *w)
{
    if (g->request->continuous_usage)
        generation_write_usage(g, w);
}

void generation_write_id(const struct generation *g, struct json_writer *w)
{
    if (g->reply == NULL)
        return;
    json_write_aroundf(w, "id: %u.%u", g->reply->turns[0].generation, g->reply->turns[0].number);
    for (size_t i = 0; i < g->n_choices; i++)
        json_write_aroundf(w, i == 0 ? ".%llu" : ",%llu", (unsigned long long)g->choices[i].place);
    json_write_around(w, "\n");
}

void generation_write_failure(struct generation *g, const struct error *err, struct json_writer *w)
{
    json_write_around(w, "data: ");
    if (w->rc == STATUS_OK)
        json_writer_fail(w, exchange_append_error(g->exchange, w->out, err));
    json_write_around(w, "\n\ndata: [DONE]\n\n");
}

/* JSON has no infinity: -9999 stands for an impossible token. Nine digits give back every f32. */
void generation_write_prompt_ids(const struct generation *g, const struct choice *c,
                                 struct json_writer *w)
{
    const int32_t *ids;
    size_t n;

    if (!g->request->wants_ids)
        return;
    ids = reader_prompt_ids(&c->reader, &n);
    json_begin_array(w, "prompt_token_ids");
    for (size_t i = 0; ids != NULL && i < n; i++)
        json_write_signed(w, NULL, ids[i]);
    json_end_array(w);
}

void generation_write_ids(const struct generation *g, const struct choice *c,
                          const struct turn_event *piece, struct json_writer *w)
{
    if (!g->request->wants_ids)
        return;
    json_begin_array(w, "token_ids");
    for (size_t i = 0; piece != NULL && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        json_write_signed(w, NULL, t.id);
    }
    json_end_array(w);
}

void generation_write_whole_ids(const struct generation *g, const struct choice *c,
                                struct json_writer *w)
{
    struct turn_event all;
    const char *ignored;
    size_t len;

    if (!g->request->wants_ids)
        return;
    generation_all(c, &all, &ignored, &len);
    generation_write_prompt_ids(g, c, w);
    generation_write_ids(g, c, &all, w);
}

void generation_write_logprob(struct json_writer *w, const char *name, float logprob)
{
    json_write_real(w, name, isfinite(logprob) ? (double)logprob : -9999.0, 9);
}

/* Begins {"token": "…", "logprob": …, "bytes": […]}; the caller ends the object. */
static void generation_begin_token(const struct generation *g, int32_t id, float logprob,
                                   struct json_writer *w)
{
    char id_name[32];
    struct buf text;

    buf_init(&text, 4096);
    json_writer_fail(w, generation_token(g, id, &text));
    json_begin_object(w, NULL);
    (void)snprintf(id_name, sizeof(id_name), GENERATION_ID_NAME, id);
    if (g->request->names_ids)
        json_write_text(w, "token", id_name);
    else
        json_write_string(w, "token", text.data, text.len);
    if (g->request->wants_ids)
        json_write_signed(w, "id", id);
    generation_write_logprob(w, "logprob", logprob);
    json_begin_array(w, "bytes");
    for (size_t i = 0; i < text.len; i++)
        json_write_unsigned(w, NULL, (unsigned char)text.data[i]);
    json_end_array(w);
    buf_deinit(&text);
}

void generation_write_logprobs(const struct generation *g, const struct choice *c, const char *name,
                               const struct turn_event *piece, struct json_writer *w)
{
    json_begin_array(w, name);
    for (size_t i = 0; w->rc == STATUS_OK && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        generation_begin_token(g, t.id, t.logprob, w);
        json_begin_array(w, "top_logprobs");
        for (size_t k = 0; k < t.n_tops && k < g->request->n_top; k++) {
            generation_begin_token(g, t.tops[k].id, t.tops[k].logprob, w);
            json_end_object(w);
        }
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

const char *generation_finish_name(const struct choice *c)
{
    return finish_name(c->finish);
}

enum status generation_token(const struct generation *g, int32_t id, struct buf *out)
{
    return generation_text(g, &id, 1, out);
}

enum status generation_text(const struct generation *g, const int32_t *ids, size_t n,
                            struct buf *out)
{
    const struct agent *agent = g->model->agent;
    struct error ignored;

    if (agent->type->text == NULL)
        return STATUS_OK;
    return agent->type->text->detokenize(agent, ids, n, out, &ignored);
}
