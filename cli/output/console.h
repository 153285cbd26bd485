/* Prints on stderr what a person reads beside the results: errors, remarks, and on a terminal also
 * dim remarks and one line of progress, which is erased again. */
#ifndef CLI_OUTPUT_CONSOLE_H
#define CLI_OUTPUT_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Has text be UTF-8 even where the locale names no character set (LANG not set, as in containers):
 * else only ASCII can be typed, and no other character has a width. Before a thread starts. */
void console_use_utf8(void);

/* Returns whether stderr is a terminal that can show colours and erase lines. */
bool console_is_fancy(void);
/* Returns the columns of the terminal behind a descriptor; 0: not known. */
size_t console_columns(int fd);
/* Returns how many bytes of a text have room in so many columns. */
size_t console_fit(const char *text, size_t n_columns);

/* Prints the text behind "parley: ", whatever stderr is. */
void console_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the text as a plain line, whatever stderr is. */
void console_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the text as a dim line, on a terminal alone. */
void console_quiet(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Replaces the present line of progress by the text, on a terminal alone, cut to one row of it. */
void console_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Erases the line of progress. Each function above does so before it prints. */
void console_clear(void);

#endif
