#include "server/telemetry/statistics.h"

#include <check.h>

#include "tests/support/fake_actor.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

/* A bucket includes its bound; values above all bounds are counted last. */
START_TEST(test_histogram)
{
    struct histogram h = {0};

    histogram_add(&h, &histogram_rows, 1, 1);
    histogram_add(&h, &histogram_rows, 2, 1);
    histogram_add(&h, &histogram_rows, 3, 2);
    histogram_add(&h, &histogram_rows, 5000, 1);
    ck_assert_uint_eq(h.counts[0], 1);
    ck_assert_uint_eq(h.counts[1], 1);
    ck_assert_uint_eq(h.counts[2], 2);
    ck_assert_uint_eq(h.counts[histogram_rows.n_bounds], 1);
    ck_assert_uint_eq(h.n, 5);
    ck_assert_uint_eq(h.sum, 1 + 2 + 6 + 5000);
}
END_TEST

/* A scale rises, and has a bucket above its last bound. */
START_TEST(test_scales)
{
    const struct histogram_scale *scales[] = {&histogram_times, &histogram_rows, &histogram_tokens};

    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_le(scales[i]->n_bounds, HISTOGRAM_MAX_BOUNDS);
        for (size_t k = 1; k < scales[i]->n_bounds; k++)
            ck_assert_uint_gt(scales[i]->bounds[k], scales[i]->bounds[k - 1]);
    }
}
END_TEST

/* Steps are counted by their rows, in a growing table. */
START_TEST(test_steps)
{
    struct statistics s = {0};

    statistics_step(&s, 2, 20, 100);
    statistics_step(&s, 7, 70, 300);
    statistics_step(&s, 2, 30, 150);
    ck_assert_uint_eq(s.n_by_rows, 7);
    ck_assert_uint_eq(s.by_rows[1].n, 2);
    ck_assert_uint_eq(s.by_rows[1].us, 250);
    ck_assert_uint_eq(s.by_rows[6].us, 300);
    ck_assert_uint_eq(s.by_rows[3].n, 0);
    ck_assert_uint_eq(s.n_steps, 3);
    ck_assert_uint_eq(s.n_rows, 11);
    ck_assert_uint_eq(s.n_cost, 120);
    ck_assert_uint_eq(s.step_rows.n, 3);
    ck_assert_uint_eq(s.step_cost.sum, 120);
    statistics_deinit(&s);
}
END_TEST

/* Every turn is counted once, by its outcome; the parts of its time add up to no more than the
 * total. */
START_TEST(test_turns)
{
    struct fake_server f;
    struct conversation *c;
    struct fake_reader r, behind;
    const struct statistics *s = &f.model.statistics;
    struct error err;

    fake_server_open(&f, "fake", 0, NULL);
    c = fake_conversation(&f);
    fake_turn_whole(&f, c, 1, "say 4", FINISH_STOP, "<0><1><2><3>");
    ck_assert_uint_eq(s->success.n, 1);
    ck_assert_uint_eq(s->n_open, 0);
    ck_assert_uint_gt(s->infer.us, 0);
    ck_assert_uint_le(s->queue.us + s->input.us + s->infer.us + s->output.us, s->success.us);
    ck_assert_uint_eq(s->ttft.n, 1);
    ck_assert_uint_eq(s->inter_token.n, 3);
    ck_assert_uint_eq(s->n_said, 4);
    ck_assert_uint_eq(s->last_us, f.now_us);

    fake_reader_init(&r);
    fake_reader_init(&behind);
    ck_assert_int_eq(fake_turn(c, 2, "refuse", &r, &err), STATUS_RANGE);
    ck_assert_uint_eq(s->refused[STATUS_RANGE], 1);
    ck_assert_int_eq(fake_turn(c, 2, "say 9", &r, &err), STATUS_OK);
    ck_assert_int_eq(fake_turn(c, 3, "say 1", &behind, &err), STATUS_OK);
    ck_assert_uint_eq(s->n_open, 2);
    ck_assert(fake_server_step(&f));
    ck_assert_uint_eq(conversation_cancel(c), 2);
    fake_server_run(&f);
    ck_assert_uint_eq(s->failed[STATUS_CANCELLED], 2);
    ck_assert_uint_eq(s->success.n, 1);
    ck_assert_uint_eq(s->fail.n, 3);
    ck_assert_uint_eq(s->n_open, 0);
    fake_reader_deinit(&r);
    fake_reader_deinit(&behind);

    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 0, "fail 2", &r, &err), STATUS_OK);
    fake_server_run(&f);
    ck_assert_uint_eq(s->fail.n, 4);
    ck_assert_uint_eq(s->success.n, 1);
    fake_reader_deinit(&r);
    fake_server_close(&f);
}
END_TEST

/* Steps of Act are counted like turns; a stored answer is not. */
START_TEST(test_acts)
{
    const struct sessions_config config = {0};
    struct fake_request r = {.env_id = "a", .run_id = 1, .seq = 1, .a = 1};
    struct fake_actor f;
    struct fake_step step;
    struct error err;

    ck_assert_int_eq(fake_actor_open(&f, &config, &err), STATUS_OK);
    ck_assert_int_eq(fake_step(&f, &step, &r, &err), STATUS_OK);
    ck_assert_uint_eq(f.model.statistics.n_open, 1);
    fake_actor_run(&f);
    ck_assert_uint_eq(f.model.statistics.success.n, 1);
    ck_assert_int_eq(fake_step(&f, &step, &r, &err), STATUS_OK);
    ck_assert_uint_eq(f.model.statistics.success.n, 1);
    r.seq = 9;
    ck_assert_int_eq(fake_step(&f, &step, &r, &err), STATUS_RANGE);
    ck_assert_uint_eq(f.model.statistics.refused[STATUS_RANGE], 1);
    r = (struct fake_request){.env_id = "a", .run_id = 1, .seq = 2, .a = 1};
    ck_assert_int_eq(fake_step(&f, &step, &r, &err), STATUS_OK);
    step_wait_leave(&step.wait);
    fake_actor_run(&f);
    ck_assert_uint_eq(f.model.statistics.failed[STATUS_CANCELLED], 1);
    ck_assert_uint_eq(f.model.statistics.n_open, 0);
    fake_actor_close(&f);
}
END_TEST

SUITE_MAIN("server/statistics", test_histogram, test_scales, test_steps, test_turns, test_acts)
