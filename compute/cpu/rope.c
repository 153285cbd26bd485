/* Rope, by tables of cosines and sines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cpu/parts.h"

enum {
    PIECE_VALUES = 4096, /* less is not worth sharing */
    MIN_POSITIONS = 256, /* of a table */
};

void cpu_rope_free(struct rope_table *t)
{
    free(t->scale);
    free(t->cosines);
    free(t->sines);
    *t = (struct rope_table){0};
}

static bool cpu_rope_is_table_of(const struct rope_table *t, const struct rope *r)
{
    if (t->head_dim != r->head_dim || t->base != r->base ||
        (t->scale == NULL) != (r->scale == NULL))
        return false;
    return r->scale == NULL || memcmp(t->scale, r->scale, r->head_dim / 2 * sizeof *r->scale) == 0;
}

/* The angles of ref_rope, in double for the same reason. */
static void fill_table(struct rope_table *t, size_t first)
{
    for (size_t j = 0; j < t->head_dim / 2; j++) {
        double frequency = pow((double)t->base, -2.0 * (double)j / (double)t->head_dim);

        if (t->scale != NULL)
            frequency /= (double)t->scale[j];
        for (size_t pos = first; pos < t->n_positions; pos++) {
            double angle = (double)pos * frequency;
            float *cosine = t->cosines + pos * t->head_dim + 2 * j;
            float *sine = t->sines + pos * t->head_dim + 2 * j;

            cosine[0] = cosine[1] = (float)cos(angle);
            sine[1] = (float)sin(angle);
            sine[0] = -sine[1];
        }
    }
}

/* Makes the table of rope r hold positions below n. */
static bool table_for(struct cpu *c, const struct rope *r, size_t n)
{
    struct rope_table *t = &c->rope;
    size_t first, size_bytes = r->head_dim / 2 * sizeof *r->scale;
    struct error err;
    float *more;

    if (!cpu_rope_is_table_of(t, r)) {
        cpu_rope_free(t);
        if (r->scale != NULL) {
            t->scale = try_alloc(1, size_bytes);
            if (t->scale == NULL)
                goto failed;
            memcpy(t->scale, r->scale, size_bytes);
        }
        t->base = r->base;
        t->head_dim = r->head_dim;
    }
    if (n <= t->n_positions)
        return true;
    first = t->n_positions;
    n = n < 2 * first ? 2 * first : n < MIN_POSITIONS ? MIN_POSITIONS : n;
    size_bytes = r->head_dim * sizeof *more;
    more = try_realloc(t->cosines, n, size_bytes);
    if (more == NULL)
        goto failed;
    t->cosines = more;
    more = try_realloc(t->sines, n, size_bytes);
    if (more == NULL)
        goto failed;
    t->sines = more;
    t->n_positions = n;
    fill_table(t, first);
    return true;
failed:
    (void)error_no_memory(&err, (uint64_t)n * size_bytes, "rope");
    cpu_fail(c, &err);
    return false;
}

struct rotation {
    const struct cpu *cpu;
    size_t n_heads;
    const uint32_t *positions;
    float *x;
};

static void rope_piece(void *arg, size_t begin, size_t end)
{
    const struct rotation *r = arg;
    const struct rope_table *t = &r->cpu->rope;

    for (size_t i = begin; i < end; i++)
        r->cpu->kernels->rope(r->x + i * r->n_heads * t->head_dim, r->n_heads, t->head_dim,
                              t->cosines + r->positions[i] * t->head_dim,
                              t->sines + r->positions[i] * t->head_dim);
}

void cpu_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x)
{
    struct cpu *c = to_cpu(b);
    size_t width = r->n_heads * r->head_dim, end = 0;
    struct rotation rotation = {c, r->n_heads, positions, cpu_written(x, n, width)};

    for (size_t i = 0; i < n; i++)
        end = positions[i] >= end ? positions[i] + (size_t)1 : end;
    if (table_for(c, r, end))
        thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + width), rope_piece, &rotation);
}
