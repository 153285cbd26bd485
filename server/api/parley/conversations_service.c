/* parley.v1.Conversations, the methods that answer at once. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/api/models_load.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/conversation/opening.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* Bound of one answer's memory. */
#define ANSWER_MAX_BYTES ((size_t)256 << 20)

static enum status conversations_service_check(const char *id, struct error *err)
{
    return id[0] == '\0' ? error_field(err, "conversation", "is empty") : STATUS_OK;
}

static enum status conversations_service_find(struct conversation **out, const struct call *call,
                                              const char *id, struct error *err)
{
    enum status rc = conversations_service_check(id, err);

    return rc == STATUS_OK ? conversations_find(out, call_server(call)->conversations,
                                                call_principal(call)->id, id, err)
                           : rc;
}

static void open_with_model(struct call *call, const ProtobufCMessage *message,
                            struct server *server)
{
    const Parley__V1__ConversationsOpenRequest *request =
        (const Parley__V1__ConversationsOpenRequest *)message;
    Parley__V1__ConversationsOpenResponse response = PARLEY__V1__CONVERSATIONS_OPEN_RESPONSE__INIT;
    char id[CONVERSATION_ID_CHARS];
    struct open_request r;
    struct conversation *c;
    struct model *m;
    struct error err;
    enum status rc;

    rc = models_get(&m, server->models, request->model, &err);
    if (rc == STATUS_OK)
        rc = wire_open(&r, request, call_arena(call), &err);
    r.principal = call_principal(call)->id;
    if (rc == STATUS_OK)
        rc = opening_open(&c, server->conversations, m, request->request_id, &r, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    conversation_id_format(&c->id, id);
    log_debug("opened", "conversation=%s model=%s", id, m->name);
    response.conversation = id;
    response.model = m->name;
    response.version = m->info.version;
    conversation_call_reply(call, server, &response.base);
}

static void open_or_find(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsOpenRequest *request =
        (const Parley__V1__ConversationsOpenRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_REQUEST, request->request_id, message,
                           open_with_model);
}

static void open_conversation(struct call *call, const ProtobufCMessage *message,
                              struct server *server)
{
    const Parley__V1__ConversationsOpenRequest *request =
        (const Parley__V1__ConversationsOpenRequest *)message;

    models_call_want(call, server, request->model, message, open_or_find);
}

static void fork_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsForkRequest *request =
        (const Parley__V1__ConversationsForkRequest *)message;
    Parley__V1__ConversationsForkResponse response = PARLEY__V1__CONVERSATIONS_FORK_RESPONSE__INIT;
    char id[CONVERSATION_ID_CHARS];
    struct fork_request r = {
        .principal = call_principal(call)->id,
        .parent = request->conversation,
        .has_at_turn = request->at_case == PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN,
        .at_turn = request->at_turn,
        .n_metadata = request->n_metadata,
    };
    struct conversation *f;
    struct error err;
    enum status rc;

    rc = conversations_service_check(request->conversation, &err);
    if (rc == STATUS_OK)
        rc = wire_fork_metadata(&r.metadata, request, call_arena(call), &err);
    if (rc == STATUS_OK)
        rc =
            opening_fork(&f, &response.turns, server->conversations, request->request_id, &r, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    conversation_id_format(&f->id, id);
    log_debug("forked", "conversation=%s parent=%s turns=%u", id, request->conversation,
              response.turns);
    response.conversation = id;
    conversation_call_reply(call, server, &response.base);
}

static void fork_parent_wanted(struct call *call, const ProtobufCMessage *message,
                               struct server *server)
{
    const Parley__V1__ConversationsForkRequest *request =
        (const Parley__V1__ConversationsForkRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message, fork_found);
}

static void fork_conversation(struct call *call, const ProtobufCMessage *message,
                              struct server *server)
{
    const Parley__V1__ConversationsForkRequest *request =
        (const Parley__V1__ConversationsForkRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_REQUEST, request->request_id, message,
                           fork_parent_wanted);
}

static void rewind_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsRewindRequest *request =
        (const Parley__V1__ConversationsRewindRequest *)message;
    Parley__V1__ConversationsRewindResponse response =
        PARLEY__V1__CONVERSATIONS_REWIND_RESPONSE__INIT;
    struct conversation *c;
    struct error err;
    enum status rc;

