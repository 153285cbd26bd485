/* Ends the process where a step of its orderly stop hangs. One a process. Loop. */
#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <stdbool.h>
#include <unistd.h>

enum { WATCHED_SECONDS = 10, WATCHED_MS = 10000 }; /* for steps that take milliseconds */

/* SIGALRM comes in WATCHED_SECONDS, and main.c ends the process; off: it does not come. gRPC core
 * (1.51) waits for ever for an own thread that it could not start. */
static inline void watchdog_set(bool is_on)
{
    (void)alarm(is_on ? WATCHED_SECONDS : 0);
}

#endif
