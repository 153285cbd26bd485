#include "client/cli/bench/lengths.h"

#include <math.h>
#include <string.h>

#include "base/counter_rng.h"
#include "base/number.h"

static const struct lengths_name {
    const char *prefix;
    enum lengths_kind kind;
    int n_numbers;
    char between; /* the separator of its numbers */
} names[] = {
    {"normal:", LENGTHS_NORMAL, 2, ','},
    {"lognormal:", LENGTHS_LOGNORMAL, 2, ','},
    {"exponential:", LENGTHS_EXPONENTIAL, 1, '\0'},
};

/* From least up. NULL: it is no such number. */
static const char *read_length(double *out, const char *text, double least)
{
    const size_t n = number_take_real(out, text);

    return n == 0 || *out < least || *out > LENGTHS_MAX ? NULL : text + n;
}

static const char *read_named(struct token_lengths *out, const char *text)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(text, names[i].prefix, strlen(names[i].prefix)) == 0) {
            const char *at = read_length(&out->a, text + strlen(names[i].prefix), 1);

            out->kind = names[i].kind;
            if (at != NULL && names[i].n_numbers == 2)
                at = *at == names[i].between ? read_length(&out->b, at + 1, 0) : NULL;
            return at;
        }
    return NULL;
}

static const char *read_simple(struct token_lengths *out, const char *text)
{
    const char *at = read_length(&out->a, text, 1);

    if (at == NULL || *at != ':')
        return at;
    out->kind = LENGTHS_UNIFORM;
    return read_length(&out->b, at + 1, out->a);
}

enum status lengths_parse(struct token_lengths *out, const char *text, struct error *err)
{
    const char *end;

    *out = (struct token_lengths){0};
    end = strchr("0123456789", text[0]) != NULL && text[0] != '\0' ? read_simple(out, text)
                                                                   : read_named(out, text);
    if (end != NULL && *end == '\0')
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "'%s' must be a number of tokens of at least 1, LEAST:MOST, "
                     "normal:MEAN,DEVIATION, lognormal:MEDIAN,DEVIATION, exponential:MEAN",
                     text);
}

/* Box and Muller's transform of two uniform numbers. */
static double normal(double u, double v)
{
    return sqrt(-2 * log1p(-u)) * cos(6.283185307179586 * v);
}

uint32_t lengths_draw(const struct token_lengths *l, uint64_t seed, uint32_t conversation,
                      uint32_t turn, uint32_t what)
{
    /* Draws are numbered after those of words, which count from 0. */
    double u = (double)counter_rng_uniform(seed, conversation, turn, UINT32_MAX - 1 - 2 * what);
    double v = (double)counter_rng_uniform(seed, conversation, turn, UINT32_MAX - 2 - 2 * what);
    double n = l->a;

    if (l->kind == LENGTHS_UNIFORM)
        n = floor(l->a + u * (l->b - l->a + 1));
    else if (l->kind == LENGTHS_NORMAL)
        n = l->a + l->b * normal(u, v);
    else if (l->kind == LENGTHS_LOGNORMAL)
        n = l->a * exp(l->b * normal(u, v));
    else if (l->kind == LENGTHS_EXPONENTIAL)
        n = -l->a * log1p(-u);
    return (uint32_t)fmin(fmax(round(n), 1), LENGTHS_MAX);
}
