/* Metrics of a model's replies, after ParlAI's (parlai/core/metrics.py). A metric holds all that is
 * needed to merge it with others of its kind, in double precision. Sums in a store are exact, so a
 * report has the same bits for any order of replies, batch size and number of threads.
 *
 * A store has one shard for each thread that counts. Each shard has a lock, for which only a report
 * and a reset contend. A report merges the shards and does not change them, so it can be made at
 * any time. */
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
    METRIC_SUM,     /* the value is a */
    METRIC_AVERAGE, /* the value is a / b; 0/0 is 0, and x/0 is NaN */
    METRIC_FIXED,   /* the value is a, which must be the same in all metrics that are merged */
    METRIC_TIMER,   /* a happened from b to c (seconds): the value is a / (c - b), or 0 if c is b */
    METRIC_PPL,     /* the value is exp(a / b); a in nats, b in tokens */
    METRIC_MACRO, /* the value is the mean of the parts' values; report_aggregate_named makes it */
};

struct metric_list;

/* A value with what merging it needs: a part that one reply contributes, or a report's total. */
struct metric {
    uint8_t kind;    /* enum metric_kind */
    bool is_global;  /* the metric is one of the whole run and is not split by task */
    bool is_integer; /* the value, a sum or fixed, is printed without a decimal point */
    double a, b, c;  /* see enum metric_kind */
    const struct metric_list *parts; /* METRIC_MACRO: one metric for each task; else NULL. Borrowed,
                                        but owned in a report */
};

/* Whether a sum or a fixed value is printed without a decimal point. */
static inline bool metric_is_integer(double x)
{
    return x > -1e15 && x < 1e15 && x == (double)(int64_t)x;
}
static inline struct metric metric_sum(double x)
{
    return (struct metric){.kind = METRIC_SUM, .is_integer = metric_is_integer(x), .a = x};
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
    return (struct metric){.kind = METRIC_FIXED, .is_integer = metric_is_integer(x), .a = x};
}
static inline struct metric metric_timer(double x, double from_s, double to_s)
{
    return (struct metric){.kind = METRIC_TIMER, .a = x, .b = from_s, .c = to_s};
}

/* Returns the metric's value, as enum metric_kind says. */
double metric_value(const struct metric *m);
/* Merges b into a. INVALID if the kinds differ, or if both are fixed and their values differ; a is
 * then unchanged. arena takes the merged parts of METRIC_MACRO; other kinds allocate nothing. */
enum status metric_merge(struct metric *a, const struct metric *b, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* A list of named metrics: those that a model returns with its reply (ACT_METRICS), or those of a
 * report. An act borrows names and items; a report owns them. */
struct named_metric {
    struct text name;
    struct metric metric;
};

struct metric_list {
    const struct named_metric *items; /* [n] */
    size_t n;
};

/* Reads metrics from a JSON object, as programs send them: {"name": x} is an average of one value,
 * {"name": [sum, n]} an average of n values; {"name": {"sum": x}}, {"fixed": x},
 * {"ppl": [nats, tokens]} and {"timer": [x, from, to]} are the other kinds. The list lies in arena.
 * INVALID says which metric has another form. */
enum status metric_list_read(struct metric_list *out, struct text json, struct arena *arena,
                             struct error *err) MUST_CHECK;

/* --- the store ------------------------------------------------------------------------------- */

struct metrics;

/* The families of metrics that a store may count. It always counts accuracy, precision, recall, f1
 * and hits@k. */
enum metric_family {
    METRICS_F1 = 0,             /* no more than the above */
    METRICS_BLEU4 = 1u << 0,    /* bleu-4 alone */
    METRICS_BLEU = 1u << 1,     /* bleu-1 … bleu-4 */
    METRICS_ROUGE = 1u << 2,    /* the recall of rouge_1, rouge_2 and rouge_L */
    METRICS_DISTINCT = 1u << 3, /* interdistinct-1, -2, intradistinct-1, -2 */
    METRICS_DEFAULT = METRICS_BLEU4,
    METRICS_ALL = METRICS_BLEU | METRICS_ROUGE | METRICS_DISTINCT,
};

/* Reads names of families, with commas between them: "default", "f1", "bleu", "rouge", "distinct",
 * "all", "none" (as f1). INVALID for another name. */
enum status metrics_families(unsigned *out, const char *names, struct error *err) MUST_CHECK;

/* Opens a store. families: a sum of enum metric_family. n_shards: the number of threads that count,
 * at least 1. EXHAUSTED. */
enum status metrics_open(struct metrics **out, unsigned families, size_t n_shards,
                         struct error *err) MUST_CHECK;
void metrics_close(struct metrics *m);
void metrics_reset(struct metrics *m); /* forgets what all shards counted; any thread */

/* Counts a reply to an act with labels (a VALUE_LIST) in a shard: exs, and the metrics that follow
 * from the reply's text, its candidates and its own metrics. A metric of the reply with a standard
 * name becomes USER_name. labels NULL: only the reply's own metrics are counted. Any thread, each
 * with a shard of its own. INVALID if a metric of the reply does not merge with those before;
 * EXHAUSTED. After a failure a part of the reply may have been counted. */
enum status metrics_evaluate(struct metrics *m, size_t shard, const struct value *labels,
                             const struct act *reply, struct error *err) MUST_CHECK;
/* --- the report ------------------------------------------------------------------------------ */

/* A list of metrics with its own memory. metrics_report orders them: the standard ones in ParlAI's
 * order, then those of the replies by name. A zeroed report is empty; report_deinit frees it. */
struct report {
    struct metric_list list;
    struct named_metric *items; /* [cap]; list.items is the same array */
    size_t cap;
    struct arena memory; /* of names and parts */
};

/* Makes a report of all shards, merged. Any thread, at any time. INVALID if shards have metrics of
 * one name that do not merge; EXHAUSTED. The caller calls report_deinit. */
enum status metrics_report(struct report *out, struct metrics *m, struct error *err) MUST_CHECK;
void report_deinit(struct report *r); /* r may be NULL */
/* Returns the metric of that name, NULL if r does not have it. Valid until r is changed. */
const struct metric *report_get(const struct report *r, const char *name);
/* Adds a copy of a metric behind all others, or merges it with r's metric of that name. INVALID as
 * metric_merge; EXHAUSTED. */
enum status report_add(struct report *r, struct text name, const struct metric *m,
                       struct error *err) MUST_CHECK;
/* Adds those metrics of from whose names r does not have. EXHAUSTED. */
enum status report_union(struct report *r, const struct report *from, struct error *err) MUST_CHECK;

/* Aggregates the reports of n tasks into one. With one task it is a copy. With several, each metric
 * that is not global is there once for each task, as task/name, and once for all tasks, under its
 * own name: sums are summed, averages and perplexities are averaged over tasks (micro: over
 * examples). A global metric is there once, from the first task that has it. INVALID if n is 0 or
 * metrics of one name do not merge; EXHAUSTED. */
enum status report_aggregate_named(struct report *out, const struct text *tasks,
                                   const struct report *const *reports, size_t n, bool micro,
                                   struct error *err) MUST_CHECK;
/* Merges n reports, which are parts of one task: metrics of one name are merged. Errors as for
 * report_add. */
enum status report_aggregate_unnamed(struct report *out, const struct report *const *reports,
                                     size_t n, struct error *err) MUST_CHECK;
/* Appends {"name": value, …} on one line. A value that is no number in JSON is "NaN", "Infinity" or
 * "-Infinity". EXHAUSTED. */
enum status report_json(const struct report *r, struct buf *out, struct error *err) MUST_CHECK;

#endif
