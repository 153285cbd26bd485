/* SIGTERM and SIGINT: the first is told to the loop, a second one ends the process within a second,
 * whatever any thread does.
 *
 * The handler counts, wakes the loop and arms a timer of the kernel; these are async-signal-safe
 * (uv_async_send by libuv's word), so the handler may interrupt anything. A signal to the process
 * goes to any thread that runs, so no single thread has to answer. When the timer expires, SIGALRM
 * comes the same way, and main.c's handler for it calls _exit, which runs nothing of ours and waits
 * for no thread. Nothing is lost by that: what a client was told is on the disk before it is told.
 *
 * One a process. Loop, but for the handler. */
#ifndef SERVER_STOP_SIGNAL_H
#define SERVER_STOP_SIGNAL_H

#include <stdint.h>
#include <uv.h>

#include "base/status.h"

/* told: on the loop, for each signal or several at once: the last one's number, and how many have
 * come since the start. */
enum status stop_signal_open(uv_loop_t *loop, void (*told)(void *arg, int number, unsigned n),
                             void *arg, struct error *err) MUST_CHECK;
/* The loop is told nothing more; a second signal still ends the process. The handle is closed in
 * the loop's next iteration. Without open it does nothing. */
void stop_signal_close(void);

/* How long the loop may take from the first signal to stop_signal_allow: a loop that is stuck is
 * then ended as by a second signal. */
void stop_signal_set_patience(uint64_t ms);
/* What follows may take ms at most, 0: as long as it takes. A second signal's second stays. */
void stop_signal_allow(uint64_t ms);

#endif
