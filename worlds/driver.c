/* A question's road: the adapter makes it a row, the batcher's policy puts it in a step, and the
 * step runs as soon as somebody asks for one: submit only keeps it. Rows that are DONE settle while
 * the step is given back, and whoever is told may ask again before the next step is formed. */
#include "worlds/driver.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"

struct driver {
    struct participant *participant;
    struct batcher *batcher;
    struct env env, chance;       /* the clock of env is ours, its chance the owner's */
    struct batch_step *step;      /* submitted, not run */
    struct participant_row *rows; /* [max_rows], of those without rows of their own */
    size_t n_asked;
    uint64_t n_settled, n_steps, n_cells, n_words;
};

static uint64_t now_us(void *self)
{
    return (((struct driver *)self)->n_steps + 1) * DRIVER_STEP_US;
}

static void random_bytes(void *self, void *out, size_t n_bytes)
{
    const struct driver *d = self;

    d->chance.random(d->chance.self, out, n_bytes);
}

static void submit(void *self, struct batch_step *step)
{
    struct driver *d = self;

    assert(d->step == NULL);
    d->step = step;
}

static void arm(void *self, uint64_t at_us)
{
    (void)self; /* driver_step ticks whenever no step is there */
    (void)at_us;
}

static struct question *question_of(const struct row *row)
{
    return row->turn;
}

static size_t cost(void *self, const struct row *row)
{
    const struct question *q = question_of(row);
    size_t sum = (size_t)q->lengths.text + q->lengths.label;

    (void)self;
    return sum > 0 ? sum : 1;
}

/* Text first, then label; equals in the order of slots. Lengths are below 2^20 in any batch that
 * fits memory; longer ones count as that here. */
static uint64_t order(void *self, const struct row *row)
{
    const struct question *q = question_of(row);
    const uint32_t most = (1u << 20) - 1;
    uint64_t text = q->lengths.text < most ? q->lengths.text : most;
    uint64_t label = q->lengths.label < most ? q->lengths.label : most;

    (void)self;
    return text << 44 | label << 24 | (q->slot & 0xffffff);
}

static void count_step(struct driver *d, struct row *const *rows, size_t n)
{
    uint64_t n_words = 0;
    struct lengths longest = {0};

    for (size_t i = 0; i < n; i++) {
        const struct lengths *l = &question_of(rows[i])->lengths;

        longest.text = l->text > longest.text ? l->text : longest.text;
        longest.label = l->label > longest.label ? l->label : longest.label;
        n_words += (uint64_t)l->text + l->label;
    }
    d->n_words += n_words;
    d->n_cells += d->participant->type->is_ragged
                      ? n_words
                      : (uint64_t)n * ((uint64_t)longest.text + longest.label);
}

static void batch_act(void *self, struct row *const *rows, size_t n)
{
    struct driver *d = self;

    count_step(d, rows, n);
    for (size_t i = 0; i < n; i++) {
        const struct question *q = question_of(rows[i]);

        d->rows[i] = (struct participant_row){
            .clone = q->clone, .observation = q->observation, .out = q->out};
    }
    d->participant->type->batch_act(d->participant, d->rows, n);
    for (size_t i = 0; i < n; i++) {
        rows[i]->outcome = d->rows[i].failed ? ROW_FAILED : ROW_DONE;
        rows[i]->err = d->rows[i].err;
    }
}

enum status driver_open(struct driver **out, struct participant *p,
                        const struct batcher_config *config, const struct env *env,
                        struct error *err)
{
    struct batcher_config c = *config;
    struct driver *d = try_alloc(1, sizeof *d);
    const struct batch_compute compute = {.submit = submit, .self = d};
    const struct batch_timer timer = {.arm = arm, .self = d};
    struct batch_agent agent = {.cost = cost, .order = order, .batch_act = batch_act, .self = d};
    enum status rc = STATUS_OK;

