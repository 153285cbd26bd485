/* One process of the program parley-compile, and the pair of sockets to it. Loop. */
#ifndef SERVER_COMPILE_CHILD_H
#define SERVER_COMPILE_CHILD_H

#include <sys/types.h>
#include <uv.h>

#include "agents/compiler.h"
#include "server/compile/answer.h"

struct child;

struct child_events {
    /* The answer to what it was given is complete; its bytes may be taken. A child that answers
     * wrongly is killed, and has gone. */
    void (*answered)(struct child *c);
    /* It has ended, and what it said was read. Its owner closes it now. Not after child_close. */
    void (*gone)(struct child *c);
    /* After child_close: nothing of it is left, it is freed behind this call. */
    void (*closed)(struct child *c);
};

struct child {
    struct link link; /* the owner's */
    void *owner;
    const struct child_events *events;
    struct compile_job *job; /* NULL: it is idle */
    uint64_t since_ms;       /* of the loop: when the job was given, or the child became idle */
    unsigned n_answers;
    pid_t pid;        /* 0: it has ended */
    int wait_status;  /* then */
    struct error err; /* why it was killed, if it was */
    struct answer answer;
    struct compile_request request;
    uv_pipe_t pipe;
    uv_write_t write;
    bool is_writing, is_eof, is_closing, is_pipe_closed;
};

/* module: the grammar module's file. vocab_fd as compile_job's. */
enum status child_start(struct child **out, uv_loop_t *loop, const char *program,
                        const char *module, int vocab_fd, const struct child_events *events,
                        void *owner, struct error *err) MUST_CHECK;

/* It is idle. The job's text is borrowed until it has answered, gone, or is closed. */
enum status child_give(struct child *c, struct compile_job *job, uint32_t budget_ms,
                       uint32_t memory_mib, struct error *err) MUST_CHECK;

/* A SIGCHLD has come, or may have. */
void child_reap(struct child *c);

/* Kills it: it has gone soon, with this error. */
void child_kill(struct child *c, const struct error *why);

/* Kills it if it has not ended, and waits for its end on the loop. */
void child_close(struct child *c);
/* At the end of this process, where nobody waits for it; also after child_close. */
void child_abandon(struct child *c);

#endif
