#include "cli/output/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_progress; /* the terminal shows a line of progress */

bool console_is_fancy(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) != 0 && term != NULL && strcmp(term, "dumb") != 0;
}

static bool has_colours(void)
{
    const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */

    return console_is_fancy() && (no_color == NULL || *no_color == '\0');
}

void console_clear(void)
{
    if (!has_progress)
        return;
    has_progress = false;
    (void)fputs("\r\033[K", stderr);
}

/* Results and remarks may share a terminal: flush the results first. Failures of stdout are handled
 * where it is written. */
static void console_begin(void)
{
    (void)fflush(stdout);
    console_clear();
}

void console_error(const char *fmt, ...)
{
    va_list args;

    console_begin();
    (void)fputs("parley: ", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void console_line(const char *fmt, ...)
{
    va_list args;

    console_begin();
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void console_quiet(const char *fmt, ...)
{
    va_list args;

    if (!console_is_fancy())
        return;
    console_begin();
    (void)fputs(has_colours() ? "\033[2m" : "", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputs(has_colours() ? "\033[0m\n" : "\n", stderr);
}

void console_progress(const char *fmt, ...)
{
    va_list args;

    if (!console_is_fancy())
        return;
    console_begin();
    has_progress = true;
    (void)fputs(has_colours() ? "\033[2m" : "", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputs(has_colours() ? "\033[0m" : "", stderr);
    (void)fflush(stderr);
}
