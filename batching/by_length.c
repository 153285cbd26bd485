#include "batching/by_length.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"
#include "batching/batcher.h"
#include "batching/policy.h"
#include "batching/waiting.h"

enum status by_length_open(struct by_length *out, size_t cap, const struct batch_agent *agent,
                           const struct env *env, struct error *err)
{
    struct by_length by = {.cap = cap, .agent = agent, .env = env};

    by.items = try_alloc(cap, sizeof(by.items[0]));
    if (by.items == NULL)
        return error_no_memory(err, (uint64_t)cap * sizeof(by.items[0]), "those who wait");
    *out = by;
    return STATUS_OK;
}

void by_length_close(struct by_length *by)
{
    free(by->items);
    *by = (struct by_length){0};
}

static void collect(void *arg, struct ask *ask)
{
    struct by_length *by = arg;
    const struct batch_agent *agent = by->agent;

    assert(by->n < by->cap);
    by->items[by->n++] = (struct by_length_item){
        .order = agent->order != NULL ? agent->order(agent->self, ask->row) : ask->cost,
        .cost = ask->cost,
        .ask = ask,
    };
}

static int compare(const void *a, const void *b)
{
    const struct by_length_item *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->ask->number < y->ask->number ? -1 : x->ask->number > y->ask->number;
}

/* Uniform below n, to within n / 2^32. */
static size_t draw(const struct env *env, size_t n)
{
    uint64_t bits;

    env->random(env->self, &bits, sizeof bits);
    return (size_t)((bits >> 32) * n >> 32);
}

static size_t place_of(const struct by_length *by, const struct ask *ask)
{
    size_t i = 0;

    while (by->items[i].ask != ask)
        i++;
    return i;
}

static size_t start(const struct by_length *by, const struct waiting *w,
                    const struct policy_view *v)
{
    const struct ask *first = waiting_first(w);
    uint64_t waited_us = v->now_us - waiting_rank_us(w, first);
    size_t at = by->n - 1;

    if ((int64_t)waited_us >= 0 && waited_us >= v->config->max_delay_us)
        return place_of(by, first);
    if (v->config->start_by_chance)
        at = draw(by->env, by->n);
    while (at + 1 < by->n && by->items[at + 1].cost == by->items[at].cost)
        at++;
    return at;
}

/* What is in the batch so far. */
struct batch {
    size_t rows, sum, largest;
};

/* The first one always does: too large for any batch, it gets one of its own. */
static bool joins(struct batch *batch, size_t cost, size_t max_rows,
                  const struct batcher_config *config)
{
    struct batch next = {
        .rows = batch->rows + 1,
        .largest = cost > batch->largest ? cost : batch->largest,
    };
    size_t total;
    bool too_much = __builtin_add_overflow(batch->sum, cost, &next.sum);

    if (config->pads)
        too_much = __builtin_mul_overflow(next.rows, next.largest, &total);
    else
        total = next.sum;
    if (next.rows > max_rows || (batch->rows > 0 && (too_much || total > config->max_cost)))
        return false;
    *batch = next;
    return true;
}

/* The kth of the batch that starts at at: downwards, then up from where it began. */
static size_t place(size_t at, size_t k)
{
    return k <= at ? at - k : k;
}

size_t by_length_choose(struct waiting *w, struct by_length *by, const struct policy_view *v)
{
    const struct batcher_config *config = v->config;
    size_t n_running = v->n_running, at;
    struct batch batch = {0};

    if (v->n_admitted > 0 || n_running >= config->max_rows)
        return 0;
    by->n = 0;
    waiting_each(w, collect, by);
    assert(by->n == v->n_queued);
    qsort(by->items, by->n, sizeof(by->items[0]), compare);
    at = start(by, w, v);
    while (batch.rows < by->n && joins(&batch, by->items[place(at, batch.rows)].cost,
                                       config->max_rows - n_running, config))
        continue;
    if (config->rows_multiple > 1 && batch.rows > config->rows_multiple)
        batch.rows -= batch.rows % config->rows_multiple;
    for (size_t i = 0; i < batch.rows; i++)
        waiting_choose(w, by->items[place(at, i)].ask);
    return batch.rows;
}
