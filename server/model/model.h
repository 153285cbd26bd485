/* A served model: the original of an agent, the thread it computes on, and the batcher between
 * them. A step shorter than the hand-over to that thread (agent_info's is_light) runs on the loop,
 * where nothing else of the model runs; steps of several models that wait there are computed
 * together where their kind can (group_act). A step of an agent that computes elsewhere
 * (elsewhere) is only begun here. Loop. */
#ifndef SERVER_MODEL_MODEL_H
#define SERVER_MODEL_MODEL_H

#include <uv.h>

#include "agents/agent.h"
#include "base/list.h"
#include "base/prefault.h"
#include "base/worker.h"
#include "batching/batcher.h"
#include "server/compile/compiler.h"
#include "server/model/tenants.h"
#include "server/telemetry/statistics.h"

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_DRAINING, MODEL_FAILED, MODEL_STOPPING };

/* "loading", "ready", "unloading", "failed", "stopping". */
const char *model_state_name(enum model_state s);

struct model;
typedef void (*model_fn)(struct model *m, void *arg);
/* This process cannot compute the agent again. */
typedef void (*model_lost_fn)(void *arg, const struct model *m, const struct error *why);

struct model_config {
    const char *name;
    const char *path;              /* NULL: echo, unless there is a type */
    const struct agent_type *type; /* for agents made by a call; NULL: by the path */
    const void *spec;              /* that such an agent is made from; outlives the model */
    struct agent_options options;
    const struct env *env;
    tenant_weight_fn weight_of; /* of a principal; NULL: 1 for all */
    void *weight_arg;
    model_lost_fn on_lost; /* at most once; may be NULL */
    void *lost_arg;
    struct compiler *compiler; /* of constraints; NULL: this process compiles them */
    /* Models of one loop, whose steps on it are computed together where their kind can; outlives
     * the model. NULL: each by itself. */
    struct list *light_steps;
};

struct model {
    char *name, *path; /* path NULL: echo */
    char *backend;
    const struct agent_type *type; /* NULL: by the path */
    struct agent_config config;
    enum model_state state;
    struct error err; /* of MODEL_FAILED */
    struct agent *agent;
    struct agent_info info; /* as when loaded: defaults, version, vocabulary */
    struct batcher *batcher;
    struct tenants tenants;         /* of the batcher, by principal */
    struct batcher_config batching; /* the agent's own */
    model_lost_fn on_lost;          /* as configured; NULL once it was called */
    void *lost_arg;
    size_t n_conversations; /* of its users: for metrics */
    size_t n_holders;       /* generations that use it: it is not unloaded before they release it */
    struct statistics statistics;
    /* Compute. */
    const struct env *env;
    struct worker *worker;
    struct worker *background; /* for long work that is no step; NULL until there is some */
    struct agent_background long_work;
    struct compiler_user *compiler; /* NULL: none */
    uv_loop_t *loop;
    struct prefault *prefault; /* NULL: none, or not loaded */
    /* The batcher's timers: now_timer has zero delay; the kernel's timer has microseconds, which
     * libuv's timers lack. */
    uv_timer_t now_timer;
    uv_idle_t inline_step;    /* active: a step waits to be run on the loop */
    struct list *light_steps; /* as configured */
    struct link light_link;   /* on it while inline_step is active */
    uv_poll_t alarm;
    int alarm_fd;
    uint64_t alarm_us;  /* when it fires; 0: never */
    unsigned n_handles; /* open handles of the loop */
    struct job job;     /* the load, then the batcher's step */
    struct batch_step *step;
    struct batch_step elsewhere; /* its copy for an agent that computes elsewhere */
    bool is_aborting;
    bool is_in_agent;        /* inside a function of such an agent */
    uv_idle_t ended;         /* active: the step ended there, and done is to be called */
    bool is_vacant;          /* nobody computes for it: an attached agent without a worker */
    bool is_gathered;        /* an attached policy's steps are as Act.Configure says, not as its
                                workers' rows and slots do */
    uint64_t step_us;        /* when the step began */
    enum status load_status; /* the compute thread's until the load is back, as agent and err */
    model_fn loaded;
    void *loaded_arg;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* Starts the compute thread and loads there; then calls loaded, with the state READY or FAILED. */
enum status model_start(struct model **out, uv_loop_t *loop, const struct model_config *config,
                        model_fn loaded, void *arg, struct error *err) MUST_CHECK;

/* Calls on_lost where the agent can compute no more; after a job of model_run that used its device.
 * Steps do so themselves. */
void model_tell_loss(struct model *m);

static inline void model_hold(struct model *m)
{
    m->n_holders++;
}

static inline void model_release(struct model *m)
{
    m->n_holders--;
}

/* Takes no new requests; the model is to be stopped once nothing is in flight. */
void model_drain(struct model *m);

/* Stops waiting for a step that is computed elsewhere: its unfinished rows fail with UNAVAILABLE,
 * and so do later steps' rows. For a model whose turns are all cancelled. */
void model_abort(struct model *m);

/* Only after loaded was called, and without conversations. Stops the batcher, then the thread,
 * frees m, then calls stopped. */
void model_stop(struct model *m, void (*stopped)(void *arg), void *arg);

/* Runs the job on the model's compute thread, between two steps: to learn, to save. While the model
 * loads, the job runs afterwards. Not after a stop has begun; a later stop waits for the job. */
void model_run(struct model *m, struct job *job);

/* STATUS_UNAVAILABLE, with a hint while it loads, or is vacant. */
enum status model_check_ready(const struct model *m, struct error *err) MUST_CHECK;

#endif
