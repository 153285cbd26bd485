/* What a request for a message has in forms of its own, blocks and tools, in the form of chat
 * completions. */
#ifndef SERVER_API_ANTHROPIC_REQUEST_CHAT_H
#define SERVER_API_ANTHROPIC_REQUEST_CHAT_H

#include <jansson.h>

#include "base/status.h"

/* Makes an object with "messages", "tools", "tool_choice" and "parallel_tool_calls", a new
 * reference. Each result of a tool is a message of its own; the text of a result that is an error
 * says so. */
enum status anthropic_chat(json_t **out, const json_t *body, struct error *err) MUST_CHECK;

#endif
