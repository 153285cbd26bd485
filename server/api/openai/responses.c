/* POST /v1/responses. A response's id names its conversation and its turn. A request that continues
 * it runs in a fork of that conversation, so several requests may continue one response, and
 * nothing is recomputed. */
#include "server/api/openai/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/access/access.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/openai/truncation.h"
#include "server/api/request_key.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversation.h"
#include "server/conversation/keeping.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/names.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

/* Of a turn that ended so: what was to compute it is another model now. */
static const char response_error[] = "the reply could not be computed to its end";

enum { RESPONSE_METADATA_BYTES = 8 * METADATA_MAX_BYTES };

/* Sequence numbers of the events before the text. A delta's follows from its place, whoever reads
 * it and in however many streams. */
enum { SEQUENCE_CREATED, SEQUENCE_IN_PROGRESS, SEQUENCE_ITEM, SEQUENCE_PART };

static void format_id(char out[RESPONSE_ID_CHARS], const struct conversation_id *id, uint32_t turn)
{
    char hex[CONVERSATION_ID_CHARS];

    conversation_id_format(id, hex);
    (void)snprintf(out, RESPONSE_ID_CHARS, "resp_%s%08x", hex, turn);
}

struct response_conversation response_conversation_of(const char *id)
{
    struct response_conversation c = {.text = ""};

    if (strlen(id) == RESPONSE_ID_CHARS - 1 && strncmp(id, "resp_", 5) == 0)
        memcpy(c.text, id + 5, CONVERSATION_ID_CHARS - 1);
    return c;
}

/* Its turn was accepted by an earlier process, and waits for a model that is not served. */
static bool response_waits(const struct conversation *c, unsigned turn)
{
    return c->unended.request != NULL && turn == c->host.n_turns + 1 &&
           model_is_absent(c->host.model);
}

enum status response_find(struct conversation **out, struct response_place *ret_place,
                          const struct exchange *x, const char *id, const char *field,
                          struct error *err)
{
    const struct response_conversation hex = response_conversation_of(id);
    struct conversation_id key;
    struct conversation *c = NULL;
    unsigned said = 0, turn;

    if (conversation_id_parse(&key, hex.text) &&
        sscanf(id + 5 + CONVERSATION_ID_CHARS - 1, "%8x", &said) == 1)
        c = conversations_get_of(exchange_server(x)->conversations, exchange_principal(x)->id,
                                 &key);
    turn = said & ~RESPONSE_TURN_OF_NAMED;
    if (c != NULL && turn == c->host.n_turns + 1 && !response_waits(c, turn) &&
        conversation_run_unended(c, err) != STATUS_OK)
        return err->status;
    if (c == NULL || turn == 0 ||
        (turn > c->host.n_turns + c->host.n_live && !response_waits(c, turn)) ||
        (turn <= c->host.n_turns &&
         completed_turn_find(c->host.newest, turn)->request->is_observed)) {
        (void)error_because(err, STATUS_NOT_FOUND, REASON_CONVERSATION_NOT_FOUND, field,
                            "there is no response '%.60s', or it is not kept any more", id);
        return STATUS_NOT_FOUND;
    }
    *out = c;
    *ret_place = (struct response_place){turn, (said & RESPONSE_TURN_OF_NAMED) != 0};
    return STATUS_OK;
}

/* A response that is complete, to go on from. */
static enum status find_previous(struct conversation **out, uint32_t *ret_turn,
                                 const struct exchange *x, const char *id, struct error *err)
{
    struct response_place place;
    enum status rc = response_find(out, &place, x, id, "previous_response_id", err);

    *ret_turn = rc == STATUS_OK ? place.turn : 0;
    if (rc == STATUS_OK && *ret_turn > (*out)->host.n_turns)
        return error_because(err, STATUS_ABORTED, REASON_CONVERSATION_BUSY, "previous_response_id",
                             "the response is not complete yet");
    return rc;
}

