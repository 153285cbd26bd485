/* POST /v1/responses. A response's id names its conversation and its turn. A request that continues
 * it runs in a fork of that conversation, so several requests may continue one response, and
 * nothing is recomputed. */
#include <string.h>

#include "server/access/access.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/history.h"
#include "server/api/openai/instructions.h"
#include "server/api/openai/references.h"
#include "server/api/openai/request.h"
#include "server/api/openai/response.h"
#include "server/api/openai/response_events.h"
#include "server/api/openai/truncation.h"
#include "server/api/request_key.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/conversation.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/names.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

/* A response that is complete, to go on from. */
static enum status find_previous(struct conversation **out, struct turn_place *ret_place,
                                 const struct exchange *x, const char *id, struct error *err)
{
    enum status rc = response_find(out, ret_place, x, id, "previous_response_id", err);

    if (rc == STATUS_OK && ret_place->turn > (*out)->host.n_turns)
        return error_because(err, STATUS_ABORTED, REASON_CONVERSATION_BUSY, "previous_response_id",
                             "the response is not complete yet");
    return rc;
}

/* Instructions that are not those that held so far (have) come before the input, as a message. */
static enum status instruct(struct responses_request *q, struct text have, struct arena *arena,
                            struct error *err)
{
    struct prompt *p = &q->base.prompts[0];
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

/* Without instructions of its own the request has those that hold, as response_of_turn says. */
static enum status inherit(struct responses_request *q, struct text have, struct arena *arena,
                           struct error *err)
{
    const struct prompt *p = &q->base.prompts[0];
    const struct text own = instructions_head(p->messages, p->n_messages);

    if (own.len > 0)
        have = own;
    if (q->instructions != NULL || have.len == 0)
        return STATUS_OK;
    q->instructions = arena_strndup(arena, have.text, have.len);
    return q->instructions != NULL ? STATUS_OK : error_no_memory(err, have.len, "the request");
}

static enum status fork_previous(struct conversation **out, struct exchange *x,
                                 struct responses_request *q, struct model **model,
                                 struct error *err)
{
    struct conversation *c;
    const struct completed_turn *newest;
    struct turn_place place;

    if (find_previous(&c, &place, x, q->previous, err) != STATUS_OK ||
        conversation_check_model(c, err) != STATUS_OK)
        return err->status;
    if (q->base.model[0] == '\0')
        *model = c->host.model;
    if (c->host.model != *model)
        return error_field(err, "previous_response_id", "is a response of model '%s'",
                           c->host.model->name);
    newest = completed_turn_find(c->host.newest, place.turn);
    if (instruct(q, instructions_behind(c, newest, place.is_of_named), exchange_arena(x), err) !=
            STATUS_OK ||
        inherit(q, instructions_behind(c, newest, false), exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return conversation_fork(out, c, place.turn, q->metadata, q->n_metadata, err);
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
    return instruct(q, instructions_behind(c, c->host.newest, true), exchange_arena(x), err);
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
    response_format_id(r->id, &(struct turn_place){.origin = {reply->turns[0].conversation,
                                                              reply->turns[0].generation},
                                                   .turn = reply->turns[0].number,
                                                   .is_of_named = q->conversation != NULL});
    response_take_tools(r, q);
    if (keep_text(&r->previous, arena, err) != STATUS_OK ||
        keep_text(&r->instructions, arena, err) != STATUS_OK ||
        response_set_metadata(&r->metadata, q->metadata, q->n_metadata, arena, err) != STATUS_OK)
        return err->status;
    *out = r;
    return q->conversation == NULL
               ? STATUS_OK
               : response_set_conversation(r, &reply->turns[0].conversation, arena, err);
}

/* What the response of a turn of a named conversation has of its own, and the instructions of one
 * that goes on from a response: kept with the answer alone. */
static enum status response_take_own(struct response *r, const struct responses_request *q,
                                     struct arena *arena, struct error *err)
{
    r->instructions = q->instructions;
    if (keep_text(&r->instructions, arena, err) != STATUS_OK)
        return err->status;
    if (q->conversation == NULL)
        return STATUS_OK;
    return response_set_metadata(&r->metadata, q->metadata, q->n_metadata, arena, err);
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
    struct turn_place place = {.is_of_named = q->conversation != NULL};
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
    place.origin = (struct turn_origin){c->id, c->host.generation};
    place.turn = c->host.n_turns + (uint32_t)c->host.n_live + 1;
    rc = response_of_turn(&r, c, &place, NULL, exchange_arena(x), err);
    if (rc == STATUS_OK && (q->conversation != NULL || q->previous != NULL))
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
            return response_refuse_in_stream(x, r, model, plan.created_s, err);
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

static void responses_serve(struct exchange *x)
{
    resolution_serve_from(x, history_conversation(x), responses_begin);
}

static const struct route rows[] = {
    {"/v1/responses", .methods = METHOD_POST, .serve = responses_serve, .api = &openai_api},
};
const struct route_table openai_responses_routes = {rows, sizeof(rows) / sizeof(rows[0])};
