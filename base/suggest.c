#include "base/suggest.h"

#include <string.h>

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A dash and an underscore are one: kv-bytes and kv_bytes. */
static int is_same(char a, char b)
{
    return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_'));
}

/* The row of distances for a[i - 1], from the two rows before it. */
static void fill_row(size_t *row, const size_t *above, const size_t *two_above, const char *a,
                     size_t i, const char *b, size_t b_len)
{
    row[0] = i;
    for (size_t j = 1; j <= b_len; j++) {
        size_t cost = is_same(a[i - 1], b[j - 1]) ? 0 : 1;

        row[j] = min_of(min_of(above[j], row[j - 1]) + 1, above[j - 1] + cost);
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
            row[j] = min_of(row[j], two_above[j - 2] + 1);
    }
}

/* Optimal string alignment; both have at most SUGGEST_MAX_BYTES. */
static size_t text_distance(const char *a, const char *b)
{
    size_t rows[3][SUGGEST_MAX_BYTES + 1];
    size_t a_len = strlen(a), b_len = strlen(b);

    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++)
        fill_row(rows[i % 3], rows[(i - 1) % 3], rows[(i + 1) % 3], a, i, b, b_len);
    return rows[a_len % 3][b_len];
}

void suggest_init(struct suggest *s, const char *wanted)
{
    *s = (struct suggest){.wanted = wanted};
}

void suggest_try(struct suggest *s, const char *word)
{
    size_t distance;

    if (strlen(word) > SUGGEST_MAX_BYTES || strlen(s->wanted) > SUGGEST_MAX_BYTES)
        return;
    distance = text_distance(s->wanted, word);
    if (distance > (strlen(word) + 1) / 3 || (s->word != NULL && distance >= s->distance))
        return;
    s->word = word;
    s->distance = distance;
}
