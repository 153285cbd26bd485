/* Steps whose length follows from their rows, under a clock that they turn: what arriving prompts
 * do to the rhythm of those that write, and how soon they are through. */
#include "batching/pace.h"

#include <stdio.h>

#include "tests/unit/batching/fakes.h"

enum { STEP_US = 2000, TOKEN_US = 500, MAX_ITL_US = 200 * 1000, CHUNK = 4 };

/* A step takes what reading the weights takes, and as much again for each token. */
static uint64_t step_us(const struct fake *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_rows; i++)
        n += f->rows[i]->row.grant + f->rows[i]->row.extra;
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

static void ask_prompts(struct fake *f, struct fake_ask *asks, size_t n, size_t cost,
                        uint32_t n_tokens)
{
    for (size_t i = 0; i < n; i++) {
        fake_ask_init(&asks[i], f, cost, n_tokens);
        asks[i].least = CHUNK;
        fake_asks(&asks[i]);
    }
}

/* Nothing known: a step may hold as much of parts as of whole rows. Nobody whole, or no bound:
 * anything. */
START_TEST(room_of_nothing_known)
{
    const struct pace p = {0};

    ck_assert_uint_eq(pace_room(&p, 0, 5, 1000), SIZE_MAX);
    ck_assert_uint_eq(pace_room(&p, 7, 5, 0), SIZE_MAX);
    ck_assert_uint_eq(pace_room(&p, 7, 5, 1000), 7);
}
END_TEST

/* One part stretches the step by three quarters of what the whole rows take, many together to the
 * bound; where the whole rows take that long already, by a quarter. */
START_TEST(room_follows_what_steps_took)
{
    struct pace p = {0};

    for (int i = 0; i < 50; i++) {
        pace_learn(&p, 0, 400, 2000 + 400 * 500);
        pace_learn(&p, 8, 0, 6000);
    }
    ck_assert_double_eq_tol(pace_part_us(&p, 400), 400 * 505, 400);
    ck_assert_uint_eq(pace_room(&p, 8, 1, 100 * 1000), (size_t)(4500 / 505.0));
    ck_assert_uint_eq(pace_room(&p, 8, 3, 100 * 1000), (size_t)(13500 / 505.0));
    ck_assert_uint_eq(pace_room(&p, 8, 50, 100 * 1000), (size_t)(94000 / 505.0));
    ck_assert_uint_eq(pace_room(&p, 8, 50, 6000), (size_t)(1500 / 505.0));
    /* of as many rows as no step had yet: half as many take half as long at least */
    ck_assert_uint_ge(pace_room(&p, 4, 1, 100 * 1000), (size_t)(0.75 * 3000 / 505));
    ck_assert_uint_le(pace_room(&p, 4, 1, 100 * 1000), (size_t)(0.75 * 6000 / 505));
    ck_assert_uint_gt(pace_room(&p, 40, 1, 100 * 1000), pace_room(&p, 8, 1, 100 * 1000));
    /* what parts cost in company is learned too: twice as much from now on */
    for (int i = 0; i < 50; i++)
        pace_learn(&p, 8, 10, 6000 + 10 * 1010);
    ck_assert_double_eq_tol(pace_part_us(&p, 10), 10 * 1010, 100);
    ck_assert(pace_is_stale(&p));
    pace_learn(&p, 8, 0, 6000);
    ck_assert(!pace_is_stale(&p));
    for (int i = 0; i < 50; i++) /* a step that took less than the whole rows alone */
        pace_learn(&p, 8, 10, 5000);
    ck_assert_double_gt(pace_part_us(&p, 10), 0);
}
END_TEST

static uint64_t largest(const uint64_t *us, size_t n)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = us[i] > most ? us[i] : most;
    return most;
}

/* While eight write, a prompt of 4,000 arrives: no step is longer than twice the usual, and the
 * prompt goes on in nearly every step. */
START_TEST(one_newcomer_keeps_the_rhythm)
{
    static struct fake_ask eight[8], long_one;
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
    (void)run_step(&f); /* one is under way already */
    while (long_one.n_settled == 0) {
        ck_assert_uint_lt(n, 2000);
        n_without += !fake_is_in_step(&f, &long_one);
        us[n++] = run_step(&f);
    }
    ck_assert_uint_le(largest(us, n), 2 * usual_us);
    ck_assert_uint_le(n_without, n / 16 + 1); /* in which it is seen what the eight take */
    ck_assert_uint_le(n, 4000 / 5);           /* by no less than the room allows */
    fake_close(&f);
}
END_TEST

