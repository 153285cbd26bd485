/* A metric is a row: its name, its type, its help, and the member of a struct that counts it. A
 * table of rows stands beside the struct that it reads; server/api/metrics.c lists the tables in
 * the order of the page. The functions append lines in Prometheus's text format (0.0.4); a line
 * that does not fit in the buffer is left out as a whole. Loop. */
#ifndef SERVER_TELEMETRY_METRIC_H
#define SERVER_TELEMETRY_METRIC_H

#include "base/buf.h"
#include "server/telemetry/histogram.h"

struct metric_row {
    const char *name, *type, *help; /* type: "counter" or "gauge" */
    size_t offset, size_bytes;      /* of the member: an unsigned integer or a bool */
};

/* A row whose value is the struct's member. */
#define METRIC(type, name, help, in, member)                                            \
    {                                                                                   \
        name, type, help, offsetof(struct in, member), sizeof(((struct in *)0)->member) \
    }

/* The two lines above a metric's samples, and a sample without labels. */
void metric_head(struct buf *out, const char *name, const char *type, const char *help);
void metric_sample(struct buf *out, const char *name, double value);
/* A sample with labels, which stand in its braces; they are cut at 255 bytes. */
void metric_labelled(struct buf *out, const char *name, double value, const char *labels, ...)
    PRINTF_LIKE(4, 5);
/* A head and its one sample. */
void metric_one(struct buf *out, const char *name, const char *type, const char *help,
                double value);
/* The value of a row in the struct that the row's table reads. */
double metric_value(const struct metric_row *m, const void *in);
/* Each of the n rows with its one sample. */
void metric_rows(struct buf *out, const struct metric_row *rows, size_t n, const void *in);
#define METRIC_ROWS(out, rows, in) metric_rows(out, rows, sizeof(rows) / sizeof((rows)[0]), in)
/* The buckets, the sum and the count of a histogram. */
void metric_histogram(struct buf *out, const char *name, const char *labels,
                      const struct histogram *h, const struct histogram_scale *scale);

#endif
