#include "agents/turn.h"

#include "agents/agent.h"
#include "tests/unit/base/suite.h"
#include <string.h>

enum { N_TURNS = 3 };

/* A kind whose rows need n_steps steps, and one more page in each; its clones count their calls. */
struct worker_clone {
    struct clone base;
    unsigned n_observed, n_kept, n_dropped;
};

struct asked {
    struct agent_turn turn;
    size_t n_steps, n_done, n_pages;
    unsigned n_ended, n_more;
    struct error err;
    bool asks_again;
    uint64_t deadline_us; /* of the repeated request */
};

static size_t pages_left;
static uint64_t now_us;

static struct asked *asked_of(struct agent_turn *t)
{
    return container_of(t, struct asked, turn);
}

static struct worker_clone *clone_of(struct clone *c)
{
    return container_of(c, struct worker_clone, base);
}

static enum status kind_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    return STATUS_OK;
}

static void kind_close(struct agent *a)
{
}

static enum status kind_clone_open(struct clone *c, const struct clone_config *config,
                                   struct error *err)
{
    return STATUS_OK;
}

static void kind_clone_close(struct clone *c)
{
}

static enum status kind_observe(struct clone *c, struct agent_turn *t, struct error *err)
{
    if (t->seen.n_messages > 0)
        return error_set(err, STATUS_INVALID, "says too much");
    clone_of(c)->n_observed++;
    t->row.clone = c;
    return STATUS_OK;
}

static enum status kind_reserve(struct agent *a, struct row *row, struct error *err)
{
    struct asked *asked = asked_of(agent_turn_of(row));

    if (pages_left == 0)
        return error_set(err, STATUS_EXHAUSTED, "no page is left");
    pages_left--;
    asked->n_pages++;
    return STATUS_OK;
}

static void kind_release(struct agent *a, struct row *row)
{
    struct asked *asked = asked_of(agent_turn_of(row));

    pages_left += asked->n_pages;
    asked->n_pages = 0;
}

static void kind_self_observe(struct clone *c, struct agent_turn *t)
{
    clone_of(c)->n_kept++;
    kind_release(c->agent, &t->row);
}

static void kind_drop(struct clone *c, struct agent_turn *t)
{
    clone_of(c)->n_dropped++;
    kind_release(c->agent, &t->row);
}

static void kind_act(struct agent *a, struct row *row)
{
    struct asked *asked = asked_of(agent_turn_of(row));

    row->outcome = ++asked->n_done == asked->n_steps ? ROW_DONE : ROW_MORE;
}

static unsigned n_unprepared;

static enum status kind_prepare(struct clone *c, struct agent_turn *t, struct error *err)
{
    t->is_preparing = true;
    return STATUS_OK;
}

static void kind_unprepare(struct clone *c, struct agent_turn *t)
{
    n_unprepared++;
}

static const struct agent_text kind_text = {
    .prepare = kind_prepare,
    .unprepare = kind_unprepare,
};

static const struct agent_type kind = {
    .name = "kind",
    .agent_size = sizeof(struct agent),
    .clone_size = sizeof(struct worker_clone),
    .open = kind_open,
    .close = kind_close,
    .clone_open = kind_clone_open,
    .clone_close = kind_clone_close,
    .observe = kind_observe,
    .self_observe = kind_self_observe,
    .drop = kind_drop,
    .text = &kind_text,
    .reserve = kind_reserve,
    .release = kind_release,
    .act = kind_act,
};

/* --- environment: a manual clock, steps that run when the test says so --- */

static struct rig {
    struct env env;
    struct agent *agent;
    struct clone *clones[N_TURNS];
    struct asked asked[N_TURNS];
    struct batcher *batcher;
    struct batch_step *step;
    bool is_closed;
    struct error err;
} rig;

static uint64_t clock_now(void *self)
{
    return now_us;
}

static void begin_step(void *self, struct batch_step *step)
{
    rig.step = step;
}

static void arm(void *self, uint64_t at_us)
{
}

static void setup(void)
{
    const struct batcher_config config = {
        .policy = BATCH_CONTINUOUS, .max_rows = N_TURNS, .max_waiting = N_TURNS};
    const struct batch_compute compute = {.begin = begin_step};
    const struct batch_timer timer = {.arm = arm};
    struct agent_config agent_config = {.name = "k", .env = &rig.env};
    struct batch_agent adapter;

    rig = (struct rig){.env = {.now_us = clock_now}};
    now_us = 1000;
    pages_left = 100;
    ck_assert_int_eq(agent_open_type(&rig.agent, &kind, &agent_config, &rig.err), STATUS_OK);
    agent_batch_adapter(rig.agent, &adapter);
    ck_assert_int_eq(
        batcher_open(&rig.batcher, &config, &adapter, &compute, &timer, &rig.env, &rig.err),
        STATUS_OK);
    for (size_t i = 0; i < N_TURNS; i++) {
        ck_assert_int_eq(clone_open(&rig.clones[i], rig.agent, &(struct clone_config){0}, &rig.err),
                         STATUS_OK);
        agent_turn_init(&rig.asked[i].turn, NULL, 100);
    }
}

