/* parley.v1.Conversations.Import. All turns are read before the first is added. If a turn
 * is refused, those added before it stay, and the error says how many. */
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/server.h"

static enum status import_turns(struct conversation *c,
                                const Parley__V1__ConversationsImportRequest *request,
                                struct arena *arena, struct error *err)
{
    struct imported_turn *turns = arena_alloc(arena, request->n_turns, sizeof(turns[0]));

    if (turns == NULL)
        return error_no_memory(err, request->n_turns * sizeof(turns[0]), "turns");
    for (size_t i = 0; i < request->n_turns; i++)
        if (wire_imported_turn(&turns[i], request->turns[i], arena, err) != STATUS_OK)
            return error_prefix(err, "turns[%zu]", i);
    for (size_t i = 0; i < request->n_turns; i++)
        if (conversation_import(c, &turns[i], err) != STATUS_OK)
            return error_prefix(err, "turns[%zu]", i);
    return STATUS_OK;
}

static void import_found(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ConversationsImportRequest *request =
        (const Parley__V1__ConversationsImportRequest *)message;
    Parley__V1__ConversationsImportResponse response =
        PARLEY__V1__CONVERSATIONS_IMPORT_RESPONSE__INIT;
    struct conversation *c;
    struct error err;
    enum status rc = conversations_find(&c, server->conversations, call_principal(call)->id,
                                        request->conversation, &err);

    if (rc == STATUS_OK)
        rc = import_turns(c, request, call_arena(call), &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.turns = c->host.n_turns;
    conversation_call_reply(call, server, &response.base);
}

static void import_conversation(struct call *call, const ProtobufCMessage *message,
                                struct server *server)
{
    const Parley__V1__ConversationsImportRequest *request =
        (const Parley__V1__ConversationsImportRequest *)message;

    conversation_call_want(call, server, JOURNAL_BY_ID, request->conversation, message,
                           import_found);
}

static const struct rpc rows[] = {
    {"/parley.v1.Conversations/Import", RPC_UNARY,
     &parley__v1__conversations_import_request__descriptor,
     &parley__v1__conversations_import_response__descriptor, import_conversation, ACCESS_KEY},
};

const struct rpc_table conversations_import_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
