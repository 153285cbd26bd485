/* Ollama's messages in the form of chat completions. */
#ifndef SERVER_API_OLLAMA_REQUEST_CHAT_H
#define SERVER_API_OLLAMA_REQUEST_CHAT_H

#include <jansson.h>

#include "base/status.h"

/* A new reference. Calls without an id get one, and the results that follow belong to them: by
 * tool_name, else in their order. */
enum status ollama_chat_messages(json_t **out, const json_t *messages,
                                 struct error *err) MUST_CHECK;

#endif
