/* What the golden tests of ParlAI's data share: a file of JSON lines, and near enough. */
#ifndef TESTS_GOLDEN_PARLAI_GOLDEN_H
#define TESTS_GOLDEN_PARLAI_GOLDEN_H

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls each for every line of kind; returns how many there were. */
static inline size_t golden_lines(const char *file, const char *kind,
                                  void (*each)(const json_t *line))
{
    char path[1024], *text = NULL;
    size_t cap = 0, n = 0;
    FILE *in;

    (void)snprintf(path, sizeof(path), "%s/%s", GOLDEN_DIR, file);
    in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    while (getline(&text, &cap, in) > 0) {
        json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);

        ck_assert_ptr_nonnull(line);
        if (strcmp(json_string_value(json_object_get(line, "kind")), kind) == 0) {
            n++;
            each(line);
        }
        json_decref(line);
    }
    free(text);
    (void)fclose(in);
    return n;
}

/* A number, or "NaN" or "Infinity". */
static inline double golden_number(const json_t *x)
{
    return json_is_string(x) ? strtod(json_string_value(x), NULL) : json_number_value(x);
}

static inline bool golden_near(double got, const json_t *expected)
{
    double x = golden_number(expected);

    if (isnan(x) || isinf(x))
        return isnan(x) ? isnan(got) : got == x;
    return fabs(got - x) <= 1e-9;
}

#endif
