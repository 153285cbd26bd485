#include "server/access/sharing.h"

#include <check.h>
#include <string.h>

#include "base/arena.h"
#include "server/access/access.h"
#include "tests/unit/base/suite.h"

static const struct principal reader = {.id = 1, .name = "reader"},
                              writer = {.id = 2, .name = "writer"},
                              stranger = {.id = 3, .name = "read"};
static struct error err;

/* Readers read, writers also write, and to own is the owner's alone. The names are copied. */
START_TEST(allows)
{
    char a[] = "reader", b[] = "writer";
    const char *readers[] = {"x", a}, *writers[] = {b};
    const struct access_sharing from = {readers, writers, 2, 1};
    struct access_sharing s;
    struct arena arena;

    arena_init(&arena, 1 << 16);
    ck_assert_int_eq(access_sharing_copy(&s, &from, &arena, &err), STATUS_OK);
    memset(a, 'z', sizeof(a) - 1);
    memset(b, 'z', sizeof(b) - 1);
    ck_assert(access_sharing_allows(&s, &reader, ACCESS_READ));
    ck_assert(!access_sharing_allows(&s, &reader, ACCESS_WRITE));
    ck_assert(access_sharing_allows(&s, &writer, ACCESS_READ));
    ck_assert(access_sharing_allows(&s, &writer, ACCESS_WRITE));
    ck_assert(!access_sharing_allows(&s, &writer, ACCESS_OWN));
    ck_assert(!access_sharing_allows(&s, &stranger, ACCESS_READ));
    s = (struct access_sharing){0};
    ck_assert(!access_sharing_allows(&s, &reader, ACCESS_READ));
    arena_deinit(&arena);
}
END_TEST

/* The list that is wrong is named, and nothing is written. */
START_TEST(refuses)
{
    static const char *const slash[] = {"a/b"}, *const empty[] = {""};
    const char *many[ACCESS_MAX_SHARED + 1];
    const struct access_sharing wrong[] = {
        {slash, NULL, 1, 0}, {many, NULL, ACCESS_MAX_SHARED + 1, 0}, {NULL, empty, 0, 1}};
    static const char *const fields[] = {"access.readers", "access.readers", "access.writers"};
    struct access_sharing s = {0};
    struct arena arena;

    for (size_t i = 0; i <= ACCESS_MAX_SHARED; i++)
        many[i] = "a";
    arena_init(&arena, 1 << 16);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(access_sharing_copy(&s, &wrong[i], &arena, &err), STATUS_INVALID);
        ck_assert_str_eq(err.field, fields[i]);
        ck_assert_ptr_null(s.readers);
    }
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("server/sharing", allows, refuses)
