/* parley.v1.Conversations, the methods that answer at once. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/api/models_load.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/names.h"
#include "server/conversation/opening.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* Bound of one answer's memory. */
#define ANSWER_MAX_BYTES ((size_t)256 << 20)

/* The id of the parent that the request names: a retry is then the same, whichever it names. */
static enum status take_parent(const char **out, struct call *call, const char *text,
                               struct error *err)
{
    struct conversation_id id;
    char *hex;

    *out = text;
    if (text[0] == '\0')
        return error_field(err, "conversation", "is empty");
    if (!conversation_names_resolve(&id, call_server(call)->names, call_principal(call)->id, text))
        return STATUS_OK; /* it will not be found */
    hex = arena_alloc(call_arena(call), CONVERSATION_ID_CHARS, 1);
    if (hex == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a request");
    conversation_id_format(&id, hex);
    *out = hex;
    return STATUS_OK;
}

static enum status open_conversation(struct call *call,
                                     const Parley__V1__ConversationsOpenRequest *request,
                                     Parley__V1__ConversationsOpenResponse *response,
                                     struct error *err)
{
    struct server *server = call_server(call);
    char *id = arena_alloc(call_arena(call), CONVERSATION_ID_CHARS, 1);
    struct open_request r;
    struct conversation *c;
    struct model *m;
    enum status rc;

    if (id == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a response");
    rc = models_get(&m, server->models, request->model, err);
    if (rc == STATUS_OK)
        rc = wire_open(&r, request, call_arena(call), err);
    r.principal = call_principal(call)->id;
    if (rc == STATUS_OK)
        rc = opening_open(&c, server->conversations, m, request->request_id, &r, err);
    if (rc != STATUS_OK)
        return rc;
    conversation_id_format(&c->id, id);
    log_debug("opened", "conversation=%s model=%s", id, m->name);
    response->conversation = id;
    response->model = m->name;
    response->version = m->info.version;
    return STATUS_OK;
}

static enum status fork_conversation(struct call *call,
                                     const Parley__V1__ConversationsForkRequest *request,
                                     Parley__V1__ConversationsForkResponse *response,
                                     struct error *err)
{
    char *id = arena_alloc(call_arena(call), CONVERSATION_ID_CHARS, 1);
    struct fork_request r = {
        .principal = call_principal(call)->id,
        .has_at_turn = request->at_case == PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN,
        .at_turn = request->at_turn,
        .n_metadata = request->n_metadata,
    };
    struct conversation *f;
    enum status rc;

    if (id == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a response");
    rc = take_parent(&r.parent, call, request->conversation, err);
    if (rc == STATUS_OK)
        rc = wire_fork_metadata(&r.metadata, request, call_arena(call), err);
    if (rc == STATUS_OK)
        rc = opening_fork(&f, &response->turns, call_server(call)->conversations,
                          request->request_id, &r, err);
    if (rc != STATUS_OK)
        return rc;
    conversation_id_format(&f->id, id);
    log_debug("forked", "conversation=%s parent=%s turns=%u", id, request->conversation,
              response->turns);
    response->conversation = id;
    return STATUS_OK;
}

static enum status rewind_conversation(struct call *call,
                                       const Parley__V1__ConversationsRewindRequest *request,
                                       Parley__V1__ConversationsRewindResponse *response,
                                       struct error *err)
{
    struct conversation *c;
    enum status rc;

    rc = conversation_call_find(&c, call, request->conversation, err);
    if (rc == STATUS_OK)
        rc = request->to_case == PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__TO_TO_TURN
                 ? conversation_rewind_from(c, request->generation, request->to_turn, err)
                 : error_field(err, "to_turn", "is missing");
    if (rc != STATUS_OK)
        return rc;
    response->turns = c->host.n_turns;
    response->generation = c->host.generation;
    return STATUS_OK;
}

static enum status cancel_turns(struct call *call,
                                const Parley__V1__ConversationsCancelRequest *request,
                                Parley__V1__ConversationsCancelResponse *response,
                                struct error *err)
{
    struct conversation *c;
    size_t n_cancelled = 0;
    enum status rc;

