/* Rope, by tables of cosines and sines. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/cpu/parts.h"

enum {
    PIECE_VALUES = 4096, /* less is not worth sharing */
    MIN_POSITIONS = 256, /* of a table */
};

static void cpu_rope_free(struct rope_table *t)
{
    free(t->scale);
    free(t->cosines);
    free(t->sines);
    *t = (struct rope_table){0};
}

void cpu_ropes_free(struct cpu *c)
{
    for (size_t i = 0; i < ROPE_TABLES; i++)
        cpu_rope_free(&c->ropes[i]);
}

/* Pair j at a position: of neighbours each twice, the first sine negated. */
static void put_turn(struct rope_table *t, size_t pos, size_t j, float c, float s)
{
    float *cosine = t->cosines + pos * t->stride, *sine = t->sines + pos * t->stride;

    if (t->rope.halves) {
        cosine[j] = c;
        sine[j] = s;
        return;
    }
    cosine[2 * j] = cosine[2 * j + 1] = c;
    sine[2 * j] = -s;
    sine[2 * j + 1] = s;
}

static void fill_table(struct rope_table *t, size_t first)
{
    double amplitude = rope_amplitude(&t->rope);

    for (size_t j = 0; j < rope_width(&t->rope) / 2; j++) {
        double frequency = rope_frequency(&t->rope, j);

        for (size_t pos = first; pos < t->n_positions; pos++) {
            double angle = (double)pos * frequency;

            put_turn(t, pos, j, real_cos_float(amplitude, angle), real_sin_float(amplitude, angle));
        }
    }
}

/* Makes t, which is empty, the table of r, without positions. False: no memory. */
static bool begin_table(struct rope_table *t, const struct rope *r)
{
    size_t n = rope_width(r) / 2;

    if (r->scale != NULL) {
        t->scale = try_alloc(n, sizeof(*t->scale));
        if (t->scale == NULL)
            return false;
        memcpy(t->scale, r->scale, n * sizeof(*t->scale));
    }
    t->rope = *r;
    t->rope.scale = t->scale;
    t->stride = r->halves ? n : 2 * n;
    return true;
}

/* Makes the table hold positions below n. False: no memory. */
static bool extend_table(struct rope_table *t, size_t n)
{
    size_t first = t->n_positions, size_bytes = t->stride * sizeof(*t->cosines);
    float *more;

    n = n < 2 * first ? 2 * first : n < MIN_POSITIONS ? MIN_POSITIONS : n;
    more = try_realloc(t->cosines, n, size_bytes);
    if (more == NULL)
        return false;
    t->cosines = more;
    more = try_realloc(t->sines, n, size_bytes);
    if (more == NULL)
        return false;
    t->sines = more;
    t->n_positions = n;
    fill_table(t, first);
    return true;
}

/* Brings the table of r to the front; where there is none, an empty one instead of the oldest. */
static struct rope_table *find_table(struct cpu *c, const struct rope *r)
{
    struct rope_table found;
    size_t i = 0;

    while (i < ROPE_TABLES - 1 && !rope_turns_alike(&c->ropes[i].rope, r))
        i++;
    found = c->ropes[i];
    if (i > 0) {
        memmove(c->ropes + 1, c->ropes, i * sizeof(found));
        c->ropes[0] = found;
    }
    if (!rope_turns_alike(&found.rope, r))
        cpu_rope_free(&c->ropes[0]);
    return &c->ropes[0];
}

/* Makes the table of rope r hold positions below n, as the first one. */
static bool table_for(struct cpu *c, const struct rope *r, size_t n)
{
    struct rope_table *t = find_table(c, r);
    struct error err;

    if ((t->rope.head_dim > 0 || begin_table(t, r)) && (n <= t->n_positions || extend_table(t, n)))
        return true;
    (void)error_no_memory(&err, (uint64_t)n * rope_width(r) * sizeof(float), "rope");
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
    const struct rope_table *t = &r->cpu->ropes[0];
    const struct kernels *k = r->cpu->kernels;
    size_t head_dim = t->rope.head_dim, n_rotated = rope_width(&t->rope);

    for (size_t i = begin; i < end; i++)
        (t->rope.halves ? k->rope_halves : k->rope)(
            r->x + i * r->n_heads * head_dim, r->n_heads, head_dim, n_rotated,
            t->cosines + r->positions[i] * t->stride, t->sines + r->positions[i] * t->stride);
}

void cpu_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x)
{
    struct cpu *c = to_cpu(b);
    size_t width = r->n_heads * r->head_dim, end = 0;
    struct rotation rotation = {c, r->n_heads, positions, NULL};

    if (n == 0)
        return; /* its tables grow by little, and are quick */
    rotation.x = cpu_written(x, n, width);
    for (size_t i = 0; i < n; i++)
        end = positions[i] >= end ? positions[i] + (size_t)1 : end;
    if (table_for(c, r, end))
        thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + width), rope_piece, &rotation);
}
