/* OpenAI's response object: which conversation and turn its id names, what is known of it, and how
 * it is written as JSON. */
#include "server/api/openai/response.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/instructions.h"
#include "server/conversation/keeping.h"
#include "server/http/exchange.h"
#include "server/model/model.h"
#include "server/server.h"

/* The message of a response whose turn failed: another model is served where its own was. */
static const char response_error[] = "the reply could not be computed to its end";

enum { RESPONSE_METADATA_BYTES = 8 * METADATA_MAX_BYTES };

void response_format_id(char out[RESPONSE_ID_CHARS], const struct turn_place *place)
{
    memcpy(out, "resp_", 5);
    turn_place_format(place, out + 5);
}

/* Returns whether the id is one of a response. */
static bool response_read_id(struct turn_place *out, const char *id)
{
    const char *end = strncmp(id, "resp_", 5) == 0 ? turn_place_read(out, id + 5) : NULL;

    return end != NULL && end[0] == '\0';
}

struct response_conversation response_conversation_of(const char *id)
{
    struct response_conversation c = {.text = ""};
    struct turn_place place;

    if (response_read_id(&place, id))
        conversation_id_format(&place.origin.conversation, c.text);
    return c;
}

/* Its turn was accepted by an earlier process, and waits for a model that is not served. */
static bool response_waits(const struct conversation *c, uint32_t turn)
{
    return c->unended.request != NULL && turn == c->host.n_turns + 1 &&
           model_is_absent(c->host.model);
}

/* Returns whether c has the response's turn, completed or not. */
static bool response_is_there(const struct conversation *c, const struct turn_place *p)
{
    const struct completed_turn *t = turn_place_find(p, c);

    if (p->turn <= c->host.n_turns)
        return t != NULL && !t->request->is_observed;
    return p->origin.generation == c->host.generation &&
           (p->turn <= c->host.n_turns + c->host.n_live || response_waits(c, p->turn));
}

enum status response_find(struct conversation **out, struct turn_place *ret_place,
                          const struct exchange *x, const char *id, const char *field,
                          struct error *err)
{
    struct conversation *c = NULL;
    struct turn_place p;

    if (response_read_id(&p, id))
        c = conversations_get_of(exchange_server(x)->conversations, exchange_principal(x)->id,
                                 &p.origin.conversation);
    if (c != NULL && p.turn == c->host.n_turns + 1 && !response_waits(c, p.turn) &&
        conversation_run_unended(c, err) != STATUS_OK)
        return err->status;
    if (c == NULL || !response_is_there(c, &p)) {
        (void)error_because(err, STATUS_NOT_FOUND, REASON_CONVERSATION_NOT_FOUND, field,
                            "there is no response '%.60s', or it is not kept any more", id);
        return STATUS_NOT_FOUND;
    }
    *out = c;
    *ret_place = p;
    return STATUS_OK;
}

uint64_t response_created_s(const struct conversation *c)
{
    return c->opened_unix_ms / 1000;
}

enum status response_set_metadata(const char **out, const struct pair *pairs, size_t n,
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
    const struct completed_turn *before = completed_turn_find(c->host.newest, turn - 1);
    char *id;

    *out = NULL;
    if (before == NULL)
        return STATUS_OK;
    id = arena_alloc(arena, RESPONSE_ID_CHARS, 1);
    if (id == NULL)
        return error_no_memory(err, RESPONSE_ID_CHARS, "a response");
    response_format_id(id, &(struct turn_place){.origin = before->origin, .turn = turn - 1});
    *out = id;
    return STATUS_OK;
}

/* Those that hold for the turn: its own, or those that held before it. */
static enum status response_instructions(const char **out, const struct conversation *c,
                                         uint32_t turn, const struct stored_request *request,
                                         struct arena *arena, struct error *err)
{
    struct text t = {0};

    if (turn > 1 && request != NULL)
        t = instructions_head(request->messages, request->n_messages);
    if (t.len == 0)
        t = instructions_behind(c, completed_turn_find(c->host.newest, turn - 1), false);
    *out = t.len == 0 ? NULL : arena_strndup(arena, t.text, t.len);
    return t.len == 0 || *out != NULL ? STATUS_OK : error_no_memory(err, t.len, "instructions");
}

/* What the request named: the conversation itself. */
enum status response_set_conversation(struct response *r, const struct conversation_id *id,
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
                             const struct turn_place *place, const struct stored_request *request,
                             struct arena *arena, struct error *err)
{
    const struct metadata *m = c->metadata;
    struct response *r = arena_alloc(arena, 1, sizeof(*r));

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a response");
    *r = (struct response){.store = true};
    response_format_id(r->id, place);
    response_output_init(&r->output, r->id + 5, SEQUENCE_ITEM);
    *out = r;
    if (place->is_of_named) /* its metadata and instructions are not the conversation's */
        return response_set_conversation(r, &c->id, arena, err);
    if (response_set_metadata(&r->metadata, m == NULL ? NULL : m->pairs, m == NULL ? 0 : m->n_pairs,
                              arena, err) != STATUS_OK ||
        response_previous(&r->previous, c, place->turn, arena, err) != STATUS_OK)
        return err->status;
    return response_instructions(&r->instructions, c, place->turn, request, arena, err);
}