    rc = conversations_service_find(&c, call, request->conversation, &err);
    if (rc == STATUS_OK)
        rc = request->to_case == PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__TO_TO_TURN
                 ? conversation_rewind_from(c, request->generation, request->to_turn, &err)
                 : error_field(&err, "to_turn", "is missing");
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.turns = c->host.n_turns;
    response.generation = c->host.generation;
    conversation_call_reply(call, server, &response.base);
}

static void rewind_conversation(struct call *call, const ProtobufCMessage *message,
                                struct server *server)
{
    const Parley__V1__ConversationsRewindRequest *request =
        (const Parley__V1__ConversationsRewindRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message,
                           rewind_found);
}

static void cancel_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsCancelRequest *request =
        (const Parley__V1__ConversationsCancelRequest *)message;
    Parley__V1__ConversationsCancelResponse response =
        PARLEY__V1__CONVERSATIONS_CANCEL_RESPONSE__INIT;
    struct conversation *c;
    size_t n_cancelled = 0;
    struct error err;
    enum status rc;

    rc = conversations_service_find(&c, call, request->conversation, &err);
    if (rc == STATUS_OK)
        rc = conversation_cancel_from(c, request->turn, &n_cancelled, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.cancelled = (uint32_t)n_cancelled;
    conversation_call_reply(call, server, &response.base);
}

static void cancel_turns(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsCancelRequest *request =
        (const Parley__V1__ConversationsCancelRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message,
                           cancel_found);
}

static void close_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsCloseRequest *request =
        (const Parley__V1__ConversationsCloseRequest *)message;
    Parley__V1__ConversationsCloseResponse response =
        PARLEY__V1__CONVERSATIONS_CLOSE_RESPONSE__INIT;
    struct conversation *c;
    struct error err;

    if (conversations_service_find(&c, call, request->conversation, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    log_debug("closed", "conversation=%s turns=%u", request->conversation, c->host.n_turns);
    conversation_close(c, WATCH_CLOSED, "asked for");
    conversation_call_reply(call, server, &response.base);
}

static void conversations_service_close_conversation(struct call *call,
                                                     const ProtobufCMessage *message,
                                                     struct server *server)
{
    const Parley__V1__ConversationsCloseRequest *request =
        (const Parley__V1__ConversationsCloseRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message,
                           close_found);
}

static void get_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsGetRequest *request =
        (const Parley__V1__ConversationsGetRequest *)message;
    Parley__V1__Conversation *response;
    struct conversation *c;
    struct arena arena;
    struct error err;
    enum status rc;

    (void)server;
    arena_init(&arena, ANSWER_MAX_BYTES);
    rc = conversations_service_find(&c, call, request->conversation, &err);
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

static void get_conversation(struct call *call, const ProtobufCMessage *message,
                             struct server *server)
{
    const Parley__V1__ConversationsGetRequest *request =
        (const Parley__V1__ConversationsGetRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message, get_found);
}

#define UNARY(name, request, response, start)                                              \
    {                                                                                      \
        "/parley.v1.Conversations/" name, RPC_UNARY, &parley__v1__##request##__descriptor, \
            &parley__v1__##response##__descriptor, start, ACCESS_KEY                       \
    }

static const struct rpc rows[] = {
    UNARY("Open", conversations_open_request, conversations_open_response, open_conversation),
    UNARY("Fork", conversations_fork_request, conversations_fork_response, fork_conversation),
    UNARY("Rewind", conversations_rewind_request, conversations_rewind_response,
          rewind_conversation),
    UNARY("Cancel", conversations_cancel_request, conversations_cancel_response, cancel_turns),
    UNARY("Close", conversations_close_request, conversations_close_response,
          conversations_service_close_conversation),
    UNARY("Get", conversations_get_request, conversation, get_conversation),
};

const struct rpc_table conversations_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