uint64_t response_created_s(const struct conversation *c)
{
    return c->opened_unix_ms / 1000;
}

static enum status response_metadata(const char **out, const struct pair *pairs, size_t n,
                                     struct arena *arena, struct error *err)
{
    struct json_writer w;
    struct buf text;
    char *kept = NULL;

    *out = NULL;
    if (n == 0)
        return STATUS_OK;
    buf_init(&text, RESPONSE_METADATA_BYTES);
    w = json_writer_begin(&text);
    json_begin_object(&w, NULL);
    for (size_t i = 0; i < n; i++)
        json_write_text(&w, pairs[i].key, pairs[i].value);
    json_end_object(&w);
    if (json_writer_end(&w) == STATUS_OK)
        kept = arena_strndup(arena, text.data, text.len);
    buf_deinit(&text);
    *out = kept;
    return kept != NULL ? STATUS_OK : error_no_memory(err, RESPONSE_METADATA_BYTES, "metadata");
}

/* The one before it, whose conversation it was forked from. */
static enum status response_previous(const char **out, const struct conversation *c, uint32_t turn,
                                     struct arena *arena, struct error *err)
{
    char *id;

    *out = NULL;
    if (turn == 1)
        return STATUS_OK;
    id = arena_alloc(arena, RESPONSE_ID_CHARS, 1);
    if (id == NULL)
        return error_no_memory(err, RESPONSE_ID_CHARS, "a response");
    format_id(id, c->has_parent ? &c->parent : &c->id, turn - 1);
    *out = id;
    return STATUS_OK;
}

/* What the request named: the conversation itself. */
static enum status response_of_named(struct response *r, const struct conversation_id *id,
                                     struct arena *arena, struct error *err)
{
    char *text = arena_alloc(arena, CONVERSATION_ID_CHARS, 1);

