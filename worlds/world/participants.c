/* What a world has of its participants on one thread: shares, the weights of tasks, reports,
 * schedulers. Each thread of a hogwild world makes one of these; only the quota is common. */
#include "worlds/world/participants.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/world/counters.h"

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

/* Where a batch starts: drawn from (seed, thread, count), so that a run can be repeated. */
static void participants_random_bytes(void *self, void *out, size_t n_bytes)
{
    struct participants *p = self;
    const uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)p->n_drawn, (uint32_t)(p->n_drawn >> 32), p->thread,
                                 UINT32_C(0x62617463)}; /* "batc": not the draws of tasks */
    uint32_t bits[4];

    p->n_drawn++;
    assert(n_bytes <= sizeof(bits));
    philox4x32(counter, key, bits);
    memcpy(out, bits, n_bytes);
}

static enum status participants_share(struct participants *p, const struct world_config *config,
                                      struct error *err)
{
    p->members = try_alloc(config->n_tasks + config->n_agents, sizeof(p->members[0]));
    if (p->members == NULL)
        return error_no_memory(err, sizeof(p->members[0]), "the participants of a world");
    p->n_tasks = config->n_tasks;
    p->n_agents = config->n_agents;
    for (size_t i = 0; i < participants_n_members(p); i++) {
        struct participant *member =
            i < p->n_tasks ? config->tasks[i] : config->agents[i - p->n_tasks];

        if (participant_share(&p->members[i], member, p->thread, err) != STATUS_OK)
            return error_prefix(err, "'%.40s'", member->type->name);
    }
    return STATUS_OK;
}

static double participants_weight_of(const struct participants *p,
                                     const struct world_config *config, size_t task)
{
    const struct participant *member = p->members[task];

    if (config->stochastic)
        return member->type->n_episodes != NULL ? (double)member->type->n_episodes(member) : 1;
    return task < config->n_weights ? config->weights[task] : 1;
}

static enum status participants_weigh_tasks(struct participants *p,
                                            const struct world_config *config, struct error *err)
{
    double sum = 0;

    p->ends = try_alloc(p->n_tasks, sizeof(p->ends[0]));
    if (p->ends == NULL)
        return error_no_memory(err, p->n_tasks * sizeof(p->ends[0]), "the weights of tasks");
    for (size_t i = 0; i < p->n_tasks; i++) {
        double w = participants_weight_of(p, config, i);

        if (!(w >= 0) || w > 1e100)
            return error_field(err, "weights", "has %g, a weight must be 0 or above", w);
        sum += w;
        p->ends[i] = sum;
    }
    if (sum == 0)
        return error_field(err, "weights", "are all 0");
    for (size_t i = 0; i < p->n_tasks; i++)
        p->ends[i] /= sum;
    return STATUS_OK;
}

static enum status participants_copy_names(struct participants *p,
                                           const struct world_config *config, struct error *err)
{
    p->task_names = try_alloc(p->n_tasks, sizeof(p->task_names[0]));
    if (p->task_names == NULL)
        return error_no_memory(err, p->n_tasks * sizeof(p->task_names[0]), "the names of tasks");
    for (size_t i = 0; i < p->n_tasks; i++) {
        const struct text *name = &config->task_names[i];

        p->task_names[i].text = try_strndup(name->text, name->len);
        if (p->task_names[i].text == NULL)
            return error_no_memory(err, name->len, "the name of a task");
        p->task_names[i].len = name->len;
    }
    return STATUS_OK;
}

enum status participants_open(struct participants **out, const struct world_config *config,
                              uint32_t thread, struct quota *quota, struct error *err)
{
    struct participants *p = try_alloc(1, sizeof(*p));
    enum status rc;

    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a world");
    p->aggregate_micro = config->aggregate_micro;
    p->seed = config->seed;
    p->text_truncate = config->text_truncate;
    p->label_truncate =
        config->label_truncate != 0 ? config->label_truncate : config->text_truncate;
    p->thread = thread;
    p->quota = quota;
    p->has_graph = config->graph != NULL;
    if (p->has_graph)
        p->graph = *config->graph;
    p->counts_words = config->counts_words;
    p->watch = config->watch;
    p->watch_arg = config->watch_arg;
    p->chance = (struct env){.random = participants_random_bytes, .self = p};
    if (config->chance != NULL)
        p->chance = *config->chance;
    rc = participants_share(p, config, err);
    if (rc == STATUS_OK && config->n_tasks > 1 && (config->shuffle || config->stochastic))
        rc = participants_weigh_tasks(p, config, err);
    if (rc == STATUS_OK && config->n_tasks > 1)
        rc = participants_copy_names(p, config, err);
    if (rc == STATUS_OK)
        *out = p;
    else
        participants_close(p);
    return rc;
}

void participants_close(struct participants *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; p->members != NULL && i < participants_n_members(p); i++)
        participant_unref(p->members[i]);
    for (size_t i = 0; p->task_names != NULL && i < p->n_tasks; i++)
        free((char *)(uintptr_t)p->task_names[i].text); /* allocated by copy_names */
    free(p->task_names);
    free(p->ends);
    free(p->members);
    free(p);
}

void participants_reset(struct participants *p)
{
    for (size_t i = 0; i < participants_n_members(p); i++)
        if (p->members[i]->type->reset_shared != NULL)
            p->members[i]->type->reset_shared(p->members[i]);
    quota_reset(p->quota);
}

