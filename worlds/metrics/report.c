/* Reports: adding, joining and aggregating metrics by name, and their JSON. A report copies names
 * and parts into its own arena, so it outlives the store and the reports it was made of. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "worlds/metrics/metrics.h"

enum { FIRST_METRICS = 32 };

void report_deinit(struct report *r)
{
    if (r == NULL)
        return;
    free(r->items);
    arena_deinit(&r->memory);
    *r = (struct report){0};
}

static struct named_metric *report_find(const struct report *r, struct text name)
{
    for (size_t i = 0; i < r->list.n; i++)
        if (r->items[i].name.len == name.len &&
            memcmp(r->items[i].name.text, name.text, name.len) == 0)
            return &r->items[i];
    return NULL;
}

const struct metric *report_get(const struct report *r, const char *name)
{
    const struct named_metric *m = report_find(r, (struct text){name, strlen(name)});

    return m == NULL ? NULL : &m->metric;
}

/* The parts of a macro average into the report's own memory. */
static enum status own_parts(struct report *r, struct metric *m, struct error *err)
{
    struct metric_list *parts;
    struct named_metric *items;

    if (m->parts == NULL)
        return STATUS_OK;
    parts = arena_alloc(&r->memory, 1, sizeof(*parts));
    items = arena_alloc(&r->memory, m->parts->n + 1, sizeof(*items));
    if (parts == NULL || items == NULL)
        return error_no_memory(err, sizeof(*parts), "a report");
    for (size_t i = 0; i < m->parts->n; i++) {
        struct text name = m->parts->items[i].name;

        items[i] = m->parts->items[i];
        items[i].name.text = arena_strndup(&r->memory, name.text, name.len);
        if (items[i].name.text == NULL || own_parts(r, &items[i].metric, err) != STATUS_OK)
            return error_no_memory(err, name.len, "a report");
    }
    *parts = (struct metric_list){items, m->parts->n};
    m->parts = parts;
    return STATUS_OK;
}

enum status report_add(struct report *r, struct text name, const struct metric *m,
                       struct error *err)
{
    struct named_metric *at = report_find(r, name), added = {name, *m};

    r->memory.limit_bytes = SIZE_MAX;
    if (at != NULL) {
        if (metric_merge(&at->metric, m, &r->memory, err) != STATUS_OK)
            return err->status == STATUS_EXHAUSTED
                       ? err->status
                       : error_prefix(err, "metric '%.*s'", (int)(name.len < 64 ? name.len : 64),
                                      name.text);
        return STATUS_OK;
    }
    if (r->list.n == r->cap) {
        size_t cap = r->cap == 0 ? FIRST_METRICS : 2 * r->cap;
        struct named_metric *items = try_realloc(r->items, cap, sizeof(*items));

        if (items == NULL)
            return error_no_memory(err, cap * sizeof(*items), "a report");
        r->list.items = r->items = items;
        r->cap = cap;
    }
    added.name.text = arena_strndup(&r->memory, name.text, name.len);
    if (added.name.text == NULL)
        return error_no_memory(err, name.len, "a report");
    if (own_parts(r, &added.metric, err) != STATUS_OK)
        return err->status;
    r->items[r->list.n++] = added;
    return STATUS_OK;
}

