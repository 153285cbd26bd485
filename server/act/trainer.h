/* Environment workers that are attached to a model, and its training run: rounds of an episode that
 * all workers run at once against the one policy, followed by an optimiser step. A worker that
 * fails or detaches in an episode does not count in it; the others continue. Knows nothing of gRPC.
 * Loop. */
#ifndef SERVER_ACT_TRAINER_H
#define SERVER_ACT_TRAINER_H

#include <uv.h>

#include "agents/agent.h"
#include "base/worker.h"
#include "server/act/session.h"

struct model;
struct training_participant;

enum { EPISODES_MAX = 1000000, EPISODE_MAX_STEPS = 1000000 };

/* All environment workers and training runs of a daemon. */
struct trainers {
    struct list workers;
    struct list runs;
    uint64_t n_episodes; /* requested since the start: numbers them */
    struct sessions *sessions;
    uv_loop_t *loop;
    struct model_user user;
    void (*on_idle)(void *arg); /* no worker and no run is left; may be NULL */
    void *idle_arg;
};

void trainers_init(struct trainers *all, struct sessions *sessions, uv_loop_t *loop);
bool trainers_are_idle(const void *trainers);
bool trainers_are_training(const struct trainers *all, const struct model *m);
/* Any client may train, but may write only policies, and only into the folder of the served model;
 * "" is fine. INVALID, DENIED. */
enum status trainers_check_save_path(const struct model *m, const char *path,
                                     struct error *err) MUST_CHECK;

/* --- environment workers --- */

struct episode_order {
    uint64_t episode;
    uint32_t n_steps;
    float gamma;
    uint64_t seed;
};

struct episode_result {
    uint64_t episode;
    const float *returns; /* [n_returns] */
    size_t n_returns;
    float reward;
    bool has_failed;
};

/* An attached worker: the caller's memory until env_worker_close. */
struct env_worker {
    struct link link;
    struct trainers *all;
    struct model *model;
    uint32_t principal; /* whose it is */
    const char *env_id; /* the caller's, valid until env_worker_close */
    uint64_t run_id;
    uint32_t row; /* the lowest free one */
    struct training_participant
        *participant;           /* in the training run whose episode it runs; NULL: none */
    uint64_t episode;           /* the one it runs; 0: idle */
    struct episode_order order; /* valid if has_order: to be sent */
    bool has_order;
    bool must_go; /* it must detach, because of err */
    struct error err;
    /* There is an order, or the worker must detach. Called inside other calls of the domain, so it
     * only notes the fact. */
    void (*notify)(struct env_worker *o);
};

/* o is zeroed but for model, env_id, run_id and notify. An earlier worker with this env_id must
 * detach. INVALID, UNAVAILABLE, PRECONDITION for a model that does not learn. */
enum status env_worker_open(struct env_worker *o, struct trainers *all,
                            struct error *err) MUST_CHECK;
/* INVALID when it is not a result of the worker's episode: the caller then closes the worker. */
enum status env_worker_result(struct env_worker *o, const struct episode_result *result,
                              struct error *err) MUST_CHECK;
void env_worker_close(struct env_worker *o);

/* --- training runs --- */

struct training_config {
    uint32_t n_workers, n_episodes, n_steps;
    float gamma;
    uint64_t seed; /* of environments and of the policy's draws */
    struct learn_config learn;
    float until;           /* ends after an episode with that running reward; 0: never */
    const char *save_path; /* "": not saved; the caller's, kept until the end */
    uint32_t timeout_ms;   /* to wait for workers */
};

struct training_event {
    uint32_t episode; /* 1, 2, … */
    float mean_reward, running_reward;
    uint64_t rollout_us, train_us;
    uint64_t n_actions, n_forwards; /* since the start */
    uint32_t n_workers;             /* that completed it */
    uint64_t params_version;
};

enum training_state {
    TRAINING_WAITING,  /* for workers */
    TRAINING_ROLLOUT,  /* n_open workers run the episode */
    TRAINING_LEARNING, /* the job is on the compute thread */
    TRAINING_SAVING,   /* the job is on the compute thread */
    TRAINING_OVER,
};

struct act_training_run {
    struct link link;
    struct trainers *all;
    struct model *model;
    struct training_config config;
    enum training_state state;
    bool is_cancelled;
    uv_timer_t timer;                          /* of the wait for workers */
    struct training_participant *participants; /* [n_workers] of the episode, by row */
    size_t n_open;
    bool is_width_reduced; /* lock-step: the batch width was reduced after a worker left */
    float *returns;        /* [n_workers][n_steps] by row; of completed rollouts, to learn from */
    struct clone **clones; /* [n_workers] of completed rollouts */
    size_t n_done;
    struct training_event event;
    uint64_t begun_us, n_actions_before, n_forwards_before;
    struct job job;
    struct learn_report report; /* the compute thread's until the job is back, as err */
    struct error err;
    void (*tell)(struct act_training_run *t, const struct training_event *event);
    /* Called once, last, never inside; then t is the caller's again. CANCELLED after
     * training_run_cancel. */
    void (*ended)(struct act_training_run *t, const struct error *err);
};

/* t is zeroed but for model, config, tell and ended. INVALID naming the field of TrainRequest,
 * PRECONDITION for a model that does not learn or that learns already, EXHAUSTED, UNAVAILABLE. */
enum status training_run_start(struct act_training_run *t, struct trainers *all,
                               struct error *err) MUST_CHECK;
/* Requests the end of the run: ended is called once the compute thread is done. Workers finish
 * their episode, which does not count. */
void training_run_cancel(struct act_training_run *t);

#endif
