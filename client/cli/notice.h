/* What is said beside the results, on stderr: errors, and on a terminal also quiet remarks and one
 * line of progress that goes away again. */
#ifndef CLIENT_CLI_NOTICE_H
#define CLIENT_CLI_NOTICE_H

#include <stdbool.h>

#include "base/status.h"

/* Colours and lines that vanish make sense: stderr is a terminal, and no dumb one. */
bool notice_is_fancy(void);

/* "parley: …", always. */
void notice_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A plain line, always. */
void notice_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A dim line, only on a terminal. */
void notice_quiet(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Takes the place of the line of progress before it; only on a terminal. */
void notice_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Takes the line of progress away. The others do it by themselves. */
void notice_clear(void);

#endif
