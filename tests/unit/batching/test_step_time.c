/* With a manual clock and step times computed from rows: how arriving prompts affect the
 * inter-token latency of decode rows, and how soon the prompts are read. */
#include "batching/step_time.h"

#include <stdio.h>

#include "tests/unit/batching/fakes.h"

enum { STEP_US = 2000, TOKEN_US = 500, MAX_ITL_US = 200 * 1000, CHUNK = 2 };

/* A step takes a fixed time to read the weights, and a time for each token. */
static uint64_t step_us(const struct fake *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_rows; i++)
        n += f->rows[i]->row.n_scheduled + f->rows[i]->row.extra;
    return STEP_US + TOKEN_US * n;
}

static uint64_t run_step(struct fake *f)
{
    uint64_t us;

    fake_wait(f, 0);
    ck_assert_ptr_nonnull(f->step);
    us = step_us(f);
    f->now_us += us;
    fake_step_done(f);
    return us;
}

static void open_paced(struct fake *f, uint64_t max_itl_us)
{
    fake_init(f, BATCH_CONTINUOUS, 64, 512);
    f->config.max_itl_us = max_itl_us;
    fake_open(f);
}

static void ask_prompts(struct fake *f, struct fake_request *requests, size_t n, size_t cost,
                        uint32_t n_tokens)
{
    for (size_t i = 0; i < n; i++) {
        fake_request_init(&requests[i], f, cost, n_tokens);
        requests[i].least = CHUNK;
        fake_submit_ok(&requests[i]);
    }
}

/* Before anything is measured a step may hold as many chunk tokens as decode rows. Without decode
 * rows or without a bound there is no limit. */
START_TEST(room_of_nothing_known)
{
    const struct step_time p = {0};

    ck_assert_uint_eq(step_time_prefill_budget(&p, 0, 5, 1000), SIZE_MAX);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 7, 5, 0), SIZE_MAX);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 7, 5, 1000), 7);
}
END_TEST

/* One chunk lengthens the step by three quarters of the decode rows' time, many together up to the
 * bound; if the decode rows alone come near the bound, by a quarter, and by as much again if
 * they reach it. */
START_TEST(room_follows_what_steps_took)
{
    struct step_time p = {0};

    for (int i = 0; i < 50; i++) {
        step_time_learn(&p, 0, 400, 2000 + 400 * 500);
        step_time_learn(&p, 8, 0, 6000);
    }
    ck_assert_double_eq_tol(step_time_chunk_us(&p, 400), 400 * 505, 400);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 1, 100 * 1000), (size_t)(4500 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 3, 100 * 1000), (size_t)(13500 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 50, 100 * 1000), (size_t)(94000 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 50, 7500), (size_t)(1500 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 50, 6667), (size_t)(3750 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 50, 6000), (size_t)(6000 / 505.0));
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 50, 1000), (size_t)(6000 / 505.0));
    /* a number of rows that no step had yet: half as many rows take at least half as long */
    ck_assert_uint_ge(step_time_prefill_budget(&p, 4, 1, 100 * 1000), (size_t)(0.75 * 3000 / 505));
    ck_assert_uint_le(step_time_prefill_budget(&p, 4, 1, 100 * 1000), (size_t)(0.75 * 6000 / 505));
    ck_assert_uint_gt(step_time_prefill_budget(&p, 40, 1, 100 * 1000),
                      step_time_prefill_budget(&p, 8, 1, 100 * 1000));
    /* the cost of chunks beside decode rows is learned too: it doubles from here */
    for (int i = 0; i < 50; i++)
        step_time_learn(&p, 8, 10, 6000 + 10 * 1010);
    ck_assert_double_eq_tol(step_time_chunk_us(&p, 10), 10 * 1010, 100);
    ck_assert(step_time_is_stale(&p));
    step_time_learn(&p, 8, 0, 6000);
    ck_assert(!step_time_is_stale(&p));
    for (int i = 0; i < 50; i++) /* a step that took less than the decode rows alone */
        step_time_learn(&p, 8, 10, 5000);
    ck_assert_double_gt(step_time_chunk_us(&p, 10), 0);
}
END_TEST

