/* The threads that share one operator's work. The caller is a member; the others spin for a moment
 * after an operator, since the next one is near, and sleep when none comes. */
#ifndef COMPUTE_CPU_TEAM_H
#define COMPUTE_CPU_TEAM_H

#include <stddef.h>

#include "base/status.h"

struct team;

/* Does items begin … end - 1; every item is done once, by any member. */
typedef void (*team_fn)(void *arg, size_t begin, size_t end);

/* n_threads counts the caller; 0: the physical cores this process may use. */
enum status team_open(struct team **out, size_t n_threads, struct error *err) MUST_CHECK;
void team_close(struct team *t);
size_t team_size(const struct team *t);

/* Does items 0 … n - 1 and returns when all are done. Each member begins with its own part of them,
 * the same of the same n each time, so that what it wrote of a row in one operator is in its cache
 * in the next; who is through helps the others from behind. Pieces are of at least about grain
 * items, large ones first, so that a member that is preempted delays the rest by its piece alone;
 * n <= grain is done by the caller. One caller at a time. No allocation. */
void team_for(struct team *t, size_t n, size_t grain, team_fn fn, void *arg);

#endif
