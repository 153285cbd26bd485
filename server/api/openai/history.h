/* A request that goes on from a response, or in a conversation, as a request that has the whole
 * history as its own input. Loop. */
#ifndef SERVER_API_OPENAI_HISTORY_H
#define SERVER_API_OPENAI_HISTORY_H

#include <jansson.h>

#include "base/status.h"

struct exchange;

/* The id or name of the conversation that the request's body goes on from, or names, in the
 * exchange's arena: the conversation may have to be read from the journal before the request is
 * answered. "": none. */
const char *history_conversation(struct exchange *x);

/* Puts the items of what the body goes on from before its input, and what it has as instructions,
 * and takes previous_response_id and conversation out of the body. Fails as the request itself
 * would: NOT_FOUND, ABORTED where the response is not complete, INVALID for another model. */
enum status history_take_in(struct exchange *x, const json_t *body, struct error *err) MUST_CHECK;

#endif
