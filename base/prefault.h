/* A thread that touches memory before steps need it, so that they do not wait for page faults. It
 * runs at full speed while no step runs, and slowly while steps run. */
#ifndef BASE_PREFAULT_H
#define BASE_PREFAULT_H

#include <stdbool.h>

struct prefault;

/* Does a part of the work, milliseconds at most; while steps run (is_busy), only what they need
 * soon. Returns whether work is left. Called on this thread. */
typedef bool (*prefault_fn)(void *arg, bool is_busy);

/* NULL: no thread could be started; nothing is prefaulted then. */
struct prefault *prefault_start(prefault_fn fn, void *arg);

/* A step runs now. Any thread. NULL is allowed here and below. */
void prefault_notice(struct prefault *p);

/* Joins the thread: fn is not called any more. */
void prefault_stop(struct prefault *p);

#endif
