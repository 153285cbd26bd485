/* Tells the service manager (systemd) how the daemon is, by the protocol of sd_notify(3): datagrams
 * to the socket that NOTIFY_SOCKET names. Without that variable nothing is sent. Loop. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "base/status.h"

struct notifier {
    int fd; /* -1: none */
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ms; /* between two signs of life; 0: none are wanted */
    uv_timer_t watchdog;
};

/* Opens the socket. The texts are the values of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, or
 * NULL for a variable that is not set; they are not kept. With a watchdog the loop sends two signs
 * of life in the watchdog's time from now on. A wrong value counts as not set, because a manager
 * that misses its message says so itself. */
void notifier_open(struct notifier *n, uv_loop_t *loop, const char *path, const char *watchdog_us,
                   const char *watchdog_pid);
/* Closes the socket and the timer. The timer is closed in the loop's next iteration. */
void notifier_close(struct notifier *n);

/* Sends lines like "READY=1\nSTATUS=…". Lines that the socket does not take at once are lost. */
void notifier_send(struct notifier *n, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
