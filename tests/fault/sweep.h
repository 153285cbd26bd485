/* Fails the first, second, … fault point of a piece of work in turn, until none is left. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include <check.h>

#include "base/alloc.h"
#include "base/status.h"
#include "tests/support/stride.h"

/* Every so many fault points one is tried (PARLEY_FAULT_STRIDE, default 1): under sanitizers all
 * of them take too long. */
static inline long sweep_stride(void)
{
    return stride_of("PARLEY_FAULT_STRIDE");
}

/* once does the whole work anew, cleans up, and returns its status: OK, or EXHAUSTED when a fault
 * hit it; OK also if it recovered from the fault. Returns the number of fault points. */
static inline long sweep(enum status (*once)(void *arg), void *arg)
{
    for (long n = 0;; n += sweep_stride()) {
        enum status rc;
        long left;

        fault_after = n;
        rc = once(arg);
        left = fault_after;
        fault_after = -1;
        if (left >= 0) { /* not reached */
            ck_assert_int_eq(rc, STATUS_OK);
            return n - left;
        }
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
}

#endif
