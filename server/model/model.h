/* A served model: the original of an agent, the thread on which the agent computes, and the batcher
 * between them. A step that is shorter than the hand-over to that thread (is_light of agent_info)
 * runs on the loop, and then nothing else of the model runs. Steps of several models that wait on
 * the loop are computed together if their kind can do so (group_act). A step of an agent that
 * computes elsewhere (elsewhere) is only begun here. All functions are called on the loop. */
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

/* Returns "loading", "ready", "unloading", "failed" or "stopping". */
const char *model_state_name(enum model_state s);

struct model;
typedef void (*model_fn)(struct model *m, void *arg);
/* Tells that this process cannot compute the agent any more. */
typedef void (*model_lost_fn)(void *arg, const struct model *m, const struct error *why);

struct model_config {
    const char *name;
    const char *path;              /* NULL: the agent is echo, unless type is set */
    const struct agent_type *type; /* of an agent that a call makes; NULL: the path decides */
    const void *spec;              /* what such an agent is made from; it must outlive the model */
    struct agent_options options;
    const struct env *env;
    tenant_weight_fn weight_of; /* NULL: each principal has the weight 1 */
    void *weight_arg;
    /* The name of a principal's id, as agent_config's. NULL: there is one principal. */
    const char *(*owner_name)(void *arg, uint64_t salt);
    void *owner_arg;
    model_lost_fn on_lost; /* at most once; may be NULL */
    void *lost_arg;
    struct compiler *compiler; /* compiles constraints; NULL: this process compiles them */
    /* The models whose steps on the loop are computed together if their kind can do so. The list
     * must outlive the model. NULL: the model's steps are computed alone. */
    struct list *light_steps;
};

struct model {
    char *name, *path; /* path is NULL for echo */
    char *backend;
    const struct agent_type *type; /* NULL: the path decides */
    struct agent_config config;
    enum model_state state;
    struct error err; /* why the state is MODEL_FAILED */
    struct agent *agent;
    struct agent_info
        info; /* what the agent said when it was loaded: defaults, version, vocabulary */
    struct batcher *batcher;
    struct tenants tenants;         /* the batcher's, by principal */
    struct batcher_config batching; /* the agent's own */
    model_lost_fn on_lost;          /* the config's; NULL once it was called */
    void *lost_arg;
    size_t n_conversations; /* conversations of the model, for metrics */
    size_t n_holders;       /* generations that use the model, which is not unloaded before */
    struct statistics statistics;
    /* Compute. */
    const struct env *env;
    struct worker *worker;
    struct worker *background; /* for long work that is no step; NULL: there was none yet */
    struct agent_background long_work;
    struct compiler_user *compiler; /* NULL: this process compiles constraints */
    uv_loop_t *loop;
    struct prefault *prefault; /* NULL: the agent has none, or is not loaded */
    /* The batcher's timers: now_timer has no delay. alarm is a timer of the kernel, because libuv's
     * timers count whole milliseconds. */
    uv_timer_t now_timer;
    uv_idle_t inline_step;    /* active while a step waits to be run on the loop */
    struct list *light_steps; /* the config's */
    struct link light_link;   /* in light_steps while inline_step is active */
    uv_poll_t alarm;
    int alarm_fd;
    uint64_t alarm_us;  /* when the alarm fires; 0: never */
    unsigned n_handles; /* open handles of the loop that are the model's */
    struct job job;     /* first the load, then each step of the batcher */
    struct batch_step *step;
    struct batch_step elsewhere; /* the step's copy, for an agent that computes elsewhere */
    bool is_aborting;
    bool is_in_agent; /* a function of such an agent is being called */
    uv_async_t wake;  /* the agent asked for woken */
    uv_idle_t ended;  /* active when the step has ended elsewhere, until done is called */
    bool is_vacant;   /* the agent is attached and has no worker */
    bool is_gathered; /* Act.Configure says how the steps of an attached policy are formed, not
                         its workers' rows and slots */
    uint64_t step_us; /* when the step began */
    enum status load_status; /* until the load is done, this, agent and err belong to the compute
                                thread */
    model_fn loaded;
    void *loaded_arg;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* Starts the compute thread, which loads the agent. Then calls loaded, in the state READY or
 * FAILED. EXHAUSTED. */
enum status model_start(struct model **out, uv_loop_t *loop, const struct model_config *config,
                        model_fn loaded, void *arg, struct error *err) MUST_CHECK;

/* Calls on_lost if the agent cannot compute any more. A caller of model_run calls this after a job
 * that used the device; steps do so themselves. */
void model_tell_loss(struct model *m);

static inline void model_hold(struct model *m)
{
    m->n_holders++;
}

static inline void model_release(struct model *m)
{
    m->n_holders--;
}

/* Makes the model take no new requests. The caller stops the model once nothing is in flight. */
void model_drain(struct model *m);

/* Ends the wait for a step that is computed elsewhere: the step's unfinished rows fail with
 * UNAVAILABLE, and so do the rows of later steps. All turns of the model must be cancelled. */
void model_abort(struct model *m);

/* Stops the batcher and then the thread, frees m, and then calls stopped. loaded must have been
 * called, and the model must have no conversations. */
void model_stop(struct model *m, void (*stopped)(void *arg), void *arg);

/* Runs the job on the model's compute thread, between two steps: to learn, or to save. A job that
 * is given while the model loads runs after the load. No job may be given after model_stop, which
 * waits for the jobs before it. */
void model_run(struct model *m, struct job *job);

/* UNAVAILABLE if the model takes no requests now, with a hint when to retry while it loads or is
 * vacant. */
enum status model_check_ready(const struct model *m, struct error *err) MUST_CHECK;

#endif
