/* Happy path: ask makes a row of the request, the batcher's policy puts the row in a step,
 * begin_step stores the step, and offline_scheduler_step computes it. DONE rows settle while the
 * batcher completes the step; a callback may ask again before the next step is formed. */
#include "worlds/participant/offline_scheduler.h"

#include <assert.h>
#include <stdlib.h>

#include "agents/turn.h"
#include "base/alloc.h"
#include "base/list.h"

struct offline_scheduler {
    struct participant *participant;
    struct batcher *batcher;
    struct env env, chance;       /* env: this clock, and the random numbers of chance */
    struct batch_step *step;      /* begun, not computed */
    struct participant_row *rows; /* [max_rows], where batch_act answers */
    size_t n_asked;
    uint64_t n_settled, n_steps, n_cells, n_words;
};

static uint64_t offline_scheduler_now_us(void *self)
{
    return (((struct offline_scheduler *)self)->n_steps + 1) * OFFLINE_STEP_US;
}

static void offline_scheduler_random_bytes(void *self, void *out, size_t n_bytes)
{
    const struct offline_scheduler *s = self;

    s->chance.random(s->chance.self, out, n_bytes);
}

static void offline_scheduler_begin_step(void *self, struct batch_step *step)
{
    struct offline_scheduler *s = self;

    assert(s->step == NULL);
    s->step = step;
}

static void offline_scheduler_arm(void *self, uint64_t at_us)
{
    (void)self; /* without a step, offline_scheduler_advance ticks */
    (void)at_us;
}

static struct offline_request *offline_request_of(const struct row *row)
{
    return row->turn;
}

static size_t offline_scheduler_cost(void *self, const struct row *row)
{
    const struct offline_request *r = offline_request_of(row);
    size_t sum = (size_t)r->lengths.text + r->lengths.label;

    (void)self;
    return sum > 0 ? sum : 1;
}

/* By text, then label; equal lengths in the order of slots. Lengths are below 2^20 in any batch
 * that fits memory; longer ones count as that here. */
static uint64_t offline_scheduler_order(void *self, const struct row *row)
{
    const struct offline_request *r = offline_request_of(row);
    const uint32_t most = (1u << 20) - 1;
    uint64_t text = r->lengths.text < most ? r->lengths.text : most;
    uint64_t label = r->lengths.label < most ? r->lengths.label : most;

    (void)self;
    return text << 44 | label << 24 | (r->slot & 0xffffff);
}

static void offline_scheduler_count_step(struct offline_scheduler *s, struct row *const *rows,
                                         size_t n)
{
    uint64_t n_words = 0;
    struct lengths longest = {0};

    for (size_t i = 0; i < n; i++) {
        const struct lengths *l = &offline_request_of(rows[i])->lengths;

        longest.text = l->text > longest.text ? l->text : longest.text;
        longest.label = l->label > longest.label ? l->label : longest.label;
        n_words += (uint64_t)l->text + l->label;
    }
    s->n_words += n_words;
    s->n_cells += s->participant->type->is_ragged
                      ? n_words
                      : (uint64_t)n * ((uint64_t)longest.text + longest.label);
}

/* Rows of a participant that answers in one step. */
static void offline_scheduler_act(struct offline_scheduler *s, struct row *const *rows, size_t n)
{
    offline_scheduler_count_step(s, rows, n);
    for (size_t i = 0; i < n; i++) {
        const struct offline_request *r = offline_request_of(rows[i]);

        s->rows[i] = (struct participant_row){
            .clone = r->clone, .observation = r->observation, .out = r->out};
    }
    s->participant->type->batch_act(s->participant, s->rows, n);
    for (size_t i = 0; i < n; i++) {
        rows[i]->outcome = s->rows[i].failed ? ROW_FAILED : ROW_DONE;
        rows[i]->err = s->rows[i].err;
    }
}

enum status offline_scheduler_open(struct offline_scheduler **out, struct participant *p,
                                   const struct batcher_config *config, const struct env *env,
                                   struct error *err)
{
    struct batcher_config c = *config;
    struct offline_scheduler *s = try_alloc(1, sizeof *s);
    const struct batch_compute compute = {.begin = offline_scheduler_begin_step, .self = s};
    const struct batch_timer timer = {.arm = offline_scheduler_arm, .self = s};
    struct batch_agent agent = {
        .cost = offline_scheduler_cost, .order = offline_scheduler_order, .self = s};
    enum status rc = STATUS_OK;

    if (s == NULL)
        return error_no_memory(err, sizeof *s, "a scheduler");
    s->participant = p;
    s->chance = *env;
    s->env = (struct env){
        .now_us = offline_scheduler_now_us, .random = offline_scheduler_random_bytes, .self = s};
    if (p->type->batching != NULL) {
        agent = (struct batch_agent){0};
        p->type->batching(p, &agent, &c);
    }
    s->rows = try_alloc(c.max_rows, sizeof s->rows[0]);
    if (s->rows == NULL)
        rc = error_no_memory(err, (uint64_t)c.max_rows * sizeof s->rows[0], "the rows of a step");
    if (rc == STATUS_OK)
        rc = batcher_open(&s->batcher, &c, &agent, &compute, &timer, &s->env, err);
    if (rc == STATUS_OK)
        *out = s;
    else
        offline_scheduler_close(s);
    return rc;
}