enum status report_union(struct report *r, const struct report *from, struct error *err)
{
    for (size_t i = 0; i < from->list.n; i++)
        if (report_find(r, from->items[i].name) == NULL &&
            report_add(r, from->items[i].name, &from->items[i].metric, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

/* --- several into one ------------------------------------------------------------------------ */

static bool is_averaged_over_tasks(const struct metric *m)
{
    return m->kind == METRIC_AVERAGE || m->kind == METRIC_PPL;
}

static enum status add_task_metric(struct report *out, struct text task, struct text name,
                                   const struct metric *m, struct error *err)
{
    struct buf joined;
    enum status rc;

    buf_init(&joined, SIZE_MAX / 2);
    if (buf_append(&joined, task.text, task.len) != STATUS_OK ||
        buf_append(&joined, "/", 1) != STATUS_OK ||
        buf_append(&joined, name.text, name.len) != STATUS_OK)
        rc = error_no_memory(err, task.len + name.len, "a report");
    else
        rc = report_add(out, (struct text){joined.data, joined.len}, m, err);
    buf_deinit(&joined);
    return rc;
}

/* Adds one metric of one task to the whole. A mean over tasks is built from macro averages of one
 * part each, whose parts are merged. */
static enum status aggregate_one(struct report *out, struct report *means, struct text task,
                                 const struct named_metric *m, bool micro, struct error *err)
{
    const struct named_metric part = {task, m->metric};
    const struct metric_list parts = {&part, 1};
    const struct metric mean = {.kind = METRIC_MACRO, .parts = &parts};

    if (m->metric.is_global)
        return report_find(out, m->name) != NULL ? STATUS_OK
                                                 : report_add(out, m->name, &m->metric, err);
    if (add_task_metric(out, task, m->name, &m->metric, err) != STATUS_OK)
        return err->status;
    return micro || !is_averaged_over_tasks(&m->metric) ? report_add(out, m->name, &m->metric, err)
                                                        : report_add(means, m->name, &mean, err);
}

enum status report_aggregate_named(struct report *out, const struct text *tasks,
                                   const struct report *const *reports, size_t n, bool micro,
                                   struct error *err)
{
    struct report built = {0}, means = {0};
    enum status rc = STATUS_OK;

    if (n == 0)
        return error_set(err, STATUS_INVALID, "no reports to aggregate");
    if (n == 1) {
        rc = report_union(&built, reports[0], err);
        goto out;
    }
    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        for (size_t k = 0; k < reports[i]->list.n && rc == STATUS_OK; k++)
            rc = aggregate_one(&built, &means, tasks[i], &reports[i]->list.items[k], micro, err);
    for (size_t k = 0; k < means.list.n && rc == STATUS_OK; k++) {
        struct named_metric *there = report_find(&built, means.items[k].name);

        if (there == NULL) {
            rc = report_add(&built, means.items[k].name, &means.items[k].metric, err);
        } else { /* a sum in one task, an average in another: the average is kept */
            there->metric = means.items[k].metric;
            rc = own_parts(&built, &there->metric, err);
        }
    }
out:
    if (rc == STATUS_OK) {
        *out = built;
        built = (struct report){0};
    }
    report_deinit(&built);
    report_deinit(&means);
    return rc;
}

enum status report_aggregate_unnamed(struct report *out, const struct report *const *reports,
                                     size_t n, struct error *err)
{
    struct report built = {0};
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        for (size_t k = 0; k < reports[i]->list.n && rc == STATUS_OK; k++)
            rc = report_add(&built, reports[i]->list.items[k].name,
                            &reports[i]->list.items[k].metric, err);
    if (rc == STATUS_OK)
        *out = built;
    else
        report_deinit(&built);
    return rc;
}

/* --- JSON ------------------------------------------------------------------------------------ */

enum status report_json(const struct report *r, struct buf *out, struct error *err)
{
    struct json_writer w = json_writer_begin_spaced(out);

    json_begin_object(&w, NULL);
    for (size_t i = 0; i < r->list.n; i++) {
        const struct named_metric *m = &r->items[i];
        const double x = metric_value(&m->metric);

        json_write_name(&w, m->name.text, m->name.len);
        if (m->metric.is_integer && fabs(x) < 9007199254740992.0)
            json_write_signed(&w, NULL, (int64_t)x);
        else
            json_write_exact(&w, NULL, x);
    }
    json_end_object(&w);
    return json_writer_end(&w) == STATUS_OK ? STATUS_OK
                                            : error_no_memory(err, out->len, "a report");
}
