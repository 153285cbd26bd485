#include <math.h>
#include <string.h>

#include "base/real.h"
#include "worlds/metrics/metrics.h"

static double average(double num, double den)
{
    if (den != 0)
        return num / den;
    return num == 0 ? 0 : (double)NAN;
}

double metric_value(const struct metric *m)
{
    double sum = 0;

    switch ((enum metric_kind)m->kind) {
    case METRIC_SUM:
    case METRIC_FIXED:
        return m->a;
    case METRIC_AVERAGE:
        return average(m->a, m->b);
    case METRIC_TIMER:
        return m->a == 0 || m->c == m->b ? 0 : m->a / (m->c - m->b);
    case METRIC_PPL:
        return real_exp(average(m->a, m->b));
    case METRIC_MACRO:
        for (size_t i = 0; i < m->parts->n; i++)
            sum += metric_value(&m->parts->items[i].metric);
        return m->parts->n == 0 ? (double)NAN : sum / (double)m->parts->n;
    }
    return (double)NAN;
}

static bool is_same_name(struct text a, struct text b)
{
    return a.len == b.len && memcmp(a.text, b.text, a.len) == 0;
}

/* Tasks that both have are merged, the others are kept as they are. */
static enum status merge_parts(struct metric *a, const struct metric *b, struct arena *arena,
                               struct error *err)
{
    const struct metric_list *from = b->parts;
    struct metric_list *merged = arena_alloc(arena, 1, sizeof(*merged));
    struct named_metric *items = arena_alloc(arena, a->parts->n + from->n + 1, sizeof(*items));
    size_t n = a->parts->n;

    if (merged == NULL || items == NULL)
        return error_no_memory(err, sizeof(*merged), "a metric");
    if (n > 0)
        memcpy(items, a->parts->items, n * sizeof(*items));
    for (size_t i = 0; i < from->n; i++) {
        size_t k = 0;

        while (k < n && !is_same_name(items[k].name, from->items[i].name))
            k++;
        if (k == n)
            items[n++] = from->items[i];
        else if (metric_merge(&items[k].metric, &from->items[i].metric, arena, err) != STATUS_OK)
            return err->status;
    }
    *merged = (struct metric_list){items, n};
    a->parts = merged;
    return STATUS_OK;
}

enum status metric_merge(struct metric *a, const struct metric *b, struct arena *arena,
                         struct error *err)
{
    if (a->kind != b->kind)
        return error_set(err, STATUS_INVALID, "metrics of different kinds under one name");
    switch ((enum metric_kind)a->kind) {
    case METRIC_SUM:
        a->a += b->a;
        a->is_integer &= b->is_integer;
        break;
    case METRIC_AVERAGE:
    case METRIC_PPL:
        a->a += b->a;
        a->b += b->b;
        break;
    case METRIC_FIXED:
        if (a->a != b->a)
            return error_set(err, STATUS_INVALID,
                             "a metric with a fixed value has two values, %g and %g", a->a, b->a);
        break;
    case METRIC_TIMER:
        a->a += b->a;
        a->b = b->b < a->b ? b->b : a->b;
        a->c = b->c > a->c ? b->c : a->c;
        break;
    case METRIC_MACRO:
        return merge_parts(a, b, arena, err);
    }
    return STATUS_OK;
}
