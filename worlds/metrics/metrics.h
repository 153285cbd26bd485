/* Metrics of a model's replies. A metric holds all that is needed to merge it with others of its
 * kind, in 64 bits; sums in a store are exact, so a report has the same bits for any order of
 * replies, batch size and number of threads.
 *
 * A store has one shard a thread, each under a lock that only a report contends for. A report
 * merges the shards and changes nothing, so it can be made at any time. */
#ifndef WORLDS_METRICS_METRICS_H
#define WORLDS_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "worlds/message/act.h"

enum metric_kind {
    METRIC_SUM,     /* a */
    METRIC_AVERAGE, /* a / b; 0/0 is 0, x/0 NaN; over tasks: the mean of the tasks' means */
    METRIC_FIXED,   /* a, which must be the same in all parts */
    METRIC_TIMER,   /* a in b … c, seconds: a / (c - b), 0 when no time passed */
    METRIC_PPL,     /* exp(a / b): nats, tokens */
    METRIC_MACRO,   /* the mean of parts, each a task's; made by aggregation */
};

struct metric_list;

/* A metric by itself: one reply's part, or a report's total. */
struct metric {
    uint8_t kind;    /* enum metric_kind */
    bool is_global;  /* of the whole run: not split by task */
    bool is_integer; /* of sums and fixed ones: printed without a point */
    double a, b, c;
    const struct metric_list *parts; /* of METRIC_MACRO, else NULL; borrowed */
};

static inline struct metric metric_sum(double x)
{
    return (struct metric){.kind = METRIC_SUM, .is_integer = x == (double)(int64_t)x, .a = x};
}
static inline struct metric metric_average(double num, double den)
{
    return (struct metric){.kind = METRIC_AVERAGE, .a = num, .b = den};
}
static inline struct metric metric_ppl(double nats, double n_tokens)
{
    return (struct metric){.kind = METRIC_PPL, .a = nats, .b = n_tokens};
}
static inline struct metric metric_fixed(double x)
{
    return (struct metric){.kind = METRIC_FIXED, .is_integer = x == (double)(int64_t)x, .a = x};
}
static inline struct metric metric_timer(double x, double from_s, double to_s)
{
    return (struct metric){.kind = METRIC_TIMER, .a = x, .b = from_s, .c = to_s};
}

double metric_value(const struct metric *m);
/* a += b. INVALID: kinds that do not merge, or fixed ones that differ; then a is as before. The
 * arena holds the parts of macro averages; others need none. */
enum status metric_merge(struct metric *a, const struct metric *b, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Metrics by name, in order: those that a model returns with its reply (ACT_METRICS), and those of
 * a report. Names and items are borrowed by acts, owned by reports. */
struct named_metric {
    struct text name;
    struct metric metric;
};

struct metric_list {
    const struct named_metric *items; /* [n] */
    size_t n;
};

/* --- the store ------------------------------------------------------------------------------- */

struct metrics;

/* Which families are counted beside accuracy, precision, recall, f1 and hits@k, which always are.
 */
enum metric_family {
    METRICS_F1 = 0,
    METRICS_BLEU4 = 1u << 0, /* bleu-4 alone */
    METRICS_BLEU = 1u << 1,  /* bleu-1 … bleu-4 */
    METRICS_ROUGE = 1u << 2, /* rouge_1, rouge_2, rouge_L: recall */
    METRICS_DISTINCT = 1u << 3,
    METRICS_DEFAULT = METRICS_BLEU4,
    METRICS_ALL = METRICS_BLEU | METRICS_ROUGE | METRICS_DISTINCT,
};

/* "default", "f1", "bleu", "rouge", "distinct", "all", "none", or several with commas. */
enum status metrics_families(unsigned *out, const char *names, struct error *err) MUST_CHECK;

/* n_shards: one for each thread that counts, at least 1. */
enum status metrics_open(struct metrics **out, unsigned families, size_t n_shards,
                         struct error *err) MUST_CHECK;
void metrics_close(struct metrics *m);
void metrics_reset(struct metrics *m); /* all shards; any thread */

/* Counts a reply to an act with labels: exs, and the metrics that follow from the reply's text, its
 * candidates and its own metrics. A metric of the reply that has a standard name becomes USER_name.
 * labels NULL: only the reply's own metrics are counted. Any thread, with a shard of its own. */
enum status metrics_evaluate(struct metrics *m, size_t shard, const struct value *labels,
                             const struct act *reply, struct error *err) MUST_CHECK;
/* Counts one metric. The name is copied at its first use. */
enum status metrics_add(struct metrics *m, size_t shard, struct text name, struct metric x,
                        struct error *err) MUST_CHECK;
/* Replies counted so far, without a lock: for progress. */
uint64_t metrics_n_examples(const struct metrics *m);

/* --- the report ------------------------------------------------------------------------------ */

/* Metrics by name: the standard ones first, in ParlAI's order, then users' by name. Owns itself;
 * zeroed is empty. */
struct report {
    struct metric_list list;
    struct named_metric *items; /* list.items */
    size_t cap;
    struct arena memory; /* of names and parts */
};

/* All shards, merged. Any thread, at any time. */
enum status metrics_report(struct report *out, struct metrics *m, struct error *err) MUST_CHECK;
void report_deinit(struct report *r);
/* NULL when it is not there. */
const struct metric *report_get(const struct report *r, const char *name);
/* Adds a metric at the end, or merges it with the one of its name. Copies. */
enum status report_add(struct report *r, struct text name, const struct metric *m,
                       struct error *err) MUST_CHECK;
/* Adds those of from that are not in r yet, at the end: the first agent wins. */
enum status report_union(struct report *r, const struct report *from, struct error *err) MUST_CHECK;

/* Tasks' reports become one. One task alone: unchanged. Else each metric that is not global stands
 * as task/name, and under its own name all tasks together: sums summed, averages averaged over
 * tasks (micro: over examples), a global one once (the first task's). */
enum status report_aggregate_named(struct report *out, const struct text *tasks,
                                   const struct report *const *reports, size_t n, bool micro,
                                   struct error *err) MUST_CHECK;
/* Metrics of the same name are merged: parts of one task. */
enum status report_aggregate_unnamed(struct report *out, const struct report *const *reports,
                                     size_t n, struct error *err) MUST_CHECK;
/* Appends {"name": value, …} on one line. A value that JSON has no number for is "NaN" or
 * "Infinity". */
enum status report_json(const struct report *r, struct buf *out, struct error *err) MUST_CHECK;

#endif
