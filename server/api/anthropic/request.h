/* A request for a message, read from its JSON. Results borrow the JSON and lie in the given arena.
 * Unknown fields are ignored; known but unsupported ones are refused. */
#ifndef SERVER_API_ANTHROPIC_REQUEST_H
#define SERVER_API_ANTHROPIC_REQUEST_H

#include "server/api/request.h"

/* The system prompt is the first message. is_counted: only the tokens are, so no bound on the reply
 * is needed. */
enum status anthropic_request(struct request *out, const json_t *body, bool is_counted,
                              struct arena *arena, struct error *err) MUST_CHECK;

#endif
