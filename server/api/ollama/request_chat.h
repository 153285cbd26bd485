/* Ollama's messages in the form of chat completions. */
#ifndef SERVER_API_OLLAMA_REQUEST_CHAT_H
#define SERVER_API_OLLAMA_REQUEST_CHAT_H

#include <jansson.h>

#include "base/status.h"

/* Makes the messages, a new reference. A call without an id gets one, and a result belongs to the
 * call that its tool_name names or, without one, to the next call in order. */
enum status ollama_chat_messages(json_t **out, const json_t *messages,
                                 struct error *err) MUST_CHECK;

#endif