static void offline_scheduler_closed(void *arg)
{
    ((struct offline_scheduler *)arg)->batcher = NULL;
}

void offline_scheduler_close(struct offline_scheduler *s)
{
    if (s == NULL)
        return;
    assert(s->n_asked == 0 && s->step == NULL);
    if (s->batcher != NULL) {
        batcher_close(s->batcher, offline_scheduler_closed, s);
        batcher_tick(s->batcher);
        assert(s->batcher == NULL);
    }
    free(s->rows);
    free(s);
}

static void offline_request_end(struct offline_request *r)
{
    r->is_asked = false;
    r->scheduler->n_asked--;
    r->scheduler->n_settled++;
}

/* --- participants that answer in one step --- */

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct offline_request *r = arg;

    (void)f;
    offline_request_end(r);
    r->then(r, err);
}

static enum status offline_scheduler_ask_row(struct offline_scheduler *s, struct offline_request *r,
                                             struct error *err)
{
    r->row = (struct row){.clone = r->clone, .turn = r};
    flow_init(&r->flow);
    r->ask = (struct batch_request){.row = &r->row, .flow = &r->flow};
    future_init(&r->ask.reply, on_settled, r);
    return batcher_submit(s->batcher, &r->ask, err);
}

/* --- participants that answer by turns --- */

static void offline_request_finish(struct offline_request *r)
{
    struct error err = {0};

    err.status = r->clone->original->type->finish(r->clone, r->out, &err);
    r->then(r, &err);
}

static void on_ended(struct agent_turn *turn, const struct error *err)
{
    struct offline_request *r = turn->terms.arg;

    offline_request_end(r);
    if (err->status == STATUS_OK) {
        offline_request_finish(r);
        return;
    }
    r->clone->original->type->drop(r->clone);
    r->then(r, err);
}

static enum status offline_scheduler_ask_turn(struct offline_scheduler *s,
                                              struct offline_request *r, struct error *err)
{
    const struct agent_turn_terms terms = {.ended = on_ended, .arg = r};
    const uint64_t n_words = (uint64_t)r->lengths.text + r->lengths.label;
    enum status rc = agent_turn_ask(r->turn, s->batcher, &terms, err);

    if (rc != STATUS_OK)
        r->clone->original->type->drop(r->clone);
    s->n_words += n_words;
    s->n_cells += n_words;
    return rc;
}

enum status offline_scheduler_ask(struct offline_scheduler *s, struct offline_request *r,
                                  struct error *err)
{
    const struct participant_type *type = s->participant->type;
    enum status rc;

    assert(!r->is_asked);
    r->scheduler = s;
    r->turn = NULL;
    if (type->begin != NULL) {
        rc = type->begin(r->clone, r->observation, &r->turn, err);
        if (rc != STATUS_OK)
            return rc;
        if (r->turn == NULL) {
            offline_request_finish(r);
            return STATUS_OK;
        }
    }
    rc = r->turn != NULL ? offline_scheduler_ask_turn(s, r, err)
                         : offline_scheduler_ask_row(s, r, err);
    if (rc != STATUS_OK)
        return rc;
    r->is_asked = true;
    s->n_asked++;
    return STATUS_OK;
}

/* Computes the pending step, or has the batcher form one. */
static void offline_scheduler_advance(struct offline_scheduler *s)
{
    struct batch_step *step = s->step;

    if (step == NULL) {
        batcher_tick(s->batcher);
        return;
    }
    s->step = NULL;
    if (s->participant->type->compute != NULL)
        s->participant->type->compute(s->participant, step->rows, step->n_rows);
    else
        offline_scheduler_act(s, step->rows, step->n_rows);
    s->n_steps++;
    step->done(step);
}

bool offline_scheduler_step(struct offline_scheduler *s)
{
    uint64_t before = s->n_settled;

    if (s->n_asked == 0)
        return false;
    while (s->n_settled == before) {
        offline_scheduler_advance(s);
        assert(s->step != NULL ||
               s->n_settled != before); /* the policy never waits for more rows */
    }
    return true;
}

void offline_scheduler_cancel(struct offline_scheduler *s, struct offline_request *r)
{
    if (!r->is_asked)
        return;
    if (r->turn != NULL)
        agent_turn_cancel(r->turn);
    else
        batcher_cancel(s->batcher, &r->ask);
}

void offline_scheduler_finish(struct offline_scheduler *s)
{
    while (s->n_asked > 0 || s->step != NULL)
        offline_scheduler_advance(s);
}

void offline_scheduler_counters(const struct offline_scheduler *s, struct offline_counters *out)
{
    *out = (struct offline_counters){
        .n_steps = s->n_steps, .n_cells = s->n_cells, .n_words = s->n_words};
}
