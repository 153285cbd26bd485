/* With a manual clock, flows that submit again some time after each answer, and step times computed
 * from rows: when a step waits for returning flows. */
#include "batching/adaptive.h"

#include "tests/unit/batching/fakes.h"

/* The fixed time of a step is learned from steps of different sizes, and kept while all steps have
 * one size. */
START_TEST(share_of_a_step)
{
    struct adaptive g = {0};

    adaptive_stepped(&g, 1, 1100, 0);
    ck_assert_double_eq(g.share_us, 0); /* one size does not determine it */
    for (int i = 0; i < 3; i++) {
        adaptive_stepped(&g, 1, 1100, 0);
        adaptive_stepped(&g, 10, 2000, 0);
    }
    ck_assert_double_eq_tol(g.share_us, 1000, 1e-6);
    for (int i = 0; i < 1000; i++)
        adaptive_stepped(&g, 10, 2000 + (uint64_t)(i % 2), 0);
    ck_assert_double_eq_tol(g.share_us, 1000, 5);
}
END_TEST

enum { MAX_PLAYERS = 10, NEVER = INT32_MAX };

/* Closed loops: each player submits, is answered, thinks, submits again. */
struct game {
    struct fake f;
    struct player {
        struct fake_request request;
        struct game *game;
        uint64_t think_us, at_us;   /* at_us: when it submits next; NEVER: it waits, or is gone */
        unsigned n_answers, n_left; /* n_left: answers until it leaves */
    } players[MAX_PLAYERS];
    size_t n_players;
    uint64_t fixed_us, each_us; /* time of a step: fixed, and per row */
    uint64_t done_us;           /* end of the running step; NEVER: none runs */
    unsigned n_steps, n_rows;
};

static void answered(struct fake_request *a)
{
    struct player *p = container_of(a, struct player, request);

    p->n_answers++;
    p->at_us = --p->n_left > 0 ? p->game->f.now_us + p->think_us : NEVER;
}

static void submit_now(struct player *p)
{
    fake_request_init(&p->request, &p->game->f, 1, 1);
    p->request.then = answered;
    p->at_us = NEVER;
    fake_submit_ok(&p->request);
}

static void game_open(struct game *g, size_t n_players, uint64_t fixed_us, uint64_t each_us,
                      uint64_t think_us)
{
    *g = (struct game){
        .n_players = n_players, .fixed_us = fixed_us, .each_us = each_us, .done_us = NEVER};
    fake_init(&g->f, BATCH_ADAPTIVE, 64, 0);
    fake_open(&g->f);
    for (size_t i = 0; i < n_players; i++) /* not all at the same time */
        g->players[i] = (struct player){
            .game = g, .think_us = think_us + 10 * i, .at_us = 1000 + 30 * i, .n_left = 100000};
}

