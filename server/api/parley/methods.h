/* Rows of parley.v1 (server/call/methods.h), without the package's name: "Store/Push",
 * store_push_request. Beside the forms that every service has there are, for methods about
 * conversations (conversation_call.h):
 *
 *     KEPT          as ANSWER, answered once what was changed is durable
 *     FOUND_KEPT    as KEPT, of a request whose conversation is looked for in the journal before
 *     FOUND_UNARY, FOUND_SERVER_STREAM   as UNARY and SERVER_STREAM, the same */
#ifndef SERVER_API_PARLEY_METHODS_H
#define SERVER_API_PARLEY_METHODS_H

#include "server/api/parley/conversation_call.h"
#include "server/call/methods.h"

#define PARLEY_TABLE(table, METHODS) CALL_TABLE_BY(table, METHODS, PARLEY_FUNCTION, PARLEY_ROW)
#define PARLEY_FUNCTION(form, access, path, request, response, f) \
    CALL_FUNCTION(form, access, path, parley__v1__##request, parley__v1__##response, f)
#define PARLEY_ROW(form, access, path, request, response, f) \
    CALL_ROW(form, access, "/parley.v1." path, parley__v1__##request, parley__v1__##response, f)

#define CALL_KIND_KEPT CALL_UNARY
#define CALL_KIND_FOUND_KEPT CALL_UNARY
#define CALL_KIND_FOUND_UNARY CALL_UNARY
#define CALL_KIND_FOUND_SERVER_STREAM CALL_SERVER_STREAM

#define CALL_START_KEPT(start, request, response, f) \
    CALL_START_BY(start, request, response, f, conversation_call_answer)
#define CALL_START_FOUND_KEPT(start, request, response, f) \
    CALL_START_KEPT(f##_found, request, response, f)       \
    PARLEY_FIND(start, request, conversation_call_want, conversation, f##_found)
#define CALL_START_FOUND_UNARY(start, request, response, f) \
    CALL_START_UNARY(f##_found, request, response, f)       \
    PARLEY_FIND(start, request, conversation_call_want, conversation, f##_found)
#define CALL_START_FOUND_SERVER_STREAM CALL_START_FOUND_UNARY
/* Defines start, which calls then once want (of conversation_call.h) has looked for the
 * conversation that the request's member names. */
#define PARLEY_FIND(start, request, want, member, then)        \
    static void start(struct call *call)                       \
    {                                                          \
        want(call, CALL_REQUEST(call, request)->member, then); \
    }

#endif
