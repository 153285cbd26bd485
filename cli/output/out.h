/* Writes results to stdout. If stdout is closed by its reader or the disk is full, the program ends
 * with EXIT_FAILED. */
#ifndef CLI_OUTPUT_OUT_H
#define CLI_OUTPUT_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Each function returns false once a write has failed. */
bool out_text(const char *text, size_t len);
bool out_flush(void);
/* Writes the object as one compact line, and takes the object. */
bool out_json(json_t *object);
/* Writes text that a peer sent. On a terminal the control characters but tab and newline become
 * U+FFFD, so that the text cannot steer the terminal; and so do U+061C, U+200E, U+200F, U+202A to
 * U+202E and U+2066 to U+2069, which nobody sees, so that they cannot reorder the line. */
bool out_foreign(const char *text, size_t len);
/* What a terminal is to show for a character that a peer sent. */
uint32_t out_shown(uint32_t character);

/* Opens a file for results; for "-" the file is a copy of stdout. NULL: errno says why. */
FILE *out_file_open(const char *path);

/* Whether a file for results can be written at the path (NULL: none is wanted), before a long work
 * for it begins. A file that was not there is not there afterwards. False: an error was printed. */
bool out_file_can(const char *path);

bool out_is_tty(void);
/* Whether stdout is a terminal that shows colours, and NO_COLOR is not set. */
bool out_has_colours(void);
/* Flushes stdout, and reports a write that has failed: then the function returns false. main calls
 * the function once, at the end. */
bool out_end(void);

#endif