static uint64_t largest(const uint64_t *us, size_t n)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = us[i] > most ? us[i] : most;
    return most;
}

/* A prompt of 4,000 tokens arrives while eight flows decode: no step takes more than twice the
 * usual time, and nearly every step reads part of the prompt. */
START_TEST(one_newcomer_keeps_the_latency)
{
    static struct fake_request eight[8], long_one;
    static uint64_t us[2000];
    struct fake f;
    uint64_t usual_us = 0;
    size_t n = 0, n_without = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        usual_us = run_step(&f);
    ck_assert_uint_eq(usual_us, STEP_US + 8 * TOKEN_US);
    ask_prompts(&f, &long_one, 1, 4000, 1);
    (void)run_step(&f); /* a step is already running */
    while (long_one.n_settled == 0) {
        ck_assert_uint_lt(n, 2000);
        n_without += !fake_is_in_step(&f, &long_one);
        us[n++] = run_step(&f);
    }
    ck_assert_uint_le(largest(us, n), 2 * usual_us);
    ck_assert_uint_le(n_without, n / 16 + 1); /* steps that measure the eight decode rows alone */
    ck_assert_uint_le(n, 4000 / 5);           /* by no less than the prefill budget allows */
    fake_close(&f);
}
END_TEST

/* Steps with draft tokens take longer, but do not enlarge the prefill budget of steps without draft
 * tokens. */
START_TEST(guesses_are_not_what_rows_take)
{
    static struct fake_request eight[8], long_one;
    static uint64_t us[2000];
    struct fake f;
    size_t n = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 40; i++) {
        (void)run_step(&f);
        for (size_t k = 0; k < 8; k++)
            eight[k].extra = i < 10 || i == 39 ? 0 : 8;
    }
    ask_prompts(&f, &long_one, 1, 4000, 1);
    (void)run_step(&f);
    while (long_one.n_settled == 0) {
        ck_assert_uint_lt(n, 2000);
        us[n++] = run_step(&f);
    }
    ck_assert_uint_le(largest(us, n), 2 * (STEP_US + 8 * TOKEN_US));
    fake_close(&f);
}
END_TEST

/* An 8B model on two processors: a step of one row takes 0.18 s and of eight 0.23 s, which reading
 * the weights bounds, and 20 ms for each further token. */
static uint64_t large_step_us(const struct fake *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_rows; i++)
        n += f->rows[i]->row.n_scheduled;
    return 170000 + 7500 * (n < 8 ? n : 8) + 20000 * (n > 8 ? n - 8 : 0);
}

/* 64 prompts of 32 tokens, all but the first while its prompt is read, and replies of as many.
 * Decode rows alone reach the bound: no step takes more than twice their time, and all of it at
 * most an eighth more than steps of 64 tokens each would. */
START_TEST(a_crowd_on_a_large_model)
{
    enum { N = 64, TOKENS = 32 };
    static struct fake_request crowd[N];
    struct fake f;
    const uint64_t alone_us = 170000 + 8 * 7500 + (N - 8) * 20000, full_us = 2 * TOKENS * alone_us;
    uint64_t begin_us, us = 0, most_us = 0;

    open_paced(&f, MAX_ITL_US);
    begin_us = f.now_us;
    ask_prompts(&f, crowd, 1, TOKENS, TOKENS);
    fake_wait(&f, 0);
    ask_prompts(&f, &crowd[1], N - 1, TOKENS, TOKENS);
    while (f.n_settled < N) {
        fake_wait(&f, 0);
        us = large_step_us(&f);
        most_us = us > most_us ? us : most_us;
        f.now_us += us;
        fake_step_done(&f);
    }
    ck_assert_uint_le(most_us, 2 * alone_us);
    ck_assert_uint_le(f.now_us - begin_us, full_us + full_us / 8);
    fake_close(&f);
}
END_TEST

