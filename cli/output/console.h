/* Prints on stderr what a person reads beside the results: errors, remarks, and on a terminal also
 * dim remarks and one line of progress, which is erased again. */
#ifndef CLI_OUTPUT_CONSOLE_H
#define CLI_OUTPUT_CONSOLE_H

#include <stdbool.h>

#include "base/status.h"

/* Returns whether stderr is a terminal that can show colours and erase lines. */
bool console_is_fancy(void);

/* Prints the text behind "parley: ", whatever stderr is. */
void console_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the text as a plain line, whatever stderr is. */
void console_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the text as a dim line, on a terminal alone. */
void console_quiet(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Replaces the present line of progress by the text, on a terminal alone. */
void console_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Erases the line of progress. Each function above does so before it prints. */
void console_clear(void);

#endif
