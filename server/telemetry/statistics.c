#include "server/telemetry/statistics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void statistics_add(struct duration *d, uint64_t us)
{
    d->n++;
    d->us += us;
}

void statistics_deinit(struct statistics *s)
{
    free(s->by_rows);
    s->by_rows = NULL;
    s->n_by_rows = 0;
}

void statistics_refuse(struct statistics *s, enum status why)
{
    s->refused[why]++;
    statistics_add(&s->fail, 0);
}

void statistics_begin(struct statistics *s)
{
    s->n_open++;
}

static void statistics_end(struct statistics *s)
{
    assert(s->n_open > 0);
    s->n_open--;
}

void statistics_succeed(struct statistics *s, const struct request_times *times, uint64_t now_us)
{
    statistics_end(s);
    statistics_add(&s->success, times->total_us);
    statistics_add(&s->queue, times->queue_us);
    statistics_add(&s->input, times->input_us);
    statistics_add(&s->infer, times->infer_us);
    statistics_add(&s->output, times->output_us);
    histogram_add(&s->queue_times, &histogram_times, times->queue_us, 1);
    s->last_us = now_us;
}

void statistics_fail(struct statistics *s, enum status why, uint64_t total_us)
{
    statistics_end(s);
    s->failed[why]++;
    statistics_add(&s->fail, total_us);
}

/* The table grows to the largest step so far; the model's row bound limits it. */
static struct duration *of_rows(struct statistics *s, size_t n_rows)
{
    if (n_rows > s->n_by_rows) {
        s->by_rows = xrealloc(s->by_rows, n_rows * sizeof(s->by_rows[0]));
        memset(s->by_rows + s->n_by_rows, 0, (n_rows - s->n_by_rows) * sizeof(s->by_rows[0]));
        s->n_by_rows = n_rows;
    }
    return &s->by_rows[n_rows - 1];
}

void statistics_step(struct statistics *s, size_t n_rows, uint64_t cost, uint64_t took_us)
{
    assert(n_rows > 0);
    s->n_steps++;
    s->n_rows += n_rows;
    s->n_cost += cost;
    statistics_add(of_rows(s, n_rows), took_us);
    histogram_add(&s->step_rows, &histogram_rows, n_rows, 1);
    histogram_add(&s->step_cost, &histogram_tokens, cost, 1);
}

void statistics_first_token(struct statistics *s, uint64_t after_us)
{
    histogram_add(&s->ttft, &histogram_times, after_us, 1);
}

void statistics_tokens(struct statistics *s, uint64_t n, uint64_t after_us)
{
    histogram_add(&s->inter_token, &histogram_times, after_us, n);
}