/* Guesses beside what rows need make steps longer, not the parts that join rows without any. */
START_TEST(guesses_are_not_what_rows_take)
{
    static struct fake_ask eight[8], long_one;
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

/* One step in 16 that was disturbed does not count; three do: the machine has become slower. */
START_TEST(a_disturbed_step_is_forgotten)
{
    struct pace p = {0};
    size_t room;

    for (int i = 0; i < 50; i++) {
        pace_learn(&p, 0, 400, 400 * 500);
        pace_learn(&p, 8, 0, 6000);
    }
    room = pace_room(&p, 8, 1, 100 * 1000);
    for (int i = 0; i < 2; i++) {
        pace_learn(&p, 8, 0, 20000);
        ck_assert_uint_eq(pace_room(&p, 8, 1, 100 * 1000), room);
    }
    pace_learn(&p, 8, 0, 20000);
    ck_assert_uint_eq(pace_room(&p, 8, 1, 100 * 1000), (size_t)(0.75 * 20000 / 500));
    pace_learn(&p, 8, 0, 6000);
    ck_assert_uint_eq(pace_room(&p, 8, 1, 100 * 1000), room);
}
END_TEST

/* The first is all that is known: soon there is another. */
START_TEST(one_step_alone_is_not_enough)
{
    struct pace p = {0};

    pace_learn(&p, 0, 400, 400 * 500);
    pace_learn(&p, 8, 0, 20000);
    for (int i = 0; i < 3; i++) {
        ck_assert(!pace_is_stale(&p));
        pace_learn(&p, 8, pace_room(&p, 8, 1, 100 * 1000), 6000 + 30 * 500);
    }
    ck_assert(pace_is_stale(&p));
    pace_learn(&p, 8, 0, 6000);
    ck_assert_uint_eq(pace_room(&p, 8, 1, 100 * 1000), (size_t)(0.75 * 6000 / 500));
    for (int i = 0; i < 15; i++) {
        ck_assert(!pace_is_stale(&p));
        pace_learn(&p, 8, 8, 10000);
    }
    ck_assert(pace_is_stale(&p));
}
END_TEST

/* Far into a prompt a chunk reads what is there already, whatever its size. Chunks become as small
 * as that asks for, and what a whole short prompt takes is known as before. */
START_TEST(a_chunk_has_a_share_that_does_not_shrink)
{
    enum { FIXED_US = 3000 };
    struct pace p = {0};
    size_t n = 0;

    for (int i = 0; i < 50; i++) {
        pace_learn(&p, 0, 400, 400 * 500);
        pace_learn(&p, 8, 0, 6000);
    }
    for (int i = 0; i < 50; i++) {
        n = pace_room(&p, 8, 1, 100 * 1000);
        pace_learn(&p, 8, n, 6000 + FIXED_US + 500 * n);
    }
    ck_assert_uint_eq(n, (4500 - FIXED_US) / 500);
    ck_assert_double_eq_tol(pace_part_us(&p, 200), FIXED_US + 200 * 500, 500);
    for (int i = 0; i < 50; i++) /* and short ones that nobody disturbs never make it absurd */
        pace_learn(&p, 0, 2, 100);
    ck_assert_double_gt(pace_part_us(&p, 1), 0);
    ck_assert_double_lt(pace_part_us(&p, 1), 100);
}
END_TEST

/* Steps that were disturbed leave chunks of the least size, which take next to nothing: they grow
 * again. */
START_TEST(the_least_chunk_grows_again)
{
    struct pace p = {0};
    size_t n = 0;

    for (int i = 0; i < 50; i++) {
        pace_learn(&p, 0, 400, 400 * 300);
        pace_learn(&p, 8, 0, 10000);
    }
    for (int i = 0; i < 20; i++)
        pace_learn(&p, 8, 2, 25000);
    ck_assert_uint_lt(pace_room(&p, 8, 1, 100 * 1000), 2);
    for (int i = 0; i < 50; i++) {
        n = pace_room(&p, 8, 1, 100 * 1000);
        n = n < 2 ? 2 : n;
        pace_learn(&p, 8, n, 10000 + 300 * n);
    }
    ck_assert_uint_ge(n, 20);
}
END_TEST

/* While eight write, prompts of 200 arrive, one after the other: one is through in its first step,
 * the next is not, so soon; after 40 steps one is again. A longer one, which would stretch a step
 * beyond the bound, never is. */
START_TEST(a_short_newcomer_leaps)
{
    static const struct {
        size_t cost;
        int n_before; /* steps before it comes */
        bool leaps;
    } all[] = {{200, 0, true}, {200, 0, false}, {200, 40, true}, {400, 40, false}};
    static struct fake_ask eight[8], newcomer;
    struct fake f;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        (void)run_step(&f);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t most_us = 0;
        size_t n = 0;

        for (int k = 0; k < all[i].n_before; k++)
            (void)run_step(&f);
        memset(&newcomer, 0, sizeof newcomer);
        ask_prompts(&f, &newcomer, 1, all[i].cost, 1);
        (void)run_step(&f); /* one is under way already */
        while (newcomer.n_settled == 0) {
            uint64_t us = run_step(&f);

            most_us = us > most_us ? us : most_us;
            n++;
        }
        ck_assert_uint_le(most_us, MAX_ITL_US);
        if (all[i].leaps)
            ck_assert_uint_le(n, 2); /* one of the eight alone may come first */
        else
            ck_assert_uint_gt(n, 10);
    }
    fake_close(&f);
}
END_TEST

