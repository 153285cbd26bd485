/* The thread pool: threads that share one operator's work. The calling thread is one of them; the
 * others spin for a moment after an operator, since the next one usually follows soon, and then
 * sleep. */
#ifndef COMPUTE_CPU_THREAD_POOL_H
#define COMPUTE_CPU_THREAD_POOL_H

#include <stddef.h>

#include "base/status.h"

struct thread_pool;

/* Does items begin … end - 1; each item is done once, on any thread. */
typedef void (*thread_pool_fn)(void *arg, size_t begin, size_t end);

/* n_threads counts the caller; 0: the physical cores this process may use. */
enum status thread_pool_open(struct thread_pool **out, size_t n_threads,
                             struct error *err) MUST_CHECK;
void thread_pool_close(struct thread_pool *p);
size_t thread_pool_size(const struct thread_pool *p);

/* Does items 0 … n - 1 and returns when all are done. Each thread begins with its own part of the
 * items, the same part for the same n each time, so that a row that it wrote in one operator is in
 * its cache in the next. A thread that has done its part takes items from the ends of the others'.
 * Pieces have at least about grain items, large ones first, so that a preempted thread delays the
 * others by one piece alone; n <= grain is done by the caller. One caller at a time. No allocation.
 */
void thread_pool_for(struct thread_pool *p, size_t n, size_t grain, thread_pool_fn fn, void *arg);

#endif
