/* Results, on stdout. A reader that goes away or a full disk is an error like any other: what
 * cannot be written makes the program end with EXIT_FAILED. */
#ifndef CLIENT_CLI_OUT_H
#define CLIENT_CLI_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Each is false once something could not be written. */
bool out_text(const char *text, size_t len);
bool out_flush(void);
/* One object a line, compact; takes it. */
bool out_json(json_t *object);
/* Text of a peer, for a person: control characters but tab and newline become U+FFFD when stdout is
 * a terminal, so that a reply cannot steer it. */
bool out_foreign(const char *text, size_t len);

bool out_is_tty(void);
/* Says so when something could not be written; the result of the last resort, called once at the
 * end. */
bool out_end(void);

#endif