/* One disturbed step in 16 is ignored; three are not: the machine has become slower. */
START_TEST(a_disturbed_step_is_forgotten)
{
    struct step_time p = {0};
    size_t room;

    for (int i = 0; i < 50; i++) {
        step_time_learn(&p, 0, 400, 400 * 500);
        step_time_learn(&p, 8, 0, 6000);
    }
    room = step_time_prefill_budget(&p, 8, 1, 100 * 1000);
    for (int i = 0; i < 2; i++) {
        step_time_learn(&p, 8, 0, 20000);
        ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 1, 100 * 1000), room);
    }
    step_time_learn(&p, 8, 0, 20000);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 1, 100 * 1000), (size_t)(0.75 * 20000 / 500));
    step_time_learn(&p, 8, 0, 6000);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 1, 100 * 1000), room);
}
END_TEST

/* While only one step of decode rows alone is known, another follows soon. */
START_TEST(one_step_alone_is_not_enough)
{
    struct step_time p = {0};

    step_time_learn(&p, 0, 400, 400 * 500);
    step_time_learn(&p, 8, 0, 20000);
    for (int i = 0; i < 3; i++) {
        ck_assert(!step_time_is_stale(&p));
        step_time_learn(&p, 8, step_time_prefill_budget(&p, 8, 1, 100 * 1000), 6000 + 30 * 500);
    }
    ck_assert(step_time_is_stale(&p));
    step_time_learn(&p, 8, 0, 6000);
    ck_assert_uint_eq(step_time_prefill_budget(&p, 8, 1, 100 * 1000), (size_t)(0.75 * 6000 / 500));
    for (int i = 0; i < 15; i++) {
        ck_assert(!step_time_is_stale(&p));
        step_time_learn(&p, 8, 8, 10000);
    }
    ck_assert(step_time_is_stale(&p));
}
END_TEST

/* Late in a prompt a chunk of any size reads all earlier keys and values. Chunks become as small as
 * this requires, and the time of a whole short prompt is still known. */
START_TEST(a_chunk_has_a_share_that_does_not_shrink)
{
    enum { FIXED_US = 3000 };
    struct step_time p = {0};
    size_t n = 0;

    for (int i = 0; i < 50; i++) {
        step_time_learn(&p, 0, 400, 400 * 500);
        step_time_learn(&p, 8, 0, 6000);
    }
    for (int i = 0; i < 50; i++) {
        n = step_time_prefill_budget(&p, 8, 1, 100 * 1000);
        step_time_learn(&p, 8, n, 6000 + FIXED_US + 500 * n);
    }
    ck_assert_uint_eq(n, (4500 - FIXED_US) / 500);
    ck_assert_double_eq_tol(step_time_chunk_us(&p, 200), FIXED_US + 200 * 500, 500);
    for (int i = 0; i < 50; i++) /* undisturbed short chunks never make the estimate absurd */
        step_time_learn(&p, 0, 2, 100);
    ck_assert_double_gt(step_time_chunk_us(&p, 1), 0);
    ck_assert_double_lt(step_time_chunk_us(&p, 1), 100);
}
END_TEST

/* After disturbed steps chunks have the least size and take little time: they grow again. */
START_TEST(the_least_chunk_grows_again)
{
    struct step_time p = {0};
    size_t n = 0;

    for (int i = 0; i < 50; i++) {
        step_time_learn(&p, 0, 400, 400 * 300);
        step_time_learn(&p, 8, 0, 10000);
    }
    for (int i = 0; i < 20; i++)
        step_time_learn(&p, 8, 2, 25000);
    ck_assert_uint_lt(step_time_prefill_budget(&p, 8, 1, 100 * 1000), 2);
    for (int i = 0; i < 50; i++) {
        n = step_time_prefill_budget(&p, 8, 1, 100 * 1000);
        n = n < 2 ? 2 : n;
        step_time_learn(&p, 8, n, 10000 + 300 * n);
    }
    ck_assert_uint_ge(n, 20);
}
END_TEST

/* Prompts of 200 tokens arrive one after the other while eight flows decode: one is read in its
 * first step, the next, which arrives too soon, is not; after 40 steps one is again. A longer
 * prompt, whose step would exceed the bound, never is. */
