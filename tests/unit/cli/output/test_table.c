#include "cli/output/table.h"

#include <check.h>
#include <stdio.h>
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

    ck_assert_str_eq(table_age(out, 7 * 1000), "7 s");
    ck_assert_str_eq(table_age(out, 50ull * 3600 * 1000), "2 d");

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

/* A line of the table as table_print writes it. */
static const char *line_of(const struct text_table *t, size_t row)
{
    static char line[128];
    size_t n = 0;

    for (size_t i = 0; i < t->n_columns; i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", i > 0 ? "|" : "",
                              t->cells[row * t->n_columns + i]);
    return line;
}

/* Lines that are too long lose the end of the first column, unless it stays, and of the last. */
START_TEST(lines_fit)
{
    static const struct {
        size_t n_columns;
        bool keeps_first;
        const char *line;
    } all[] = {{30, false, "0123456789|name|twelve chars"}, {29, false, "01234|name|twelve chars"},
               {29, true, "0123456789|name|twelve cha…"},   {24, false, "01234|name|twelve cha…"},
               {10, false, "01234|name|twelve …"},          {10, true, "0123456789|name|twelve …"}};
    static const char *const header[] = {"TITLE", "B", "LAST", ""};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct text_table t;

        table_init(&t, header);
        table_cell(&t, "0123456789");
        table_cell(&t, "name");
        table_cell(&t, "twelve chars");
        table_fit(&t, all[i].n_columns, all[i].keeps_first);
        ck_assert_str_eq(line_of(&t, 0), "TITLE|B|LAST");
        ck_assert_str_eq(line_of(&t, 1), all[i].line);
        table_deinit(&t);
    }
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
    tcase_add_test(all, lines_fit);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
