#include "cli/output/console.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"

enum { LINE_BYTES = 1024 }; /* of progress */

static bool has_progress; /* the terminal shows a line of progress */

void console_use_utf8(void)
{
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

size_t console_columns(int fd)
{
    struct winsize size;

    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

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

size_t console_fit(const char *text, size_t n_columns)
{
    const size_t len = strlen(text);
    size_t at = 0, used = 0;

    while (at < len) {
        uint32_t character;
        const size_t n = utf8_next(text + at, len - at, &character);
        const int width = wcwidth((wchar_t)character);

        used += width > 0 ? (size_t)width : 0;
        if (used > n_columns)
            break;
        at += n;
    }
    return at;
}

void console_progress(const char *fmt, ...)
{
    const size_t columns = console_columns(STDERR_FILENO);
    char text[LINE_BYTES];
    size_t len;
    va_list args;

    if (!console_is_fancy())
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* a longer text is cut */
    va_end(args);
    /* The last column stays free: in it the cursor would go on in the next row. */
    len = columns == 0 ? strlen(text) : console_fit(text, columns - 1);
    console_begin();
    has_progress = true;
    (void)fprintf(stderr, "%s%.*s%s", has_colours() ? "\033[2m" : "", (int)len, text,
                  has_colours() ? "\033[0m" : "");
    (void)fflush(stderr);
}
