/* A request for a message, read from its JSON. Results borrow the JSON and lie in the given arena.
 * Unknown fields are ignored; known but unsupported ones are refused. */
#ifndef SERVER_API_ANTHROPIC_REQUEST_H
#define SERVER_API_ANTHROPIC_REQUEST_H

#include "server/api/request.h"

/* Reads a request. The system prompt becomes the first message. With is_counted only the prompt's
 * tokens are counted, so the request needs no bound on the reply. INVALID names the field. */
enum status anthropic_request(struct request *out, const json_t *body, bool is_counted,
                              struct arena *arena, struct error *err) MUST_CHECK;

#endif
