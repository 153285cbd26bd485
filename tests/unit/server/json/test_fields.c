#include "server/json/fields.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

/* {"enum": [value, value, …]}, n values; the caller frees it. */
static char *make_enum(const char *value, size_t n, size_t *ret_len)
{
    static const char head[] = "{\"enum\":[";
    const size_t len = strlen(value);
    char *body = xalloc(sizeof(head) + n * (len + 1) + 2), *at = body + sizeof(head) - 1;

    memcpy(body, head, sizeof(head));
    for (size_t i = 0; i < n; i++) {
        memcpy(at, value, len);
        at += len;
        *at++ = i + 1 < n ? ',' : ']';
    }
    *at++ = '}';
    *ret_len = (size_t)(at - body);
    return body;
}

/* As many values as are taken make a body. One of more is refused before anything is allocated:
 * where the first allocation fails, the answer is the same. */
START_TEST(many_values)
{
    static const struct {
        const char *value;
        size_t n;
    } most[] = {{"1", FIELDS_MAX_NUMBERS}, {"{}", FIELDS_MAX_OTHERS - 3}};

    for (size_t i = 0; i < 2; i++) {
        json_t *value = NULL;
        struct error err;
        size_t len;
        char *body = make_enum(most[i].value, most[i].n, &len);

        ck_assert_int_eq(fields_parse(&value, body, len, &err), STATUS_OK);
        ck_assert_uint_eq(json_array_size(json_object_get(value, "enum")), most[i].n);
        json_decref(value);
        free(body);
        body = make_enum(most[i].value, most[i].n + 1, &len);
        atomic_store(&fault_after, 0);
        ck_assert_int_eq(fields_parse(&value, body, len, &err), STATUS_INVALID);
        ck_assert_int_eq(atomic_exchange(&fault_after, -1), 0); /* none was asked for */
        ck_assert_ptr_nonnull(strstr(err.text, "too many values"));
        free(body);
    }
}
END_TEST

/* A body is an object; what is none, or no JSON, is told. */
START_TEST(bodies)
{
    json_t *value = NULL;
    struct error err;

    ck_assert_int_eq(fields_parse(&value, "{\"a\":1}", 7, &err), STATUS_OK);
    json_decref(value);
    ck_assert_int_eq(fields_parse(&value, "[]", 2, &err), STATUS_INVALID);
    ck_assert_int_eq(fields_parse(&value, "{\"a\"", 4, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "no JSON"));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {many_values, bodies};

    fields_init();
    return suite_run("fields", tests, 2);
}
