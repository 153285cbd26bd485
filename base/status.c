#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Texts quote names out of files and requests. They go into a log, a terminal and a protobuf
 * string, so this makes them one line of UTF-8: a cut character is dropped, any other invalid byte
 * becomes '?'. */
static void tidy(char *text)
{
    size_t len = utf8_complete_len(text, strlen(text));
    size_t at = 0;

    text[len] = '\0';
    while (at < len) {
        uint32_t c;
        size_t n = utf8_decode(text + at, len - at, &c);

        if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) {
            n = n == 0 ? 1 : n;
            memset(text + at, '?', n);
        }
        at += n;
    }
}

/* Appends as much of more as fits; returns the new length. */
static size_t status_append(char *out, size_t size, size_t len, const char *more)
{
    size_t n = strlen(more);

    if (n > size - 1 - len)
        n = size - 1 - len;
    memcpy(out + len, more, n);
    out[len + n] = '\0';
    return len + n;
}

/* Texts are built in another buffer, because the arguments may point into err->text. */
static void status_put_text(struct error *err, char text[ERROR_TEXT_MAX])
{
    tidy(text);
    memcpy(err->text, text, ERROR_TEXT_MAX);
}

/* All but the text. */
static enum status status_begin(struct error *err, enum status status, enum reason reason)
{
    err->status = status;
    err->reason = reason;
    err->retry_after_ms = 0;
    err->have_version = err->want_version = 0;
    err->field[0] = '\0';
    return status;
}

/* Fields are named by foreign bytes, too. */
static void status_put_field(struct error *err, const char *field)
{
    char name[sizeof(err->field)];

    (void)status_append(name, sizeof(name), 0, field);
    tidy(name);
    memcpy(err->field, name, sizeof(name));
}

enum status error_set(struct error *err, enum status status, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* a longer text is cut */
    va_end(args);
    status_put_text(err, text);
    return status_begin(err, status, REASON_NONE);
}

enum status error_because(struct error *err, enum status status, enum reason reason,
                          const char *field, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX], name[sizeof(err->field)];
    va_list args;

    (void)status_append(name, sizeof(name), 0, field == NULL ? "" : field);
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    status_put_text(err, text);
    (void)status_begin(err, status, reason);
    status_put_field(err, name);
    return status;
}

enum status error_field(struct error *err, const char *field, const char *fmt, ...)
{
    char name[sizeof(err->field)];
    char text[ERROR_TEXT_MAX];
    size_t len;
    va_list args;

    (void)status_append(name, sizeof(name), 0, field);
    len = status_append(text, sizeof(text), 0, name);
    len = status_append(text, sizeof(text), len, " ");
    va_start(args, fmt);
    (void)vsnprintf(text + len, sizeof(text) - len, fmt, args);
    va_end(args);
    status_put_text(err, text);
    (void)status_begin(err, STATUS_INVALID, REASON_INVALID_FIELD);
    status_put_field(err, name);
    return STATUS_INVALID;
}

enum status error_name_field(struct error *err, const char *field)
{
    status_put_field(err, field);
    return err->status;
}

enum status error_prefix(struct error *err, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    size_t len;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    len = status_append(text, sizeof(text), strlen(text), ": ");
    (void)status_append(text, sizeof(text), len, err->text);
    status_put_text(err, text);
    return err->status;
}

enum status error_no_memory(struct error *err, uint64_t size_bytes, const char *what)
{
    if (size_bytes == 0)
        return error_because(err, STATUS_EXHAUSTED, REASON_OUT_OF_MEMORY, NULL,
                             "out of memory for %s", what);
    return error_because(err, STATUS_EXHAUSTED, REASON_OUT_OF_MEMORY, NULL,
                         "out of memory (%" PRIu64 " bytes for %s)", size_bytes, what);
}

enum status error_draining(struct error *err)
{
    enum { RESTART_MS = 1000 };

    (void)error_because(err, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                        "the server is shutting down");
    err->retry_after_ms = RESTART_MS;
    return err->status;
}

const char *error_reason(const struct error *err)
{
    if (err->reason != REASON_NONE)
        return reason_name(err->reason);
    if (err->status == STATUS_INVALID && err->field[0] != '\0')
        return reason_name(REASON_INVALID_FIELD);
    return status_name(err->status);
}

uint32_t error_retry_ms(const struct error *err)
{
    enum { UNKNOWN_MS = 1000 };

    return err->status == STATUS_EXHAUSTED && err->retry_after_ms == 0 ? UNKNOWN_MS
                                                                       : err->retry_after_ms;
}

const char *status_name(enum status status)
{
    static const char *const names[] = {
        [STATUS_OK] = "OK",
        [STATUS_CANCELLED] = "CANCELLED",
        [STATUS_UNKNOWN] = "UNKNOWN",
        [STATUS_INVALID] = "INVALID_ARGUMENT",
        [STATUS_DEADLINE] = "DEADLINE_EXCEEDED",
        [STATUS_NOT_FOUND] = "NOT_FOUND",
        [STATUS_EXISTS] = "ALREADY_EXISTS",
        [STATUS_DENIED] = "PERMISSION_DENIED",
        [STATUS_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [STATUS_PRECONDITION] = "FAILED_PRECONDITION",
        [STATUS_ABORTED] = "ABORTED",
        [STATUS_RANGE] = "OUT_OF_RANGE",
        [STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [STATUS_INTERNAL] = "INTERNAL",
        [STATUS_UNAVAILABLE] = "UNAVAILABLE",
        [STATUS_DATA_LOSS] = "DATA_LOSS",
        [STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };
    size_t n = (size_t)status; /* may come from the wire: any number is allowed here */

    return n < sizeof(names) / sizeof(names[0]) ? names[n] : "UNKNOWN";
}
