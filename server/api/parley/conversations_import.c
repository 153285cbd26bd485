/* parley.v1.Conversations.Import. All turns are read before the first is added. If a turn
 * is refused, those added before it stay, and the error says how many. */
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
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

static enum status import_conversation(struct call *call,
                                       const Parley__V1__ConversationsImportRequest *request,
                                       Parley__V1__ConversationsImportResponse *response,
                                       struct error *err)
{
    struct conversation *c;
    enum status rc = conversation_call_find(&c, call, request->conversation, err);

    if (rc == STATUS_OK)
        rc = import_turns(c, request, call_arena(call), err);
    if (rc != STATUS_OK)
        return rc;
    response->turns = c->host.n_turns;
    return STATUS_OK;
}

#define CONVERSATIONS_IMPORT_METHODS(METHOD)                                      \
    METHOD(FOUND_KEPT, KEY, "Conversations/Import", conversations_import_request, \
           conversations_import_response, import_conversation)

PARLEY_TABLE(conversations_import_methods, CONVERSATIONS_IMPORT_METHODS)
