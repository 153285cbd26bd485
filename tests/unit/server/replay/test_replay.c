/* Replay's parts: the weight tree and the importance weights with the numbers of Machin's own
 * tests, samplers against what they promise, limiters tried out state by state, and tables under
 * random schedules beside a plain model of what they must hold. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/access/access.h"
#include "server/replay/replays.h"
#include "tests/unit/base/suite.h"

static struct error err;
static uint64_t chance;

static unsigned pick(unsigned n)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (unsigned)(chance >> 33) % n;
}

/* --- the tree --- */

static void set_all(struct sum_tree *t, const double *weights, size_t n)
{
    ck_assert_int_eq(sum_tree_reserve(t, n, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++)
        sum_tree_set(t, i, weights[i]);
}

/* Machin's weight tree: five leaves in eight, and which leaf a number leads to. */
START_TEST(finds_weights)
{
    static const double weights[] = {1, 1, 1, 0, 3};
    static const double nodes[] = {6, 3, 3, 2, 1, 3, 0, 1, 1, 1, 0, 3, 0, 0, 0};
    static const struct {
        double sum;
        size_t index;
    } found[] = {{-1, 0}, {0, 0}, {1.0, 0}, {1.1, 1}, {2.0, 1}, {3.0, 2}, {3.9, 4}, {10, 4}};
    struct sum_tree t = {0};

    set_all(&t, weights, 5);
    ck_assert_uint_eq(t.n_leaves, 8);
    for (size_t i = 0; i < 15; i++)
        ck_assert_double_eq(t.nodes[i + 1], nodes[i]);
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++)
        ck_assert_uint_eq(sum_tree_find(&t, found[i].sum), found[i].index);
    sum_tree_set(&t, 0, 0.0);
    ck_assert_uint_eq(sum_tree_find(&t, -1), 1);
    ck_assert_uint_eq(sum_tree_find(&t, 0.0), 1);
    sum_tree_deinit(&t);
}
END_TEST

/* After any updates and growth the sums are those of a tree that was made at once, and no leaf
 * without weight is found, however the sums are rounded. */
START_TEST(keeps_sums)
{
    enum { N = 300 };
    double weights[N] = {0};
    struct sum_tree t = {0}, again = {0};

    chance = 543;
    for (size_t step = 0; step < 5000; step++) {
        size_t n = 1 + step * N / 5000, i = pick((unsigned)n);

        weights[i] = pick(3) == 0 ? 0.0 : (double)pick(1000) * pow(10.0, (double)pick(40) - 20.0);
        ck_assert_int_eq(sum_tree_reserve(&t, n, &err), STATUS_OK);
        sum_tree_set(&t, i, weights[i]);
        if (sum_tree_total(&t) > 0.0) {
            double u = (double)pick(1 << 20) / (1 << 20);

            ck_assert_double_gt(sum_tree_get(&t, sum_tree_find(&t, u * sum_tree_total(&t))), 0.0);
            ck_assert_double_gt(sum_tree_get(&t, sum_tree_find(&t, 2 * sum_tree_total(&t))), 0.0);
        }
    }
    set_all(&again, weights, N);
    ck_assert_uint_eq(again.n_leaves, t.n_leaves);
    ck_assert_mem_eq(again.nodes + 1, t.nodes + 1, (2 * t.n_leaves - 1) * sizeof(t.nodes[0]));
    sum_tree_deinit(&t);
    sum_tree_deinit(&again);
}
END_TEST

/* --- limiters --- */

/* What limiter_check lets through never stalls: from every state that inserts and samples of one
 * lead to, one of both is allowed. What it refuses for its distance does stall. */
START_TEST(never_stalls)
{
    size_t n_taken = 0, n_refused = 0;

    chance = 543;
    for (size_t i = 0; i < 3000; i++) {
        const struct limiter_config c = {
            .min_size = 1 + pick(5),
            .samples_per_insert = 1 + pick(4),
            .min_diff = (double)pick(9) - 4,
            .max_diff = (double)pick(12) - 4,
        };
        const unsigned batch = 1 + pick(3);
        struct limiter l = {.config = c};
        bool is_taken = limiter_check(&c, 8, &err) == STATUS_OK &&
                        limiter_check_batch(&c, batch, &err) == STATUS_OK;
        bool has_stalled = false;

        for (size_t step = 0; step < 300 && !has_stalled; step++) {
            uint64_t size = l.n_inserted < 8 ? l.n_inserted : 8;
            bool can_insert = limiter_allows_insert(&l, size);
            bool can_sample = limiter_allows_sample(&l, size, batch);

            has_stalled = !can_insert && !can_sample;
            if (can_insert && (!can_sample || pick(2) == 0))
                l.n_inserted++;
            else if (can_sample)
                l.n_sampled += batch;
        }
        ck_assert(!is_taken || !has_stalled);
        n_taken += is_taken;
        n_refused += !is_taken && has_stalled;
    }
    ck_assert_uint_gt(n_taken, 500);
    ck_assert_uint_gt(n_refused, 500);
}
END_TEST

