/* A model that is served: the original of an agent, the thread it computes on, and the batcher
 * between them. A step that is over sooner than it could be handed to that thread and back
 * (agent_info's is_light) runs on the loop, where nothing else of the model runs. Loop. */
#ifndef SERVER_MODEL_H
#define SERVER_MODEL_H

#include <uv.h>

#include "agents/agent.h"
#include "batching/batcher.h"
#include "compute/ahead.h"
#include "compute/worker.h"
#include "server/act_mode.h"
#include "server/statistics.h"

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_DRAINING, MODEL_FAILED, MODEL_STOPPING };

/* "loading", "ready", "unloading", "failed", "stopping". */
const char *model_state_name(enum model_state s);

struct model_config {
    const char *name;
    const char *path;              /* NULL: echo, unless there is a type */
    const struct agent_type *type; /* of kinds that a call makes; NULL: by the path */
    const void *spec;              /* what such a kind is made from; outlives the model */
    const char *backend;
    bool fast_math;                            /* as agent_config's */
    size_t n_threads, kv_bytes, kv_host_bytes; /* as agent_config's */
    enum kv_type kv_type;                      /* so too */
    bool no_prefix_cache;                      /* as agent_config's */
    enum speculate speculate;
    size_t max_waiting;  /* asks; 0: the agent's own */
    uint64_t max_itl_us; /* of a step; 0: the agent's own */
    const struct env *env;
};

struct model;
typedef void (*model_fn)(struct model *m, void *arg);

struct model {
    char *name, *path; /* path NULL: echo */
    char *backend;
    const struct agent_type *type; /* NULL: by the path */
    struct agent_config config;
    size_t max_waiting;
    uint64_t max_itl_us;
    enum model_state state;
    struct error err; /* of MODEL_FAILED */
    struct agent *agent;
    struct agent_info info; /* as it was when loaded: defaults, version, vocabulary */
    struct batcher *batcher;
    struct batcher_config batching; /* the agent's own */
    struct act_rows act;
    size_t n_conversations;
    size_t n_holders; /* who will look at it later: it is not unloaded before they let go */
    struct statistics statistics;
    /* Where it computes. */
    const struct env *env;
    struct worker *worker;
    struct ahead *ahead; /* NULL: none, or not loaded */
    /* The batcher's timer: a zero one for "now", and microseconds, which libuv's timers have not,
     * from the kernel's. */
    uv_timer_t now_timer;
    uv_idle_t inline_step; /* active: a step waits to be run on the loop */
    uv_poll_t alarm;
    int alarm_fd;
    uint64_t alarm_us;  /* when it goes off; 0: never */
    unsigned n_handles; /* open ones of the loop's */
    struct job job;     /* the load, then the batcher's step */
    struct batch_step *step;
    uint64_t step_us;        /* when it was submitted */
    enum status load_status; /* the compute thread's until the load is back, as agent and err */
    model_fn loaded;
    void *loaded_arg;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* Starts its thread and loads there; then loaded is called, with the state READY or FAILED. */
enum status model_start(struct model **out, uv_loop_t *loop, const struct model_config *config,
                        model_fn loaded, void *arg, struct error *err) MUST_CHECK;

static inline void model_hold(struct model *m)
{
    m->n_holders++;
}

static inline void model_let_go(struct model *m)
{
    m->n_holders--;
}

/* Nothing new is taken: it is to be stopped when what is in flight has come to its end. */
void model_drain(struct model *m);

/* Once loaded was called, and no conversation lives. Stops the batcher, then the thread, frees m,
 * then calls stopped. */
void model_stop(struct model *m, void (*stopped)(void *arg), void *arg);

/* Runs the job on the model's compute thread, between two steps: to learn, to save. While it loads,
 * the job comes after; a stop, which may not have begun, waits for it. */
void model_run(struct model *m, struct job *job);

/* STATUS_UNAVAILABLE, with a hint while it loads. */
enum status model_check_ready(const struct model *m, struct error *err) MUST_CHECK;

#endif