static void on_closed(void *arg)
{
    rig.is_closed = true;
}

static void teardown(void)
{
    for (size_t i = 0; i < N_TURNS; i++) {
        agent_turn_deinit(&rig.asked[i].turn);
        clone_close(rig.clones[i]);
    }
    batcher_close(rig.batcher, on_closed, NULL);
    batcher_tick(rig.batcher);
    ck_assert(rig.is_closed);
    agent_unref(rig.agent);
    ck_assert_uint_eq(pages_left, 100);
}

/* Ends the running step, and the next one begins; without a running step ticks the batcher. */
static void step(void)
{
    struct batch_step *s = rig.step;

    now_us += 1000;
    rig.step = NULL;
    if (s == NULL) {
        batcher_tick(rig.batcher);
        return;
    }
    agent_compute(rig.agent, s->rows, s->n_rows);
    s->done(s);
}

static enum status ask(struct asked *a, uint64_t deadline_us);

static void on_ended(struct agent_turn *t, const struct error *err)
{
    struct asked *a = asked_of(t);

    a->n_ended++;
    a->err = *err;
    if (a->asks_again) {
        a->asks_again = false;
        ck_assert_int_eq(ask(a, a->deadline_us), STATUS_OK);
    } else if (err->status == STATUS_OK) {
        agent_turn_keep(t);
    } else {
        agent_turn_drop(t);
    }
}

static void on_more(struct agent_turn *t)
{
    asked_of(t)->n_more++;
}

static enum status ask(struct asked *a, uint64_t deadline_us)
{
    const struct agent_turn_terms terms = {
        .deadline_us = deadline_us, .ended = on_ended, .more = on_more};

    return agent_turn_ask(&a->turn, rig.batcher, &terms, &rig.err);
}

static struct asked *begin(size_t i, size_t n_steps, uint64_t deadline_us)
{
    struct asked *a = &rig.asked[i];

    a->n_steps = n_steps;
    ck_assert_int_eq(agent_turn_observe(&a->turn, rig.clones[i], &rig.err), STATUS_OK);
    ck_assert_int_eq(ask(a, deadline_us), STATUS_OK);
    ck_assert(agent_turn_is_asked(&a->turn));
    return a;
}

static void until_ended(struct asked *a)
{
    while (a->n_ended == 0)
        step();
}

/* Observed, asked, more after each step but the last, and kept: self_observe is called once. */
START_TEST(test_kept)
{
    struct worker_clone *c;
    struct asked *a;

    setup();
    a = begin(0, 3, 0);
    c = clone_of(rig.clones[0]);
    ck_assert_uint_eq(a->n_ended, 0);
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_OK);
    ck_assert_uint_eq(a->n_more, 2);
    ck_assert_uint_eq(a->turn.n_steps, 3);
    ck_assert_uint_eq(a->turn.first_step_us, 2000);
    ck_assert_int_eq(a->turn.state, AGENT_TURN_OVER);
    ck_assert(c->n_observed == 1 && c->n_kept == 1 && c->n_dropped == 0);
    teardown();
}
END_TEST

/* A turn that observe refuses stays new; one that the batcher refuses is dropped, or asked later.
 */
START_TEST(test_refused)
{
    struct asked *a;
    struct worker_clone *c;

    setup();
    a = &rig.asked[0];
    c = clone_of(rig.clones[0]);
    a->turn.seen.n_messages = 1;
    ck_assert_int_eq(agent_turn_observe(&a->turn, &c->base, &rig.err), STATUS_INVALID);
    ck_assert(!agent_turn_is_open(&a->turn));
    a->turn.seen.n_messages = 0;
    ck_assert_int_eq(agent_turn_observe(&a->turn, &c->base, &rig.err), STATUS_OK);
    a->n_steps = 1;
    ck_assert_int_eq(ask(a, 1), STATUS_DEADLINE);
    ck_assert(agent_turn_is_open(&a->turn));
    ck_assert_int_eq(ask(a, 0), STATUS_OK);
    until_ended(a);
    ck_assert(c->n_kept == 1 && c->n_dropped == 0);

    a = &rig.asked[1];
    c = clone_of(rig.clones[1]);
    ck_assert_int_eq(agent_turn_observe(&a->turn, &c->base, &rig.err), STATUS_OK);
    ck_assert_int_eq(ask(a, 1), STATUS_DEADLINE);
    agent_turn_drop(&a->turn);
    ck_assert(c->n_kept == 0 && c->n_dropped == 1 && a->n_ended == 0);
    teardown();
}
END_TEST

