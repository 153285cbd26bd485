/* Given a job, a child writes the answer; then it is idle. It ends when it is closed, by a signal
 * that its limits send, or by itself when its memory has grown: its end is known by two events in
 * any order, the socket's end of file and SIGCHLD. Closed, it is killed, and lives on as a struct
 * until it has been reaped and the socket's handle is closed. */
#include "server/compile/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum { NICE_SLOW = 10 }; /* the program itself takes 5 */

static enum status child_failed(struct error *err, const char *what, int code)
{
    return error_because(err, STATUS_UNAVAILABLE, REASON_OUT_OF_MEMORY, NULL,
                         "cannot start the program that compiles constraints: %s: %s", what,
                         strerror(code));
}

/* What the new process has open: the socket, /dev/null, the vocabulary. */
static int child_set_files(posix_spawn_file_actions_t *files, int socket_fd, int vocab_fd)
{
    int rc = posix_spawn_file_actions_adddup2(files, vocab_fd, COMPILE_VOCAB_FD);

    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(files, socket_fd, COMPILE_SOCKET_FD);
    for (int fd = STDOUT_FILENO; rc == 0 && fd <= STDERR_FILENO; fd++)
        rc = posix_spawn_file_actions_addopen(files, fd, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(files, COMPILE_VOCAB_FD + 1);
    return rc;
}

/* A group of its own, so that Ctrl-C on the terminal does not end it; no signal is blocked or
 * ignored. */
static int child_set_attributes(posix_spawnattr_t *how)
{
    sigset_t none, all;
    int rc;

    (void)sigemptyset(&none); /* cannot fail */
    (void)sigfillset(&all);
    rc = posix_spawnattr_setsigmask(how, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(how, &all);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(how, 0);
    if (rc == 0)
        rc = posix_spawnattr_setflags(how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                               POSIX_SPAWN_SETPGROUP);
    return rc;
}

static int child_spawn(pid_t *ret_pid, const char *program, const char *module, int socket_fd,
                       int vocab_fd)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    char parent[24];
    const char *const argv[] = {program, module, parent, NULL};
    char *const none[] = {NULL};
    int rc;

    if (fault_now())
        return EAGAIN;
    (void)snprintf(parent, sizeof(parent), "%ld", (long)getpid()); /* fits */
    rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&how);
    if (rc != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return rc;
    }
    rc = child_set_files(&files, socket_fd, vocab_fd);
    if (rc == 0)
        rc = child_set_attributes(&how);
    if (rc == 0) /* the strings are not written to */
        rc = posix_spawn(ret_pid, program, &files, &how, (char *const *)(uintptr_t)argv, none);
    (void)posix_spawnattr_destroy(&how); /* cannot fail */
    (void)posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* --- its end --- */

static void child_try_free(struct child *c)
{
    if (!c->is_pipe_closed || c->pid != 0)
        return;
    c->events->closed(c);
    answer_deinit(&c->answer);
    free(c);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct child *c = handle->data;

    c->is_pipe_closed = true;
    child_try_free(c);
}

static void child_check_gone(struct child *c)
{
    if (!c->is_closing && c->is_eof && c->pid == 0)
        c->events->gone(c);
}

void child_reap(struct child *c)
{
    pid_t pid;

    if (c->pid == 0)
        return;
    do
        pid = waitpid(c->pid, &c->wait_status, WNOHANG);
    while (pid < 0 && errno == EINTR);
    if (pid == 0)
        return;
    c->pid = 0; /* it has ended; or somebody else has waited for it, which is no better */
    if (c->is_closing)
        child_try_free(c);
    else
        child_check_gone(c);
}

void child_close(struct child *c)
{
    assert(!c->is_closing);
    c->is_closing = true;
    c->job = NULL;
    if (c->pid != 0)
        (void)kill(c->pid, SIGKILL); /* it is ours until it is reaped */
    uv_close((uv_handle_t *)&c->pipe, on_pipe_closed);
}

void child_abandon(struct child *c)
{
    if (!c->is_closing)
        child_close(c);
    c->pid = 0;
    if (c->is_pipe_closed)
        child_try_free(c);
}

/* --- what it says --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[1 << 16]; /* of one read, which is handled before the next; the loop's */

    *buf = uv_buf_init(bytes, sizeof(bytes));
}

