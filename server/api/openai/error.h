/* OpenAI's HTTP API and its error body:
 * {"error": {"message", "type", "param", "code"}}. */
#ifndef SERVER_API_OPENAI_ERROR_H
#define SERVER_API_OPENAI_ERROR_H

#include "server/http/route.h"

extern const struct http_api openai_api;

struct json_writer;

/* Returns the "code" of an error, by which programs know it. */
const char *openai_error_code(const struct error *err);
/* Writes the member "message". */
void openai_write_message(struct json_writer *w, const struct error *err);

#endif
