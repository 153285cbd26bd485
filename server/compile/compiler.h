/* Compiles constraints in processes of their own, which have limits of processor time and of
 * memory, and are killed when nobody waits for them any more: several at once, fair by principal. A
 * process holds one model's vocabulary and compiles one constraint after the other; it ends when it
 * was idle for long. Loop. */
#ifndef SERVER_COMPILE_COMPILER_H
#define SERVER_COMPILE_COMPILER_H

#include <uv.h>

#include "agents/compiler.h"
#include "base/list.h"

enum {
    COMPILER_BUDGET_MS = 2000, /* of processor time, with up to so many tokens; in proportion for
                                  more */
    COMPILER_BUDGET_TOKENS = 1 << 16,
    COMPILER_MEMORY_MIB = 512,            /* that compiling one takes */
    COMPILER_UNBOUNDED_MEMORY_MIB = 4096, /* of a turn that was accepted before */
    COMPILER_PATIENCE_MS = 60000, /* for what has a budget, on a machine without time for it */
    COMPILER_IDLE_MS = 60000,
    COMPILER_MAX_AT_ONCE = 4, /* at least 2, and half of the processors */
    COMPILER_MAX_WAITING = 64,
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
    uv_idle_t later;      /* active where a job may be run, but not from inside a call */
    struct list waiting;  /* jobs */
    struct list children; /* all processes, those too that are closing */
    size_t n_children, n_at_once;
    struct compiler_figures figures;
    bool is_closing;
};

void compiler_init(struct compiler *c, uv_loop_t *loop);
/* There are no users. It is done when the loop has run the callbacks of its handles. */
void compiler_close(struct compiler *c);

enum status compiler_user_open(struct compiler_user **out, struct compiler *c,
                               struct error *err) MUST_CHECK;
void compiler_user_close(struct compiler_user *u); /* NULL is fine; there are no jobs */
const struct agent_compiler *compiler_user_agents(const struct compiler_user *u);

struct compiler_figures compiler_count(const struct compiler *c);

/* Appends the lines of the compiler's metrics. */
void compiler_metrics(const struct compiler *c, struct buf *out);

#endif