START_TEST(a_short_newcomer_leaps)
{
    static const struct {
        size_t cost;
        int n_before; /* steps before it arrives */
        bool leaps;
    } all[] = {{200, 0, true}, {200, 0, false}, {200, 40, true}, {400, 40, false}};
    static struct fake_request eight[8], newcomer;
    struct fake f;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        (void)run_step(&f);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        uint64_t most_us = 0;
        size_t n = 0;

        for (int k = 0; k < all[i].n_before; k++)
            (void)run_step(&f);
        memset(&newcomer, 0, sizeof(newcomer));
        ask_prompts(&f, &newcomer, 1, all[i].cost, 1);
        (void)run_step(&f); /* a step is already running */
        while (newcomer.n_settled == 0) {
            uint64_t us = run_step(&f);

            most_us = us > most_us ? us : most_us;
            n++;
        }
        ck_assert_uint_le(most_us, MAX_ITL_US);
        if (all[i].leaps)
            ck_assert_uint_le(n, 2); /* a step of the eight alone may run first */
        else
            ck_assert_uint_gt(n, 10);
    }
    fake_close(&f);
}
END_TEST

/* A prompt that could not run unchunked on arrival does so once enough steps have passed since the
 * last one. */
START_TEST(a_short_newcomer_leaps_later)
{
    static struct fake_request eight[8], newcomers[2];
    struct fake f;
    uint64_t most_us = 0;
    size_t n = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        (void)run_step(&f);
    ask_prompts(&f, &newcomers[0], 1, 64, 1);
    (void)run_step(&f); /* a step is already running */
    (void)run_step(&f);
    ask_prompts(&f, &newcomers[1], 1, 200, 1);
    (void)run_step(&f);
    ck_assert_uint_eq(newcomers[0].n_settled, 1);
    for (; newcomers[1].n_settled == 0; n++) {
        uint64_t us = run_step(&f);

        most_us = us > most_us ? us : most_us;
    }
    ck_assert_uint_le(n, 10); /* the prefill budget alone would make it 25 */
    ck_assert_uint_gt(most_us, 50 * 1000);
    ck_assert_uint_le(most_us, MAX_ITL_US);
    fake_close(&f);
}
END_TEST

/* Prompts are read even if the decode rows alone exceed the bound. */
START_TEST(a_slow_machine_reads_prompts)
{
    static struct fake_request eight[8], prompt;
    struct fake f;
    size_t n = 0;

    open_paced(&f, STEP_US + 7 * TOKEN_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        (void)run_step(&f);
    ask_prompts(&f, &prompt, 1, 100, 1);
    while (prompt.n_settled == 0) {
        ck_assert_uint_lt(n++, 100 / 2);
        (void)run_step(&f);
    }
    fake_close(&f);
}
END_TEST

/* Runs until all prompts are read. */
static uint64_t run_prompts(struct fake *f, struct fake_request *requests, size_t n,
                            uint64_t *ret_most_us)
{
    uint64_t begin_us = f->now_us;
    size_t n_left;

    *ret_most_us = 0;
    do {
        size_t n_writing = 0;
        uint64_t us;

        fake_wait(f, 0);
        for (size_t i = 0; i < f->n_rows; i++) /* rows that had a token before */
            n_writing += f->rows[i]->n_stepped > 0 && f->rows[i]->row.n_scheduled == 1;
        us = run_step(f);
        if (n_writing > 0 && us > *ret_most_us)
            *ret_most_us = us;
        n_left = 0;
        for (size_t i = 0; i < n; i++)
            n_left += requests[i].n_steps == 1000;
    } while (n_left > 0);
    return f->now_us - begin_us;
}

/* 64 prompts of 64 tokens at once are read nearly as soon as without a bound, and the bound holds
 * for rows that already decode. */
START_TEST(many_newcomers_are_read_at_full_speed)
{
    static struct fake_request requests[64];
    uint64_t took_us[2], most_us[2];
    struct fake f;

    for (int bound = 0; bound < 2; bound++) {
        open_paced(&f, bound == 0 ? 0 : MAX_ITL_US);
        ask_prompts(&f, requests, 64, 64, 1000);
        took_us[bound] = run_prompts(&f, requests, 64, &most_us[bound]);
        fake_close(&f);
    }
    printf("64 prompts through in %llu ms unbound, %llu ms bound; longest steps %llu, %llu us\n",
           (unsigned long long)took_us[0] / 1000, (unsigned long long)took_us[1] / 1000,
           (unsigned long long)most_us[0], (unsigned long long)most_us[1]);
    ck_assert_uint_le(most_us[1], MAX_ITL_US * 21 / 20);
    ck_assert_uint_gt(most_us[0], MAX_ITL_US * 5 / 4);
    ck_assert_uint_le(took_us[1], took_us[0] * 11 / 10);
}
END_TEST

/* A short prompt overtakes an earlier long one, but a stream of short ones does not delay it for
 * ever. */
START_TEST(the_shortest_first_but_nobody_starves)
{
    static struct fake_request long_one, first, stream[64];
    struct fake f;
    size_t n = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, &long_one, 1, 4000, 1);
    (void)run_step(&f);
    ask_prompts(&f, &first, 1, 64, 1);
    (void)run_step(&f); /* a step was running */
    (void)run_step(&f);
    ck_assert_uint_eq(first.n_settled, 1);
    ck_assert_uint_gt(f.rows[0]->row.n_scheduled + f.rows[1]->row.n_scheduled, 511);
    while (long_one.n_settled == 0) { /* every step, as many tokens arrive as a step holds */
        ck_assert_uint_lt(n + 8, 64);
        for (size_t i = 0; i < 8; i++, n++)
            ask_prompts(&f, &stream[n], 1, 64, 1);
        ck_assert(fake_is_in_step(&f, &long_one));
        (void)run_step(&f);
    }
    fake_close(&f);
}
END_TEST

