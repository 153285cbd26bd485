#include "cli/output/interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int event_fd = -1;

static void on_signal(int number)
{
    int saved = errno;
    uint64_t one = 1;

    (void)!write(event_fd, &one, sizeof(one)); /* fails only if the counter has reached 2^64 - 1 */
    errno = saved;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (event_fd < 0)
        event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd < 0) {
        (void)fprintf(stderr, "parley: no file descriptor is left: %s\n", strerror(errno));
        abort();
    }
    (void)sigaction(SIGINT, &action, NULL); /* fails only for a wrong number */
}

void interrupt_release(void)
{
    (void)signal(SIGINT, SIG_DFL);
}

int interrupt_fd(void)
{
    return event_fd;
}

bool interrupt_take(void)
{
    uint64_t n;

    return event_fd >= 0 && read(event_fd, &n, sizeof(n)) == (ssize_t)sizeof(n);
}

bool interrupt_sleep(unsigned ms)
{
    struct pollfd fd = {.fd = event_fd, .events = POLLIN};

    return poll(&fd, 1, (int)ms) <= 0;
}
