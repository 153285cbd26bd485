#include "batching/length_buckets.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"
#include "batching/adapters.h"
#include "batching/config.h"
#include "batching/policy.h"
#include "batching/request.h"
#include "batching/waiting.h"

enum status length_buckets_open(struct length_buckets *out, size_t cap,
                                const struct batch_agent *agent, const struct env *env,
                                struct error *err)
{
    struct length_buckets by = {.cap = cap, .agent = agent, .env = env};

    by.items = try_alloc(cap, sizeof(by.items[0]));
    if (by.items == NULL)
        return error_no_memory(err, (uint64_t)cap * sizeof(by.items[0]), "those who wait");
    *out = by;
    return STATUS_OK;
}

void length_buckets_close(struct length_buckets *by)
{
    free(by->items);
    *by = (struct length_buckets){0};
}

static void collect(void *arg, struct batch_request *request)
{
    struct length_buckets *by = arg;
    const struct batch_agent *agent = by->agent;

    assert(by->n < by->cap);
    by->items[by->n++] = (struct length_bucket_item){
        .order = agent->order != NULL ? agent->order(agent->self, request->row) : request->cost,
        .cost = request->cost,
        .request = request,
    };
}

static int length_buckets_compare(const void *a, const void *b)
{
    const struct length_bucket_item *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->request->number < y->request->number ? -1 : x->request->number > y->request->number;
}

/* Uniform below n, to within n / 2^32. */
static size_t length_buckets_draw(const struct env *env, size_t n)
{
    uint64_t bits;

    env->random(env->self, &bits, sizeof(bits));
    return (size_t)((bits >> 32) * n >> 32);
}

static size_t length_buckets_place_of(const struct length_buckets *by,
                                      const struct batch_request *request)
{
    size_t i = 0;

    while (by->items[i].request != request)
        i++;
    return i;
}

static size_t length_buckets_start(const struct length_buckets *by, const struct waiting *w,
                                   const struct policy_view *v)
{
    const struct batch_request *first = waiting_first_by_age(w);
    uint64_t waited_us = v->now_us - waiting_aged_priority_us(w, first);
    size_t at = by->n - 1;

    if ((int64_t)waited_us >= 0 && waited_us >= v->config->max_delay_us)
        return length_buckets_place_of(by, first);
    if (v->config->start_by_chance)
        at = length_buckets_draw(by->env, by->n);
    while (at + 1 < by->n && by->items[at + 1].cost == by->items[at].cost)
        at++;
    return at;
}

/* The batch so far. */
struct batch {
    size_t rows, sum, largest;
};

/* Adds a row if it fits. The first always fits: a row too large for any batch has its own. */
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

/* The index of the kth row of the batch that starts at at: downwards, then upwards from at. */
static size_t place(size_t at, size_t k)
{
    return k <= at ? at - k : k;
}

size_t length_buckets_choose(struct waiting *w, struct length_buckets *by,
                             const struct policy_view *v)
{
    const struct batcher_config *config = v->config;
    size_t n_running = v->n_running, at;
    struct batch batch = {0};

    if (v->n_admitted > 0 || n_running >= config->max_rows)
        return 0;
    by->n = 0;
    waiting_each(w, collect, by);
    assert(by->n == v->n_queued);
    qsort(by->items, by->n, sizeof(by->items[0]), length_buckets_compare);
    at = length_buckets_start(by, w, v);
    while (batch.rows < by->n && joins(&batch, by->items[place(at, batch.rows)].cost,
                                       config->max_rows - n_running, config))
        continue;
    if (config->rows_multiple > 1 && batch.rows > config->rows_multiple)
        batch.rows -= batch.rows % config->rows_multiple;
    for (size_t i = 0; i < batch.rows; i++)
        waiting_choose(w, by->items[place(at, i)].request);
    return batch.rows;
}
