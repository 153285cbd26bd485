/* Errors as values: a status whose numbers are gRPC's, and one line of text that says what to do
 * about it. Both are copied, so a failure may cross threads with its request. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdarg.h>
#include <stdint.h>

#include "base/reason.h"

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

enum status {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID = 3, /* INVALID_ARGUMENT: wrong whatever the state of the server */
    STATUS_DEADLINE = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_EXISTS = 6,
    STATUS_DENIED = 7,
    STATUS_EXHAUSTED = 8, /* RESOURCE_EXHAUSTED: on the wire only where a retry may succeed */
    STATUS_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_RANGE = 11, /* OUT_OF_RANGE */
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
    STATUS_UNAUTHENTICATED = 16,
};

enum { ERROR_TEXT_MAX = 240 };

struct error {
    enum status status;
    enum reason reason;
    uint32_t retry_after_ms;             /* 0: no hint */
    uint64_t have_version, want_version; /* of parameters that are too old; else both 0 */
    char field[48];                      /* the request field at fault, "" when none is */
    char text[ERROR_TEXT_MAX];
};

/* Fills *err and returns status, so that a failing function ends in `return error_set(err, …)`.
 * The text is one line, lower case, without a final stop; a longer one is cut, and a byte
 * of it that is a control character or not UTF-8 becomes '?'. Arguments may point into *err. */
enum status error_set(struct error *err, enum status status, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* STATUS_INVALID with the name of the request's field. The text is that name, a space, and fmt:
 * error_field(err, "top_p", "is %g, it must be above 0 and at most 1", …). */
enum status error_field(struct error *err, const char *field, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* error_set with all that a program reads: a reason, and the request's field that is at fault (NULL
 * for none). The text is fmt alone. */
enum status error_because(struct error *err, enum status status, enum reason reason,
                          const char *field, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* Names the field, for the layer that knows the request; the text stays. Returns err->status. */
enum status error_name_field(struct error *err, const char *field);

/* Puts "prefix: " before the text, for the layer that knows the thing's name. Returns err->status.
 */
enum status error_prefix(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* "out of memory (size_bytes for what)", EXHAUSTED, OUT_OF_MEMORY. size_bytes 0: it is unknown. */
enum status error_no_memory(struct error *err, uint64_t size_bytes, const char *what);

/* STATUS_UNAVAILABLE "the server is shutting down", REASON_SERVER_DRAINING: another server, or the
 * next process of this one, may do it a second later. */
enum status error_draining(struct error *err);

/* The reason in one word, "QUEUE_FULL": see base/reason.h. Never "". */
const char *error_reason(const struct error *err);

/* The hint when to come back, 0 for none: RESOURCE_EXHAUSTED always has one. */
uint32_t error_retry_ms(const struct error *err);

/* gRPC's name of a status: "OK", "CANCELLED", "INVALID_ARGUMENT", … */
const char *status_name(enum status status);

#endif
