#include "compute/cpu/outliers.h"

#include <endian.h>
#include <string.h>

#define EACH_BYTE UINT64_C(0x0101010101010101)

enum { WORD_BYTES = sizeof(uint64_t) };

/* The next n places, byte by byte; zeros stand for groups that have no outlier. */
static uint64_t next_places(const uint8_t *places, size_t n)
{
    uint64_t word = ACT_NONE * EACH_BYTE;

    memcpy(&word, places, n < WORD_BYTES ? n : WORD_BYTES);
    return le64toh(word) ^ ACT_NONE * EACH_BYTE;
}

/* The place of a column in the list, from `first` on, where those of its group are. */
static uint32_t place_in_list(uint32_t *columns, uint32_t *n_columns, uint32_t first,
                              uint32_t column)
{
    uint32_t k = first;

    while (k < *n_columns && columns[k] != column)
        k++;
    if (k == *n_columns)
        columns[(*n_columns)++] = column;
    return k;
}

void outliers_list(struct act_outlier *rows, struct act_outlier_counts *counts, uint32_t *columns,
                   const uint8_t *places, size_t n_groups, size_t n_rows)
{
    size_t n = n_groups * n_rows, group = 0, group_at = 0;
    uint32_t n_columns = 0, first = 0; /* of the group's columns */

    memset(counts, 0, sizeof(*counts));
    for (size_t at = 0; at < n; at += WORD_BYTES)
        for (uint64_t word = next_places(places + at, n - at); word != 0;) {
            size_t i = at + (size_t)__builtin_ctzll(word) / 8, row;
            struct act_outlier o;

            word &= ~(UINT64_C(0xff) << (i - at) * 8);
            for (; i >= group_at + n_rows; group_at += n_rows, group++)
                first = n_columns;
            row = i - group_at;
            o.value = rows[row * n_groups + group].value;
            o.column = place_in_list(columns, &n_columns, first,
                                     (uint32_t)(group * GROUP_VALUES) + places[i]);
            rows[row * n_groups + counts->of_row[row]++] = o;
        }
    counts->n_columns = n_columns;
}
