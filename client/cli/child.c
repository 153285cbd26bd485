#include "client/cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { STOP_TIMEOUT_MS = 5000, READY_TIMEOUT_MS = 60 * 1000, MAX_ARGS = 32 };

/* In the child: never returns. Only what may be called between fork and exec. */
static void become(char *const *argv, int pipe_fd, int stream)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(pipe_fd, stream) >= 0)
        (void)execvp(argv[0], argv);
    _exit(127);
}

enum status child_start(struct child *out, char *const *argv, enum child_reads reads,
                        struct error *err)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no pipe for %s: %s", argv[0], strerror(errno));
    pid = fork();
    if (pid == 0)
        become(argv, fds[1], reads == CHILD_READS_STDOUT ? STDOUT_FILENO : STDERR_FILENO);
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return error_set(err, STATUS_EXHAUSTED, "cannot start %s: %s", argv[0], strerror(errno));
    }
    *out = (struct child){.pid = pid, .fd = fds[0]};
    return STATUS_OK;
}

/* Takes the first line out of what was read; false while there is none. */
static bool take_line(struct child *c, bool is_end, char *line, size_t size)
{
    char *end = memchr(c->line, '\n', c->n_line);
    size_t n, n_taken;

    if (end == NULL && c->n_line < sizeof c->line && !(is_end && c->n_line > 0))
        return false;
    n = end != NULL ? (size_t)(end - c->line) : c->n_line;
    n_taken = end != NULL ? n + 1 : n;
    (void)snprintf(line, size, "%.*s", (int)n, c->line);
    memmove(c->line, c->line + n_taken, c->n_line - n_taken);
    c->n_line -= n_taken;
    return true;
}

enum status child_line(struct child *c, char *line, size_t size, uint32_t timeout_ms,
                       struct error *err)
{
    uint64_t end_ms = clock_ms() + timeout_ms;
    bool is_end = false;

    while (!take_line(c, is_end, line, size)) {
        struct pollfd wait = {.fd = c->fd, .events = POLLIN};
        uint64_t now = clock_ms();
        ssize_t n;

        if (is_end)
            return error_set(err, STATUS_UNAVAILABLE, "the process says no more");
        if (now >= end_ms)
            return error_set(err, STATUS_DEADLINE, "the process said nothing for %u ms",
                             timeout_ms);
        if (poll(&wait, 1, (int)(end_ms - now)) <= 0)
            continue;
        n = read(c->fd, c->line + c->n_line, sizeof c->line - c->n_line);
        if (n > 0)
            c->n_line += (size_t)n;
        else if (n == 0 || errno != EINTR)
            is_end = true;
    }
    return STATUS_OK;
}

/* Waits for its end and forgets it; how it ended, as wait4 tells. */
static int reap(struct child *c, struct rusage *usage)
{
    int how = 0;

    while (wait4(c->pid, &how, 0, usage) < 0 && errno == EINTR)
        ;
    if (c->fd >= 0)
        (void)close(c->fd);
    *c = (struct child){.fd = -1};
    return how;
}

enum status child_wait(struct child *c, struct rusage *usage, struct error *err)
{
    int how = reap(c, usage);

    if (WIFSIGNALED(how))
        return error_set(err, STATUS_ABORTED, "a process was ended by signal %d (%s)",
                         WTERMSIG(how), strsignal(WTERMSIG(how)));
    if (WEXITSTATUS(how) != 0)
        return error_set(err, STATUS_ABORTED, "a process ended with %d", WEXITSTATUS(how));
    return STATUS_OK;
}

void child_stop(struct child *c, struct rusage *usage)
{
    struct pollfd wait = {.fd = c->fd, .events = POLLIN};
    uint64_t end_ms = clock_ms() + STOP_TIMEOUT_MS;

    if (c->pid == 0)
        return;
    (void)kill(c->pid, SIGTERM); /* not there: it is waited for all the same */
    /* The pipe hangs up when it ends; what it still prints is thrown away. */
    for (uint64_t now = clock_ms(); now < end_ms; now = clock_ms()) {
        char drop[256];

        if (poll(&wait, 1, (int)(end_ms - now)) > 0 && read(c->fd, drop, sizeof drop) <= 0)
            break;
    }
    if (clock_ms() >= end_ms)
        (void)kill(c->pid, SIGKILL);
    (void)reap(c, usage); /* how it ended does not matter here */
}

enum status child_path(char out[CHILD_PATH_MAX], const char *name, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, CHILD_PATH_MAX - 1);
    char *slash;

    if (n <= 0)
        return error_set(err, STATUS_UNKNOWN, "cannot tell where this program lies: %s",
                         strerror(errno));
    out[n] = '\0';
    if (name == NULL)
        return STATUS_OK;
    slash = strrchr(out, '/');
    if ((size_t)(slash + 1 - out) + strlen(name) >= CHILD_PATH_MAX)
        return error_set(err, STATUS_UNKNOWN, "the path of %s is too long", name);
    (void)snprintf(slash + 1, CHILD_PATH_MAX - (size_t)(slash + 1 - out), "%s", name);
    if (access(out, X_OK) != 0)
        (void)snprintf(out, CHILD_PATH_MAX, "%s", name);
    return STATUS_OK;
}

enum status served_start(struct served *out, const char *const *flags, size_t n_flags,
                         struct error *err)
{
    static const char ready[] = "ready grpc=";
    char path[CHILD_PATH_MAX], line[512] = "", last[512] = "";
    char *argv[MAX_ARGS + 1] = {path, (char *)"--listen", (char *)"127.0.0.1:0"};
    enum status rc = child_path(path, "parleyd", err);
    size_t n = 3;

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < n_flags && n < MAX_ARGS; i++)
        argv[n++] = (char *)flags[i];
    rc = child_start(&out->child, argv, CHILD_READS_STDERR, err);
    while (rc == STATUS_OK && strncmp(line, ready, sizeof ready - 1) != 0) {
        (void)snprintf(last, sizeof last, "%s", line);
        rc = child_line(&out->child, line, sizeof line, READY_TIMEOUT_MS, err);
    }
    if (rc == STATUS_OK) {
        (void)sscanf(line + sizeof ready - 1, "%63s", out->address);
        return STATUS_OK;
    }
    child_stop(&out->child, NULL);
    return error_set(err, STATUS_UNAVAILABLE, "parleyd did not start%s%s",
                     last[0] != '\0' ? ": " : "", last);
}

void served_stop(struct served *s, struct rusage *usage)
{
    child_stop(&s->child, usage);
}
