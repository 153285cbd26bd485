/* A request as a table. A row says of one field of a JSON object which kind its value has, within
 * which bounds, and where the value goes, or why it is refused. A field that changes a reply and
 * has neither a row nor a reader of its own would be dropped without a word: each such field of an
 * API has a row. Fields without a row are passed over, and left to others (of HTTP's APIs,
 * server/api/known_fields.h); a null counts as not given. */
#ifndef SERVER_JSON_FIELD_TABLE_H
#define SERVER_JSON_FIELD_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The kind of a value, and the type of the member that takes the value. */
enum field_kind {
    FIELD_ANY,    /* const json_t * */
    FIELD_TEXT,   /* const char *, NUL-ended */
    FIELD_BOOL,   /* bool */
    FIELD_WHOLE,  /* uint32_t */
    FIELD_OBJECT, /* const json_t * */
    FIELD_LIST,   /* const json_t * */
};

struct field_row {
    const char *name;
    enum field_kind kind;
    size_t to;                           /* the member's offset in what is read */
    int64_t least, most;                 /* of FIELD_WHOLE */
    size_t given;                        /* a bool's offset, which becomes true; 0: none */
    const char *refused;                 /* why, after the name; NULL: the value is taken */
    bool (*is_off)(const json_t *value); /* the values that change nothing are not refused */
};

struct field_table {
    const struct field_row *rows; /* [n], sorted by strcmp of their names */
    size_t n;
};

/* clang-format off */
#define FIELD_TABLE(rows) {rows, sizeof(rows) / sizeof((rows)[0])}
/* clang-format on */

/* Reads the members of object that have a row. out keeps what is not given, and borrows object.
 * STATUS_INVALID names the first field, in the object's order, that is wrong or refused. */
enum status field_table_read(const struct field_table *t, void *out, const json_t *object,
                             struct error *err) MUST_CHECK;

/* Whether the table has a row of that name. */
bool field_table_has(const struct field_table *t, const char *name);

/* For is_off. Empty: false, 0, "", [] and {}. */
bool field_is_false(const json_t *value);
bool field_is_true(const json_t *value);
bool field_is_empty(const json_t *value);
bool field_is_one(const json_t *value);
bool field_is_text(const json_t *value, const char *text);

#endif
