#include "server/telemetry/metric.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A line that does not fit is left out: (void). */
#define SAY(out, ...) ((void)!buf_printf(out, __VA_ARGS__))

void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
    SAY(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metric_sample(struct buf *out, const char *name, double value)
{
    SAY(out, "%s %.17g\n", name, value);
}

void metric_labelled(struct buf *out, const char *name, double value, const char *labels, ...)
{
    char text[256];
    va_list args;

    va_start(args, labels);
    (void)vsnprintf(text, sizeof(text), labels, args);
    va_end(args);
    SAY(out, "%s{%s} %.17g\n", name, text, value);
}

void metric_one(struct buf *out, const char *name, const char *type, const char *help, double value)
{
    metric_head(out, name, type, help);
    metric_sample(out, name, value);
}

double metric_value(const struct metric_row *m, const void *in)
{
    const char *at = (const char *)in + m->offset;
    uint32_t n32;
    uint64_t n64;

    if (m->size_bytes == sizeof(bool))
        return *(const bool *)at;
    if (m->size_bytes == sizeof(n32)) {
        memcpy(&n32, at, sizeof(n32));
        return n32;
    }
    assert(m->size_bytes == sizeof(n64));
    memcpy(&n64, at, sizeof(n64));
    return (double)n64;
}

void metric_rows(struct buf *out, const struct metric_row *rows, size_t n, const void *in)
{
    for (size_t i = 0; i < n; i++)
        metric_one(out, rows[i].name, rows[i].type, rows[i].help, metric_value(&rows[i], in));
}

void metric_histogram(struct buf *out, const char *name, const char *labels,
                      const struct histogram *h, const struct histogram_scale *scale)
{
    uint64_t n = 0;

    for (size_t k = 0; k < scale->n_bounds; k++) {
        n += h->counts[k];
        SAY(out, "%s_bucket{%s,le=\"%.10g\"} %" PRIu64 "\n", name, labels,
            (double)scale->bounds[k] / scale->unit, n);
    }
    SAY(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, h->n);
    SAY(out, "%s_sum{%s} %.17g\n", name, labels, (double)h->sum / scale->unit);
    SAY(out, "%s_count{%s} %" PRIu64 "\n", name, labels, h->n);
}