    if (d == NULL)
        return error_no_memory(err, sizeof *d, "a driver");
    d->participant = p;
    d->chance = *env;
    d->env = (struct env){.now_us = now_us, .random = random_bytes, .self = d};
    if (p->type->batching != NULL) {
        agent = (struct batch_agent){0};
        p->type->batching(p, &agent, &c);
    }
    d->rows = try_alloc(c.max_rows, sizeof d->rows[0]);
    if (d->rows == NULL)
        rc = error_no_memory(err, (uint64_t)c.max_rows * sizeof d->rows[0], "the rows of a step");
    if (rc == STATUS_OK)
        rc = batcher_open(&d->batcher, &c, &agent, &compute, &timer, &d->env, err);
    if (rc == STATUS_OK)
        *out = d;
    else
        driver_close(d);
    return rc;
}

static void closed(void *arg)
{
    ((struct driver *)arg)->batcher = NULL;
}

void driver_close(struct driver *d)
{
    if (d == NULL)
        return;
    assert(d->n_asked == 0 && d->step == NULL);
    if (d->batcher != NULL) {
        batcher_close(d->batcher, closed, d);
        batcher_tick(d->batcher);
        assert(d->batcher == NULL);
    }
    free(d->rows);
    free(d);
}

/* Those who have rows of their own come to their end here. */
static void tell(struct question *q, const struct error *ended)
{
    const struct participant_type *type = q->clone->original->type;
    struct error err = *ended;

    if (type->begin != NULL) {
        if (err.status == STATUS_OK)
            err.status = type->finish(q->clone, q->out, &err);
        else if (type->drop != NULL)
            type->drop(q->clone);
    }
    q->then(q, &err);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct question *q = arg;

    (void)f;
    q->is_asked = false;
    q->driver->n_asked--;
    q->driver->n_settled++;
    tell(q, err);
}

enum status driver_ask(struct driver *d, struct question *q, struct error *err)
{
    const struct participant_type *type = d->participant->type;
    struct row *row = &q->row;
    enum status rc;

    assert(!q->is_asked);
    q->driver = d;
    q->row = (struct row){.clone = q->clone, .turn = q};
    if (type->begin != NULL) {
        row = NULL;
        rc = type->begin(q->clone, q->observation, &row, err);
        if (rc != STATUS_OK)
            return rc;
        if (row == NULL) {
            tell(q, &(struct error){0});
            return STATUS_OK;
        }
        d->n_words += (uint64_t)q->lengths.text + q->lengths.label;
        d->n_cells += (uint64_t)q->lengths.text + q->lengths.label;
    }
    asker_init(&q->asker);
    q->ask = (struct ask){.row = row, .asker = &q->asker};
    future_init(&q->ask.reply, on_settled, q);
    rc = batcher_ask(d->batcher, &q->ask, err);
    if (rc != STATUS_OK) {
        if (type->drop != NULL)
            type->drop(q->clone);
        return rc;
    }
    q->is_asked = true;
    d->n_asked++;
    return STATUS_OK;
}

/* One step, or what can be settled without. */
static void go_on(struct driver *d)
{
    struct batch_step *step = d->step;

    if (step == NULL) {
        batcher_tick(d->batcher);
        return;
    }
    d->step = NULL;
    step->run(step);
    d->n_steps++;
    step->done(step);
}

bool driver_step(struct driver *d)
{
    uint64_t before = d->n_settled;

    if (d->n_asked == 0)
        return false;
    while (d->n_settled == before) {
        go_on(d);
        assert(d->step != NULL || d->n_settled != before); /* the policy keeps nobody waiting */
    }
    return true;
}

void driver_cancel(struct driver *d, struct question *q)
{
    if (q->is_asked)
        batcher_cancel(d->batcher, &q->ask);
}

void driver_finish(struct driver *d)
{
    while (d->n_asked > 0 || d->step != NULL)
        go_on(d);
}

void driver_counters(const struct driver *d, struct driver_counters *out)
{
    *out = (struct driver_counters){
        .n_steps = d->n_steps, .n_cells = d->n_cells, .n_words = d->n_words};
}
