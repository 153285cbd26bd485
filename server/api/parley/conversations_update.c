/* parley.v1.Conversations, Update. */
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/conversation.h"
#include "server/server.h"

static enum status update_conversation(struct call *call,
                                       const Parley__V1__ConversationsUpdateRequest *request,
                                       Parley__V1__Conversation *response, struct error *err)
{
    Parley__V1__Conversation *filled;
    struct update_request r;
    struct conversation *c;
    enum status rc;

    rc = conversation_call_find(&c, call, request->conversation, err);
    if (rc == STATUS_OK)
        rc = wire_update(&r, request, call_arena(call), err);
    if (rc == STATUS_OK)
        rc = conversation_update(c, &r, err);
    if (rc == STATUS_OK)
        rc = wire_conversation(&filled, c, call_principal(call), call_arena(call), err);
    if (rc == STATUS_OK)
        *response = *filled;
    return rc;
}

#define CONVERSATIONS_UPDATE_METHODS(METHOD)                                                    \
    METHOD(FOUND_KEPT, KEY, "Conversations/Update", conversations_update_request, conversation, \
           update_conversation)

PARLEY_TABLE(conversations_update_methods, CONVERSATIONS_UPDATE_METHODS)