    if (text == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a response");
    conversation_id_format(id, text);
    r->conversation = text;
    return STATUS_OK;
}

enum status response_of_turn(struct response **out, const struct conversation *c,
                             const struct response_place *place, struct arena *arena,
                             struct error *err)
{
    const struct conversation_options *options = c->host.options;
    const struct metadata *m = c->metadata;
    struct response *r = arena_alloc(arena, 1, sizeof(*r));

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a response");
    *r = (struct response){.store = true};
    format_id(r->id, &c->id, place->turn | (place->is_of_named ? RESPONSE_TURN_OF_NAMED : 0));
    response_output_init(&r->output, r->id + 5, SEQUENCE_ITEM);
    *out = r;
    if (place->is_of_named) /* its metadata and instructions are not the conversation's */
        return response_of_named(r, &c->id, arena, err);
    if (response_metadata(&r->metadata, m == NULL ? NULL : m->pairs, m == NULL ? 0 : m->n_pairs,
                          arena, err) != STATUS_OK ||
        response_previous(&r->previous, c, place->turn, arena, err) != STATUS_OK)
        return err->status;
    r->instructions = options->system_len == 0
                          ? NULL
                          : arena_strndup(arena, options->system, options->system_len);
    if (options->system_len > 0 && r->instructions == NULL)
        return error_no_memory(err, options->system_len, "instructions");
    return STATUS_OK;
}

/* --- output --- */

/* c: whose tokens in the piece have log-probabilities that are wanted; NULL: none. */
static void write_text_logprobs(struct json_writer *w, const struct choice *c,
                                const struct turn_event *piece)
{
    if (c != NULL && piece->piece.has_logprobs)
        generation_write_logprobs(c->generation, c, "logprobs", piece, w);
    else
        json_write_empty_array(w, "logprobs");
}

/* c: as above, of the whole reply. */
static void write_part(struct json_writer *w, const char *name, const char *text, size_t len,
                       const struct choice *c)
{
    struct turn_event all = {.kind = EVENT_PIECE};
    const char *whole;
    size_t whole_len;

    if (c != NULL)
        generation_all(c, &all, &whole, &whole_len);
    json_begin_object(w, name);
    json_write_text(w, "type", "output_text");
    json_write_empty_array(w, "annotations");
    write_text_logprobs(w, c, &all);
    json_write_string(w, "text", text, len);
    json_end_object(w);
}

/* Writes the one message; text NULL: it has no content yet. */
static void write_item(const char *id, struct json_writer *w, const char *name, const char *status,
                       const char *text, size_t len, const struct choice *c)
{
    json_begin_object(w, name);
    json_write_text(w, "type", "message");
    json_write_format(w, "id", "msg_%s", id);
    json_write_text(w, "status", status);
    json_write_text(w, "role", "assistant");
    json_begin_array(w, "content");
    if (text != NULL)
        write_part(w, NULL, text, len, c);
    json_end_array(w);
    json_end_object(w);
}

static bool is_cut_short(const struct completed_turn *t)
{
    return t->finish != FINISH_STOP;
}

static const char *responses_status_of(const struct completed_turn *t)
{
    if (t == NULL)
        return "in_progress";
    if (t->finish == FINISH_CANCELLED)
        return "cancelled";
    if (t->finish == FINISH_ERROR)
        return "failed";
    return is_cut_short(t) ? "incomplete" : "completed";
}

/* A message of a reply that was cancelled is as far as it came. */
static const char *responses_item_status(const struct completed_turn *t)
{
    return is_cut_short(t) ? "incomplete" : "completed";
}

static void write_outcome(struct json_writer *w, const struct response_view *v,
                          const struct completed_turn *t)
{
    const struct usage *u;

    if (t == NULL) {
        json_write_null(w, "completed_at");
        json_write_null(w, "incomplete_details");
        json_write_null(w, "usage");
        return;
    }
    u = &t->usage;
    json_write_unsigned(w, "completed_at", v->created_s + t->timings.total_us / 1000000);
    if (is_cut_short(t) && t->finish != FINISH_CANCELLED && t->finish != FINISH_ERROR) {
        json_begin_object(w, "incomplete_details");
        json_write_text(w, "reason",
                        t->finish == FINISH_LENGTH ? "max_output_tokens" : finish_name(t->finish));
        json_end_object(w);
    } else {
        json_write_null(w, "incomplete_details");
    }
    json_begin_object(w, "usage");
    json_write_unsigned(w, "input_tokens", u->n_prompt);
    json_begin_object(w, "input_tokens_details");
    json_write_unsigned(w, "cached_tokens", u->n_cached);
    json_write_unsigned(w, "cache_write_tokens", 0);
    json_end_object(w);
    json_write_unsigned(w, "output_tokens", u->n_completion);
    json_begin_object(w, "output_tokens_details");
    json_write_unsigned(w, "reasoning_tokens",
                        tools_thought_tokens(t, v->model->info.text.reply_format));
    json_end_object(w);
    json_write_unsigned(w, "total_tokens", u->n_prompt + u->n_completion);
    json_end_object(w);
}

/* The parameters that the reply is sampled with. */
static void response_write_sampling(const struct response_view *v, struct json_writer *w)
{
    struct sampling s = v->model->info.defaults;

    if (v->request != NULL)
        sampling_overrides_apply(v->request->overrides, &s);
    json_write_real(w, "temperature", (double)s.temperature, 6);
    json_write_real(w, "top_p", (double)s.top_p, 6);
    json_write_real(w, "presence_penalty", (double)s.presence_penalty, 6);
    json_write_real(w, "frequency_penalty", (double)s.frequency_penalty, 6);
    if (s.max_tokens == 0)
        json_write_null(w, "max_output_tokens");
    else
        json_write_unsigned(w, "max_output_tokens", s.max_tokens);
}

/* A tool in the form of chat completions as Responses have it; a new reference. */
static json_t *flat_tool(const json_t *tool)
{
    static const char *const nullable[] = {"description", "parameters", "strict"};
    json_t *flat = json_copy(json_object_get(tool, "function"));
    bool is_good = flat != NULL && json_object_set_new(flat, "type", json_string("function")) == 0;

    for (size_t i = 0; is_good && i < sizeof(nullable) / sizeof(nullable[0]); i++)
        is_good = json_object_get(flat, nullable[i]) != NULL ||
                  json_object_set_new(flat, nullable[i], json_null()) == 0;
    if (is_good)
        return flat;
    json_decref(flat);
    return NULL;
}

/* Of a response that is read again only its turn knows the tools. */
static void response_write_turn_tools(const struct tool_use *use, struct json_writer *w)
{
    json_t *list = json_loadb(use->tools.text, use->tools.len, 0, NULL);
    char *text;

    for (size_t i = 0; w->rc == STATUS_OK && i < json_array_size(list); i++) {
        json_t *flat = flat_tool(json_array_get(list, i));

        if (json_array_set_new(list, i, flat) != 0)
            json_writer_fail(w, STATUS_EXHAUSTED);
    }
    text = list == NULL ? NULL : json_dumps(list, 0);
    if (text == NULL)
        json_writer_fail(w, STATUS_EXHAUSTED);
    else
        json_write_json(w, "tools", text, strlen(text));
    free(text);
    json_decref(list);
}

/* Which tool a choice names is not kept with the turn: read again, such a choice is "required". */
static void response_write_tools(const struct response_view *v, struct json_writer *w)
{
    static const struct tool_use none = {.is_single = false};
    const struct response *r = v->response;
    const struct tool_use *use = v->request != NULL ? &v->request->tool_use : &none;
    const bool is_again = r->tools == NULL && use->tools.len > 0;

    json_write_bool(w, "parallel_tool_calls", !(is_again ? use->is_single : r->is_single));
    if (r->choice != NULL)
        json_write_json(w, "tool_choice", r->choice, strlen(r->choice));
    else
        json_write_text(w, "tool_choice",
                        use->tools.len == 0 ? "none"
                        : use->is_forced    ? "required"
                                            : "auto");
    if (is_again)
        response_write_turn_tools(use, w);
    else if (r->tools != NULL)
        json_write_json(w, "tools", r->tools, strlen(r->tools));
    else
        json_write_empty_array(w, "tools");
}

/* Writes what the request has said, or what holds where it says nothing. */
static void response_write_echo(const struct response *r, enum response_echo which,
                                const char *name, const char *otherwise, struct json_writer *w)
{
    const char *json = r->echo[which] == NULL ? otherwise : r->echo[which];

    json_write_json(w, name, json, strlen(json));
}

static void response_write_reasoning(const struct response_view *v, struct json_writer *w)
{
    const struct text given = v->request != NULL ? v->request->variables.json : (struct text){0};
    json_t *all = given.len == 0 ? NULL : json_loadb(given.text, given.len, 0, NULL);
    const char *effort = json_string_value(json_object_get(all, "reasoning_effort"));

    json_begin_object(w, "reasoning");
    json_write_text(w, "effort", effort);
    response_write_echo(v->response, ECHO_REASONING_SUMMARY, "summary", "null", w);
    json_end_object(w);
    json_decref(all);
}

static void response_write_error(const struct response *r, const struct completed_turn *t,
                                 struct json_writer *w)
{
    if (r->failure != NULL) {
        json_begin_object(w, "error");
        json_write_text(w, "code", openai_error_code(r->failure));
        openai_write_message(w, r->failure);
        json_end_object(w);
        return;
    }
    if (t == NULL || t->finish != FINISH_ERROR) {
        json_write_null(w, "error");
        return;
    }
    json_begin_object(w, "error");
    json_write_text(w, "code", "server_error");
    json_write_text(w, "message", response_error);
    json_end_object(w);
}

/* A response that is read again has lost them. */
static void response_write_echoes(const struct response *r, struct json_writer *w)
{
    json_write_text(w, "service_tier", "default");
    response_write_echo(r, ECHO_TRUNCATION, "truncation", "\"disabled\"", w);
    response_write_echo(r, ECHO_TOP_LOGPROBS, "top_logprobs", "0", w);
    response_write_echo(r, ECHO_MAX_TOOL_CALLS, "max_tool_calls", "null", w);
    response_write_echo(r, ECHO_SAFETY_IDENTIFIER, "safety_identifier", "null", w);
    response_write_echo(r, ECHO_PROMPT_CACHE_KEY, "prompt_cache_key", "null", w);
    response_write_echo(r, ECHO_PROMPT_CACHE_RETENTION, "prompt_cache_retention", "null", w);
    response_write_echo(r, ECHO_USER, "user", "null", w);
    response_write_echo(r, ECHO_TEXT, "text", "{\"format\":{\"type\":\"text\"}}", w);
}

void response_write_items(const char *id, const struct completed_turn *t,
                          const struct reply_format *format, bool gives_thoughts,
                          struct json_writer *w)
{
    struct reply_parser_config config;

