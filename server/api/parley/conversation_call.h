/* A call about conversations that may be only in the journal. It is answered only when its changes
 * are durable. Without a journal it does not wait. */
#ifndef SERVER_API_PARLEY_CONVERSATION_CALL_H
#define SERVER_API_PARLEY_CONVERSATION_CALL_H

#include "server/call/call.h"
#include "server/journal/store.h"

/* For calls that set no handler before: then, with its message, at once or when the conversation is
 * in memory, if there is one; or the call ends with the error. */
typedef void (*conversation_then_fn)(struct call *call, const ProtobufCMessage *message,
                                     struct server *server);

void conversation_call_want(struct call *call, struct server *server, enum journal_by by,
                            const char *text, const ProtobufCMessage *message,
                            conversation_then_fn then);

/* Ends the call with its one response, which is copied, or with UNAVAILABLE. For calls that have no
 * handler. */
void conversation_call_reply(struct call *call, struct server *server,
                             const ProtobufCMessage *response);

#endif
