/* Results, on stdout. When stdout is closed by its reader or the disk is full, the program ends
 * with EXIT_FAILED. */
#ifndef CLI_OUTPUT_OUT_H
#define CLI_OUTPUT_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

/* Each returns false once a write has failed. */
bool out_text(const char *text, size_t len);
bool out_flush(void);
/* One object a line, compact; takes it. */
bool out_json(json_t *object);
/* Text of a peer, for a person: control characters but tab and newline become U+FFFD when stdout is
 * a terminal, so that a reply cannot steer it. */
bool out_foreign(const char *text, size_t len);

/* A file to write results to; "-" is stdout, whose copy it is. NULL with errno. */
FILE *out_file_open(const char *path);

bool out_is_tty(void);
/* Reports a failed write; called once, at the end. */
bool out_end(void);

#endif