/* Limiters that can never be met are refused by their field. */
START_TEST(refuses_limiters)
{
    static const struct {
        struct limiter_config config;
        const char *field; /* NULL: it is taken */
    } cases[] = {
        {{.min_size = 0}, "limiter.min_size"},
        {{.min_size = 11}, "limiter.min_size"},
        {{.min_size = 10}, NULL},
        {{1, -1, 0, 1}, "limiter.samples_per_insert"},
        {{1, NAN, 0, 1}, "limiter.samples_per_insert"},
        {{1, INFINITY, 0, 1}, "limiter.samples_per_insert"},
        {{1, 1, NAN, 1}, "limiter.min_diff"},
        {{1, 1, 0, INFINITY}, "limiter.max_diff"},
        {{1, 1, 0, 1}, NULL}, /* a queue of one */
        {{1, 1, 1, 0}, "limiter.max_diff"},
        {{1, 4, 0, 3}, "limiter.max_diff"},
        {{1, 4, 0, 4}, NULL},
        {{1, 0.5, 0, 1.4}, "limiter.max_diff"},
        {{1, 0.5, 0, 1.5}, NULL},
    };
    const struct limiter_config queue = {1, 1, 0, 4};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum status rc = limiter_check(&cases[i].config, 10, &err);

        ck_assert_int_eq(rc, cases[i].field == NULL ? STATUS_OK : STATUS_INVALID);
        if (rc != STATUS_OK)
            ck_assert_str_eq(err.field, cases[i].field);
    }
    ck_assert_int_eq(limiter_check_batch(&queue, 4, &err), STATUS_OK);
    ck_assert_int_eq(limiter_check_batch(&queue, 5, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "batch_size");
}
END_TEST

/* --- tables --- */

static const struct table_column numbers[] = {
    {.name = "x", .type = TENSOR_I32, .step_bytes = 4},
    {.name = "y", .type = TENSOR_F32, .n_dims = 1, .dims = {3}, .step_bytes = 12},
};

static struct table_config usual(enum selector_kind sampler)
{
    return (struct table_config){
        .max_items = 1000,
        .max_bytes = 1 << 20,
        .sampler = sampler,
        .remover = SELECTOR_FIFO,
        .alpha = 0.6,
        .epsilon = 0.01,
        .limiter = {.min_size = 1},
        .seed = 543,
        .columns = numbers,
        .n_columns = 2,
    };
}

static struct table *open_table(const struct table_config *c)
{
    struct table *t;

    ck_assert_int_eq(table_open(&t, c, 1, &err), STATUS_OK);
    return t;
}

/* A chunk of steps that count from first on. */
static struct table_chunk *chunk_of(struct table *t, int32_t first, size_t n)
{
    struct table_chunk *c;

