/* Failures as the Connect protocol has them: a code by name, a message, and google.rpc's details.
 */
#ifndef SERVER_API_CONNECT_ERROR_H
#define SERVER_API_CONNECT_ERROR_H

#include "server/http/route.h"

struct json_writer;

/* Writes the error as a value of this name (base/json_writer.h). */
void connect_error_write(struct json_writer *w, const char *name, const struct error *err);

extern const struct http_api connect_api;

#endif
