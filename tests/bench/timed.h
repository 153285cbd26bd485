/* A backend that stands before another, passes every call on, and keeps the time that each operator
 * took, products by the weight they are with. Right for backends whose operators are done when they
 * return. */
#ifndef TESTS_BENCH_TIMED_H
#define TESTS_BENCH_TIMED_H

#include "compute/backend.h"

/* Borrows real until backend_close of this one, which leaves real open. */
struct backend *timed_open(struct backend *real);
/* Before a step that is measured, and after one whose times are those to print. */
void timed_reset(struct backend *b);
void timed_keep(struct backend *b);
/* One line: the operators' shares of the kept step, which took step_s, and what none of them took.
 */
void timed_print(const struct backend *b, double step_s);

#endif