    if (tools_divide(&config, t->request, format))
        response_output_whole(id, t, &config, responses_item_status(t), gives_thoughts, w);
    else
        write_item(id, w, NULL, responses_item_status(t), t->len == 0 ? "" : t->text, t->len, NULL);
}

static void response_write_output(const struct response_view *v, struct json_writer *w)
{
    const struct reply_format *format = v->model->info.text.reply_format;
    const struct response *r = v->response;
    const struct completed_turn *t = v->completed;

    json_begin_array(w, "output");
    if (t != NULL && v->choice != NULL && r->gives_logprobs && !generation_has_parts(v->choice))
        write_item(r->id + 5, w, NULL, responses_item_status(t), t->len == 0 ? "" : t->text, t->len,
                   v->choice);
    else if (t != NULL)
        response_write_items(r->id + 5, t, format, r->gives_thoughts, w);
    json_end_array(w);
}

void response_write(const struct response_view *v, const char *name, struct json_writer *w)
{
    const struct response *r = v->response;
    const struct completed_turn *t = v->completed;
    const char *metadata = r->metadata == NULL ? "{}" : r->metadata;

    json_begin_object(w, name);
    json_write_text(w, "id", r->id);
    json_write_text(w, "object", "response");
    json_write_unsigned(w, "created_at", v->created_s);
    json_write_text(w, "status", r->failure != NULL ? "failed" : responses_status_of(t));
    json_write_text(w, "model", v->model->name);
    response_write_error(r, t, w);
    json_write_json(w, "metadata", metadata, strlen(metadata));
    json_write_bool(w, "store", r->store);
    json_write_bool(w, "background", v->request != NULL && v->request->is_detached);
    response_write_echoes(r, w);
    response_write_reasoning(v, w);
    response_write_tools(v, w);
    response_write_output(v, w);
    response_write_sampling(v, w);
    json_write_text(w, "instructions", r->instructions);
    json_write_text(w, "previous_response_id", r->previous);
    if (r->conversation != NULL) {
        json_begin_object(w, "conversation");
        json_write_text(w, "id", r->conversation);
        json_end_object(w);
    }
    write_outcome(w, v, t);
    json_end_object(w);
}

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

/* --- events --- */

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
    write_item(r->id + 5, w, "item", status, text, len, c);
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
    write_part(w, "part", text, len, c);
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
    write_text_logprobs(w, c, piece);
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
    return is_cut_short(t) ? "response.incomplete" : "response.completed";
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
        response_output_end(&r->output, c, responses_item_status(t), w);
        generation_write_id(g, w);
        response_event(g, is_cut_short(t) ? "response.incomplete" : "response.completed",
                       r->output.sequence, false, w);
        return;
    }
    generation_all(c, &all, &text, &len);
    text_event(r, "response.output_text.done", sequence, "text", &(struct text){text, len}, whole,
               &all, w);
    part_event(r, "response.content_part.done", sequence + 1, text, len, whole, w);
    item_event(r, "response.output_item.done", sequence + 2, responses_item_status(t), text, len,
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

/* --- requests --- */

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

static enum status fork_previous(struct conversation **out, struct exchange *x,
                                 struct responses_request *q, struct model **model,
                                 struct error *err)
{
    struct conversation *c;
    uint32_t turn;

    if (find_previous(&c, &turn, x, q->previous, err) != STATUS_OK ||
        conversation_check_model(c, err) != STATUS_OK)
        return err->status;
    if (q->base.model[0] == '\0')
        *model = c->host.model;
    if (c->host.model != *model)
        return error_field(err, "previous_response_id", "is a response of model '%s'",
                           c->host.model->name);
    if (q->instructions != NULL && strcmp(q->instructions, c->host.options->system) != 0)
        return error_field(err, "instructions",
                           "cannot change with previous_response_id: those of its response hold");
    q->instructions = c->host.options->system_len == 0 ? NULL : c->host.options->system;
    return conversation_fork(out, c, turn, q->metadata, q->n_metadata, err);
}

/* The newest message of the system's, or the conversation's own: what instructions hold. */
static struct text instructions_of(const struct conversation *c)
{
    const struct conversation_options *options = c->host.options;

    for (const struct completed_turn *t = c->host.newest; t != NULL; t = t->before) {
        for (size_t i = t->request->n_messages; i-- > 0;) {
            const struct message *m = &t->request->messages[i];

            if (m->role == ROLE_SYSTEM)
                return (struct text){m->text, m->len};
        }
    }
    return (struct text){options->system, options->system_len};
}

/* Instructions that are not the conversation's come before the input, as a message. */
static enum status instruct(struct responses_request *q, const struct conversation *c,
                            struct arena *arena, struct error *err)
{
    struct prompt *p = &q->base.prompts[0];
    const struct text have = instructions_of(c);
    const size_t len = q->instructions == NULL ? 0 : strlen(q->instructions);
    struct message *all;

    if (len == 0 || (len == have.len && memcmp(have.text, q->instructions, len) == 0))
        return STATUS_OK;
    all = arena_alloc(arena, p->n_messages + 1, sizeof(*all));
    if (all == NULL)
        return error_no_memory(err, 0, "the request");
    all[0] = (struct message){.role = ROLE_SYSTEM, .text = q->instructions, .len = len};
    memcpy(all + 1, p->messages, p->n_messages * sizeof(*all));
    p->messages = all;
    p->n_messages++;
    return STATUS_OK;
}

/* The conversation that the request names, of which the response is a turn. */
static enum status find_named(struct conversation **out, struct exchange *x,
                              struct responses_request *q, struct model **model, struct error *err)
{
    struct conversation *c;

    if (conversation_names_get(&c, exchange_server(x)->names, exchange_principal(x)->id,
                               q->conversation, err) != STATUS_OK ||
        conversation_check_model(c, err) != STATUS_OK)
        return err->status;
    if (c->unended.request != NULL && conversation_run_unended(c, err) != STATUS_OK)
        return err->status; /* the turn of an earlier process comes first */
    if (q->base.model[0] == '\0')
        *model = c->host.model;
    if (c->host.model != *model)
        return error_field(err, "model", "is another: the conversation is with model '%s'",
                           c->host.model->name);
    *out = c;
    return instruct(q, c, exchange_arena(x), err);
}

static enum status open_first(struct conversation **out, struct exchange *x,
                              const struct responses_request *q, struct model *model,
                              struct error *err)
{
    const struct open_request open = {
        .principal = exchange_principal(x)->id,
        .system = q->instructions == NULL ? "" : q->instructions,
        .system_len = q->instructions == NULL ? 0 : strlen(q->instructions),
        .metadata = q->metadata,
        .n_metadata = q->n_metadata,
    };

    return conversation_open(out, exchange_server(x)->conversations, model, &open, err);
}

static enum status keep_text(const char **text, struct arena *arena, struct error *err)
{
    if (*text == NULL)
        return STATUS_OK;
    *text = arena_strndup(arena, *text, strlen(*text));
    return *text != NULL ? STATUS_OK : error_no_memory(err, 0, "the request");
}

/* What the response repeats of its request's tools, in its arena. */
static void response_take_tools(struct response *r, const struct responses_request *q)
{
    r->tools = q->tools;
    r->choice = q->choice;
    r->is_single = q->base.tools != NULL && q->base.tools->is_single;
    memcpy(r->echo, q->echo, sizeof(r->echo));
    r->gives_thoughts = q->gives_thoughts;
    r->gives_logprobs = q->gives_logprobs;
    response_output_init(&r->output, r->id + 5, SEQUENCE_ITEM);
    r->output.gives_thoughts = q->gives_thoughts;
}

/* The response of a stored reply, whose conversation may have gone: what the repeated request says
 * of it is what the first one said. */
static enum status response_of_reply(struct response **out, const struct responses_request *q,
                                     const struct keyed_reply *reply, struct arena *arena,
                                     struct error *err)
{
    struct response *r = arena_alloc(arena, 1, sizeof(*r));

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a response");
    *r = (struct response){
        .store = q->store, .previous = q->previous, .instructions = reply->instructions};
    format_id(r->id, &reply->turns[0].conversation,
              reply->turns[0].number | (q->conversation != NULL ? RESPONSE_TURN_OF_NAMED : 0));
    response_take_tools(r, q);
    if (keep_text(&r->previous, arena, err) != STATUS_OK ||
        keep_text(&r->instructions, arena, err) != STATUS_OK ||
        response_metadata(&r->metadata, q->metadata, q->n_metadata, arena, err) != STATUS_OK)
        return err->status;
    *out = r;
    return q->conversation == NULL
               ? STATUS_OK
               : response_of_named(r, &reply->turns[0].conversation, arena, err);
}

/* What the response of a turn of a named conversation has of its own: kept with the answer alone.
 */
static enum status response_take_own(struct response *r, const struct responses_request *q,
                                     struct arena *arena, struct error *err)
{
    r->instructions = q->instructions;
    if (keep_text(&r->instructions, arena, err) != STATUS_OK)
        return err->status;
    return response_metadata(&r->metadata, q->metadata, q->n_metadata, arena, err);
}

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

static enum status refuse_in_stream(struct exchange *x, struct response *r, struct model *model,
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

/* What the model does not do is left out, and of a history that is too long its beginning, where
 * that is all in the request. */
static enum status response_fit(struct exchange *x, struct responses_request *q,
                                const struct model *model, struct error *err)
{
    const struct reply_format *format = model->info.text.reply_format;
    struct arena *arena = exchange_arena(x);
    struct request *r = &q->base;

    if (request_fit_model(r, format, arena, err) != STATUS_OK)
        return err->status;
    /* Tokens of a reply in parts are not those of its text alone. */
    if (q->gives_logprobs && format != NULL && (r->tools != NULL || format->thoughts != NULL) &&
        request_leave_out(r, "message.output_text.logprobs", arena, err) != STATUS_OK)
        return err->status;
    return q->truncates && q->previous == NULL && q->conversation == NULL
               ? truncation_apply(r, q->instructions, model, arena, err)
               : STATUS_OK;
}

static enum status responses_first(struct exchange *x, struct responses_request *q,
                                   const struct request_key *key, struct error *err)
{
    struct generation_plan plan = {.renderer = &response_renderer,
                                   .request = &q->base,
                                   .key = key,
                                   .is_ephemeral = !q->store && q->conversation == NULL};
    struct response_place place = {.is_of_named = q->conversation != NULL};
    struct response *r = NULL;
    struct conversation *c = NULL;
    struct conversation_id id;
    struct model *model;
    enum status rc;

    if (resolution_find_model(&model, x, q->base.model, err) != STATUS_OK)
        return err->status;
    rc = q->conversation != NULL ? find_named(&c, x, q, &model, err)
         : q->previous != NULL   ? fork_previous(&c, x, q, &model, err)
                                 : open_first(&c, x, q, model, err);
    if (rc != STATUS_OK)
        return rc;
    id = c->id;
    plan.created_s = response_created_s(c);
    place.turn = c->host.n_turns + (uint32_t)c->host.n_live + 1;
    rc = response_of_turn(&r, c, &place, exchange_arena(x), err);
    if (rc == STATUS_OK && q->conversation != NULL)
        rc = response_take_own(r, q, exchange_arena(x), err);
    if (rc == STATUS_OK) {
        r->store = q->store;
        response_take_tools(r, q);
        rc = response_fit(x, q, model, err);
    }
    plan.is_to_keep = q->store && q->conversation == NULL;
    plan.renderer_state = r;
    plan.model = model;
    plan.conversation = c;
    plan.instructions = q->instructions;
    if (rc == STATUS_OK)
        rc = generation_start(x, &plan, err);
    if (rc != STATUS_OK) {
        c = conversations_get(exchange_server(x)->conversations, &id);
        if (c != NULL && q->conversation == NULL)
            conversation_close(c, WATCH_CLOSED, "its request was refused");
        if (r != NULL && q->base.stream && err->reason == REASON_CONTEXT_EXCEEDED)
            return refuse_in_stream(x, r, model, plan.created_s, err);
        return rc;
    }
    if (q->store && q->conversation == NULL)
        conversation_names_keep(exchange_server(x)->names, exchange_principal(x)->id, &id);
    return STATUS_OK;
}

static enum status responses_rejoin(struct exchange *x, const struct responses_request *q,
                                    const struct request_key *key, struct error *err)
{
    struct generation_plan plan = {.renderer = &response_renderer, .request = &q->base, .key = key};
    struct response *r = NULL;
    enum status rc = response_of_reply(&r, q, key->reply, exchange_arena(x), err);

    plan.renderer_state = r;
    return rc != STATUS_OK ? rc : generation_rejoin(x, &plan, err);
}

static enum status responses_begin(struct exchange *x, const json_t *body, struct error *err)
{
    struct responses_request q;
    struct request_key key;

    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    if (references_resolve(x, body, err) != STATUS_OK ||
        request_responses(&q, body, exchange_arena(x), err) != STATUS_OK ||
        request_key_read(&key, x, err) != STATUS_OK)
        return err->status;
    if (key.reply != NULL)
        return responses_rejoin(x, &q, &key, err);
    return responses_first(x, &q, &key, err) == STATUS_OK ? STATUS_OK
                                                          : request_name_error(&q.base, err);
}

static void responses_serve_now(struct exchange *x)
{
    resolution_serve(x, responses_begin);
}

/* The conversation that the request goes on from, or names, may have to be read from the journal
 * first. */
static const char *wanted_conversation(struct exchange *x)
{
    struct error ignored; /* begin reports it */
    json_t *body = NULL;
    struct response_conversation of_previous;
    const char *text, *previous, *named;
    size_t len;

    text = exchange_body(x, &len);
    if (exchange_server(x)->conversations->keeping.journal == NULL ||
        fields_parse(&body, text, len, &ignored) != STATUS_OK)
        return "";
    previous = json_string_value(json_object_get(body, "previous_response_id"));
    named = request_conversation(json_object_get(body, "conversation"));
    of_previous = response_conversation_of(previous == NULL ? "" : previous);
    if (named == NULL)
        named = of_previous.text;
    named = arena_strndup(exchange_arena(x), named, strlen(named));
    json_decref(body);
    return named == NULL ? "" : named; /* without memory it is not found */
}

static void responses_serve(struct exchange *x)
{
    resolution_recall(x, wanted_conversation(x), responses_serve_now);
}

static const struct route rows[] = {
    {"/v1/responses", .methods = METHOD_POST, .serve = responses_serve, .api = &openai_api},
};
const struct route_table openai_responses_routes = {rows, sizeof(rows) / sizeof(rows[0])};
