/* What a request for a message has in forms of its own, blocks and tools, in the form of chat
 * completions. */
#ifndef SERVER_API_ANTHROPIC_REQUEST_CHAT_H
#define SERVER_API_ANTHROPIC_REQUEST_CHAT_H

#include <jansson.h>

#include "base/status.h"

/* A new reference to {"messages", "tools", "tool_choice", "parallel_tool_calls"}. Results of tools
 * are messages of their own; how a result is an error is said in its text. */
enum status anthropic_chat(json_t **out, const json_t *body, struct error *err) MUST_CHECK;

#endif
