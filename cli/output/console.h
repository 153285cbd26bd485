/* What a person reads beside the results, on stderr: errors, remarks, and on a terminal also dim
 * remarks and one line of progress, which is erased again. */
#ifndef CLI_OUTPUT_CONSOLE_H
#define CLI_OUTPUT_CONSOLE_H

#include <stdbool.h>

#include "base/status.h"

/* Whether colours and erased lines work: stderr is a terminal, and no dumb one. */
bool console_is_fancy(void);

/* "parley: …", always. */
void console_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A plain line, always. */
void console_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A dim line, only on a terminal. */
void console_quiet(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Replaces the line of progress before it; only on a terminal. */
void console_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Erases the line of progress. The functions above do so themselves. */
void console_clear(void);

#endif
