/* Compiling in a process of its own: whatever fails, its job has one error, and nothing is left. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fault/sweep.h"
#include "tests/support/compile_rig.h"
#include "tests/unit/base/suite.h"

/* A fault is UNAVAILABLE or EXHAUSTED, and the same job passes afterwards. */
static enum status compile_twice(void *arg)
{
    struct compile_rig rig = {.vocab_fd = -1};
    const long after = fault_after;
    struct rig_job first, second;
    enum status rc;

    fault_after = -1;
    compile_rig_open(&rig);
    fault_after = after;
    compile_rig_job(&rig, &first, "a{3}");
    rc = compile_rig_submit(&rig, &first);
    if (rc == STATUS_OK) {
        compile_rig_await(&rig, &first);
        rc = first.err.status;
    }
    ck_assert(rc == STATUS_OK || rc == STATUS_UNAVAILABLE || rc == STATUS_EXHAUSTED);
    ck_assert_uint_eq(compiler_count(&rig.compiler).n_running, 0);
    free(first.bytes);
    compile_rig_job(&rig, &second, "b*");
    if (fault_after < 0) { /* it was hit */
        ck_assert_int_eq(compile_rig_submit(&rig, &second), STATUS_OK);
        compile_rig_await(&rig, &second);
        ck_assert_ptr_nonnull(second.bytes);
        free(second.bytes);
    }
    compile_rig_close(&rig);
    return rc == STATUS_UNAVAILABLE ? STATUS_EXHAUSTED : rc;
}

START_TEST(test_faults)
{
    ck_assert_int_ge(sweep(compile_twice, NULL), 5);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_faults};

    if (getenv("PARLEY_COMPILE") == NULL || access(getenv("PARLEY_COMPILE"), X_OK) != 0) {
        printf("the program parley-compile is not built\n");
        return 77;
    }
    return suite_run("fault_compile", tests, 1);
}