/* c: whose tokens in the piece have log-probabilities that are wanted; NULL: none. */
void response_write_logprobs(struct json_writer *w, const struct choice *c,
                             const struct turn_event *piece)
{
    if (c != NULL && piece->piece.has_logprobs)
        generation_write_logprobs(c->generation, c, "logprobs", piece, w);
    else
        json_write_empty_array(w, "logprobs");
}

/* c: as above, of the whole reply. */
void response_write_part(struct json_writer *w, const char *name, const char *text, size_t len,
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
    response_write_logprobs(w, c, &all);
    json_write_string(w, "text", text, len);
    json_end_object(w);
}

/* Writes the one message; text NULL: it has no content yet. */
void response_write_item(const char *id, struct json_writer *w, const char *name,
                         const char *status, const char *text, size_t len, const struct choice *c)
{
    json_begin_object(w, name);
    json_write_text(w, "type", "message");
    json_write_format(w, "id", "msg_%s", id);
    json_write_text(w, "status", status);
    json_write_text(w, "role", "assistant");
    json_begin_array(w, "content");
    if (text != NULL)
        response_write_part(w, NULL, text, len, c);
    json_end_array(w);
    json_end_object(w);
}

bool response_is_cut_short(const struct completed_turn *t)
{
    return t->finish != FINISH_STOP;
}

static const char *response_status(const struct completed_turn *t)
{
    if (t == NULL)
        return "in_progress";
    if (t->finish == FINISH_CANCELLED)
        return "cancelled";
    if (t->finish == FINISH_ERROR)
        return "failed";
    return response_is_cut_short(t) ? "incomplete" : "completed";
}

/* A message of a reply that was cancelled is as far as it came. */
const char *response_item_status(const struct completed_turn *t)
{
    return response_is_cut_short(t) ? "incomplete" : "completed";
}

void response_write_usage(const struct completed_turn *t, const struct model *m,
                          struct json_writer *w)
{
    const struct usage *u = &t->usage;

    json_begin_object(w, "usage");
    json_write_unsigned(w, "input_tokens", u->n_prompt);
    json_begin_object(w, "input_tokens_details");
    generation_write_cached(w, u->n_cached, u->n_cached_host, u->n_cached_disk);
    json_write_unsigned(w, "cache_write_tokens", 0);
    json_end_object(w);
    json_write_unsigned(w, "output_tokens", u->n_completion);
    json_begin_object(w, "output_tokens_details");
    json_write_unsigned(w, "reasoning_tokens", tools_thought_tokens(t, m->info.text.reply_format));
    json_end_object(w);
    json_write_unsigned(w, "total_tokens", u->n_prompt + u->n_completion);
    json_end_object(w);
}

static void write_outcome(struct json_writer *w, const struct response_view *v,
                          const struct completed_turn *t)
{
    if (t == NULL) {
        json_write_null(w, "completed_at");
        json_write_null(w, "incomplete_details");
        json_write_null(w, "usage");
        return;
    }
    json_write_unsigned(w, "completed_at", v->created_s + t->timings.total_us / 1000000);
    if (response_is_cut_short(t) && t->finish != FINISH_CANCELLED && t->finish != FINISH_ERROR) {
        json_begin_object(w, "incomplete_details");
        json_write_text(w, "reason",
                        t->finish == FINISH_LENGTH ? "max_output_tokens" : finish_name(t->finish));
        json_end_object(w);
    } else {
        json_write_null(w, "incomplete_details");
    }
    response_write_usage(t, v->model, w);
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
    json_t *list = json_loadb(use->tools.text, use->tools.len, JSON_ALLOW_NUL, NULL);
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
    json_t *all = given.len == 0 ? NULL : json_loadb(given.text, given.len, JSON_ALLOW_NUL, NULL);
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
        response_output_whole(id, t, &config, response_item_status(t), gives_thoughts, w);
    else
        response_write_item(id, w, NULL, response_item_status(t), t->len == 0 ? "" : t->text,
                            t->len, NULL);
}

static void response_write_output(const struct response_view *v, struct json_writer *w)
{
    const struct reply_format *format = v->model->info.text.reply_format;
    const struct response *r = v->response;
    const struct completed_turn *t = v->completed;

    json_begin_array(w, "output");
    if (t != NULL && v->choice != NULL && r->gives_logprobs && !generation_has_parts(v->choice))
        response_write_item(r->id + 5, w, NULL, response_item_status(t), t->len == 0 ? "" : t->text,
                            t->len, v->choice);
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
    json_write_text(w, "status", r->failure != NULL ? "failed" : response_status(t));
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
    if (t != NULL && v->choice != NULL)
        generation_write_whole_ids(v->choice->generation, v->choice, w);
    json_end_object(w);
}
