/* A call about conversations that may be only in the journal. It is answered only when its changes
 * are durable. Without a journal it does not wait. */
#ifndef SERVER_API_PARLEY_CONVERSATION_CALL_H
#define SERVER_API_PARLEY_CONVERSATION_CALL_H

#include "server/call/call.h"
#include "server/journal/store.h"

/* Calls then once the conversation that by and text name is in memory, if there is one, or at once;
 * or ends the call with the error. The call has had no handler before. */
void conversation_call_want(struct call *call, enum journal_by by, const char *text,
                            void (*then)(struct call *call));

/* Ends the call where rc is OK with its one response, which is copied, or with UNAVAILABLE; else
 * with err. The call has no handler. */
void conversation_call_answer(struct call *call, enum status rc, const struct error *err,
                              const ProtobufCMessage *response);

#endif