/* Who could not leap when it came does so once those before it are paid for. */
START_TEST(a_short_newcomer_leaps_later)
{
    static struct fake_ask eight[8], newcomers[2];
    struct fake f;
    uint64_t most_us = 0;
    size_t n = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, eight, 8, 64, 2000);
    for (int i = 0; i < 20; i++)
        (void)run_step(&f);
    ask_prompts(&f, &newcomers[0], 1, 64, 1);
    (void)run_step(&f); /* one is under way already */
    (void)run_step(&f);
    ask_prompts(&f, &newcomers[1], 1, 200, 1);
    (void)run_step(&f);
    ck_assert_uint_eq(newcomers[0].n_settled, 1);
    for (; newcomers[1].n_settled == 0; n++) {
        uint64_t us = run_step(&f);

        most_us = us > most_us ? us : most_us;
    }
    ck_assert_uint_le(n, 10); /* by what the room allows it would be 25 */
    ck_assert_uint_gt(most_us, 50 * 1000);
    ck_assert_uint_le(most_us, MAX_ITL_US);
    fake_close(&f);
}
END_TEST

/* Where those who write take longer than the bound, prompts are read all the same. */
START_TEST(a_slow_machine_reads_prompts)
{
    static struct fake_ask eight[8], prompt;
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

/* Until all are through with their prompt. */
static uint64_t run_prompts(struct fake *f, struct fake_ask *asks, size_t n, uint64_t *ret_most_us)
{
    uint64_t begin_us = f->now_us;
    size_t n_left;

    *ret_most_us = 0;
    do {
        size_t n_writing = 0;
        uint64_t us;

        fake_wait(f, 0);
        for (size_t i = 0; i < f->n_rows; i++) /* those that had a token before */
            n_writing += f->rows[i]->n_stepped > 0 && f->rows[i]->row.grant == 1;
        us = run_step(f);
        if (n_writing > 0 && us > *ret_most_us)
            *ret_most_us = us;
        n_left = 0;
        for (size_t i = 0; i < n; i++)
            n_left += asks[i].n_steps == 1000;
    } while (n_left > 0);
    return f->now_us - begin_us;
}

/* 64 prompts of 64 at once are through nearly as soon as if nobody were bound by anything; and the
 * bound holds for those that write already. */
START_TEST(many_newcomers_are_read_at_full_speed)
{
    static struct fake_ask asks[64];
    uint64_t took_us[2], most_us[2];
    struct fake f;

    for (int bound = 0; bound < 2; bound++) {
        open_paced(&f, bound == 0 ? 0 : MAX_ITL_US);
        ask_prompts(&f, asks, 64, 64, 1000);
        took_us[bound] = run_prompts(&f, asks, 64, &most_us[bound]);
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

/* A short prompt that comes behind a long one overtakes it, a stream of them does not for ever. */
START_TEST(the_shortest_first_but_nobody_starves)
{
    static struct fake_ask long_one, first, stream[64];
    struct fake f;
    size_t n = 0;

    open_paced(&f, MAX_ITL_US);
    ask_prompts(&f, &long_one, 1, 4000, 1);
    (void)run_step(&f);
    ask_prompts(&f, &first, 1, 64, 1);
    (void)run_step(&f); /* was under way */
    (void)run_step(&f);
    ck_assert_uint_eq(first.n_settled, 1);
    ck_assert_uint_gt(f.rows[0]->row.grant + f.rows[1]->row.grant, 511);
    while (long_one.n_settled == 0) { /* as much as a step holds arrives in every step */
        ck_assert_uint_lt(n + 8, 64);
        for (size_t i = 0; i < 8; i++, n++)
            ask_prompts(&f, &stream[n], 1, 64, 1);
        ck_assert(fake_is_in_step(&f, &long_one));
        (void)run_step(&f);
    }
    fake_close(&f);
}
END_TEST

SUITE_MAIN("batching/pace", room_of_nothing_known, room_follows_what_steps_took,
           one_newcomer_keeps_the_rhythm, guesses_are_not_what_rows_take,
           a_disturbed_step_is_forgotten, one_step_alone_is_not_enough,
           a_chunk_has_a_share_that_does_not_shrink, the_least_chunk_grows_again,
           a_short_newcomer_leaps, a_short_newcomer_leaps_later, a_slow_machine_reads_prompts,
           many_newcomers_are_read_at_full_speed, the_shortest_first_but_nobody_starves)
