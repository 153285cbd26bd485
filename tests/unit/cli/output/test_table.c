#include "cli/output/table.h"

#include <check.h>
#include <stdlib.h>

/* Bytes are shown in the largest unit that keeps them at least 1. */
START_TEST(bytes_have_units)
{
    char out[24];

    ck_assert_str_eq(table_bytes(out, 0), "0 B");
    ck_assert_str_eq(table_bytes(out, 1023), "1023 B");
    ck_assert_str_eq(table_bytes(out, 1536), "1.5 KiB");
    ck_assert_str_eq(table_bytes(out, 98362432), "93.8 MiB");
    ck_assert_str_eq(table_bytes(out, UINT64_MAX), "16777216.0 TiB");
}
END_TEST

/* Times are shown in their two largest units. */
START_TEST(times_have_units)
{
    char out[32];

    ck_assert_str_eq(table_time(out, 999), "0 s");
    ck_assert_str_eq(table_time(out, 61 * 1000), "1 min 1 s");
    ck_assert_str_eq(table_time(out, 3 * 3600 * 1000 + 120 * 1000), "3 h 2 min");
    ck_assert_str_eq(table_time(out, 50ull * 3600 * 1000), "2 d 2 h");
}
END_TEST

/* Cells fill rows from left to right, and a control character in one becomes '?'. */
START_TEST(cells_fill_rows)
{
    static const char *const header[] = {"A", "B", ""};
    struct text_table t;

    table_init(&t, header);
    table_cell(&t, "%d", 1);
    table_cell(&t, "x\033[1m");
    table_cell(&t, "last");
    ck_assert_uint_eq(t.n_rows, 3);
    ck_assert_str_eq(t.cells[2], "1");
    ck_assert_str_eq(t.cells[3], "x?[1m");
    ck_assert_str_eq(t.cells[4], "last");
    ck_assert_ptr_null(t.cells[5]);
    table_deinit(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client/cli/table");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(all, bytes_have_units);
    tcase_add_test(all, times_have_units);
    tcase_add_test(all, cells_fill_rows);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