/* A turn cancelled before its first step ends without a step; in a step, after it; and once,
 * however often it is cancelled. */
START_TEST(test_cancelled)
{
    struct asked *waiting, *running, *last;

    setup();
    waiting = begin(0, 5, 0);
    agent_turn_cancel(&waiting->turn);
    agent_turn_cancel(&waiting->turn);
    ck_assert_uint_eq(waiting->n_ended, 0); /* not inside the call */
    step();
    ck_assert_uint_eq(waiting->n_ended, 1);
    ck_assert_int_eq(waiting->err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(waiting->turn.n_steps, 0);

    running = begin(1, 5, 0);
    last = begin(2, 1, 0);
    step();
    ck_assert_ptr_nonnull(rig.step);
    agent_turn_cancel(&running->turn);
    agent_turn_cancel(&last->turn);
    agent_turn_cancel(&running->turn);
    ck_assert(running->n_ended == 0 && last->n_ended == 0);
    step();
    ck_assert_int_eq(running->err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(running->turn.n_steps, 1);
    ck_assert_int_eq(last->err.status, STATUS_OK); /* the step was its last */
    ck_assert_uint_eq(clone_of(rig.clones[1])->n_dropped, 1);
    ck_assert_uint_eq(clone_of(rig.clones[2])->n_kept, 1);
    teardown();
}
END_TEST

/* A turn that ended by its deadline and is asked again continues from its state: its steps count,
 * and the clone is not called. Postponed in time, it does not end. */
START_TEST(test_asked_again)
{
    struct worker_clone *c;
    struct asked *a;

    setup();
    a = begin(0, 6, now_us + 3500);
    c = clone_of(rig.clones[0]);
    a->asks_again = true;
    a->deadline_us = now_us + 60000;
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_DEADLINE);
    ck_assert(agent_turn_is_asked(&a->turn));
    ck_assert_uint_gt(a->turn.n_steps, 0);
    a->n_ended = 0;
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_OK);
    ck_assert_uint_eq(a->n_done, 6);
    ck_assert_uint_eq(a->turn.n_steps, 6);
    ck_assert_uint_eq(a->turn.first_step_us, 2000);
    ck_assert(c->n_observed == 1 && c->n_kept == 1 && c->n_dropped == 0);

    a = begin(1, 6, now_us + 3500);
    step();
    agent_turn_postpone(&a->turn, 0);
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_OK);
    teardown();
}
END_TEST

/* Rows without room are preempted and run again: the caller only sees that it took longer. A
 * preempted row that is cancelled ends. */
START_TEST(test_preempted)
{
    struct batcher_stats stats;

    setup();
    pages_left = 7;
    for (size_t i = 0; i < 2; i++)
        (void)begin(i, 5, 0);
    do {
        step();
        batcher_stats(rig.batcher, &stats);
    } while (stats.n_preempted == 0);
    ck_assert(agent_turn_is_asked(&rig.asked[1].turn));
    (void)begin(2, 5, 0);
    agent_turn_cancel(&rig.asked[1].turn);
    until_ended(&rig.asked[1]);
    ck_assert_int_eq(rig.asked[1].err.status, STATUS_CANCELLED);
    ck_assert_uint_gt(rig.asked[1].turn.n_steps, 0);
    until_ended(&rig.asked[0]);
    until_ended(&rig.asked[2]);
    ck_assert_int_eq(rig.asked[0].err.status, STATUS_OK);
    ck_assert_int_eq(rig.asked[2].err.status, STATUS_OK);
    ck_assert_uint_eq(rig.asked[2].n_done, 5);
    ck_assert_uint_eq(clone_of(rig.clones[0])->n_kept, 1);
    ck_assert_uint_eq(clone_of(rig.clones[1])->n_dropped, 1);
    ck_assert_uint_eq(clone_of(rig.clones[2])->n_kept, 1);
    pages_left += 93;
    teardown();
}
END_TEST

static void drop_instead(struct agent_turn *t, const struct error *err)
{
    ck_assert_int_eq(err->status, STATUS_OK);
    asked_of(t)->n_ended++;
    agent_turn_drop(t); /* as if the caller had no memory for it */
}

