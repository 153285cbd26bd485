/* A thread that does ahead of need what steps would else wait for, at full speed while nobody
 * computes, and little by little while somebody does. */
#ifndef COMPUTE_AHEAD_H
#define COMPUTE_AHEAD_H

#include <stdbool.h>

struct ahead;

/* Does a little, milliseconds at most; while others are busy, only of what they will need soon.
 * True: there is more to do. The thread's own. */
typedef bool (*ahead_fn)(void *arg, bool is_busy);

/* NULL: there is no thread to be had, and nothing is done ahead. */
struct ahead *ahead_start(ahead_fn fn, void *arg);

/* Somebody computes from now on. Any thread; a may be NULL, here and below. */
void ahead_notice(struct ahead *a);

/* Joins the thread: fn is not called any more. */
void ahead_stop(struct ahead *a);

#endif
