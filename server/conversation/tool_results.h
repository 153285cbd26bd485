/* The results of tools: each call that the model made in a conversation gets one. */
#ifndef SERVER_CONVERSATION_TOOL_RESULTS_H
#define SERVER_CONVERSATION_TOOL_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct stored_request;
struct turn_host;
struct turn_request;

/* Whether the reply to r may have the call of this id, [len] bytes. */
bool tool_call_may_be_of(const struct stored_request *r, const char *id, size_t len);

/* EXISTS, reason TURN_BODY_DIFFERS, if r gives the result of a call that the model made in this
 * conversation, and an earlier turn of it, complete or in flight, has given that result. Calls that
 * the model did not make here (a client's own history) have any number of results. Only requests
 * with results cost time: the ids are sorted once, and the turns are gone through once. EXHAUSTED
 * without memory. */
enum status tool_results_check(const struct turn_host *host, const struct turn_request *r,
                               struct error *err) MUST_CHECK;

#endif
