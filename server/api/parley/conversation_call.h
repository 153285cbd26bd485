/* A call about conversations that may be only in the journal. Such a call is answered only when its
 * changes are durable; without a journal it waits for nothing. Loop. */
#ifndef SERVER_API_PARLEY_CONVERSATION_CALL_H
#define SERVER_API_PARLEY_CONVERSATION_CALL_H

#include "server/call/call.h"

struct conversation;

/* Looks for the conversation of this id or name in the journal, where it is not in memory. Then
 * calls then, also where there is no such conversation, or ends the call with the error. The call
 * has no handler. */
void conversation_call_want(struct call *call, const char *text, void (*then)(struct call *call));
/* Looks likewise for the conversation that the caller's request of this id has opened. */
void conversation_call_want_opened(struct call *call, const char *request_id,
                                   void (*then)(struct call *call));
/* Finds the caller's conversation of this id or name. NOT_FOUND, INVALID if it is "". */
enum status conversation_call_find(struct conversation **out, const struct call *call,
                                   const char *text, struct error *err) MUST_CHECK;

/* Ends the call. Where rc is OK, the call is answered with its one response, which is copied, once
 * the changes are durable, or with UNAVAILABLE where they cannot be kept. Otherwise it ends with
 * err. The call has no handler. */
void conversation_call_answer(struct call *call, enum status rc, const struct error *err,
                              const ProtobufCMessage *response);

#endif
