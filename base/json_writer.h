/* A JSON writer appends JSON text to a buffer, one value after another. It puts the commas, the
 * colons, the quotes and the escapes, and it knows which objects and arrays are open.
 *
 * Every function that writes a value takes the value's name first. A member of an object has a
 * name; an entry of an array, and a document (a value in nothing), has NULL. A wrong name, an end
 * of the wrong kind, and a document that the caller never ends are bugs, and fail an assertion.
 *
 *     json_begin_object(w, NULL);
 *     json_write_text(w, "model", m->name);
 *     json_begin_array(w, "tokens");
 *     for (size_t i = 0; i < n; i++)
 *         json_write_signed(w, NULL, ids[i]);
 *     json_end_array(w);
 *     json_end_object(w);
 *
 * The first failure sticks: the writer writes nothing after it, and the caller checks for it once,
 * by json_writer_end. The writer borrows the buffer; the caller may append to the buffer itself
 * between two documents. */
#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum { JSON_WRITER_MAX_DEPTH = 64 };

struct json_writer {
    struct buf *out;
    size_t start; /* length of out when the writer began */
    enum status rc;
    uint32_t depth;   /* how many objects and arrays are open */
    uint64_t objects; /* bit d: what was opened at depth d is an object */
    bool has_before;  /* a value precedes the next one in the same object or array */
    bool has_name;    /* json_write_name has written the next value's name */
    bool is_spaced;   /* a blank follows each comma and colon, as Python's json.dumps has it */
};

static inline struct json_writer json_writer_begin(struct buf *out)
{
    return (struct json_writer){.out = out, .start = out->len, .rc = STATUS_OK};
}

/* The same, with a blank behind each comma and colon. */
static inline struct json_writer json_writer_begin_spaced(struct buf *out)
{
    return (struct json_writer){.out = out, .start = out->len, .rc = STATUS_OK, .is_spaced = true};
}

/* OK, or the first failure: out then has the length that it had at the beginning. STATUS_EXHAUSTED
 * says that there is no memory, or that out has reached its limit (out->is_full). */
enum status json_writer_end(struct json_writer *w) MUST_CHECK;

/* Records rc, unless rc is OK or the writer has an earlier failure. */
static inline void json_writer_fail(struct json_writer *w, enum status rc)
{
    if (w->rc == STATUS_OK)
        w->rc = rc;
}

void json_begin_object(struct json_writer *w, const char *name);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w, const char *name);
void json_end_array(struct json_writer *w);
void json_write_empty_array(struct json_writer *w, const char *name);

/* Writes a string of len bytes. Bytes that are not UTF-8 become U+FFFD. text may be NULL where len
 * is 0. */
void json_write_string(struct json_writer *w, const char *name, const char *text, size_t len);
/* Writes a string that ends with NUL, or null where text is NULL. */
void json_write_text(struct json_writer *w, const char *name, const char *text);
/* Writes a string in printf's format. */
void json_write_format(struct json_writer *w, const char *name, const char *format, ...)
    PRINTF_LIKE(3, 4);
void json_write_unsigned(struct json_writer *w, const char *name, uint64_t value);
void json_write_signed(struct json_writer *w, const char *name, int64_t value);
/* Writes a number with at most so many significant digits, as printf's %g; null where the number is
 * not finite. */
void json_write_real(struct json_writer *w, const char *name, double value, int digits);
/* Writes a number with the fewest digits from which the same number is read back, and with a point
 * or an exponent: 1.0. What is not finite becomes "NaN", "Infinity" or "-Infinity". */
void json_write_exact(struct json_writer *w, const char *name, double value);
void json_write_bool(struct json_writer *w, const char *name, bool value);
void json_write_null(struct json_writer *w, const char *name);
/* Writes the bytes in base64, as a string. */
void json_write_base64(struct json_writer *w, const char *name, const void *data, size_t len);
/* Writes a time as RFC 3339 has it: "2026-01-31T23:59:59.125Z". */
void json_write_time(struct json_writer *w, const char *name, uint64_t unix_ms);
/* Copies a value that is JSON already. With a length of 0 the caller owes the value: what the
 * buffer gets next must be one. */
void json_write_json(struct json_writer *w, const char *name, const char *json, size_t len);

/* Writes a member's name that may hold any bytes. The member's value comes next, with NULL for its
 * name. */
void json_write_name(struct json_writer *w, const char *name, size_t len);

/* Copies text that stands around documents, such as the lines of a server-sent event. No object or
 * array may be open. */
void json_write_around(struct json_writer *w, const char *text);
/* The same in printf's format. */
void json_write_aroundf(struct json_writer *w, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
