#include "tests/unit/batching/fakes.h"

enum { N_TABLE = 12 };

static const size_t table[N_TABLE] = {12, 2, 6, 38, 6, 2, 13, 5, 8, 17, 10, 12};

/* Asks what the table says and runs all of it; lengths[i] in the order of rows, n[i] rows a step.
 * Returns how many steps. */
static size_t run_table(const struct batcher_config *config, size_t *lengths, size_t *n)
{
    static struct fake_ask asks[N_TABLE];
    struct fake f;
    size_t n_steps = 0, at = 0;

    fake_init(&f, config->policy, config->max_rows, config->max_cost);
    f.config = *config;
    f.config.max_waiting = N_TABLE;
    f.agent.min_grant = NULL;
    fake_open(&f);
    for (size_t i = 0; i < N_TABLE; i++) {
        fake_ask_init(&asks[i], &f, table[i], 1);
        fake_asks(&asks[i]);
    }
    fake_wait(&f, 0);
    while (f.step != NULL) {
        n[n_steps++] = f.n_rows;
        for (size_t i = 0; i < f.n_rows; i++)
            lengths[at++] = table[f.rows[i] - asks];
        fake_step_done(&f);
    }
    ck_assert_uint_eq(at, N_TABLE);
    fake_close(&f);
    return n_steps;
}

/* Rows times longest, over steps. */
static size_t padded(const size_t *lengths, const size_t *n, size_t n_steps)
{
    size_t sum = 0;

    for (size_t s = 0; s < n_steps; s++) {
        size_t longest = 0;

        for (size_t i = 0; i < n[s]; i++)
            longest = lengths[i] > longest ? lengths[i] : longest;
        lengths += n[s];
        sum += n[s] * longest;
    }
    return sum;
}

static const uint64_t day_us = UINT64_C(86400) * 1000 * 1000;

/* full, where a step is packed: rows while their sum is at most 80 words. */
START_TEST(test_full_by_sum)
{
    const struct batcher_config config = {
        .policy = BATCH_FULL, .max_rows = 1021, .max_cost = 80, .max_delay_us = day_us};
    const size_t must[N_TABLE] = {38, 17, 13, 12, 12, 10, 8, 6, 6, 5, 2, 2};
    size_t lengths[N_TABLE], n[N_TABLE];

    ck_assert_uint_eq(run_table(&config, lengths, n), 2);
    ck_assert_uint_eq(n[0], 4);
    ck_assert_uint_eq(n[1], 8);
    ck_assert_mem_eq(lengths, must, sizeof must);
    ck_assert_uint_eq(padded(lengths, n, 2), 248); /* were it padded after all */
}
END_TEST

/* full, where a step pads: rows while rows times the longest is at most 80 words. */
START_TEST(test_full_by_rectangle)
{
    const struct batcher_config config = {.policy = BATCH_FULL,
                                          .max_rows = 1021,
                                          .max_cost = 80,
                                          .max_delay_us = day_us,
                                          .pads = true};
    const size_t must[N_TABLE] = {38, 17, 13, 12, 12, 10, 8, 6, 6, 5, 2, 2};
    size_t lengths[N_TABLE], n[N_TABLE];

    ck_assert_uint_eq(run_table(&config, lengths, n), 3);
    ck_assert_uint_eq(n[0], 2);
    ck_assert_uint_eq(n[1], 6);
    ck_assert_uint_eq(n[2], 4);
    ck_assert_mem_eq(lengths, must, sizeof must);
    ck_assert_uint_eq(padded(lengths, n, 3), 178);
}
END_TEST

/* batchsort: three rows a step pad 189 cells, 58 more than the 131 words; as they come, 240. */
START_TEST(test_batchsort)
{
    const struct batcher_config sorted = {
        .policy = BATCH_BATCHSORT, .max_rows = 3, .max_delay_us = day_us};
    const struct batcher_config naive = {.policy = BATCH_CONTINUOUS, .max_rows = 3};
    size_t lengths[N_TABLE], n[N_TABLE];

    ck_assert_uint_eq(run_table(&sorted, lengths, n), 4);
    ck_assert_uint_eq(padded(lengths, n, 4), 189);
    ck_assert_uint_eq(run_table(&naive, lengths, n), 4);
    ck_assert_uint_eq(padded(lengths, n, 4), 240);
}
END_TEST

/* A row that is larger than a step may cost has a step of its own, and nobody waits for ever. */
START_TEST(test_too_large)
{
    const struct batcher_config config = {
        .policy = BATCH_FULL, .max_rows = 8, .max_cost = 20, .max_delay_us = day_us, .pads = true};
    size_t lengths[N_TABLE], n[N_TABLE];
    size_t n_steps = run_table(&config, lengths, n);

    ck_assert_uint_eq(lengths[0], 38);
    ck_assert_uint_eq(n[0], 1);
    for (size_t i = 1; i < n_steps; i++)
        ck_assert_uint_ge(n[i], 1);
}
END_TEST

