/* A batcher with a fake environment that the test controls: clock, timer, compute, and an agent
 * whose rows cost what the test says. */
#ifndef TESTS_UNIT_BATCHING_FAKES_H
#define TESTS_UNIT_BATCHING_FAKES_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "batching/batcher.h"
#include "tests/unit/base/suite.h"

enum { FAKE_MAX_ROWS = 64 };

/* One request of its own flow (unless the test sets another), and its result. */
struct fake_request {
    size_t extra; /* of each step */
    struct batch_request request;
    struct row row;
    struct flow own;
    struct fake *fake;
    size_t cost;  /* still to compute */
    size_t least; /* 0: cannot be chunked */
    uint32_t
        n_steps;    /* of the steps that compute the last of its cost, after how many it is done */
    bool breaks;    /* the next step fails it */
    size_t n_pages; /* held */
    unsigned n_settled, n_more, n_stepped, n_released;
    struct error err;
    void (*then)(struct fake_request *a); /* called in the continuation; may be NULL */
};

struct fake {
    struct env env;
    struct batch_timer timer;
    struct batch_compute compute;
    struct batch_agent agent;
    struct batcher_config config;
    struct batcher *b;
    uint64_t now_us, armed_us;
    void (*act)(struct fake *f, struct row *const *rows, size_t n);
    struct batch_step *step;                  /* begun, not done */
    struct fake_request *rows[FAKE_MAX_ROWS]; /* [n_rows] of the last step */
    size_t n_rows, pages_free;
    struct fake_request *order[FAKE_MAX_ROWS]; /* [n_settled] as they settled */
    size_t n_settled;
    unsigned n_closed;
};

static uint64_t fake_now(void *self)
{
    return ((struct fake *)self)->now_us;
}

/* All bits 0: the smallest possible draw. */
static void fake_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 0, n_bytes);
}

static void fake_arm(void *self, uint64_t at_us)
{
    ((struct fake *)self)->armed_us = at_us;
}

static void fake_begin(void *self, struct batch_step *step)
{
    struct fake *f = self;

    ck_assert_ptr_null(f->step);
    f->step = step;
    f->act(f, step->rows, step->n_rows);
}

static struct fake_request *fake_request_of(const struct row *row)
{
    return container_of(row, struct fake_request, row);
}

static size_t fake_cost(void *self, const struct row *row)
{
    return fake_request_of(row)->cost;
}

static size_t fake_min_chunk(void *self, const struct row *row)
{
    const struct fake_request *a = fake_request_of(row);

    return a->least == 0 ? a->cost : a->least;
}

/* A page for each unit of cost. */
static enum status fake_reserve(void *self, struct row *row, struct error *err)
{
    struct fake *f = self;

    if (row->n_scheduled > f->pages_free)
        return error_set(err, STATUS_EXHAUSTED, "no pages");
    f->pages_free -= row->n_scheduled;
    fake_request_of(row)->n_pages += row->n_scheduled;
    return STATUS_OK;
}

static void fake_release(void *self, struct row *row)
{
    struct fake *f = self;
    struct fake_request *a = fake_request_of(row);

    f->pages_free += a->n_pages;
    a->n_pages = 0;
    a->n_released++;
}

static void fake_act(struct fake *f, struct row *const *rows, size_t n)
{
    ck_assert_uint_le(n, FAKE_MAX_ROWS);
    f->n_rows = n;
    for (size_t i = 0; i < n; i++) {
        struct fake_request *a = f->rows[i] = fake_request_of(rows[i]);

        a->cost -= a->row.n_scheduled;
        a->row.extra = a->extra;
        a->row.outcome = ROW_MORE;
        if (a->breaks) {
            a->row.outcome = ROW_FAILED;
            (void)error_set(&a->row.err, STATUS_INTERNAL, "broke");
        } else if (a->cost == 0) {
            a->cost = 1;
            if (--a->n_steps == 0)
                a->row.outcome = ROW_DONE;
        }
    }
}

