/* Two tenants on a machine whose step takes 10 ms, and 2 ms more for each row: how many rows a
 * tenant with much to do has beside one with little, and when. */
#include "batching/time_share.h"

#include "tests/unit/batching/fakes.h"

enum { N_MANY = 40, N_FEW = 6, MAX_ROWS = 32, FIXED_US = 10000, ROW_US = 2000 };

static struct fake f;
static struct tenant heavy, light;
static struct fake_request many[N_MANY], few[N_FEW];

static void submit(struct fake_request *a, struct tenant *t, uint32_t n_steps)
{
    fake_request_init(a, &f, 1, n_steps);
    a->own.tenant = t;
    fake_submit_ok(a);
}

static size_t rows_of(const struct tenant *t)
{
    size_t n = 0;

    for (size_t i = 0; i < f.n_rows; i++)
        n += f.rows[i]->own.tenant == t;
    return n;
}

/* Ends the step that runs, after as long as it takes. */
static void run_step(void)
{
    f.now_us += FIXED_US + f.n_rows * ROW_US;
    fake_step_done(&f);
    fake_wait(&f, 0);
}

static void run_steps(size_t n)
{
    while (n-- > 0 && f.step != NULL)
        run_step();
}

/* The many run, with all rows of a step. */
static void begin(unsigned heavy_weight, uint32_t n_steps)
{
    fake_init(&f, BATCH_CONTINUOUS, MAX_ROWS, 512);
    tenant_init(&heavy, heavy_weight);
    tenant_init(&light, 1);
    fake_open(&f);
    for (size_t i = 0; i < N_MANY; i++)
        submit(&many[i], &heavy, n_steps);
    fake_wait(&f, 0);
    run_steps(5);
    ck_assert_uint_eq(f.n_rows, MAX_ROWS);
}

/* The most and the least rows of the heavy tenant in some steps, each of which has all rows of the
 * light one; n_alone have no others, and measure. */
struct heavy_rows {
    size_t least, most, n_alone;
};

static struct heavy_rows watch(size_t n_steps, size_t n_light)
{
    struct heavy_rows seen = {SIZE_MAX, 0, 0};

    for (size_t i = 0; i < n_steps; i++) {
        size_t n = rows_of(&heavy);

        ck_assert_uint_eq(rows_of(&light), n_light);
        seen.n_alone += n == 0;
        seen.least = n > 0 && n < seen.least ? n : seen.least;
        seen.most = n > seen.most ? n : seen.most;
        run_step();
    }
    return seen;
}

/* A tenant that is alone has all rows, for as long as it is alone. */
START_TEST(alone)
{
    begin(1, 1000);
    for (int i = 0; i < 100; i++) {
        run_step();
        ck_assert_uint_eq(f.n_rows, MAX_ROWS);
    }
    ck_assert_uint_eq(heavy.max_rows, SIZE_MAX);
    fake_close(&f);
}
END_TEST

/* Beside one row of another the step of that row takes a third longer: two rows of the many, and
 * none in a step in 32, which measures. Weights count: of weight 4 it may take two thirds longer,
 * and has 4 rows in any case. */
START_TEST(beside_one_row)
{
    static const struct {
        unsigned weight;
        size_t most;
    } each[] = {{1, 2}, {4, 4}};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        struct heavy_rows seen;

        begin(each[i].weight, 1000);
        submit(&few[0], &light, 1000);
        run_steps(20); /* the times of small steps are learned */
        seen = watch(320, 1);
        ck_assert_uint_eq(seen.most, each[i].most);
        ck_assert_uint_ge(seen.least, each[i].most - 1);
        ck_assert_uint_ge(seen.n_alone, 9);
        ck_assert_uint_le(seen.n_alone, 11);
        fake_close(&f);
    }
}
END_TEST

/* A newcomer is in the next step, and that step has no row of the many. */
START_TEST(begins_at_once)
{
    begin(1, 1000);
    submit(&few[0], &light, 10);
    run_step();
    ck_assert_uint_eq(rows_of(&light), 1);
    ck_assert_uint_eq(f.n_rows, 1);
    fake_close(&f);
}
END_TEST

/* By weight the many have as many rows as the others in any case. */
START_TEST(as_many_rows)
{
    struct heavy_rows seen;

    begin(1, 1000);
    for (size_t i = 0; i < N_FEW; i++)
        submit(&few[i], &light, 1000);
    run_steps(20);
    seen = watch(30, N_FEW);
    ck_assert_uint_ge(seen.least, N_FEW);
    ck_assert_uint_le(seen.most, N_FEW + 1);
    fake_close(&f);
}
END_TEST

/* For a while after the other's last request the steps stay short, and then have all rows again. */
START_TEST(away)
{
    uint64_t left_us;

    begin(1, 1000);
    submit(&few[0], &light, 40);
    while (few[0].n_settled == 0)
        run_step();
    left_us = f.now_us;
    run_step();
    ck_assert_uint_ge(f.n_rows, 1);
    ck_assert_uint_lt(f.n_rows, MAX_ROWS);
    while (f.n_rows < MAX_ROWS)
        run_step();
    ck_assert_uint_gt(f.now_us - left_us, 1000000);
    ck_assert_uint_lt(f.now_us - left_us, 3000000);
    fake_close(&f);
}
END_TEST

/* However long the other goes on, the many end, in the order in which they came. */
START_TEST(nobody_starves)
{
    begin(1, 30);
    submit(&few[0], &light, 100000);
    for (size_t i = 0; i < N_MANY; i++) {
        for (int n = 0; n < 2000 && many[i].n_settled == 0; n++)
            run_step();
        ck_assert_int_eq(many[i].err.status, STATUS_OK);
        ck_assert_uint_eq(many[i].n_settled, 1);
    }
    ck_assert_uint_eq(few[0].n_settled, 0);
    fake_close(&f);
}
END_TEST

/* Paused rows hold all pages: a newcomer gets one of theirs, and they go on later. */
START_TEST(takes_pages)
{
    begin(1, 200);
    f.pages_free = 0;
    submit(&few[0], &light, 1);
    run_steps(3);
    ck_assert_uint_eq(few[0].n_settled, 1);
    ck_assert_int_eq(few[0].err.status, STATUS_OK);
    f.pages_free = SIZE_MAX / 2;
    while (f.step != NULL)
        run_step();
    for (size_t i = 0; i < N_MANY; i++)
        ck_assert_int_eq(many[i].err.status, STATUS_OK);
    fake_close(&f);
}
END_TEST

/* A close, and a change of policy, leave nobody behind. */
START_TEST(closes)
{
    struct error err;

    begin(1, 1000);
    submit(&few[0], &light, 1000);
    run_steps(30);
    f.config.policy = BATCH_FIXED;
    f.config.max_rows = 2;
    ck_assert_int_eq(batcher_configure(f.b, &f.config, &err), STATUS_OK);
    run_steps(3);
    fake_close(&f);
    for (size_t i = 0; i < N_MANY; i++)
        ck_assert_uint_eq(many[i].n_settled, 1);
}
END_TEST

SUITE_MAIN("batching/time_share", alone, beside_one_row, begins_at_once, as_many_rows, away,
           nobody_starves, takes_pages, closes)
