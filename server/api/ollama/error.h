/* Ollama's HTTP API and its error body: {"error": "…"}. */
#ifndef SERVER_API_OLLAMA_ERROR_H
#define SERVER_API_OLLAMA_ERROR_H

#include "server/http/route.h"

extern const struct http_api ollama_api;

#endif