/* A completed turn that the caller drops leaves the clone unchanged; another turn may follow. */
START_TEST(test_not_kept)
{
    const struct agent_turn_terms terms = {.ended = drop_instead};
    struct worker_clone *c;
    struct asked *a;

    setup();
    a = &rig.asked[0];
    c = clone_of(rig.clones[0]);
    a->n_steps = 1;
    ck_assert_int_eq(agent_turn_observe(&a->turn, &c->base, &rig.err), STATUS_OK);
    ck_assert_int_eq(agent_turn_ask(&a->turn, rig.batcher, &terms, &rig.err), STATUS_OK);
    until_ended(a);
    ck_assert(c->n_kept == 0 && c->n_dropped == 1);
    agent_turn_deinit(&a->turn);
    agent_turn_init(&a->turn, NULL, 100);
    a->n_ended = 0;
    a->n_done = 0;
    a = begin(0, 2, 0);
    until_ended(a);
    ck_assert(c->n_kept == 1 && c->n_dropped == 1);
    teardown();
}
END_TEST

static void keep_twice(struct agent_turn *t, const struct error *err)
{
    agent_turn_keep(t);
    agent_turn_keep(t);
}

static void keep_and_drop(struct agent_turn *t, const struct error *err)
{
    agent_turn_keep(t);
    agent_turn_drop(t);
}

static void do_neither(struct agent_turn *t, const struct error *err)
{
    agent_turn_deinit(t);
}

static agent_turn_ended_fn wrong_end;

static void end_wrong(void)
{
    const struct agent_turn_terms terms = {.ended = wrong_end};

    rig.asked[0].n_steps = 1;
    if (agent_turn_observe(&rig.asked[0].turn, rig.clones[0], &rig.err) != STATUS_OK ||
        agent_turn_ask(&rig.asked[0].turn, rig.batcher, &terms, &rig.err) != STATUS_OK)
        return;
    step();
    step();
}

static void ask_unobserved(void)
{
    (void)ask(&rig.asked[0], 0);
}

static void keep_unasked(void)
{
    if (agent_turn_observe(&rig.asked[0].turn, rig.clones[0], &rig.err) == STATUS_OK)
        agent_turn_keep(&rig.asked[0].turn);
}

static void drop_while_asked(void)
{
    agent_turn_drop(&begin(0, 1, 0)->turn);
}

static void ask_twice(void)
{
    (void)ask(begin(0, 1, 0), 0);
}

static const struct constraint any_constraint = {.form = CONSTRAINT_REGEX, .text = "a", .len = 1};

static struct asked *begin_preparing(size_t i)
{
    rig.asked[i].turn.seen.sampling.constraint = &any_constraint;
    return begin(i, 1, 0);
}

/* A turn that waits for what it needs is not in the batcher: no step begins for it. It goes on when
 * that is there, fails with what went wrong, and can be cancelled meanwhile. Steps of others go on.
 */
START_TEST(test_prepared)
{
    const struct error ok = {0}, wrong = {.status = STATUS_INVALID};
    struct asked *a, *b, *other;

    setup();
    n_unprepared = 0;
    a = begin_preparing(0);
    b = begin_preparing(1);
    step();
    ck_assert_ptr_null(rig.step);
    other = begin(2, 1, 0);
    until_ended(other);
    ck_assert_uint_eq(a->n_ended + b->n_ended, 0);
    agent_turn_prepared(&a->turn, &ok);
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_OK);
    agent_turn_prepared(&b->turn, &wrong);
    ck_assert_uint_eq(b->n_ended, 1);
    ck_assert_int_eq(b->err.status, STATUS_INVALID);
    teardown();

    setup();
    a = begin_preparing(0);
    agent_turn_cancel(&a->turn);
    ck_assert_uint_eq(a->n_ended, 0);
    ck_assert_uint_eq(n_unprepared, 1);
    until_ended(a);
    ck_assert_int_eq(a->err.status, STATUS_CANCELLED);
    ck_assert_uint_eq(a->turn.n_steps, 0);
    teardown();
}
END_TEST

static void cancel_unasked(void)
{
    agent_turn_cancel(&rig.asked[0].turn);
}

/* Any other order is a bug, which the table asserts. */
START_TEST(test_order)
{
    static const agent_turn_ended_fn wrong_ends[] = {keep_twice, keep_and_drop, do_neither};

    setup();
    for (size_t i = 0; i < sizeof(wrong_ends) / sizeof(wrong_ends[0]); i++) {
        wrong_end = wrong_ends[i];
        ck_assert(suite_aborts(end_wrong));
    }
    ck_assert(suite_aborts(ask_unobserved));
    ck_assert(suite_aborts(keep_unasked));
    ck_assert(suite_aborts(drop_while_asked));
    ck_assert(suite_aborts(ask_twice));
    ck_assert(suite_aborts(cancel_unasked));
    teardown();
}
END_TEST

SUITE_MAIN("agents/turn", test_kept, test_refused, test_cancelled, test_asked_again, test_preempted,
           test_not_kept, test_prepared, test_order)
