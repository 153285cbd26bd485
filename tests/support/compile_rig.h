/* A compiler of constraints on a loop of its own, with a vocabulary of a token for each byte, and
 * programs that behave as a test wants. */
#ifndef TESTS_SUPPORT_COMPILE_RIG_H
#define TESTS_SUPPORT_COMPILE_RIG_H

#include <stdbool.h>
#include <uv.h>

#include "server/compile/compiler.h"

/* An answer of two bytes, "no", as a shell's printf writes it. */
#define RIG_ANSWER "printf 'PGC1\\001\\000\\000\\000\\002\\000\\000\\000no' >&0"

struct rig_job {
    struct compile_job job;
    struct error err;
    char *bytes; /* of a compiled constraint; NULL: err */
    size_t n_bytes;
    unsigned n_done;
};

struct compile_rig {
    uv_loop_t loop;
    struct compiler compiler;
    struct compiler_user *user;
    int vocab_fd;
    char *real; /* PARLEY_COMPILE, as the build set it */
    char script[32];
};

void compile_rig_open(struct compile_rig *r);
void compile_rig_close(struct compile_rig *r); /* asserts that no process is left */

/* Instead of parley-compile: a shell's commands, with the socket as descriptor 0; NULL: the real
 * one. */
void compile_rig_use(struct compile_rig *r, const char *commands);

/* A regular expression, which must live. */
void compile_rig_job(struct compile_rig *r, struct rig_job *j, const char *regex);
enum status compile_rig_submit(struct compile_rig *r, struct rig_job *j);
void compile_rig_cancel(struct compile_rig *r, struct rig_job *j);
/* Runs the loop until the job is done. */
void compile_rig_await(struct compile_rig *r, struct rig_job *j);
/* Runs the loop until so many processes are left. */
void compile_rig_settle(struct compile_rig *r, size_t n_processes);

#endif