    ck_assert_int_eq(table_chunk_make(&c, t, n, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++)
        ((int32_t *)(void *)table_chunk_column(c, 0))[i] = first + (int32_t)i;
    return c;
}

static uint64_t insert(struct table *t, int32_t x, const double *priority)
{
    const struct table_slice slice = {.chunk = chunk_of(t, x, 1), .n_steps = 1};
    uint64_t key;

    ck_assert_int_eq(table_insert(t, &slice, 1, priority, &key, &err), STATUS_OK);
    table_chunk_unref(slice.chunk);
    return key;
}

static int32_t drawn_x(const struct table *t, const struct table_draw *d)
{
    size_t n;
    const struct table_slice *s = table_slices(t, d->slot, &n);

    return ((int32_t *)(void *)table_chunk_column(s->chunk, 0))[s->first];
}

/* Machin's prioritised buffer: what is new has the greatest priority there was, at first none, and
 * the weights of a batch with the probabilities that are told. */
START_TEST(weighs)
{
    const struct table_config config = usual(SELECTOR_PRIORITIZED);
    struct table *t = open_table(&config);
    const double priorities[] = {1, 1, 1, 0.3, 0.3};
    struct table_draw draws[5];
    double weights[5], greatest = 0.0;
    uint64_t keys[5];
    size_t n_applied;

    for (int i = 0; i < 5; i++)
        keys[i] = insert(t, i, NULL);
    ck_assert_double_eq_tol(sum_tree_get(&t->order.weights, 0), pow(0.01, 0.6), 1e-12);
    ck_assert_int_eq(table_update(t, 1, keys, priorities, 5, &n_applied, &err), STATUS_OK);
    ck_assert_uint_eq(n_applied, 5);
    ck_assert_double_eq_tol(sum_tree_get(&t->order.weights, 0), pow(1.01, 0.6), 1e-12);
    table_sample(t, draws, 5);
    for (size_t i = 0; i < 5; i++) {
        weights[i] = pow(5.0 * draws[i].probability, -0.4);
        greatest = fmax(greatest, weights[i]);
    }
    for (size_t i = 0; i < 5; i++) {
        bool is_low = drawn_x(t, &draws[i]) >= 3;

        ck_assert_double_eq_tol(weights[i] / greatest, is_low ? 1.0 : 0.75316421, 1e-8);
        ck_assert_double_eq(draws[i].priority, is_low ? 0.3 : 1.0);
    }
    ck_assert_double_lt(weights[0], greatest); /* the batch has both kinds */
    table_release(t, draws, 5);
    (void)insert(t, 5, NULL);
    ck_assert_double_eq_tol(sum_tree_get(&t->order.weights, 5), pow(1.01, 0.6), 1e-12);
    table_close(t);
}
END_TEST

/* Of what is drawn one by one the counts follow the probabilities: chi-squared with 63 degrees of
 * freedom is below 103.4 in 999 of 1000 cases, and the seed is fixed. */
static void check_draws(enum selector_kind kind, size_t n_batch)
{
    enum { N = 64, DRAWS = 64000 };
    const struct table_config config = usual(kind);
    struct table *t = open_table(&config);
    double expected[N], total = 0.0, chi = 0.0, furthest = 0.0;
    size_t counts[N] = {0};
    struct table_draw draws[N];

    for (int i = 0; i < N; i++) {
        double priority = i % 7 == 0 ? 0.0 : i * (i % 2 == 0 ? 1.0 : -1.0);

        (void)insert(t, i, &priority);
        expected[i] = kind == SELECTOR_UNIFORM ? 1.0 : pow(fabs(priority) + 0.01, 0.6);
        total += expected[i];
    }
    for (size_t n = 0; n < DRAWS; n += n_batch) {
        table_sample(t, draws, n_batch);
        for (size_t i = 0; i < n_batch; i++) {
            int32_t x = drawn_x(t, &draws[i]);

            counts[x]++;
            furthest = fmax(furthest, fabs(draws[i].probability - expected[x] / total));
        }
        table_release(t, draws, n_batch);
    }
    for (size_t i = 0; i < N; i++) {
        double mean = DRAWS * expected[i] / total;

        chi += ((double)counts[i] - mean) * ((double)counts[i] - mean) / mean;
    }
    ck_assert_double_lt(furthest, 1e-12);
    ck_assert_double_lt(chi, 103.4);
    if (n_batch == 1)
        ck_assert_double_gt(chi, 33.0); /* nor are they too even: 999 of 1000 are above */
    table_close(t);
}

START_TEST(draws_by_priority)
{
    check_draws(SELECTOR_PRIORITIZED, 1);
    check_draws(SELECTOR_PRIORITIZED, 32);
    check_draws(SELECTOR_UNIFORM, 1);
    check_draws(SELECTOR_UNIFORM, 32);
}
END_TEST

/* The same seed and calls give the same draws, another seed others. */
START_TEST(repeats_draws)
{
    static const enum selector_kind kinds[] = {SELECTOR_UNIFORM, SELECTOR_PRIORITIZED};
    struct table_draw draws[3][16];

    memset(draws, 0, sizeof(draws)); /* what lies between members */
    for (size_t k = 0; k < 2; k++) {
        for (size_t run = 0; run < 3; run++) {
            struct table_config config = usual(kinds[k]);
            struct table *t;

            config.seed += run == 2;
            t = open_table(&config);
            for (int i = 0; i < 100; i++)
                (void)insert(t, i, NULL);
            table_sample(t, draws[run], 16);
            table_release(t, draws[run], 16);
            table_close(t);
        }
        ck_assert_mem_eq(draws[0], draws[1], sizeof(draws[0]));
        ck_assert_mem_ne(draws[0], draws[2], sizeof(draws[0]));
    }
}
END_TEST

/* In order: the oldest, or the newest; what was drawn often enough is gone with its steps. */
START_TEST(goes_in_order)
{
    for (int is_newest = 0; is_newest < 2; is_newest++) {
        struct table_config config = usual(is_newest ? SELECTOR_LIFO : SELECTOR_FIFO);
        struct table_draw draws[3];
        struct table *t;

        config.max_times_sampled = 1;
        t = open_table(&config);
        for (int i = 0; i < 6; i++)
            (void)insert(t, i, NULL);
        for (int batch = 0; batch < 2; batch++) {
            table_sample(t, draws, 3);
            for (int i = 0; i < 3; i++) {
                int at = 3 * batch + i;

                ck_assert_int_eq(drawn_x(t, &draws[i]), is_newest ? 5 - at : at);
            }
            table_release(t, draws, 3);
        }
        ck_assert_uint_eq(t->order.n, 0);
        ck_assert_uint_eq(t->held_bytes, 0);
        ck_assert(!table_allows_sample(t, 1));
        table_close(t);
    }
}
END_TEST

/* Priorities are set all or none; of items that are gone, or of an epoch before, they are ignored.
 */
START_TEST(updates)
{
    struct table_config config = usual(SELECTOR_PRIORITIZED);
    double priorities[] = {5, NAN, 7};
    uint64_t keys[3];
    struct table *t;
    size_t n_applied;

    config.max_items = 3;
    t = open_table(&config);
    for (int i = 0; i < 3; i++)
        keys[i] = insert(t, i, NULL);
    ck_assert_int_eq(table_update(t, 1, keys, priorities, 3, &n_applied, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "priorities");
    ck_assert_double_eq(t->items[(uint32_t)keys[0]].priority, 0.0);
    priorities[1] = INFINITY;
    ck_assert_int_eq(table_update(t, 1, keys, priorities, 3, &n_applied, &err), STATUS_INVALID);
    priorities[1] = -6;
    ck_assert_int_eq(table_update(t, 2, keys, priorities, 3, &n_applied, &err), STATUS_OK);
    ck_assert_uint_eq(n_applied, 0);
    ck_assert_uint_ne(insert(t, 3, NULL), keys[0]); /* in the oldest's place */
    ck_assert_int_eq(table_update(t, 1, keys, priorities, 3, &n_applied, &err), STATUS_OK);
    ck_assert_uint_eq(n_applied, 2);
    ck_assert_double_eq(t->items[(uint32_t)keys[0]].priority, 0.0);
    ck_assert_double_eq(t->items[(uint32_t)keys[1]].priority, -6.0);
    ck_assert_double_eq(t->max_priority, 7.0);
    table_clear(t, 9);
    ck_assert_uint_eq(t->held_bytes, 0);
    ck_assert_int_eq(table_update(t, 9, keys, priorities, 3, &n_applied, &err), STATUS_OK);
    ck_assert_uint_eq(n_applied, 0);
    table_close(t);
}
END_TEST

/* Items share a chunk, which goes with the last of them; several slices are one item. */
START_TEST(shares_steps)
{
    struct table_config config = usual(SELECTOR_FIFO);
    struct table_slice slices[2];
    struct table_draw draw;
    struct table *t;
    uint64_t key;
    size_t with_chunks, n;

    config.max_times_sampled = 1;
    t = open_table(&config);
    slices[0] = (struct table_slice){chunk_of(t, 0, 10), 4, 6};
    slices[1] = (struct table_slice){chunk_of(t, 10, 10), 0, 2};
    with_chunks = t->held_bytes;
    ck_assert_int_eq(table_insert(t, slices, 2, NULL, &key, &err), STATUS_OK);
    ck_assert_int_eq(table_insert(t, &slices[1], 1, NULL, &key, &err), STATUS_OK);
    table_chunk_unref(slices[0].chunk);
    table_chunk_unref(slices[1].chunk);
    ck_assert_uint_gt(t->held_bytes, with_chunks);
    table_sample(t, &draw, 1);
    ck_assert_uint_eq(draw.n_steps, 8);
    ck_assert_uint_eq(table_slices(t, draw.slot, &n)[1].n_steps, 2);
    ck_assert_uint_eq(n, 2);
    table_release(t, &draw, 1);
    ck_assert_uint_lt(t->held_bytes, with_chunks);
    ck_assert_uint_gt(t->held_bytes, 0);
    table_sample(t, &draw, 1);
    ck_assert_int_eq(drawn_x(t, &draw), 10);
    table_release(t, &draw, 1);
    ck_assert_uint_eq(t->held_bytes, 0);
    table_close(t);
}
END_TEST

/* Bytes and items stay below their bounds; what can never be held is refused, and so is what would
 * need the room of chunks that streams hold. */
START_TEST(holds_bounds)
{
    struct table_config config = usual(SELECTOR_UNIFORM);
    struct table_chunk *kept[40], *more;
    struct table *t;
    size_t n = 0;

    config.max_bytes = 10000;
    t = open_table(&config);
    for (int i = 0; i < 2000; i++) {
        (void)insert(t, i, NULL);
        ck_assert_uint_le(t->held_bytes, 10000);
    }
    ck_assert_uint_gt(t->held_bytes, 9000);
    ck_assert_uint_lt(t->order.n, 100);
    ck_assert_int_eq(table_chunk_make(&more, t, 10000, &err), STATUS_RANGE);
    ck_assert_int_eq(table_chunk_make(&more, t, SIZE_MAX, &err), STATUS_RANGE);
    while (table_chunk_make(&kept[n], t, 40, &err) == STATUS_OK)
        ck_assert_uint_lt(++n, 40);
    ck_assert_int_eq(err.status, STATUS_EXHAUSTED);
    ck_assert_str_eq(err.field, "chunks");
    ck_assert_uint_eq(t->order.n, 0);
    while (n > 0)
        table_chunk_unref(kept[--n]);
    ck_assert_uint_eq(t->held_bytes, 0);
    table_close(t);
    config.max_bytes = 100;
    ck_assert_int_eq(table_open(&t, &config, 1, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "max_bytes");
}
END_TEST

/* --- waiting: random schedules beside a model --- */

enum { N_WAITS = 6 };

static struct {
    struct replays all;
    struct table *t;
    uint64_t now_us;
    struct alarm alarm;
    struct waiter {
        struct table_wait wait;
        int32_t x;
        bool waits;
        uint64_t until_us;
    } waiters[N_WAITS];
    int32_t next_x;
    size_t n_inserted, n_sampled, n_late, n_left;
} s;

static uint64_t fake_now(void *self)
{
    return s.now_us;
}

static void fake_random(void *self, void *out, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)pick(256);
}

/* What is allowed is done at once, as the service does it. */
static void waiter_act(struct waiter *w)
{
    struct table_draw draws[4];
    size_t n = w->wait.n_samples;

    if (w->wait.is_insert) {
        s.n_inserted++;
        (void)insert(s.t, s.next_x++, NULL);
        return;
    }
    ck_assert_uint_ge(s.t->order.n, s.t->config.limiter.min_size);
    s.n_sampled += n;
    table_sample(s.t, draws, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_lt(drawn_x(s.t, &draws[i]), s.next_x);
    table_release(s.t, draws, n);
}

static void on_waited(struct future *f, const struct error *why, void *arg)
{
    struct waiter *w = arg;

    ck_assert(w->waits);
    w->waits = false;
    if (why->status == STATUS_OK) {
        waiter_act(w);
        return;
    }
    ck_assert_int_eq(why->status, STATUS_DEADLINE);
    ck_assert_uint_ge(s.now_us, w->until_us);
    s.n_late++;
}

static void waiter_begin(struct waiter *w)
{
    unsigned timeout_ms = pick(3) == 0 ? 1 + pick(20) : 0;
    bool is_allowed;

    w->wait = (struct table_wait){.is_insert = pick(2) == 0, .n_samples = 1 + pick(4)};
    is_allowed =
        w->wait.is_insert ? table_allows_insert(s.t) : table_allows_sample(s.t, w->wait.n_samples);
    if (is_allowed) {
        waiter_act(w);
        return;
    }
    w->waits = true;
    w->until_us = timeout_ms == 0 ? UINT64_MAX : s.now_us + timeout_ms * 1000;
    replays_wait(&s.all, s.t, &w->wait, timeout_ms, on_waited, w);
}

/* The one that waits longest of its kind is never one that is allowed, inserts and samples never
 * wait for each other, and nobody waits past its deadline. */
static void check_waits(void)
{
    size_t n_heads = 0;

    for (size_t i = 0; i < N_WAITS; i++) {
        const struct waiter *w = &s.waiters[i];

        if (!w->waits)
            continue;
        ck_assert_uint_gt(w->until_us, s.now_us);
        if (w->wait.is_insert && list_first(&s.t->inserters) == &w->wait.link) {
            n_heads++;
            ck_assert(!limiter_allows_insert(&s.t->limiter, s.t->order.n));
        }
        if (!w->wait.is_insert && list_first(&s.t->samplers) == &w->wait.link) {
            bool has_too_few =
                s.t->config.max_times_sampled > 0 && s.t->order.n < w->wait.n_samples;

            n_heads++;
            ck_assert(has_too_few ||
                      !limiter_allows_sample(&s.t->limiter, s.t->order.n, w->wait.n_samples));
        }
    }
    ck_assert_uint_lt(n_heads, 2);
}

static void run_schedule(uint64_t seed)
{
    const struct env env = {.now_us = fake_now, .random = fake_random};
    const struct replays_config all = {
        .env = &env, .max_bytes = 2 << 20, .keeping = &replays_keeper, .alarm = &s.alarm};
    static const struct principal owner = {.id = 1, .name = "ann"};
    const struct error gone = {.status = STATUS_NOT_FOUND};
    struct table_config config =
        usual((enum selector_kind)(seed % 2 == 0 ? SELECTOR_UNIFORM : SELECTOR_PRIORITIZED));

    chance = seed * 0x9E3779B97F4A7C15u;
    s.alarm = (struct alarm){.tick = replays_tick, .owner = &s.all};
    replays_init(&s.all, &all);
    config.max_items = 5 + pick(20);
    config.max_times_sampled = pick(3) == 0 ? 4 : 0;
    config.limiter = (struct limiter_config){1 + pick(5), 1 + pick(3), -2, 6 + pick(8)};
    ck_assert_int_eq(
        replays_make(&s.t, &s.all, &owner, "t", &config, &(struct access_sharing){0}, &err),
        STATUS_OK);
    for (size_t step = 0; step < 400; step++) {
        struct waiter *w = &s.waiters[pick(N_WAITS)];

        if (!w->waits) {
            waiter_begin(w);
        } else if (pick(4) == 0) {
            w->waits = false;
            s.n_left++;
            table_leave(&w->wait);
        }
        if (pick(50) == 0)
            replays_clear(&s.all, s.t);
        s.now_us += pick(3000);
        if (s.alarm.at_us != 0 && s.alarm.at_us <= s.now_us)
            alarm_ring(&s.alarm);
        check_waits();
        ck_assert_uint_le(s.t->order.n, config.max_items);
    }
    for (size_t i = 0; i < N_WAITS; i++)
        if (s.waiters[i].waits)
            table_leave(&s.waiters[i].wait);
    memset(s.waiters, 0, sizeof(s.waiters));
    replays_delete(&s.all, s.t, &gone);
    ck_assert_uint_eq(s.all.bytes.held, 0);
    replays_deinit(&s.all);
}

START_TEST(waits_and_goes_on)
{
    for (uint64_t seed = 1; seed <= 100; seed++)
        run_schedule(seed);
    /* All of it happened. */
    ck_assert_uint_gt(s.n_inserted, 2000);
    ck_assert_uint_gt(s.n_sampled, 2000);
    ck_assert_uint_gt(s.n_late, 50);
    ck_assert_uint_gt(s.n_left, 500);
}
END_TEST

/* --- checkpoints --- */

enum { N_PARTS_MAX = 256 };

struct parts {
    struct buf bufs[N_PARTS_MAX];
    size_t n;
};

static void parts_free(struct parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        buf_deinit(&p->bufs[i]);
}

/* The next part; false: there is none. */
static bool take_part(struct parts *p, struct table *from)
{
    struct body_writer w = {.out = &p->bufs[p->n]};

    ck_assert_uint_lt(p->n, N_PARTS_MAX);
    buf_init(&p->bufs[p->n], (size_t)8 << 20);
    body_put_u32(&w, 1);
    table_walk_part(from, &w, 1 << 17);
    ck_assert_int_eq(body_written(&w, &err), STATUS_OK);
    if (p->bufs[p->n].len > 4) {
        p->n++;
        return true;
    }
    buf_deinit(&p->bufs[p->n]);
    return false;
}

static enum status put_part(struct table *to, const void *bytes, size_t size_bytes)
{
    struct arena arena;
    struct body_reader r;
    enum status rc;

    arena_init(&arena, (size_t)1 << 20);
    r = body_begin(bytes, size_bytes, 1, &arena);
    rc = table_restore_part(to, &r, &err);
    arena_deinit(&arena);
    return rc;
}

static struct table *restored(const struct table *from, const struct parts *p)
{
    struct table *t;

    ck_assert_int_eq(table_open(&t, &from->config, 2, &err), STATUS_OK);
    ck_assert_int_eq(table_restore_begin(t, &from->kept_counters, &err), STATUS_OK);
    for (size_t i = 0; i < p->n; i++)
        ck_assert_int_eq(put_part(t, p->bufs[i].data, p->bufs[i].len), STATUS_OK);
    ck_assert_int_eq(table_restore_end(t, &err), STATUS_OK);
    return t;
}

static struct table *kept_table(enum selector_kind sampler)
{
    static const struct table_column column = {.name = "x", .type = TENSOR_U8, .step_bytes = 100};
    const struct table_config config = {
        .max_items = 300,
        .max_bytes = 1 << 20,
        .sampler = sampler,
        .remover = SELECTOR_UNIFORM,
        .alpha = 0.6,
        .epsilon = 0.01,
        .limiter = {.min_size = 1},
        .seed = 543,
        .columns = &column,
        .n_columns = 1,
    };
    struct table *t;

    ck_assert_int_eq(table_open(&t, &config, 1, &err), STATUS_OK);
    return t;
}

/* A chunk of three steps, and an item of two slices of it; now and then priorities change. */
static void change(struct table *t, unsigned number)
{
    const double priority = pick(100);
    struct table_chunk *c;
    uint64_t key;
    size_t n_applied;

    ck_assert_int_eq(table_chunk_make(&c, t, 3, &err), STATUS_OK);
    memset(c->data, (int)(number & 0xff), 300);
    ck_assert_int_eq(table_insert(t, (const struct table_slice[]){{c, 2, 1}, {c, 0, 2}}, 2,
                                  &priority, &key, &err),
                     STATUS_OK);
    table_chunk_unref(c);
    if (pick(3) == 0) {
        const double other = pick(50);

        ck_assert_int_eq(table_update(t, t->epoch, &key, &other, 1, &n_applied, &err), STATUS_OK);
    }
}

static void draw(struct table *t, struct table_draw *draws, size_t n)
{
    ck_assert(table_allows_sample(t, n));
    table_sample(t, draws, n);
    table_release(t, draws, n);
}

/* The item's first byte, its priority, and how often it was drawn, are the same in both. */
static void check_same_draws(struct table *a, struct table *b)
{
    struct table_draw x[8], y[8];
    size_t n_x, n_y;

    draw(a, x, 8);
    draw(b, y, 8);
    for (size_t i = 0; i < 8; i++) {
        const struct table_slice *of_x = table_slices(a, x[i].slot, &n_x);
        const struct table_slice *of_y = table_slices(b, y[i].slot, &n_y);

        ck_assert_uint_eq(x[i].slot, y[i].slot);
        ck_assert_double_eq(x[i].priority, y[i].priority);
        ck_assert_double_eq(x[i].probability, y[i].probability);
        ck_assert_uint_eq(x[i].times_sampled, y[i].times_sampled);
        ck_assert_uint_eq(n_x, n_y);
        ck_assert_mem_eq(of_x[0].chunk->data, of_y[0].chunk->data, 300);
    }
}

/* A table that was read again goes on as the one that was written: the same draws, inserts that
 * make the same room, the same counters, and the same bytes held. */
START_TEST(goes_on_from_checkpoint)
{
    static const enum selector_kind samplers[] = {SELECTOR_UNIFORM, SELECTOR_FIFO, SELECTOR_LIFO,
                                                  SELECTOR_PRIORITIZED};

    for (size_t i = 0; i < sizeof(samplers) / sizeof(samplers[0]); i++) {
        struct table *t = kept_table(samplers[i]), *again;
        struct parts parts = {0};
        struct table_draw draws[8];

        chance = 543;
        for (unsigned k = 0; k < 1000; k++)
            change(t, k);
        draw(t, draws, 8);
        table_walk_begin(t);
        while (take_part(&parts, t))
            ;
        table_walk_end(t);
        again = restored(t, &parts);
        ck_assert_uint_eq(again->order.n, 300);
        ck_assert_uint_eq(again->held_bytes, t->held_bytes);
        ck_assert_uint_eq(again->limiter.n_inserted, 1000);
        ck_assert_uint_eq(again->limiter.n_sampled, 8);
        ck_assert_double_eq(again->max_priority, t->max_priority);
        for (unsigned k = 0; k < 100; k++) {
            const uint64_t before = chance;

            change(t, k);
            chance = before;
            change(again, k);
            check_same_draws(t, again);
        }
        parts_free(&parts);
        table_close(t);
        table_close(again);
    }
}
END_TEST

/* While a checkpoint is written the table goes on: what is read holds no item twice, none whose
 * steps it lacks, no more than the bounds, and as many as the counters say where none was removed.
 */
START_TEST(writes_while_it_changes)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct table *t = kept_table(SELECTOR_PRIORITIZED), *again;
        struct parts parts = {0};

        chance = seed;
        t->config.max_items = seed % 2 == 0 ? 300 : 100000;
        t->config.max_bytes = (size_t)32 << 20;
        for (unsigned k = 0; k < 4000; k++)
            change(t, k);
        table_walk_begin(t);
        while (take_part(&parts, t)) {
            for (unsigned n = pick(300), k = 0; k < n; k++)
                change(t, k);
            if (pick(20) == 0)
                table_clear(t, 1);
        }
        table_walk_end(t);
        again = restored(t, &parts);
        ck_assert_uint_le(again->order.n, t->config.max_items);
        if (seed % 2 != 0 && again->limiter.n_inserted >= 4000)
            ck_assert_uint_eq(again->order.n, again->limiter.n_inserted);
        for (uint32_t slot = again->order.oldest; slot != SELECTOR_NONE;
             slot = selector_next(&again->order, SELECTOR_FIFO, slot)) {
            size_t n;
            const struct table_slice *slices = table_slices(again, slot, &n);

            ck_assert_uint_eq(n, 2);
            ck_assert_uint_eq(slices[0].chunk->data[0], slices[0].chunk->data[299]);
        }
        parts_free(&parts);
        table_close(t);
        table_close(again);
    }
}
END_TEST

/* Bytes that are not what was written are refused, or make a table that can be used and closed. */
START_TEST(refuses_damaged_parts)
{
    struct table *t = kept_table(SELECTOR_PRIORITIZED), *again;
    struct parts parts = {0};
    size_t n_refused = 0;

    chance = 543;
    for (unsigned k = 0; k < 20; k++)
        change(t, k);
    table_walk_begin(t);
    while (take_part(&parts, t))
        ;
    table_walk_end(t);
    for (size_t round = 0; round < 1000; round++) {
        enum status rc = STATUS_OK;

        ck_assert_int_eq(table_open(&again, &t->config, 2, &err), STATUS_OK);
        ck_assert_int_eq(table_restore_begin(again, &t->kept_counters, &err), STATUS_OK);
        for (size_t i = 0; i < parts.n && rc == STATUS_OK; i++) {
            const struct buf *part = &parts.bufs[i];
            size_t len = pick(4) == 0 ? pick((unsigned)part->len) : part->len;
            unsigned char *bytes = xalloc(part->len);

            memcpy(bytes, part->data, part->len);
            bytes[pick((unsigned)part->len)] ^= (unsigned char)(1u << pick(8));
            rc = put_part(again, bytes, len);
            free(bytes);
        }
        if (rc == STATUS_OK)
            rc = table_restore_end(again, &err);
        if (rc == STATUS_OK && again->order.n > 0) {
            struct table_draw one;

            draw(again, &one, 1);
        }
        n_refused += rc != STATUS_OK;
        table_restore_free(again);
        table_close(again);
    }
    ck_assert_uint_gt(n_refused, 200);
    parts_free(&parts);
    table_close(t);
}
END_TEST

/* Empty tables that reserve all of the bytes leave the other half to others; a table that was there
 * before stays. */
START_TEST(reserves_half)
{
    const struct env env = {.now_us = fake_now, .random = fake_random};
    const struct replays_config config = {
        .env = &env, .max_bytes = 8 << 20, .keeping = &replays_keeper, .alarm = &s.alarm};
    static const struct principal ann = {.id = 1, .name = "ann"}, bob = {.id = 2, .name = "bob"};
    const struct access_sharing nobody = {0};
    struct table_config each = usual(SELECTOR_UNIFORM);
    struct table *t;
    char name[12];

    replays_init(&s.all, &config);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        ck_assert_int_eq(replays_make(&t, &s.all, &ann, name, &each, &nobody, &err), STATUS_OK);
    }
    ck_assert_int_eq(replays_make(&t, &s.all, &ann, "4", &each, &nobody, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "half of the limit of 8388608 bytes of tables"));
    ck_assert_ptr_nonnull(strstr(err.text, "--replay-bytes"));
    ck_assert_int_eq(replays_make(&t, &s.all, &ann, "3", &each, &nobody, &err), STATUS_EXISTS);
    ck_assert_int_eq(replays_add(&t, &s.all, &ann, "kept", &each, &nobody, false, &err), STATUS_OK);
    each.max_bytes = (4 << 20) + 1;
    ck_assert_int_eq(replays_make(&t, &s.all, &bob, "0", &each, &nobody, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "half of --replay-bytes"));
    each.max_bytes = 3 << 20;
    ck_assert_int_eq(replays_make(&t, &s.all, &bob, "0", &each, &nobody, &err), STATUS_OK);
    each.max_bytes = 1 << 20;
    ck_assert_int_eq(replays_make(&t, &s.all, &bob, "1", &each, &nobody, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_null(strstr(err.text, "half"));
    replays_deinit(&s.all);
}
END_TEST

SUITE_MAIN("server/replay", finds_weights, keeps_sums, never_stalls, refuses_limiters, weighs,
           draws_by_priority, repeats_draws, goes_in_order, updates, shares_steps, holds_bounds,
           waits_and_goes_on, goes_on_from_checkpoint, writes_while_it_changes,
           refuses_damaged_parts, reserves_half)
