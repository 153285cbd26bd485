/* A call about conversations that may be only in the journal. It is answered only when its changes
 * are durable. Without a journal it does not wait. */
#ifndef SERVER_API_PARLEY_CONVERSATION_CALL_H
#define SERVER_API_PARLEY_CONVERSATION_CALL_H

#include "server/call/call.h"

struct conversation;

/* Calls then once the conversation of this id or name is in memory, if there is one, or at once; or
 * ends the call with the error. The call has had no handler before. */
void conversation_call_want(struct call *call, const char *text, void (*then)(struct call *call));
/* The same for the conversation that the caller's request of this id has opened. */
void conversation_call_want_opened(struct call *call, const char *request_id,
                                   void (*then)(struct call *call));
/* Finds the caller's conversation of this id or name. NOT_FOUND, INVALID if it is "". */
enum status conversation_call_find(struct conversation **out, const struct call *call,
                                   const char *text, struct error *err) MUST_CHECK;

/* Ends the call where rc is OK with its one response, which is copied, or with UNAVAILABLE; else
 * with err. The call has no handler. */
void conversation_call_answer(struct call *call, enum status rc, const struct error *err,
                              const ProtobufCMessage *response);

#endif
