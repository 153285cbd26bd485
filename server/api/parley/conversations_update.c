/* parley.v1.Conversations, Update. */
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/conversation/conversation.h"
#include "server/server.h"

static void update_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsUpdateRequest *request =
        (const Parley__V1__ConversationsUpdateRequest *)message;
    Parley__V1__Conversation *response;
    struct update_request r;
    struct conversation *c;
    struct error err;
    enum status rc;

    rc = request->conversation[0] == '\0'
             ? error_field(&err, "conversation", "is empty")
             : conversations_find(&c, server->conversations, call_principal(call)->id,
                                  request->conversation, &err);
    if (rc == STATUS_OK)
        rc = wire_update(&r, request, call_arena(call), &err);
    if (rc == STATUS_OK)
        rc = conversation_update(c, &r, &err);
    if (rc == STATUS_OK)
        rc = wire_conversation(&response, c, call_principal(call), call_arena(call), &err);
    if (rc == STATUS_OK)
        conversation_call_reply(call, server, &response->base);
    else
        call_finish(call, &err);
}

static void update_conversation(struct call *call, const ProtobufCMessage *message,
                                struct server *server)
{
    const Parley__V1__ConversationsUpdateRequest *request =
        (const Parley__V1__ConversationsUpdateRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message,
                           update_found);
}

static const struct rpc rows[] = {
    {"/parley.v1.Conversations/Update", RPC_UNARY,
     &parley__v1__conversations_update_request__descriptor, &parley__v1__conversation__descriptor,
     update_conversation, ACCESS_KEY},
};

const struct rpc_table conversations_update_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