static void fake_stepped(void *self, struct row *row)
{
    fake_request_of(row)->n_stepped++;
}

static inline void fake_init(struct fake *f, enum batch_policy policy, size_t max_rows,
                             size_t max_cost)
{
    *f = (struct fake){.now_us = 1000, .pages_free = SIZE_MAX, .act = fake_act};
    f->env = (struct env){.now_us = fake_now, .random = fake_random, .self = f};
    f->timer = (struct batch_timer){.arm = fake_arm, .self = f};
    f->compute = (struct batch_compute){.begin = fake_begin, .self = f};
    f->agent = (struct batch_agent){.cost = fake_cost,
                                    .min_chunk = fake_min_chunk,
                                    .reserve = fake_reserve,
                                    .release = fake_release,
                                    .stepped = fake_stepped,
                                    .self = f};
    f->config = (struct batcher_config){
        .policy = policy, .max_rows = max_rows, .max_cost = max_cost, .max_waiting = 100};
}

static inline void fake_open(struct fake *f)
{
    struct error err;

    ck_assert_int_eq(
        batcher_open(&f->b, &f->config, &f->agent, &f->compute, &f->timer, &f->env, &err),
        STATUS_OK);
}

static void fake_settled(struct future *future, const struct error *err, void *arg)
{
    struct fake_request *a = arg;
    struct fake *f = a->fake;

    ck_assert_ptr_eq(future, &a->request.reply);
    f->pages_free += a->n_pages;
    a->n_pages = 0;
    a->n_settled++;
    a->err = *err;
    if (f->n_settled < FAKE_MAX_ROWS)
        f->order[f->n_settled++] = a;
    if (a->then != NULL)
        a->then(a);
}

static inline void fake_more(struct batch_request *request, void *arg)
{
    ((struct fake_request *)arg)->n_more++;
}

static inline void fake_request_init(struct fake_request *a, struct fake *f, size_t cost,
                                     uint32_t n_steps)
{
    *a = (struct fake_request){.fake = f, .cost = cost, .n_steps = n_steps};
    flow_init(&a->own);
    a->request.row = &a->row;
    a->request.flow = &a->own;
    a->request.more = fake_more;
    a->request.more_arg = a;
    future_init(&a->request.reply, fake_settled, a);
}

static inline enum status fake_submit(struct fake_request *a)
{
    return batcher_submit(a->fake->b, &a->request, &a->err);
}

/* Submits; the request must be accepted. */
static inline void fake_submit_ok(struct fake_request *a)
{
    ck_assert_int_eq(fake_submit(a), STATUS_OK);
    ck_assert_uint_eq(a->n_settled, 0);
}

/* Advances the clock by after_us; the timer fires if it is due. */
static inline void fake_wait(struct fake *f, uint64_t after_us)
{
    f->now_us += after_us;
    if (f->armed_us != 0 && f->armed_us <= f->now_us) {
        f->armed_us = 0;
        batcher_tick(f->b);
    }
}

static inline void fake_step_done(struct fake *f)
{
    struct batch_step *step = f->step;

    ck_assert_ptr_nonnull(step);
    f->step = NULL;
    step->done(step);
}

/* Runs until nothing runs. */
static inline void fake_run_out(struct fake *f)
{
    fake_wait(f, 0);
    while (f->step != NULL) {
        f->now_us++;
        fake_step_done(f);
        fake_wait(f, 0);
    }
}

static void fake_closed(void *arg)
{
    ((struct fake *)arg)->n_closed++;
}

static inline void fake_close(struct fake *f)
{
    batcher_close(f->b, fake_closed, f);
    ck_assert_uint_eq(f->n_closed, 0);
    fake_run_out(f);
    ck_assert_uint_eq(f->n_closed, 1);
    ck_assert_uint_eq(f->armed_us, 0);
}

static inline bool fake_is_in_step(const struct fake *f, const struct fake_request *a)
{
    for (size_t i = 0; i < f->n_rows; i++)
        if (f->rows[i] == a)
            return true;
    return false;
}

#endif
