#include "cli/output/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/output/console.h"

enum { TABLE_GAP = 2 }; /* columns between two cells */

static void new_row(struct text_table *t)
{
    t->cells = xrealloc(t->cells, (t->n_rows + 1) * t->n_columns * sizeof(*t->cells));
    memset(t->cells + t->n_rows * t->n_columns, 0, t->n_columns * sizeof(*t->cells));
    t->n_rows++;
    t->column = 0;
}

void table_init(struct text_table *t, const char *const *header)
{
    *t = (struct text_table){0};
    while (*header[t->n_columns] != '\0')
        t->n_columns++;
    assert(t->n_columns <= TABLE_COLUMNS);
    t->column = t->n_columns; /* the next cell begins a row */
    for (size_t i = 0; i < t->n_columns; i++)
        table_cell(t, "%s", header[i]);
}

void table_deinit(struct text_table *t)
{
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        free(t->cells[i]);
    free(t->cells);
}

void table_cell(struct text_table *t, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* a longer text is truncated */
    va_end(args);
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (t->column == t->n_columns)
        new_row(t);
    t->cells[(t->n_rows - 1) * t->n_columns + t->column++] = xstrdup(text);
}

/* Returns the columns of a line. */
static size_t find_widths(size_t widths[TABLE_COLUMNS], const struct text_table *t)
{
    size_t total = 0;

    memset(widths, 0, TABLE_COLUMNS * sizeof(*widths));
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++) {
        size_t width = t->cells[i] == NULL ? 0 : utf8_count(t->cells[i]);

        if (width > widths[i % t->n_columns])
            widths[i % t->n_columns] = width;
    }
    for (size_t i = 0; i < t->n_columns; i++)
        total += widths[i] + (i + 1 < t->n_columns ? TABLE_GAP : 0);
    return total;
}

static void cut_column(struct text_table *t, size_t column, size_t width, const char *mark)
{
    for (size_t row = 1; row < t->n_rows; row++) {
        char **cell = &t->cells[row * t->n_columns + column];
        size_t at;

        if (*cell == NULL || (*cell)[console_fit(*cell, width)] == '\0')
            continue;
        at = console_fit(*cell, width - utf8_count(mark));
        *cell = xrealloc(*cell, at + strlen(mark) + 1);
        memcpy(*cell + at, mark, strlen(mark) + 1);
    }
}

void table_fit(struct text_table *t, size_t n_columns, bool keeps_first)
{
    size_t widths[TABLE_COLUMNS], last, others;

    if (find_widths(widths, t) > n_columns && !keeps_first)
        cut_column(t, 0, utf8_count(t->cells[0]), "");
    others = find_widths(widths, t) - widths[t->n_columns - 1];
    last = others + TABLE_LEAST < n_columns ? n_columns - others : TABLE_LEAST;
    cut_column(t, t->n_columns - 1, last, "…");
}

void table_print(const struct text_table *t)
{
    size_t widths[TABLE_COLUMNS];

    (void)find_widths(widths, t);
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++) {
        size_t column = i % t->n_columns;
        const char *cell = t->cells[i] == NULL ? "" : t->cells[i];

        if (column + 1 == t->n_columns)
            printf("%s\n", cell);
        else
            printf("%s%*s", cell, (int)(widths[column] - utf8_count(cell) + TABLE_GAP), "");
    }
}

const char *table_bytes(char out[24], uint64_t n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)n_bytes;
    size_t unit = 0;

    for (; n >= 1024.0 && unit < 4; unit++)
        n /= 1024.0;
    (void)snprintf(out, 24, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return out;
}

const char *table_time(char out[32], uint64_t ms)
{
    unsigned long long s = ms / 1000;

    if (s >= 24 * 3600)
        (void)snprintf(out, 32, "%llu d %llu h", s / (24 * 3600), s / 3600 % 24);
    else if (s >= 3600)
        (void)snprintf(out, 32, "%llu h %llu min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        (void)snprintf(out, 32, "%llu min %llu s", s / 60, s % 60);
    else
        (void)snprintf(out, 32, "%llu s", s);
    return out;
}

const char *table_age(char out[32], uint64_t ms)
{
    char *unit;

    (void)table_time(out, ms);
    unit = strchr(out, ' ') + 1;

    unit[strcspn(unit, " ")] = '\0';
    return out;
}
