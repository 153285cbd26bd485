#include "server/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"

enum { MESSAGE_MAX_BYTES = 1024 };

/* A whole number above 0; 0 for any other text. */
static uint64_t whole_number(const char *text)
{
    uint64_t n;

    return text != NULL && number_read(&n, text, UINT64_MAX) ? n : 0;
}

/* /path, or @name of the abstract namespace. */
static void notifier_connect(struct notifier *n, const char *path)
{
    size_t len = path != NULL ? strlen(path) : 0;

    if (len < 2 || len >= sizeof(n->to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, len);
    if (path[0] == '@')
        n->to.sun_path[0] = '\0';
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void on_watchdog(uv_timer_t *timer)
{
    notifier_send(timer->data, "WATCHDOG=1");
}

void notifier_open(struct notifier *n, uv_loop_t *loop, const char *path, const char *watchdog_us,
                   const char *watchdog_pid)
{
    *n = (struct notifier){.fd = -1};
    notifier_connect(n, path);
    (void)uv_timer_init(loop, &n->watchdog); /* cannot fail */
    n->watchdog.data = n;
    if (n->fd < 0 || (watchdog_pid != NULL && whole_number(watchdog_pid) != (uint64_t)getpid()))
        return;
    n->watchdog_ms = whole_number(watchdog_us) / 2000;
    if (n->watchdog_ms > 0)
        (void)uv_timer_start(&n->watchdog, on_watchdog, n->watchdog_ms,
                             n->watchdog_ms); /* fails only when closing */
}

void notifier_close(struct notifier *n)
{
    if (n->fd >= 0)
        (void)close(n->fd); /* nothing is buffered */
    n->fd = -1;
    uv_close((uv_handle_t *)&n->watchdog, NULL);
}

void notifier_send(struct notifier *n, const char *fmt, ...)
{
    char text[MESSAGE_MAX_BYTES];
    va_list args;
    int len;

    if (n->fd < 0)
        return;
    va_start(args, fmt);
    len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (len >= (int)sizeof(text))
        len = (int)sizeof(text) - 1;
    if (len > 0)
        (void)!sendto(n->fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&n->to,
                      n->to_len); /* a manager that is gone needs no message */
}
