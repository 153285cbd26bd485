/* JSON objects, one a line, from stdin. */
#ifndef CLIENT_CLI_JSON_LINES_H
#define CLIENT_CLI_JSON_LINES_H

#include <jansson.h>

#include "base/status.h"
#include "client/cli/verb.h"

/* Makes the answer to a line. *out is the caller's. */
typedef enum status (*json_lines_fn)(json_t **out, void *arg, const json_t *line,
                                     struct error *err);

/* Answers every line of stdin by a line of stdout. The first bad one ends it, with its number said.
 */
enum exit_code json_lines_run(json_lines_fn answer, void *arg);

#endif
