/* Compiles constraints in other processes, several at once, in fair shares for the principals. A
 * new job does not wait for long ones: it has places of its own until it has become one. The
 * processes have limits of processor time and of memory, and are killed when nobody waits for them
 * any more. A process has the vocabulary of one model and compiles one constraint after the other.
 * It ends when it has been idle for long. All functions are called on the loop. */
#ifndef SERVER_COMPILE_COMPILER_H
#define SERVER_COMPILE_COMPILER_H

#include <uv.h>

#include "agents/compiler.h"
#include "base/list.h"

enum {
    COMPILER_BUDGET_MS = 2000, /* processor time for a vocabulary of up to COMPILER_BUDGET_TOKENS; a
                                  larger one has more in proportion */
    COMPILER_BUDGET_TOKENS = 1 << 16,
    COMPILER_MEMORY_MIB = 512,            /* for compiling a constraint */
    COMPILER_UNBOUNDED_MEMORY_MIB = 4096, /* the same for a turn that was accepted before */
    COMPILER_PATIENCE_MS = 60000,         /* wall-clock time for a constraint, on a busy machine */
    COMPILER_IDLE_MS = 60000,
    COMPILER_MAX_AT_ONCE =
        4,                /* long jobs at once, and new ones: half of the processors, 2 to this */
    COMPILER_NEW_MS = 50, /* processor time after which a job is a long one */
    COMPILER_MAX_WAITING = 64,
    COMPILER_MAX_OVERTAKEN = 64, /* so many with smaller texts begin before a job that waits */
};

struct compiler_user; /* a model */

struct buf;

struct compiler_figures {
    uint64_t n_done, n_refused, n_over_budget, n_failed; /* jobs, by how they ended */
    uint64_t n_cancelled;
    size_t n_running, n_waiting, n_processes;
};

struct compiler {
    uv_loop_t *loop;
    uv_signal_t on_child;
    uv_timer_t tick;      /* active while there are processes */
    uv_timer_t look;      /* active while a new job runs */
    uv_idle_t later;      /* active while a job may be run, but not from inside a call */
    struct list waiting;  /* the jobs that wait */
    struct list children; /* all processes, with those that are closing */
    size_t n_children, n_at_once;
    struct compiler_figures figures;
    bool is_closing;
};

void compiler_init(struct compiler *c, uv_loop_t *loop);
/* Closes c, which must have no users. c is closed when the loop has run the callbacks of its
 * handles. */
void compiler_close(struct compiler *c);

enum status compiler_user_open(struct compiler_user **out, struct compiler *c,
                               struct error *err) MUST_CHECK;
/* Frees a user that has no jobs. NULL is fine. */
void compiler_user_close(struct compiler_user *u);
const struct agent_compiler *compiler_user_agents(const struct compiler_user *u);

struct compiler_figures compiler_count(const struct compiler *c);

/* Appends the lines of the compiler's metrics. */
void compiler_metrics(const struct compiler *c, struct buf *out);

#endif
