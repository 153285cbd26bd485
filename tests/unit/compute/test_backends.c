#include "compute/backends.h"

#include <string.h>

#include "tests/unit/base/suite.h"

/* Every backend of the list opens by its name, syncs, and closes; closing NULL is allowed. */
START_TEST(all_open_by_name)
{
    const struct backend_config config = {.n_threads = 1};
    const struct backend_type *type;
    struct error err;
    size_t n = 0;

    for (; (type = backend_type_at(n)) != NULL; n++) {
        struct backend *b;

        if (type->load != NULL) /* this machine may have no such device */
            continue;
        ck_assert_int_eq(backend_open(&b, type->name, &config, &err), STATUS_OK);
        ck_assert_ptr_eq(b->type, type);
        ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
        b->type->buffer_close(b, NULL);
        b->type->weight_close(b, NULL);
        b->type->kv_close(b, NULL);
        backend_close(b);
    }
    ck_assert_uint_ge(n, 1);
    backend_close(NULL);
}
END_TEST

/* An unknown name is NOT_FOUND, and the text lists the known ones. */
START_TEST(unknown_name_is_not_found)
{
    const struct backend_config config = {0};
    struct backend *b = NULL;
    struct error err;

    ck_assert_int_eq(backend_open(&b, "abacus", &config, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_null(b);
    ck_assert_ptr_nonnull(strstr(err.text, "'abacus'"));
    for (size_t i = 0; backend_type_at(i) != NULL; i++)
        ck_assert_ptr_nonnull(strstr(err.text, backend_type_at(i)->name));
}
END_TEST

SUITE_MAIN("compute/backends", all_open_by_name, unknown_name_is_not_found)
