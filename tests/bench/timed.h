/* A backend in front of another: it passes every call on and records each operator's time, of
 * matmuls by weight. Correct for backends whose operators are done when they return. */
#ifndef TESTS_BENCH_TIMED_H
#define TESTS_BENCH_TIMED_H

#include "compute/backend/backend.h"

/* Borrows real until backend_close of this one, which leaves real open. */
struct backend *timed_open(struct backend *real);
/* reset: before a measured step. keep: after a step whose times are to be printed. */
void timed_reset(struct backend *b);
void timed_keep(struct backend *b);
/* One line: the operators' shares of the kept step, which took step_s, and what none of them took.
 */
void timed_print(const struct backend *b, double step_s);

#endif
