#include "client/cli/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_progress; /* a line of progress stands on the terminal */

bool notice_is_fancy(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) != 0 && term != NULL && strcmp(term, "dumb") != 0;
}

static bool has_colours(void)
{
    const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */

    return notice_is_fancy() && (no_color == NULL || *no_color == '\0');
}

void notice_clear(void)
{
    if (!has_progress)
        return;
    has_progress = false;
    (void)fputs("\r\033[K", stderr);
}

/* Results and notices may share a terminal: what was said before comes out before. Whether stdout
 * takes it is seen where stdout is written. */
static void begin(void)
{
    (void)fflush(stdout);
    notice_clear();
}

void notice_error(const char *fmt, ...)
{
    va_list args;

    begin();
    (void)fputs("parley: ", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void notice_line(const char *fmt, ...)
{
    va_list args;

    begin();
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void notice_quiet(const char *fmt, ...)
{
    va_list args;

    if (!notice_is_fancy())
        return;
    begin();
    (void)fputs(has_colours() ? "\033[2m" : "", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputs(has_colours() ? "\033[0m\n" : "\n", stderr);
}

void notice_progress(const char *fmt, ...)
{
    va_list args;

    if (!notice_is_fancy())
        return;
    begin();
    has_progress = true;
    (void)fputs(has_colours() ? "\033[2m" : "", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputs(has_colours() ? "\033[0m" : "", stderr);
    (void)fflush(stderr);
}
