/* Rows of cells for a person, in columns of the needed width. */
#ifndef CLI_OUTPUT_TABLE_H
#define CLI_OUTPUT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TABLE_COLUMNS = 10 };

struct text_table {
    char **cells; /* [n_rows][n_columns] */
    size_t n_rows, n_columns, column;
};

/* header: the titles of the columns, up to "". */
void table_init(struct text_table *t, const char *const *header);
void table_deinit(struct text_table *t);

/* Adds the next cell, from left to right and row by row. Control characters become '?'. */
void table_cell(struct text_table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Cuts cells so that lines have at most so many columns, if they can: those of the first column to
 * the width of its title, unless it stays whole, then those of the last to TABLE_LEAST. */
enum { TABLE_LEAST = 8 };
void table_fit(struct text_table *t, size_t n_columns, bool keeps_first);
void table_print(const struct text_table *t);

/* "1.5 MiB" */
const char *table_bytes(char out[24], uint64_t n_bytes);
/* "3 d 4 h", "5 min 6 s", "7 s" */
const char *table_time(char out[32], uint64_t ms);
/* The first of these units: "3 d" */
const char *table_age(char out[32], uint64_t ms);

#endif
