#include "worlds/cast.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/chance.h"
#include "worlds/metrics.h"
#include "worlds/participant.h"

void quota_init(struct quota *q, uint64_t n)
{
    q->is_bounded = n > 0;
    q->n = n;
    atomic_init(&q->n_left, n);
}

void quota_reset(struct quota *q)
{
    atomic_store_explicit(&q->n_left, q->n, memory_order_relaxed);
}

bool quota_take(struct quota *q)
{
    uint_least64_t left = atomic_load_explicit(&q->n_left, memory_order_relaxed);

    if (!q->is_bounded)
        return true;
    while (left > 0)
        if (atomic_compare_exchange_weak_explicit(&q->n_left, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
}

bool quota_is_out(const struct quota *q)
{
    return q->is_bounded && atomic_load_explicit(&q->n_left, memory_order_relaxed) == 0;
}

/* Where a batch starts: drawn from (seed, thread, count), so that a run can be had again. */
static void random_bytes(void *self, void *out, size_t n_bytes)
{
    struct cast *c = self;
    const uint32_t key[2] = {(uint32_t)c->seed, (uint32_t)(c->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)c->n_drawn, (uint32_t)(c->n_drawn >> 32), c->thread,
                                 UINT32_C(0x62617463)}; /* "batc": not the draws of tasks */
    uint32_t bits[4];

    c->n_drawn++;
    assert(n_bytes <= sizeof bits);
    philox4x32(counter, key, bits);
    memcpy(out, bits, n_bytes);
}

static enum status share_members(struct cast *c, const struct world_config *config,
                                 struct error *err)
{
    c->members = try_alloc(config->n_tasks + config->n_agents, sizeof c->members[0]);
    if (c->members == NULL)
        return error_no_memory(err, sizeof c->members[0], "the participants of a world");
    c->n_tasks = config->n_tasks;
    c->n_agents = config->n_agents;
    for (size_t i = 0; i < cast_n_members(c); i++) {
        struct participant *p = i < c->n_tasks ? config->tasks[i] : config->agents[i - c->n_tasks];

        if (participant_share(&c->members[i], p, c->thread, err) != STATUS_OK)
            return error_prefix(err, "'%.40s'", p->type->name);
    }
    return STATUS_OK;
}

static double weight_of(const struct cast *c, const struct world_config *config, size_t task)
{
    const struct participant *p = c->members[task];

    if (config->stochastic)
        return p->type->n_episodes != NULL ? (double)p->type->n_episodes(p) : 1;
    return task < config->n_weights ? config->weights[task] : 1;
}

static enum status weigh_tasks(struct cast *c, const struct world_config *config, struct error *err)
{
    double sum = 0;

    c->ends = try_alloc(c->n_tasks, sizeof c->ends[0]);
    if (c->ends == NULL)
        return error_no_memory(err, c->n_tasks * sizeof c->ends[0], "the weights of tasks");
    for (size_t i = 0; i < c->n_tasks; i++) {
        double w = weight_of(c, config, i);

        if (!(w >= 0) || w > 1e100)
            return error_field(err, "weights", "has %g, a weight is 0 or above", w);
        sum += w;
        c->ends[i] = sum;
    }
    if (sum == 0)
        return error_field(err, "weights", "are all 0");
    for (size_t i = 0; i < c->n_tasks; i++)
        c->ends[i] /= sum;
    return STATUS_OK;
}

static enum status copy_names(struct cast *c, const struct world_config *config, struct error *err)
{
    c->task_names = try_alloc(c->n_tasks, sizeof c->task_names[0]);
    if (c->task_names == NULL)
        return error_no_memory(err, c->n_tasks * sizeof c->task_names[0], "the names of tasks");
    for (size_t i = 0; i < c->n_tasks; i++) {
        const struct text *name = &config->task_names[i];

        c->task_names[i].text = try_strndup(name->text, name->len);
        if (c->task_names[i].text == NULL)
            return error_no_memory(err, name->len, "the name of a task");
        c->task_names[i].len = name->len;
    }
    return STATUS_OK;
}

enum status cast_open(struct cast **out, const struct world_config *config, uint32_t thread,
                      struct quota *quota, struct error *err)
{
    struct cast *c = try_alloc(1, sizeof *c);
    enum status rc;

    if (c == NULL)
        return error_no_memory(err, sizeof *c, "a world");
    c->aggregate_micro = config->aggregate_micro;
    c->seed = config->seed;
    c->text_truncate = config->text_truncate;
    c->label_truncate =
        config->label_truncate != 0 ? config->label_truncate : config->text_truncate;
    c->thread = thread;
    c->quota = quota;
    c->watch = config->watch;
    c->watch_arg = config->watch_arg;
    c->chance = (struct env){.random = random_bytes, .self = c};
    if (config->chance != NULL)
        c->chance = *config->chance;
    rc = share_members(c, config, err);
    if (rc == STATUS_OK && config->n_tasks > 1 && (config->shuffle || config->stochastic))
        rc = weigh_tasks(c, config, err);
    if (rc == STATUS_OK && config->n_tasks > 1)
        rc = copy_names(c, config, err);
    if (rc == STATUS_OK)
        *out = c;
    else
        cast_close(c);
    return rc;
}

void cast_close(struct cast *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; c->members != NULL && i < cast_n_members(c); i++)
        participant_unref(c->members[i]);
    for (size_t i = 0; c->task_names != NULL && i < c->n_tasks; i++)
        free((char *)(uintptr_t)c->task_names[i].text); /* ours, from copy_names */
    free(c->task_names);
    free(c->ends);
    free(c->members);
    free(c);
}

void cast_reset(struct cast *c)
{
    for (size_t i = 0; i < cast_n_members(c); i++)
        if (c->members[i]->type->reset_shared != NULL)
            c->members[i]->type->reset_shared(c->members[i]);
    quota_reset(c->quota);
}

/* One member's report joins: who was first keeps a name that both have. */
static enum status add_report(struct report *r, struct participant *p, struct error *err)
{
    struct report one = {0};
    enum status rc;

    if (p->type->report == NULL)
        return STATUS_OK;
    rc = p->type->report(&one, p, err);
    if (rc == STATUS_OK)
        rc = report_union(r, &one, err);
    report_deinit(&one);
    return rc;
}

static enum status report_task(struct report *r, struct cast *c, size_t task, struct error *err)
{
    enum status rc = add_report(r, c->members[task], err);

    for (size_t i = 0; i < c->n_agents && rc == STATUS_OK; i++)
        rc = add_report(r, c->members[c->n_tasks + i], err);
    return rc;
}

enum status cast_report(struct report *out, struct cast *c, struct error *err)
{
    struct report *parts = try_alloc(c->n_tasks, sizeof parts[0]);
    const struct report **all = try_alloc(c->n_tasks, sizeof all[0]);
    enum status rc = STATUS_OK;

    if (parts == NULL || all == NULL)
        rc = error_no_memory(err, c->n_tasks * sizeof parts[0], "the reports of tasks");
    for (size_t i = 0; i < c->n_tasks && rc == STATUS_OK; i++) {
        all[i] = &parts[i];
        rc = report_task(&parts[i], c, i, err);
    }
    if (rc == STATUS_OK && c->n_tasks > 1) {
        rc = report_aggregate_named(out, c->task_names, all, c->n_tasks, c->aggregate_micro, err);
    } else if (rc == STATUS_OK) {
        *out = parts[0];
        parts[0] = (struct report){0}; /* given away */
    }
    for (size_t i = 0; parts != NULL && i < c->n_tasks; i++)
        report_deinit(&parts[i]);
    free(all);
    free(parts);
    return rc;
}

static size_t sum_over_tasks(const struct cast *c, bool episodes)
{
    size_t sum = 0;

    for (size_t i = 0; i < c->n_tasks; i++) {
        const struct participant *p = c->members[i];
        size_t (*count)(const struct participant *) =
            episodes ? p->type->n_episodes : p->type->n_examples;
        size_t n = count != NULL ? count(p) : SIZE_MAX;

        if (n == SIZE_MAX || __builtin_add_overflow(sum, n, &sum))
            return SIZE_MAX;
    }
    return sum;
}

size_t cast_n_examples(const struct cast *c)
{
    return sum_over_tasks(c, false);
}

size_t cast_n_episodes(const struct cast *c)
{
    return sum_over_tasks(c, true);
}

static bool is_white(char ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

static uint32_t n_words(struct text t)
{
    uint32_t n = 0;

    for (size_t i = 0; i < t.len && n < UINT32_MAX; i++)
        n += !is_white(t.text[i]) && (i == 0 || is_white(t.text[i - 1]));
    return n;
}

static uint32_t cut(uint32_t length, size_t most)
{
    return most != 0 && length > most ? (uint32_t)most : length;
}

void cast_lengths(const struct cast *c, const struct participant_clone *clone,
                  const struct act *observation, struct lengths *out)
{
    const struct participant_type *type = clone->original->type;

    *out = (struct lengths){0};
    if (observation != NULL && type->lengths != NULL) {
        type->lengths(clone, observation, out);
    } else if (observation != NULL) {
        const struct value *labels = act_labels(observation);

        out->text = cut(n_words(act_text(observation)), c->text_truncate);
        if (labels != NULL && labels->list.n > 0)
            out->label = cut(n_words(labels->list.items[0]), c->label_truncate);
    }
}

enum status cast_open_drivers(struct driver ***out, struct cast *c,
                              const struct batcher_config *config, struct error *err)
{
    struct driver **drivers = try_alloc(cast_n_members(c), sizeof drivers[0]);
    enum status rc = STATUS_OK;

    if (drivers == NULL)
        return error_no_memory(err, cast_n_members(c) * sizeof drivers[0], "drivers");
    for (size_t i = 0; i < cast_n_members(c) && rc == STATUS_OK; i++)
        if (participant_has_batch_act(c->members[i]))
            rc = driver_open(&drivers[i], c->members[i], config, &c->chance, err);
    if (rc == STATUS_OK)
        *out = drivers;
    else
        cast_close_drivers(c, drivers);
    return rc;
}

void cast_close_drivers(struct cast *c, struct driver **drivers)
{
    for (size_t i = 0; drivers != NULL && i < cast_n_members(c); i++)
        driver_close(drivers[i]);
    free(drivers);
}
