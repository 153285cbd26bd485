/* Lets the first, second, … fault point of a piece of work fail in turn, until none is left. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include <check.h>

#include "base/alloc.h"
#include "base/status.h"

/* once does the whole work anew, cleans up whatever came of it, and returns how it ended: OK, or
 * EXHAUSTED when a fault hit it. Returns the number of fault points. A fault that the work gets
 * over by itself is OK too. */
static inline long sweep(enum status (*once)(void *arg), void *arg)
{
    for (long n = 0;; n++) {
        enum status rc;
        long left;

        fault_after = n;
        rc = once(arg);
        left = fault_after;
        fault_after = -1;
        if (left >= 0) { /* not reached: there are n points */
            ck_assert_int_eq(rc, STATUS_OK);
            return n;
        }
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
}

#endif
