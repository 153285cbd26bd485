/* OpenAI's HTTP API and its error body:
 * {"error": {"message", "type", "param", "code"}}. */
#ifndef SERVER_API_OPENAI_ERROR_H
#define SERVER_API_OPENAI_ERROR_H

#include "server/http/route.h"

extern const struct http_api openai_api;

#endif
