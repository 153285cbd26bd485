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

/* Handles the signals from now on. told is called on the loop, for one signal or for several at
 * once, with the number of the last signal and with how many signals have come since the start. */
enum status stop_signal_open(uv_loop_t *loop, void (*told)(void *arg, int number, unsigned n),
                             void *arg, struct error *err) MUST_CHECK;
/* Tells the loop nothing more; a second signal still ends the process. The handle is closed in the
 * loop's next iteration. Does nothing where stop_signal_open was not called. */
void stop_signal_close(void);

/* Sets how long the loop may take from the first signal to stop_signal_allow. A loop that takes
 * longer is stuck, and the process ends as by a second signal. */
void stop_signal_set_patience(uint64_t ms);
/* Allows the rest of the stop at most ms, or any time where ms is 0. A second signal still ends the
 * process within a second. */
void stop_signal_allow(uint64_t ms);

#endif
