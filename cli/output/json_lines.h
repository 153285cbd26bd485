/* JSON that is read one value a line, and answered so. Empty lines, and marks of byte order
 * (U+FEFF) in front of a value, are passed over: other programs write them, and they say nothing.
 */
#ifndef CLI_OUTPUT_JSON_LINES_H
#define CLI_OUTPUT_JSON_LINES_H

#include <jansson.h>
#include <stdio.h>

#include "base/status.h"
#include "cli/options/verb.h"

/* The most bytes of a line: one alone is in memory, so that a file may have any size. */
enum { JSON_LINE_MAX_BYTES = 256 << 20 };
/* The most values of a line: an empty object, of two bytes, takes some 240 in memory. */
enum { JSON_LINE_MAX_VALUES = 4 << 20 };

struct json_lines {
    FILE *in;      /* borrowed */
    size_t number; /* of the last line, from 1 */
    char *text;    /* [len] the last line, with its newline, if it has one; len is 0 behind it */
    size_t len, cap;
};

/* Reads the next line, with jansson's flags. *out is NULL behind the last one; the caller owns it.
 * INVALID for a line that is too large or no JSON, UNKNOWN where in cannot be read. */
enum status json_lines_next(struct json_lines *l, json_t **out, size_t flags,
                            struct error *err) MUST_CHECK;
void json_lines_deinit(struct json_lines *l); /* l may be zeroed */

/* Makes the answer to a line. The caller owns *out. */
typedef enum status (*json_lines_fn)(json_t **out, void *arg, const json_t *line,
                                     struct error *err);

/* Answers every value of stdin by a line of stdout. The first bad line ends the run, with an error
 * that has its number. */
enum exit_code json_lines_run(json_lines_fn answer, void *arg);

#endif