static uint64_t sooner(uint64_t a_us, uint64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* Runs from event to event until end_us. */
static void play(struct game *g, uint64_t end_us)
{
    struct fake *f = &g->f;

    while (f->now_us < end_us) {
        uint64_t next_us = sooner(end_us, g->done_us);

        for (size_t i = 0; i < g->n_players; i++)
            next_us = sooner(next_us, g->players[i].at_us);
        if (f->armed_us != 0)
            next_us = sooner(next_us, f->armed_us);
        f->now_us = next_us > f->now_us ? next_us : f->now_us;
        if (f->now_us >= g->done_us) {
            g->done_us = NEVER;
            fake_step_done(f);
        }
        for (size_t i = 0; i < g->n_players; i++)
            if (g->players[i].at_us <= f->now_us)
                submit_now(&g->players[i]);
        fake_wait(f, 0);
        if (f->step != NULL && g->done_us == NEVER) {
            g->done_us = f->now_us + g->fixed_us + g->each_us * f->n_rows;
            g->n_steps++;
            g->n_rows += (unsigned)f->n_rows;
        }
    }
}

static void game_close(struct game *g)
{
    fake_close(&g->f);
}

/* Expensive steps, flows that return soon: after a few steps every step has all flows. */
START_TEST(dear_steps_gather_all)
{
    static struct game g;

    game_open(&g, 10, 500, 10, 200);
    play(&g, 50 * 1000);
    g.n_steps = g.n_rows = 0;
    play(&g, 200 * 1000);
    ck_assert_uint_gt(g.n_steps, 100);
    ck_assert_uint_eq(g.n_rows, 10 * g.n_steps);
    game_close(&g);
}
END_TEST

/* Cheap steps do not wait, and except for some have one row. */
START_TEST(cheap_steps_wait_for_nobody)
{
    static struct game g;

    game_open(&g, 10, 5, 1, 200);
    play(&g, 200 * 1000);
    for (size_t i = 0; i < 10; i++) /* a round is the thinking time and at most the others' steps */
        ck_assert_uint_ge(g.players[i].n_answers, 199 * 1000 / (200 + 10 * i + 10 * 6) - 1);
    ck_assert_uint_lt(g.n_rows, g.n_steps * 5 / 4);
    game_close(&g);
}

/* Steps of medium cost do not wait, and have all waiting flows. */
START_TEST(what_is_there_goes_together)
{
    static struct game g;

    game_open(&g, 10, 60, 1, 200);
    play(&g, 200 * 1000);
    ck_assert_uint_gt(2 * g.n_rows, 3 * g.n_steps);
    for (size_t i = 0; i < 10; i++) /* a round is the thinking time and at most two steps */
        ck_assert_uint_ge(g.players[i].n_answers, 199 * 1000 / (200 + 10 * i + 2 * 70) - 1);
    game_close(&g);
}
END_TEST

/* Expensive steps do not wait either if the flows think for longer than a step takes. */
START_TEST(nobody_waits_for_those_who_think)
{
    static struct game g;

    game_open(&g, 2, 500, 10, 5000);
    g.players[0].think_us = 3000;
    play(&g, 500 * 1000);
    ck_assert_uint_ge(g.players[0].n_answers, 499 * 1000 / (3000 + 2 * 520) - 1);
    ck_assert_uint_ge(g.players[1].n_answers, 499 * 1000 / (5010 + 2 * 520) - 1);
    game_close(&g);
}
END_TEST

/* Steps wait once for a flow that has left, and no longer than a step takes. */
START_TEST(the_gone_are_missed_once)
{
    static struct game g;
    unsigned n_before;

    game_open(&g, 10, 500, 10, 200);
    g.players[3].n_left = 60;
    play(&g, 100 * 1000);
    ck_assert_uint_eq(g.players[3].n_answers, 60);
    n_before = g.players[0].n_answers;
    g.n_steps = g.n_rows = 0;
    play(&g, 200 * 1000);
    ck_assert_uint_ge(g.players[0].n_answers - n_before, 100 * 1000 / (500 + 90 + 200 + 100));
    ck_assert_uint_eq(g.n_rows, 9 * g.n_steps);
    game_close(&g);
}
END_TEST

/* If flows do not return as expected, fewer and fewer steps wait. */
START_TEST(waits_in_vain_become_rare)
{
    struct adaptive g = {0};
    unsigned n_waits = 0;

    for (uint64_t now_us = 0, i = 0; i < 1000; i++, now_us += 10000) {
        adaptive_stepped(&g, i % 2 + 1, 1000 + i % 2, now_us);
        adaptive_answered(&g, 1, now_us);
        if (i < 10) /* it returned at first */
            adaptive_submitted(&g, now_us + 100);
        else if (adaptive_until(&g, now_us + 100, now_us + 100) != 0) {
            n_waits++;
            ck_assert_uint_eq(adaptive_until(&g, now_us + 100, now_us + 1100), 0);
        }
    }
    ck_assert_uint_gt(n_waits, 0);
    ck_assert_uint_lt(n_waits, 40);
}
END_TEST

SUITE_MAIN("batching/gather", share_of_a_step, dear_steps_gather_all, cheap_steps_wait_for_nobody,
           what_is_there_goes_together, nobody_waits_for_those_who_think, the_gone_are_missed_once,
           waits_in_vain_become_rare)