/* Decode rows of a cost that was not seen take what lies between those that were; above the largest
 * they grow as between the smallest and it, or with a prompt's tokens if that is more. */
START_TEST(decode_rows_between)
{
    struct step_time s = {0};

    ck_assert_double_eq(step_time_decode_us(&s, 5, false), 0);
    ck_assert_uint_eq(step_time_tokens(&s, 5), SIZE_MAX);
    step_time_learn(&s, 1, 0, 12000);
    ck_assert(step_time_has_seen(&s, 1));
    ck_assert(!step_time_has_seen(&s, 2));
    ck_assert_double_eq(step_time_decode_us(&s, 1, false), 12000);
    step_time_learn(&s, 31, 0, 72000);
    ck_assert_double_eq_tol(step_time_decode_us(&s, 16, false), 42000, 1e-6);
    ck_assert_double_eq_tol(step_time_decode_us(&s, 61, false), 132000, 1e-6);
    step_time_learn(&s, 16, 0, 72000 + 5000); /* a disturbance does not make more rows cheaper */
    ck_assert_double_eq_tol(step_time_decode_us(&s, 20, false), 77000, 1e-6);
    step_time_learn(&s, 1, 0, 15000);
    step_time_learn(&s, 1, 0, 90000);
    ck_assert_double_eq(step_time_decode_us(&s, 1, false), 12000);
    ck_assert_double_eq(step_time_decode_us(&s, 1, true), 15000);
    s.unit_us = 400;
    s.chunk_us = 1000;
    ck_assert_uint_eq(step_time_tokens(&s, 5000), 10);
    ck_assert_uint_eq(step_time_tokens(&s, 900), 0);
    ck_assert_uint_eq(step_time_tokens(&s, -1), 0);
}
END_TEST

SUITE_MAIN("batching/pace", room_of_nothing_known, room_follows_what_steps_took,
           one_newcomer_keeps_the_latency, guesses_are_not_what_rows_take,
           a_disturbed_step_is_forgotten, one_step_alone_is_not_enough,
           a_chunk_has_a_share_that_does_not_shrink, the_least_chunk_grows_again,
           a_short_newcomer_leaps, a_short_newcomer_leaps_later, a_slow_machine_reads_prompts,
           many_newcomers_are_read_at_full_speed, the_shortest_first_but_nobody_starves,
           decode_rows_between, a_crowd_on_a_large_model)