    rc = conversation_call_find(&c, call, request->conversation, err);
    if (rc == STATUS_OK)
        rc = conversation_cancel_from(c, request->turn, &n_cancelled, err);
    if (rc != STATUS_OK)
        return rc;
    response->cancelled = (uint32_t)n_cancelled;
    return STATUS_OK;
}

static enum status close_conversation(struct call *call,
                                      const Parley__V1__ConversationsCloseRequest *request,
                                      Parley__V1__ConversationsCloseResponse *response,
                                      struct error *err)
{
    struct conversation *c;
    enum status rc = conversation_call_find(&c, call, request->conversation, err);

    if (rc == STATUS_OK)
        rc = conversation_check_pins(c, err);
    if (rc != STATUS_OK)
        return rc;
    log_debug("closed", "conversation=%s turns=%u", request->conversation, c->host.n_turns);
    conversation_close(c, WATCH_CLOSED, "asked for");
    return STATUS_OK;
}

static void get_conversation(struct call *call, const Parley__V1__ConversationsGetRequest *request)
{
    Parley__V1__Conversation *response;
    struct conversation *c;
    struct arena arena;
    struct error err;
    enum status rc;

    arena_init(&arena, ANSWER_MAX_BYTES);
    rc = conversation_call_find(&c, call, request->conversation, &err);
    if (rc == STATUS_OK)
        rc = wire_conversation(&response, c, call_principal(call), &arena, &err);
    if (rc == STATUS_OK && !request->without_transcript)
        rc = wire_transcript(response, c, request->page_size, request->page_token, &arena, &err);
    if (rc == STATUS_OK)
        call_reply(call, &response->base);
    else
        call_finish(call, &err);
    arena_deinit(&arena);
}

/* Open first waits for its model, then for what a retry of it has opened; Fork for the same, then
 * for the parent. */
#define CALL_KIND_OPEN CALL_UNARY
#define CALL_START_OPEN(start, request, response, f)                                       \
    CALL_START_KEPT(f##_found, request, response, f)                                       \
    PARLEY_FIND(f##_loaded, request, conversation_call_want_opened, request_id, f##_found) \
    static void start(struct call *call)                                                   \
    {                                                                                      \
        models_call_want(call, CALL_REQUEST(call, request)->model, f##_loaded);            \
    }
#define CALL_KIND_FORK CALL_UNARY
#define CALL_START_FORK(start, request, response, f)     \
    CALL_START_FOUND_KEPT(f##_new, request, response, f) \
    PARLEY_FIND(start, request, conversation_call_want_opened, request_id, f##_new)

#define CONVERSATIONS_SERVICE_METHODS(METHOD)                                              \
    METHOD(OPEN, KEY, "Conversations/Open", conversations_open_request,                    \
           conversations_open_response, open_conversation)                                 \
    METHOD(FORK, KEY, "Conversations/Fork", conversations_fork_request,                    \
           conversations_fork_response, fork_conversation)                                 \
    METHOD(FOUND_KEPT, KEY, "Conversations/Rewind", conversations_rewind_request,          \
           conversations_rewind_response, rewind_conversation)                             \
    METHOD(FOUND_KEPT, KEY, "Conversations/Cancel", conversations_cancel_request,          \
           conversations_cancel_response, cancel_turns)                                    \
    METHOD(FOUND_KEPT, KEY, "Conversations/Close", conversations_close_request,            \
           conversations_close_response, close_conversation)                               \
    METHOD(FOUND_UNARY, KEY, "Conversations/Get", conversations_get_request, conversation, \
           get_conversation)

PARLEY_TABLE(conversations_service_methods, CONVERSATIONS_SERVICE_METHODS)
