#include "cli/output/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/output/console.h"

static int why; /* errno of the first failure */

static bool out_judge(bool is_good)
{
    if (!is_good && why == 0)
        why = errno == 0 ? EIO : errno;
    return why == 0;
}

bool out_text(const char *text, size_t len)
{
    errno = 0;
    return out_judge(fwrite(text, 1, len, stdout) == len);
}

bool out_flush(void)
{
    errno = 0;
    return out_judge(fflush(stdout) == 0);
}

bool out_json(json_t *object)
{
    bool is_good;

    errno = 0;
    is_good = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 &&
              fputc('\n', stdout) != EOF;
    json_decref(object);
    return out_judge(is_good);
}

bool out_is_tty(void)
{
    return isatty(STDOUT_FILENO) != 0;
}

bool out_has_colours(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");

    return out_is_tty() && term != NULL && strcmp(term, "dumb") != 0 &&
           (no_color == NULL || *no_color == '\0');
}

/* C0 and C1, and the marks, embeddings, overrides and isolates that turn a line's direction. */
static bool is_control(uint32_t character)
{
    return (character < 0x20 && character != '\n' && character != '\t') ||
           (character >= 0x7f && character < 0xa0) || character == 0x61c || character == 0x200e ||
           character == 0x200f || (character >= 0x202a && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

uint32_t out_shown(uint32_t character)
{
    return is_control(character) ? 0xfffd : character;
}

bool out_foreign(const char *text, size_t len)
{
    size_t n_bytes;
    bool is_good = true;

    if (!out_is_tty())
        return out_text(text, len);
    for (size_t at = 0; is_good && at < len; at += n_bytes) {
        uint32_t character;
        char bytes[4];

        n_bytes = utf8_next(text + at, len - at, &character);
        is_good = out_text(bytes, utf8_encode(out_shown(character), bytes));
    }
    return is_good;
}

bool out_end(void)
{
    (void)out_flush(); /* a failure is recorded in why */
    if (why == 0 && ferror(stdout) != 0)
        why = EIO;
    if (why != 0 && why != EPIPE)
        console_error("cannot write to stdout: %s", strerror(why));
    return why == 0;
}

FILE *out_file_open(const char *path)
{
    FILE *out;
    int fd;

    if (strcmp(path, "-") != 0)
        return fopen(path, "we");
    fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out == NULL && fd >= 0)
        (void)close(fd); /* nothing was written */
    return out;
}

bool out_file_can(const char *path)
{
    const bool was_there = path != NULL && access(path, F_OK) == 0;
    FILE *file = path == NULL ? NULL : fopen(path, "ae");

    if (path == NULL)
        return true;
    if (file == NULL) {
        console_error("cannot write '%s': %s", path, strerror(errno));
        return false;
    }
    (void)fclose(file); /* nothing was written */
    if (!was_there)
        (void)unlink(path);
    return true;
}
