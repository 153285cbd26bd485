#include "client/cli/bench/timeline.h"

enum { FIRST_WIDTH_US = 1000 * 1000 };

static void moment_deinit(struct moment *s)
{
    quantiles_deinit(&s->ttft_us);
    quantiles_deinit(&s->e2el_us);
}

void timeline_deinit(struct timeline *t)
{
    for (size_t i = 0; i < t->n; i++)
        moment_deinit(&t->moments[i]);
}

static void moment_merge(struct moment *into, const struct moment *from)
{
    into->n_completed += from->n_completed;
    into->n_failed += from->n_failed;
    into->n_output += from->n_output;
    quantiles_merge(&into->ttft_us, &from->ttft_us);
    quantiles_merge(&into->e2el_us, &from->e2el_us);
}

static void halve(struct timeline *t)
{
    for (size_t i = 1; i < t->n; i++) {
        struct moment moved = t->moments[i];

        t->moments[i] = (struct moment){0};
        if (i % 2 == 0) {
            t->moments[i / 2] = moved;
        } else {
            moment_merge(&t->moments[i / 2], &moved);
            moment_deinit(&moved);
        }
    }
    t->n = (t->n + 1) / 2;
    t->width_us *= 2;
}

struct moment *timeline_at(struct timeline *t, uint64_t us)
{
    size_t i;

    if (t->width_us == 0)
        t->width_us = FIRST_WIDTH_US;
    while (us / t->width_us >= TIMELINE_MAX)
        halve(t);
    i = (size_t)(us / t->width_us);
    if (i >= t->n)
        t->n = i + 1;
    return &t->moments[i];
}

void timeline_merge(struct timeline *into, uint64_t from_us, const struct timeline *from)
{
    for (size_t i = 0; i < from->n; i++)
        moment_merge(timeline_at(into, from_us + i * from->width_us), &from->moments[i]);
}

double timeline_seconds(const struct timeline *t, size_t i)
{
    return ((double)i + 0.5) * (double)t->width_us / 1e6;
}
