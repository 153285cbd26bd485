#include "cli/subprocess.h"

#include <assert.h>
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

enum { STOP_TIMEOUT_MS = 5000, READY_TIMEOUT_MS = 60 * 1000, MAX_ARGS = 80 };

/* In the child; never returns. Only functions that are safe between fork and exec. */
static void become(char *const *argv, int pipe_fd, int stream)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(pipe_fd, stream) >= 0)
        (void)execvp(argv[0], argv);
    _exit(127);
}

enum status subprocess_start(struct subprocess *out, char *const *argv, enum subprocess_reads reads,
                             struct error *err)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a pipe for %s: %s", argv[0],
                         strerror(errno));
    pid = fork();
    if (pid == 0)
        become(argv, fds[1], reads == SUBPROCESS_READS_STDOUT ? STDOUT_FILENO : STDERR_FILENO);
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return error_set(err, STATUS_EXHAUSTED, "cannot start %s: %s", argv[0], strerror(errno));
    }
    *out = (struct subprocess){.pid = pid, .fd = fds[0]};
    return STATUS_OK;
}

/* Takes the first line out of the buffer; false while it has none. */
static bool take_line(struct subprocess *p, bool is_end, char *line, size_t size)
{
    char *end = memchr(p->line, '\n', p->n_line);
    size_t n, n_taken;

    if (end == NULL && p->n_line < sizeof(p->line) && !(is_end && p->n_line > 0))
        return false;
    n = end != NULL ? (size_t)(end - p->line) : p->n_line;
    n_taken = end != NULL ? n + 1 : n;
    (void)snprintf(line, size, "%.*s", (int)n, p->line);
    memmove(p->line, p->line + n_taken, p->n_line - n_taken);
    p->n_line -= n_taken;
    return true;
}

enum status subprocess_line(struct subprocess *p, char *line, size_t size, uint32_t timeout_ms,
                            struct error *err)
{
    uint64_t end_ms = clock_ms() + timeout_ms;
    bool is_end = false;

    while (!take_line(p, is_end, line, size)) {
        struct pollfd wait = {.fd = p->fd, .events = POLLIN};
        uint64_t now = clock_ms();
        ssize_t n;

        if (is_end)
            return error_set(err, STATUS_UNAVAILABLE, "the process closed its output");
        if (now >= end_ms)
            return error_set(err, STATUS_DEADLINE, "the process printed nothing for %u ms",
                             timeout_ms);
        if (poll(&wait, 1, (int)(end_ms - now)) <= 0)
            continue;
        n = read(p->fd, p->line + p->n_line, sizeof(p->line) - p->n_line);
        if (n > 0)
            p->n_line += (size_t)n;
        else if (n == 0 || errno != EINTR)
            is_end = true;
    }
    return STATUS_OK;
}

/* Waits for its end and clears *p; returns the status of wait4. */
static int reap(struct subprocess *p, struct rusage *usage)
{
    int how = 0;

    while (wait4(p->pid, &how, 0, usage) < 0 && errno == EINTR)
        ;
    if (p->fd >= 0)
        (void)close(p->fd);
    *p = (struct subprocess){.fd = -1};
    return how;
}

enum status subprocess_wait(struct subprocess *p, struct rusage *usage, struct error *err)
{
    int how = reap(p, usage);

    if (WIFSIGNALED(how))
        return error_set(err, STATUS_ABORTED, "a process was ended by signal %d (%s)",
                         WTERMSIG(how), strsignal(WTERMSIG(how)));
    if (WEXITSTATUS(how) != 0)
        return error_set(err, STATUS_ABORTED, "a process ended with exit status %d",
                         WEXITSTATUS(how));
    return STATUS_OK;
}

void subprocess_stop(struct subprocess *p, struct rusage *usage)
{
    struct pollfd wait = {.fd = p->fd, .events = POLLIN};
    uint64_t end_ms = clock_ms() + STOP_TIMEOUT_MS;

    if (p->pid == 0)
        return;
    (void)kill(p->pid, SIGTERM); /* fails if it has ended; wait for it in any case */
    /* The pipe hangs up when the process ends; its remaining output is discarded. */
    for (uint64_t now = clock_ms(); now < end_ms; now = clock_ms()) {
        char drop[256];

        if (poll(&wait, 1, (int)(end_ms - now)) > 0 && read(p->fd, drop, sizeof(drop)) <= 0)
            break;
    }
    if (clock_ms() >= end_ms)
        (void)kill(p->pid, SIGKILL);
    (void)reap(p, usage); /* how it ended does not matter here */
}

enum status program_path(char out[PROGRAM_PATH_MAX], const char *name, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, PROGRAM_PATH_MAX - 1);
    char *slash;

    if (n <= 0)
        return error_set(err, STATUS_UNKNOWN, "cannot find the path of this program: %s",
                         strerror(errno));
    out[n] = '\0';
    if (name == NULL)
        return STATUS_OK;
    slash = strrchr(out, '/');
    if ((size_t)(slash + 1 - out) + strlen(name) >= PROGRAM_PATH_MAX)
        return error_set(err, STATUS_UNKNOWN, "the path of %s is too long", name);
    (void)snprintf(slash + 1, PROGRAM_PATH_MAX - (size_t)(slash + 1 - out), "%s", name);
    if (access(out, X_OK) != 0)
        (void)snprintf(out, PROGRAM_PATH_MAX, "%s", name);
    return STATUS_OK;
}

enum status served_start(struct served *out, const char *const *flags, size_t n_flags,
                         struct error *err)
{
    static const char ready[] = "ready grpc=";
    char path[PROGRAM_PATH_MAX], line[512] = "", last[512] = "";
    char *argv[MAX_ARGS + 1] = {path, (char *)"--listen", (char *)"127.0.0.1:0"};
    enum status rc = program_path(path, "parleyd", err);
    size_t n = 3;

    if (rc != STATUS_OK)
        return rc;
    assert(n + n_flags <= MAX_ARGS);
    for (size_t i = 0; i < n_flags; i++)
        argv[n++] = (char *)flags[i];
    rc = subprocess_start(&out->subprocess, argv, SUBPROCESS_READS_STDERR, err);
    while (rc == STATUS_OK && strncmp(line, ready, sizeof(ready) - 1) != 0) {
        (void)snprintf(last, sizeof(last), "%s", line);
        rc = subprocess_line(&out->subprocess, line, sizeof(line), READY_TIMEOUT_MS, err);
    }
    if (rc == STATUS_OK) {
        (void)sscanf(line + sizeof(ready) - 1, "%63s", out->address);
        return STATUS_OK;
    }
    subprocess_stop(&out->subprocess, NULL);
    return error_set(err, STATUS_UNAVAILABLE, "parleyd did not start%s%s",
                     last[0] != '\0' ? ": " : "", last);
}

void served_stop(struct served *s, struct rusage *usage)
{
    subprocess_stop(&s->subprocess, usage);
}
