/* Happy path: ask makes a row of the request, the batcher's policy puts the row in a batch,
 * begin_step stores the batch, and offline_scheduler_step computes it. A participant that answers
 * by turns has a second batcher, its agent's own, which computes the turns of the batch in as many
 * steps as they take. DONE rows settle while the first batcher completes the batch; a callback may
 * ask again before the next batch is formed. */
#include "worlds/participant/offline_scheduler.h"

#include <assert.h>
#include <stdlib.h>

#include "agents/turn.h"
#include "base/alloc.h"
#include "base/list.h"
#include "worlds/message/act.h"

/* A batcher whose clock counts its steps. */
struct offline_batcher {
    struct batcher *batcher;
    struct env env;           /* the batcher's: n_steps as its clock, and chance's random numbers */
    const struct env *chance; /* borrowed from the scheduler */
    struct batch_step *step;  /* a step that was begun and is not computed yet; NULL: none */
    uint64_t n_steps;         /* steps computed so far */
};

struct offline_scheduler {
    struct participant *participant;
    struct env chance;
    struct offline_batcher asked; /* the requests, in batches under the world's policy */
    struct offline_batcher turns; /* the turns of one batch, for a participant with begin; else its
                                     batcher is NULL */
    size_t n_turns;               /* turns of the batch that have not ended */
    struct participant_row *rows; /* [max_rows], where batch_act answers */
    size_t n_asked;               /* requests in flight */
    uint64_t n_settled;           /* requests that have ended */
    struct offline_counters counters;
};

static uint64_t offline_batcher_now_us(void *self)
{
    return (((struct offline_batcher *)self)->n_steps + 1) * OFFLINE_STEP_US;
}

static void offline_batcher_random_bytes(void *self, void *out, size_t n_bytes)
{
    const struct env *chance = ((struct offline_batcher *)self)->chance;

    chance->random(chance->self, out, n_bytes);
}

static void offline_batcher_begin_step(void *self, struct batch_step *step)
{
    struct offline_batcher *b = self;

    assert(b->step == NULL);
    b->step = step;
}

static void offline_batcher_arm(void *self, uint64_t at_us)
{
}

static enum status offline_batcher_open(struct offline_batcher *b,
                                        const struct batcher_config *config,
                                        const struct batch_agent *agent, const struct env *chance,
                                        struct error *err)
{
    const struct batch_compute compute = {.begin = offline_batcher_begin_step, .self = b};
    const struct batch_timer timer = {.arm = offline_batcher_arm, .self = b};

    b->chance = chance;
    b->env = (struct env){
        .now_us = offline_batcher_now_us, .random = offline_batcher_random_bytes, .self = b};
    return batcher_open(&b->batcher, config, agent, &compute, &timer, &b->env, err);
}

static void offline_batcher_closed(void *arg)
{
    ((struct offline_batcher *)arg)->batcher = NULL;
}

static void offline_batcher_close(struct offline_batcher *b)
{
    if (b->batcher == NULL)
        return;
    assert(b->step == NULL);
    batcher_close(b->batcher, offline_batcher_closed, b);
    batcher_tick(b->batcher);
    assert(b->batcher == NULL);
}

/* Returns the step to compute, and counts it. If none has begun, it lets the batcher begin one and
 * returns NULL. */
static struct batch_step *offline_batcher_begun(struct offline_batcher *b)
{
    struct batch_step *step = b->step;

    if (step == NULL) {
        batcher_tick(b->batcher);
        return NULL;
    }
    b->step = NULL;
    b->n_steps++;
    return step;
}

static struct offline_request *offline_request_of(const struct row *row)
{
    return row->turn;
}

static size_t offline_scheduler_cost(void *self, const struct row *row)
{
    const struct offline_request *r = offline_request_of(row);
    size_t sum = (size_t)r->lengths.text + r->lengths.label;

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

    return text << 44 | label << 24 | (r->slot & 0xffffff);
}

static void offline_scheduler_count_step(struct offline_scheduler *s, struct row *const *rows,
                                         size_t n)
{
    uint64_t n_words = 0, n_real = 0;
    struct lengths longest = {0};

    for (size_t i = 0; i < n; i++) {
        const struct act *observation = offline_request_of(rows[i])->observation;
        const struct lengths *l = &offline_request_of(rows[i])->lengths;

        n_real += observation == NULL || !act_is_padding(observation);
        longest.text = l->text > longest.text ? l->text : longest.text;
        longest.label = l->label > longest.label ? l->label : longest.label;
        n_words += (uint64_t)l->text + l->label;
    }
    s->counters.n_steps += n_real > 0;
    s->counters.n_rows += n_real;
    s->counters.n_words += n_words;
    s->counters.n_padded += n_real * ((uint64_t)longest.text + longest.label);
    s->counters.n_cells =
        s->participant->type->is_ragged ? s->counters.n_words : s->counters.n_padded;
}

