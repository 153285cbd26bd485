#include "tests/unit/batching/fakes.h"

enum { N_TABLE = 12 };

static const size_t table[N_TABLE] = {12, 2, 6, 38, 6, 2, 13, 5, 8, 17, 10, 12};

/* Submits the table's requests and runs them all; lengths[i] in the order of rows, n[i] rows in
 * step i. Returns the number of steps. */
static size_t run_table(const struct batcher_config *config, size_t *lengths, size_t *n)
{
    static struct fake_request requests[N_TABLE];
    struct fake f;
    size_t n_steps = 0, at = 0;

    fake_init(&f, config->policy, config->max_rows, config->max_cost);
    f.config = *config;
    f.config.max_waiting = N_TABLE;
    f.agent.min_chunk = NULL;
    fake_open(&f);
    for (size_t i = 0; i < N_TABLE; i++) {
        fake_request_init(&requests[i], &f, table[i], 1);
        fake_submit_ok(&requests[i]);
    }
    fake_wait(&f, 0);
    while (f.step != NULL) {
        n[n_steps++] = f.n_rows;
        for (size_t i = 0; i < f.n_rows; i++)
            lengths[at++] = table[f.rows[i] - requests];
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

/* full, if a step is packed: rows are added while their sum is at most 80 words. */
START_TEST(test_full_by_sum)
{
    const struct batcher_config config = {
        .policy = BATCH_FULL, .max_rows = 1021, .max_cost = 80, .max_delay_us = day_us};
    const size_t must[N_TABLE] = {38, 17, 13, 12, 12, 10, 8, 6, 6, 5, 2, 2};
    size_t lengths[N_TABLE], n[N_TABLE];

    ck_assert_uint_eq(run_table(&config, lengths, n), 2);
    ck_assert_uint_eq(n[0], 4);
    ck_assert_uint_eq(n[1], 8);
    ck_assert_mem_eq(lengths, must, sizeof(must));
    ck_assert_uint_eq(padded(lengths, n, 2), 248); /* if it were padded */
}
END_TEST

/* full, if a step pads: rows are added while rows times the longest is at most 80 words. */
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
    ck_assert_mem_eq(lengths, must, sizeof(must));
    ck_assert_uint_eq(padded(lengths, n, 3), 178);
}
END_TEST

/* batchsort: steps of three rows have 189 padded cells, 58 more than the 131 words; in order of
 * arrival, 240. */
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

/* A row that costs more than a step may has a step of its own, and no row waits for ever. */
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

/* Batches of more than four rows have a multiple of four; the rest waits for the next batch. */
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
    ck_assert_uint_eq(n_bytes, sizeof(chance));
    memcpy(out, &chance, n_bytes);
}

/* A batch that starts at a random request grows downwards, and upwards once it is at the bottom. */
START_TEST(test_chance)
{
    const size_t from_low[] = {2, 2, 5}, from_mid[] = {8, 6, 6}, from_high[] = {38, 17, 13};
    const struct {
        uint64_t bits;
        const size_t *must;
    } starts[] = {{0, from_low}, {UINT64_MAX / 2, from_mid}, {UINT64_MAX, from_high}};

    for (size_t s = 0; s < 3; s++) {
        struct fake_request requests[N_TABLE];
        struct fake f;

        fake_init(&f, BATCH_BATCHSORT, 3, 0);
        f.agent.min_chunk = NULL;
        f.env.random = same_chance;
        f.config.start_by_chance = true;
        f.config.max_delay_us = day_us;
        chance = starts[s].bits;
        fake_open(&f);
        for (size_t i = 0; i < N_TABLE; i++) {
            fake_request_init(&requests[i], &f, table[i], 1);
            fake_submit_ok(&requests[i]);
        }
        fake_wait(&f, 0);
        ck_assert_uint_eq(f.n_rows, 3);
        for (size_t i = 0; i < 3; i++)
            ck_assert_uint_eq(table[f.rows[i] - requests], starts[s].must[i]);
        fake_close(&f);
    }
}
END_TEST

/* Long rows that keep arriving do not delay a short row for ever: once it has waited max_delay_us
 * it starts a batch. */
START_TEST(test_ageing)
{
    struct fake_request old, young[100];
    struct fake f;
    size_t n_steps = 0;

    fake_init(&f, BATCH_FULL, 2, 0);
    f.agent.min_chunk = NULL;
    f.config.max_delay_us = 20;
    fake_open(&f);
    fake_request_init(&old, &f, 1, 1);
    fake_submit_ok(&old);
    for (size_t i = 0; i < 4; i++) {
        fake_request_init(&young[i], &f, 50, 1);
        fake_submit_ok(&young[i]);
    }
    fake_wait(&f, 0);
    while (old.n_settled == 0) {
        ck_assert_uint_lt(n_steps, 30);
        for (size_t i = 0; i < 2; i++) {
            struct fake_request *next = &young[4 + 2 * n_steps + i];

            fake_request_init(next, &f, 50, 1);
            fake_submit_ok(next);
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

/* A chosen request that is cancelled before it begins is not replaced. */
START_TEST(test_cancel_chosen)
{
    struct fake_request holder, requests[3];
    struct fake f;

    fake_init(&f, BATCH_FULL, 2, 0);
    f.config.max_delay_us = day_us;
    f.pages_free = 12;
    fake_open(&f);
    fake_request_init(&holder, &f, 6, 3);
    fake_submit_ok(&holder);
    fake_wait(&f, 0); /* it runs for three steps and holds 6 pages, then 7 and 8 */
    for (size_t i = 0; i < 3; i++) {
        fake_request_init(&requests[i], &f, 10 - i, 1);
        fake_submit_ok(&requests[i]);
    }
    fake_step_done(&f); /* requests[0] is chosen, but has no room */
    ck_assert_uint_eq(f.n_rows, 1);
    ck_assert(requests[0].request.is_chosen);
    batcher_cancel(f.b, &requests[0].request);
    fake_wait(&f, 0);
    ck_assert_int_eq(requests[0].err.status, STATUS_CANCELLED);
    fake_run_out(&f);
    for (size_t i = 1; i < 3; i++)
        ck_assert_int_eq(requests[i].err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

SUITE_MAIN("batching/length_buckets", test_full_by_sum, test_full_by_rectangle, test_batchsort,
           test_too_large, test_multiple, test_chance, test_ageing, test_cancel_chosen)