void child_kill(struct child *c, const struct error *why)
{
    c->err = *why;
    (void)uv_read_stop((uv_stream_t *)&c->pipe);
    c->is_eof = true; /* what else it says does not matter */
    if (c->pid != 0)
        (void)kill(c->pid, SIGKILL); /* and SIGCHLD follows */
    else
        child_check_gone(c);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct child *c = stream->data;
    struct error why;

    if (n == 0)
        return;
    if (n < 0) {
        (void)uv_read_stop(stream);
        c->is_eof = true;
        child_check_gone(c);
        return;
    }
    if (c->job == NULL) { /* an answer to nothing */
        (void)error_set(&why, STATUS_DATA_LOSS,
                        "the program that compiles constraints spoke unasked");
        child_kill(c, &why);
    } else if (answer_take(&c->answer, buf->base, (size_t)n, &why) != STATUS_OK) {
        child_kill(c, &why);
    } else if (answer_is_complete(&c->answer)) {
        c->n_answers++;
        c->events->answered(c);
    }
}

/* The process's processor time. */
static uint64_t child_cpu_ms(const struct child *c)
{
    struct timespec used;
    clockid_t clock;

    if (c->pid == 0 || clock_getcpuclockid(c->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0; /* it has ended */
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

bool child_has_read(struct child *c)
{
    uv_os_fd_t fd;
    int n_unread = 0;

    if (c->has_read || c->is_closing || uv_fileno((uv_handle_t *)&c->pipe, &fd) != 0)
        return c->has_read;
    if (c->is_writing || ioctl(fd, TIOCOUTQ, &n_unread) != 0 || n_unread > 0)
        return false;
    c->has_read = true;
    c->since_cpu_ms = child_cpu_ms(c);
    return true;
}

void child_slow(struct child *c)
{
    if (c->pid == 0 || c->is_slowed)
        return;
    c->is_slowed = true;
    (void)!setpriority(PRIO_PROCESS, (id_t)c->pid, NICE_SLOW); /* only others would profit */
}

uint64_t child_spent_ms(const struct child *c)
{
    const uint64_t cpu_ms = child_cpu_ms(c);

    return cpu_ms > c->since_cpu_ms ? cpu_ms - c->since_cpu_ms : 0;
}

static void on_written(uv_write_t *write, int status)
{
    struct child *c = write->data;

    c->is_writing = false;
}

enum status child_give(struct child *c, struct compile_job *job, uint32_t budget_ms,
                       uint32_t memory_mib, struct error *err)
{
    uv_buf_t bufs[2];
    int rc;

    assert(c->job == NULL && !c->is_closing);
    c->request = (struct compile_request){
        .magic = COMPILE_MAGIC,
        .form = (uint32_t)job->form,
        .n_bytes = (uint32_t)job->len,
        .budget_ms = budget_ms,
        .memory_mib = memory_mib,
    };
    answer_deinit(&c->answer);
    bufs[0] = uv_buf_init((char *)&c->request, sizeof(c->request));
    bufs[1] = uv_buf_init((char *)(uintptr_t)job->text, (unsigned)job->len); /* is not written to */
    rc = c->is_writing || fault_now()
             ? UV_EBUSY
             : uv_write(&c->write, (uv_stream_t *)&c->pipe, bufs, 2, on_written);
    if (rc != 0)
        return child_failed(err, "it cannot be written to", -rc);
    c->is_writing = true;
    c->job = job;
    c->has_read = c->n_answers > 0; /* it waits for jobs, and does nothing else */
    c->since_ms = uv_now(c->pipe.loop);
    c->since_cpu_ms = child_cpu_ms(c);
    return STATUS_OK;
}

enum status child_start(struct child **out, uv_loop_t *loop, const char *program,
                        const char *module, int vocab_fd, const struct child_events *events,
                        void *owner, struct error *err)
{
    struct child *c = try_alloc(1, sizeof(*c));
    int ends[2] = {-1, -1}, code;

    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a process that compiles constraints");
    c->events = events;
    c->owner = owner;
    answer_init(&c->answer);
    if (fault_now() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(c);
        return child_failed(err, "a pair of sockets", errno);
    }
    code = child_spawn(&c->pid, program, module, ends[1], vocab_fd);
    (void)close(ends[1]); /* the child's own is left */
    if (code != 0) {
        (void)close(ends[0]);
        free(c);
        return child_failed(err, program, code);
    }
    (void)uv_pipe_init(loop, &c->pipe, 0); /* cannot fail */
    c->pipe.data = c->write.data = c;
    c->since_ms = uv_now(loop);
    /* A socket of ours, which is no error for either. */
    (void)uv_pipe_open(&c->pipe, ends[0]);
    (void)uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
    *out = c;
    return STATUS_OK;
}