/* Rows of a participant that answers in one step. */
static void offline_scheduler_act(struct offline_scheduler *s, struct row *const *rows, size_t n)
{
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

/* --- participants that answer by turns --- */

/* Finishes the clone's turn at once and not at the batch's end, so that its pages are free for
 * other turns of the batch. */
static void offline_request_end_turn(struct offline_request *r, const struct error *err)
{
    const struct participant_type *type = r->clone->original->type;

    r->row.err = *err;
    if (err->status == STATUS_OK)
        r->row.err.status = type->finish(r->clone, r->out, &r->row.err);
    else
        type->drop(r->clone);
    r->row.outcome = r->row.err.status == STATUS_OK ? ROW_DONE : ROW_FAILED;
    r->turn = NULL;
    r->scheduler->n_turns--;
}

static void on_turn_ended(struct agent_turn *turn, const struct error *err)
{
    offline_request_end_turn(turn->terms.arg, err);
}

/* Rows of a participant that answers in as many steps as its turns take. */
static void offline_scheduler_run_turns(struct offline_scheduler *s, struct row *const *rows,
                                        size_t n)
{
    s->n_turns = n;
    for (size_t i = 0; i < n; i++) {
        struct offline_request *r = offline_request_of(rows[i]);
        const struct agent_turn_terms terms = {.ended = on_turn_ended, .arg = r};

        struct error err;

        if (agent_turn_ask(r->turn, s->turns.batcher, &terms, &err) != STATUS_OK)
            offline_request_end_turn(r, &err);
    }
    while (s->n_turns > 0) {
        struct batch_step *step = offline_batcher_begun(&s->turns);

        if (step == NULL) {
            /* The policy does not wait for more requests. */
            assert(s->turns.step != NULL || s->n_turns == 0);
            continue;
        }
        s->participant->type->compute(s->participant, step->rows, step->n_rows);
        step->done(step);
    }
}

static enum status offline_scheduler_open_turns(struct offline_scheduler *s, size_t max_waiting,
                                                struct error *err)
{
    struct batcher_config c = {.max_waiting = max_waiting};
    struct batch_agent agent = {0};

    s->participant->type->batching(s->participant, &agent, &c);
    return offline_batcher_open(&s->turns, &c, &agent, &s->chance, err);
}

enum status offline_scheduler_open(struct offline_scheduler **out, struct participant *p,
                                   const struct batcher_config *config, const struct env *env,
                                   struct error *err)
{
    struct offline_scheduler *s = try_alloc(1, sizeof(*s));
    const struct batch_agent agent = {
        .cost = offline_scheduler_cost, .order = offline_scheduler_order, .self = s};
    enum status rc = STATUS_OK;

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "a scheduler");
    s->participant = p;
    s->chance = *env;
    s->rows = try_alloc(config->max_rows, sizeof(s->rows[0]));
    if (s->rows == NULL)
        rc = error_no_memory(err, (uint64_t)config->max_rows * sizeof(s->rows[0]),
                             "the rows of a step");
    if (rc == STATUS_OK)
        rc = offline_batcher_open(&s->asked, config, &agent, &s->chance, err);
    if (rc == STATUS_OK && p->type->batching != NULL)
        rc = offline_scheduler_open_turns(s, config->max_waiting, err);
    if (rc == STATUS_OK)
        *out = s;
    else
        offline_scheduler_close(s);
    return rc;
}

void offline_scheduler_close(struct offline_scheduler *s)
{
    if (s == NULL)
        return;
    assert(s->n_asked == 0);
    offline_batcher_close(&s->asked);
    offline_batcher_close(&s->turns);
    free(s->rows);
    free(s);
}

/* --- requests --- */

static void offline_request_finish(struct offline_request *r)
{
    struct error err = {0};

    err.status = r->clone->original->type->finish(r->clone, r->out, &err);
    r->then(r, &err);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct offline_request *r = arg;

    r->is_asked = false;
    r->scheduler->n_asked--;
    r->scheduler->n_settled++;
    if (r->turn != NULL) /* else the turn was never started */
        r->clone->original->type->drop(r->clone);
    r->then(r, err);
}

static enum status offline_scheduler_submit(struct offline_scheduler *s, struct offline_request *r,
                                            struct error *err)
{
    r->row = (struct row){.clone = r->clone, .turn = r};
    flow_init(&r->flow);
    r->ask = (struct batch_request){.row = &r->row, .flow = &r->flow};
    future_init(&r->ask.reply, on_settled, r);
    return batcher_submit(s->asked.batcher, &r->ask, err);
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
    rc = offline_scheduler_submit(s, r, err);
    if (rc != STATUS_OK) {
        if (r->turn != NULL)
            type->drop(r->clone);
        return rc;
    }
    r->is_asked = true;
    s->n_asked++;
    return STATUS_OK;
}

/* Computes the pending batch, or has the batcher form one. */
static void offline_scheduler_advance(struct offline_scheduler *s)
{
    struct batch_step *step = offline_batcher_begun(&s->asked);

    if (step == NULL)
        return;
    offline_scheduler_count_step(s, step->rows, step->n_rows);
    if (s->turns.batcher != NULL)
        offline_scheduler_run_turns(s, step->rows, step->n_rows);
    else
        offline_scheduler_act(s, step->rows, step->n_rows);
    step->done(step);
}

bool offline_scheduler_step(struct offline_scheduler *s)
{
    uint64_t before = s->n_settled;

    if (s->n_asked == 0)
        return false;
    while (s->n_settled == before) {
        offline_scheduler_advance(s);
        assert(s->asked.step != NULL ||
               s->n_settled != before); /* the policy never waits for more rows */
    }
    return true;
}

void offline_scheduler_cancel(struct offline_scheduler *s, struct offline_request *r)
{
    if (r->is_asked)
        batcher_cancel(s->asked.batcher, &r->ask);
}

void offline_scheduler_finish(struct offline_scheduler *s)
{
    while (s->n_asked > 0 || s->asked.step != NULL)
        offline_scheduler_advance(s);
}

void offline_scheduler_counters(const struct offline_scheduler *s, struct offline_counters *out)
{
    *out = s->counters;
}
