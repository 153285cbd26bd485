#include "server/json/field_table.h"

#include <stdlib.h>
#include <string.h>

#include "server/json/fields.h"

bool field_is_false(const json_t *value)
{
    return json_is_false(value);
}

bool field_is_true(const json_t *value)
{
    return json_is_true(value);
}

bool field_is_one(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) == 1;
}

bool field_is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

bool field_is_empty(const json_t *value)
{
    return json_is_false(value) || field_is_text(value, "") ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* As strcmp, but inlined: most names differ in their first letters. */
static int field_row_by_name(const void *key, const void *row)
{
    const unsigned char *a = key, *b = (const unsigned char *)((const struct field_row *)row)->name;

    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a - *b;
}

static const struct field_row *field_table_find(const struct field_table *t, const char *name)
{
    return bsearch(name, t->rows, t->n, sizeof(t->rows[0]), field_row_by_name);
}

bool field_table_has(const struct field_table *t, const char *name)
{
    return field_table_find(t, name) != NULL;
}

/* What a value that is not of the kind must be; NULL: the value is of the kind. */
static const char *field_kind_missed(enum field_kind kind, const json_t *value)
{
    switch (kind) {
    case FIELD_ANY:
        break;
    case FIELD_TEXT:
        return json_is_string(value) ? NULL : "a string";
    case FIELD_BOOL:
        return json_is_boolean(value) ? NULL : "true or false";
    case FIELD_WHOLE:
        return json_is_number(value) ? NULL : "a whole number";
    case FIELD_OBJECT:
        return json_is_object(value) ? NULL : "an object";
    case FIELD_LIST:
        return json_is_array(value) ? NULL : "a list";
    }
    return NULL;
}

static enum status field_row_take(const struct field_row *row, void *to, const json_t *value,
                                  struct error *err)
{
    int64_t number;

    switch (row->kind) {
    case FIELD_TEXT:
        if (!field_is_plain_text(value))
            return error_field(err, row->name, "has the character U+0000");
        *(const char **)to = json_string_value(value);
        break;
    case FIELD_BOOL:
        *(bool *)to = json_is_true(value);
        break;
    case FIELD_WHOLE:
        if (!field_is_whole(value, &number))
            return error_field(err, row->name, "is %g, it must be a whole number",
                               json_number_value(value));
        if (number < row->least || number > row->most)
            return error_field(err, row->name, "is %lld, it must be from %lld to %lld",
                               (long long)number, (long long)row->least, (long long)row->most);
        *(uint32_t *)to = (uint32_t)number;
        break;
    case FIELD_ANY:
    case FIELD_OBJECT:
    case FIELD_LIST:
        *(const json_t **)to = value;
        break;
    }
    return STATUS_OK;
}

enum status field_table_read(const struct field_table *t, void *out, const json_t *object,
                             struct error *err)
{
    json_t *o = (json_t *)object; /* jansson's iterators change nothing */

    /* An object has fewer fields than a table. */
    for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
        const json_t *value = json_object_iter_value(at);
        const struct field_row *row = field_table_find(t, json_object_iter_key(at));
        const char *missed;

        if (row == NULL || json_is_null(value))
            continue;
        missed = field_kind_missed(row->kind, value);
        if (missed != NULL)
            return field_wrong(err, row->name, missed, value);
        if (row->refused != NULL && !row->is_off(value))
            return error_field(err, row->name, "%s", row->refused);
        if (row->refused != NULL)
            continue;
        if (field_row_take(row, (char *)out + row->to, value, err) != STATUS_OK)
            return err->status;
        if (row->given != 0)
            *(bool *)((char *)out + row->given) = true;
    }
    return STATUS_OK;
}