/* Batches of more than four rows have a multiple of four; what is over waits for the next. */
START_TEST(test_multiple)
{
    const struct batcher_config config = {
        .policy = BATCH_FULL, .max_rows = 7, .max_delay_us = day_us, .rows_multiple = 4};
    size_t lengths[N_TABLE], n[N_TABLE];

    ck_assert_uint_eq(run_table(&config, lengths, n), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(n[i], 4);
}
END_TEST

static uint64_t chance;

static void same_chance(void *self, void *out, size_t n_bytes)
{
    (void)self;
    ck_assert_uint_eq(n_bytes, sizeof chance);
    memcpy(out, &chance, n_bytes);
}

/* Where chance starts a batch, it grows downwards, and upwards once it is at the bottom. */
START_TEST(test_chance)
{
    const size_t from_low[] = {2, 2, 5}, from_mid[] = {8, 6, 6}, from_high[] = {38, 17, 13};
    const struct {
        uint64_t bits;
        const size_t *must;
    } starts[] = {{0, from_low}, {UINT64_MAX / 2, from_mid}, {UINT64_MAX, from_high}};

    for (size_t s = 0; s < 3; s++) {
        struct fake_ask asks[N_TABLE];
        struct fake f;

        fake_init(&f, BATCH_BATCHSORT, 3, 0);
        f.agent.min_grant = NULL;
        f.env.random = same_chance;
        f.config.start_by_chance = true;
        f.config.max_delay_us = day_us;
        chance = starts[s].bits;
        fake_open(&f);
        for (size_t i = 0; i < N_TABLE; i++) {
            fake_ask_init(&asks[i], &f, table[i], 1);
            fake_asks(&asks[i]);
        }
        fake_wait(&f, 0);
        ck_assert_uint_eq(f.n_rows, 3);
        for (size_t i = 0; i < 3; i++)
            ck_assert_uint_eq(table[f.rows[i] - asks], starts[s].must[i]);
        fake_close(&f);
    }
}
END_TEST

/* A short row is not passed over for ever by long ones that keep coming: once it has waited for
 * max_delay_us it starts a batch. */
START_TEST(test_ageing)
{
    struct fake_ask old, young[100];
    struct fake f;
    size_t n_steps = 0;

    fake_init(&f, BATCH_FULL, 2, 0);
    f.agent.min_grant = NULL;
    f.config.max_delay_us = 20;
    fake_open(&f);
    fake_ask_init(&old, &f, 1, 1);
    fake_asks(&old);
    for (size_t i = 0; i < 4; i++) {
        fake_ask_init(&young[i], &f, 50, 1);
        fake_asks(&young[i]);
    }
    fake_wait(&f, 0);
    while (old.n_settled == 0) {
        ck_assert_uint_lt(n_steps, 30);
        for (size_t i = 0; i < 2; i++) {
            struct fake_ask *next = &young[4 + 2 * n_steps + i];

            fake_ask_init(next, &f, 50, 1);
            fake_asks(next);
        }
        n_steps++;
        f.now_us++;
        fake_step_done(&f);
    }
    ck_assert_uint_ge(n_steps, 20);
    fake_run_out(&f);
    fake_close(&f);
}
END_TEST

/* Of those chosen, one that is cancelled before it could begin is replaced by nobody. */
START_TEST(test_cancel_chosen)
{
    struct fake_ask holder, asks[3];
    struct fake f;

    fake_init(&f, BATCH_FULL, 2, 0);
    f.config.max_delay_us = day_us;
    f.pages_free = 12;
    fake_open(&f);
    fake_ask_init(&holder, &f, 6, 3);
    fake_asks(&holder);
    fake_wait(&f, 0); /* it runs for three steps and holds 6 pages, then 7 and 8 */
    for (size_t i = 0; i < 3; i++) {
        fake_ask_init(&asks[i], &f, 10 - i, 1);
        fake_asks(&asks[i]);
    }
    fake_step_done(&f); /* asks[0] is chosen, and there is no room for it */
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert(asks[0].ask.is_chosen);
    batcher_cancel(f.b, &asks[0].ask);
    fake_wait(&f, 0);
    ck_assert_int_eq(asks[0].err.status, STATUS_CANCELLED);
    fake_run_out(&f);
    for (size_t i = 1; i < 3; i++)
        ck_assert_int_eq(asks[i].err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

SUITE_MAIN("batching/by_length", test_full_by_sum, test_full_by_rectangle, test_batchsort,
           test_too_large, test_multiple, test_chance, test_ageing, test_cancel_chosen)
