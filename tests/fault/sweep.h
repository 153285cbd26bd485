/* Lets the first, second, … fault point of a piece of work fail in turn, until none is left. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include <check.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/status.h"

/* Every n-th point only, where all of them take too long (PARLEY_FAULT_STRIDE, 1): under a
 * sanitizer that finds what threads do to each other, and these are alone. */
static inline long sweep_stride(void)
{
    const char *text = getenv("PARLEY_FAULT_STRIDE");
    long n = text != NULL ? strtol(text, NULL, 10) : 1;

    return n > 1 ? n : 1;
}

/* once does the whole work anew, cleans up whatever came of it, and returns how it ended: OK, or
 * EXHAUSTED when a fault hit it. Returns the number of fault points. A fault that the work gets
 * over by itself is OK too. */
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