/* Adds one member's report; the first member keeps a name that both have. */
static enum status add_report(struct report *r, struct participant *member, struct error *err)
{
    struct report one = {0};
    enum status rc;

    if (member->type->report == NULL)
        return STATUS_OK;
    rc = member->type->report(&one, member, err);
    if (rc == STATUS_OK)
        rc = report_union(r, &one, err);
    report_deinit(&one);
    return rc;
}

static enum status participants_report_task(struct report *r, struct participants *p, size_t task,
                                            struct error *err)
{
    enum status rc = add_report(r, p->members[task], err);

    for (size_t i = 0; i < p->n_agents && rc == STATUS_OK; i++)
        rc = add_report(r, p->members[p->n_tasks + i], err);
    return rc;
}

enum status participants_report(struct report *out, struct participants *p, struct error *err)
{
    struct report *parts = try_alloc(p->n_tasks, sizeof(parts[0]));
    const struct report **all = try_alloc(p->n_tasks, sizeof(all[0]));
    enum status rc = STATUS_OK;

    if (parts == NULL || all == NULL)
        rc = error_no_memory(err, p->n_tasks * sizeof(parts[0]), "the reports of tasks");
    for (size_t i = 0; i < p->n_tasks && rc == STATUS_OK; i++) {
        all[i] = &parts[i];
        rc = participants_report_task(&parts[i], p, i, err);
    }
    if (rc == STATUS_OK && p->n_tasks > 1) {
        rc = report_aggregate_named(out, p->task_names, all, p->n_tasks, p->aggregate_micro, err);
    } else if (rc == STATUS_OK) {
        *out = parts[0];
        parts[0] = (struct report){0}; /* given away */
    }
    for (size_t i = 0; parts != NULL && i < p->n_tasks; i++)
        report_deinit(&parts[i]);
    free(all);
    free(parts);
    return rc;
}

static size_t participants_sum_tasks(const struct participants *p, bool episodes)
{
    size_t sum = 0;

    for (size_t i = 0; i < p->n_tasks; i++) {
        const struct participant *member = p->members[i];
        size_t (*count)(const struct participant *) =
            episodes ? member->type->n_episodes : member->type->n_examples;
        size_t n = count != NULL ? count(member) : SIZE_MAX;

        if (n == SIZE_MAX || __builtin_add_overflow(sum, n, &sum))
            return SIZE_MAX;
    }
    return sum;
}

size_t participants_n_examples(const struct participants *p)
{
    return participants_sum_tasks(p, false);
}

size_t participants_n_episodes(const struct participants *p)
{
    return participants_sum_tasks(p, true);
}

static uint32_t cut_length(uint32_t length, size_t most)
{
    return most != 0 && length > most ? (uint32_t)most : length;
}

void participants_lengths(const struct participants *p, const struct participant_clone *clone,
                          const struct act *observation, struct lengths *out)
{
    const struct participant_type *type = clone->original->type;

    *out = (struct lengths){0};
    if (observation != NULL && type->lengths != NULL) {
        type->lengths(clone, observation, out);
    } else if (observation != NULL) {
        const struct value *labels = act_labels(observation);

        out->text = cut_length(act_count_words(act_text(observation)), p->text_truncate);
        if (labels != NULL && labels->list.n > 0)
            out->label = cut_length(act_count_words(labels->list.items[0]), p->label_truncate);
    }
}

enum status participants_open_schedulers(struct offline_scheduler ***out, struct participants *p,
                                         const struct batcher_config *config, struct error *err)
{
    struct offline_scheduler **schedulers =
        try_alloc(participants_n_members(p), sizeof(schedulers[0]));
    enum status rc = STATUS_OK;

    if (schedulers == NULL)
        return error_no_memory(err, participants_n_members(p) * sizeof(schedulers[0]),
                               "schedulers");
    for (size_t i = 0; i < participants_n_members(p) && rc == STATUS_OK; i++) {
        const struct participant_type *type = p->members[i]->type;
        const size_t most = type->max_rows != NULL ? type->max_rows(p->members[i]) : SIZE_MAX;
        struct batcher_config own = *config;

        own.max_rows = own.max_rows > most ? most : own.max_rows;
        if (participant_has_batch_act(p->members[i]))
            rc = offline_scheduler_open(&schedulers[i], p->members[i], &own, &p->chance, err);
    }
    if (rc == STATUS_OK)
        *out = schedulers;
    else
        participants_close_schedulers(p, schedulers);
    return rc;
}

void participants_count_batches(const struct participants *p,
                                struct offline_scheduler *const *schedulers,
                                struct world_counters *counters)
{
    struct offline_counters sum = {0};

    for (size_t i = p->n_tasks; i < participants_n_members(p); i++) {
        struct offline_counters one;

        if (schedulers[i] == NULL)
            continue;
        offline_scheduler_counters(schedulers[i], &one);
        sum.n_steps += one.n_steps;
        sum.n_rows += one.n_rows;
        sum.n_cells += one.n_cells;
        sum.n_words += one.n_words;
        sum.n_padded += one.n_padded;
    }
    counters->n_batches = sum.n_steps;
    counters->n_rows = sum.n_rows;
    counters->n_cells = sum.n_cells;
    counters->n_words = sum.n_words;
    counters->n_padded = sum.n_padded;
}

void participants_close_schedulers(struct participants *p, struct offline_scheduler **schedulers)
{
    for (size_t i = 0; schedulers != NULL && i < participants_n_members(p); i++)
        offline_scheduler_close(schedulers[i]);
    free(schedulers);
}
