#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

/* PIPE_BUF: a write of up to so many bytes to a pipe is atomic. */
enum { LINE_MAX_BYTES = 4096 };

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARN] = "warn",
    [LOG_ERROR] = "error",
};

enum { N_LEVELS = sizeof(level_names) / sizeof(level_names[0]) };

/* Relaxed: while the level changes, a line may be written or missing. */
static atomic_int min_level = LOG_INFO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&min_level, (int)level, memory_order_relaxed);
}

enum status log_level_parse(enum log_level *out, const char *text, struct error *err)
{
    for (int i = 0; i < N_LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID,
                     "'%s' is not a log level, it must be debug, info, warn or error", text);
}

int log_is_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

/* "2026-11-21T16:04:05.123Z info event "; returns its length. */
static size_t log_put_head(char *out, size_t size, enum log_level level, const char *event)
{
    struct timespec now;
    struct tm utc;
    int n;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail with this clock */
    (void)gmtime_r(&now.tv_sec, &utc);
    n = snprintf(out, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %s", utc.tm_year + 1900,
                 utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                 (int)(now.tv_nsec / 1000000), level_names[level], event);
    if (n < 0)
        return 0;
    return (size_t)n < size ? (size_t)n : size - 1;
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES + 1];  /* the NUL of snprintf is not written */
    size_t size = sizeof(line) - 1; /* leaves a byte for the newline */
    size_t len;
    va_list args;
    int n;

    if (!log_is_on(level))
        return;
    len = log_put_head(line, size, level, event);
    if (fmt[0] != '\0' && len + 1 < size) {
        line[len++] = ' ';
        line[len] = '\0';
        va_start(args, fmt);
        n = vsnprintf(line + len, size - len, fmt, args);
        va_end(args);
        if (n > 0)
            len += strlen(line + len);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?'; /* a value that should have been quoted must not forge a line */
    }
    len = utf8_complete_len(line, len);
    line[len++] = '\n';
    /* A failure is ignored: the reader of stderr may be gone. */
    while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
        continue;
}

const char *log_quote(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    size_t used = 0;
    size_t at = 0;

    assert(size >= sizeof("\"\""));
    out[used++] = '"';
    while (at < len) {
        char piece[sizeof("\\xNN\\xNN")];
        uint32_t c;
        size_t n = utf8_decode(text + at, len - at, &c);
        size_t piece_len;

        if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) {
            n = n == 0 ? 1 : n;
            piece_len = 0;
            for (size_t i = 0; i < n; i++)
                piece_len += (size_t)snprintf(piece + piece_len, sizeof(piece) - piece_len,
                                              "\\x%02x", (unsigned char)text[at + i]);
        } else if (c == '"' || c == '\\') {
            piece[0] = '\\';
            piece[1] = (char)c;
            piece_len = 2;
        } else {
            memcpy(piece, text + at, n);
            piece_len = n;
        }
        if (used + piece_len + sizeof("\"") > size)
            break;
        memcpy(out + used, piece, piece_len);
        used += piece_len;
        at += n;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}
