/* One process of the program parley-compile, and the pair of sockets to it. All functions are
 * called on the loop. */
#ifndef SERVER_COMPILE_CHILD_H
#define SERVER_COMPILE_CHILD_H

#include <sys/types.h>
#include <uv.h>

#include "agents/compiler.h"
#include "server/compile/answer.h"

struct child;

struct child_events {
    /* Tells that the child's answer to its job is complete; the answer's bytes may be taken. A
     * child that answers wrongly is killed, and gone is called instead. */
    void (*answered)(struct child *c);
    /* Tells that the process has ended, and that what it wrote was read. The owner closes the child
     * now. Not called after child_close. */
    void (*gone)(struct child *c);
    /* Tells, after child_close, that nothing of the child is left. It is freed behind this call. */
    void (*closed)(struct child *c);
};

struct child {
    struct link link; /* for the owner's list */
    void *owner;
    const struct child_events *events;
    struct compile_job *job; /* NULL: the child is idle */
    uint64_t since_ms; /* when the job was given or the child became idle, by the loop's clock */
    uint64_t since_cpu_ms; /* the process's processor time when the job was given, or read */
    unsigned n_answers;
    pid_t pid;        /* 0: the process has ended */
    int wait_status;  /* how the process ended, if it has */
    struct error err; /* why the process was killed, if it was */
    struct answer answer;
    struct compile_request request;
    uv_pipe_t pipe;
    uv_write_t write;
    bool is_writing, is_eof, is_closing, is_pipe_closed;
    bool has_read;  /* the process has read its job, as far as was looked */
    bool is_slowed; /* by child_slow */
};

/* Starts a process. module is the grammar module's file; vocab_fd is compile_job's. */
enum status child_start(struct child **out, uv_loop_t *loop, const char *program,
                        const char *module, int vocab_fd, const struct child_events *events,
                        void *owner, struct error *err) MUST_CHECK;

/* Gives a job to a child that is idle. The job's text is borrowed until answered, gone or closed is
 * called. */
enum status child_give(struct child *c, struct compile_job *job, uint32_t budget_ms,
                       uint32_t memory_mib, struct error *err) MUST_CHECK;

/* Looks whether the process has read its job. What a new process computes before that is its start,
 * not the job's. */
bool child_has_read(struct child *c);

/* Returns how much processor time the process has spent on its job, in ms: since the first call of
 * child_has_read that returned true, and since the job was given if there was none. */
uint64_t child_spent_ms(const struct child *c);

/* Gives the process less of the processors than others have, until its end. */
void child_slow(struct child *c);

/* Looks whether the process has ended. Called after a SIGCHLD. */
void child_reap(struct child *c);

/* Kills the process. gone is called soon, with err set to why. */
void child_kill(struct child *c, const struct error *why);

/* Kills the process if it has not ended, and waits for its end on the loop. */
void child_close(struct child *c);
/* Gives the child up at the end of this process, when nobody waits for it. Also after child_close.
 */
void child_abandon(struct child *c);

#endif
