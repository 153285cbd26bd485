/* Answers JSON objects that are read from stdin, one a line. */
#ifndef CLI_OUTPUT_JSON_LINES_H
#define CLI_OUTPUT_JSON_LINES_H

#include <jansson.h>

#include "base/status.h"
#include "cli/options/verb.h"

/* Makes the answer to a line. The caller owns *out. */
typedef enum status (*json_lines_fn)(json_t **out, void *arg, const json_t *line,
                                     struct error *err);

/* Answers every line of stdin by a line of stdout. The first bad line ends the run, with an error
 * that has its number. */
enum exit_code json_lines_run(json_lines_fn answer, void *arg);

#endif
