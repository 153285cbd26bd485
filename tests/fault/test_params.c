/* Parameter sets when memory fails: a refused operation is EXHAUSTED and leaves nothing behind, and
 * a successful one is right. */
#include "tests/fault/sweep.h"
#include "tests/support/params_rig.h"
#include "tests/unit/base/suite.h"

/* Makes a set, contributes twice, pushes once, and contributes without a gradient. */
static enum status train(void *arg)
{
    const struct params_spec spec = {
        .optim = {.momentum = 0.5f}, .schedule = {.rate = 1.0}, .round_size = 1, .dedupe = true};
    enum status rc = STATUS_OK;
    struct params_gradient *g;
    struct params_rig r;
    struct params_set *set;

    rig_open(&r, 1000);
    set = rig_make(&r, spec);
    if (set == NULL)
        rc = r.err.status;
    for (uint64_t step = 1; step <= 2 && rc == STATUS_OK; step++)
        rc = rig_contribute(&r, set, "a", step, 1.0f);
    if (rc == STATUS_OK) {
        ck_assert(params_current(set->model->agent)->values[0] == -2.5f);
        g = rig_gradient(&r, set, "b", 1, 1.0f);
        if (g == NULL)
            rc = r.err.status;
        else
            params_push(set, g); /* no result, refused or not */
    }
    if (rc == STATUS_OK) {
        g = rig_gradient(&r, set, "c", 1, 1.0f);
        rc = g == NULL ? r.err.status : STATUS_OK;
    }
    if (rc == STATUS_OK) {
        const float before = params_current(set->model->agent)->values[0];

        g->skips = xalloc(sizeof(g->skips[0]));
        g->skips[0] = true;
        r.waiter = (struct update_waiter){.settled = rig_settled};
        r.is_told = false;
        rc = params_submit(set, g, 0, &r.waiter, &r.err);
        if (rc == STATUS_OK) {
            rig_until_told(&r);
            rc = r.end.err.status;
        }
        if (rc == STATUS_OK &&
            r.end.counted_in == 3) /* the pushed one was refused, or comes later */
            ck_assert(params_current(set->model->agent)->values[0] == before);
    }
    rig_close(&r);
    return rc;
}

START_TEST(test_train)
{
    ck_assert_int_gt(sweep(train, NULL), 30);
}
END_TEST

SUITE_MAIN("fault/params", test_train)
