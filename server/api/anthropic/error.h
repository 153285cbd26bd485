/* Anthropic's HTTP API and its error body:
 * {"type": "error", "error": {"type", "message"}}. */
#ifndef SERVER_API_ANTHROPIC_ERROR_H
#define SERVER_API_ANTHROPIC_ERROR_H

#include "server/http/route.h"

extern const struct http_api anthropic_api;

#endif
