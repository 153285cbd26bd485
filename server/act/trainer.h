/* Environment workers that are attached to a model, and the model's training run. A training run
 * consists of rounds: all workers run an episode at the same time against the one policy, and an
 * optimiser step follows. A worker that fails or detaches in an episode does not count in the
 * episode; the other workers continue. This module knows nothing of gRPC. All functions are called
 * on the loop. */
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
    struct list workers; /* of struct env_worker */
    struct list runs;    /* of struct act_training_run */
    uint64_t n_episodes; /* episodes that were requested so far; the newest one's number */
    struct sessions *sessions;
    uv_loop_t *loop;
    struct model_user user;
    void (*on_idle)(void *arg); /* called when no worker and no run is left; may be NULL */
    void *idle_arg;
};

void trainers_init(struct trainers *all, struct sessions *sessions, uv_loop_t *loop);
bool trainers_are_idle(const void *trainers);
bool trainers_are_training(const struct trainers *all, const struct model *m);
/* Checks the path to which a training run saves. Any client may train, but it may write only
 * policies, and only into the folder of the served model. "" is fine. INVALID, DENIED. */
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

/* An attached environment worker. It lies in the caller's memory until env_worker_close. */
struct env_worker {
    struct link link;
    struct trainers *all;
    struct model *model;
    uint32_t principal; /* the principal whose key the worker has */
    const char *env_id; /* borrowed until env_worker_close */
    uint64_t run_id;
    uint32_t row; /* the lowest row of the model that was free */
    struct training_participant
        *participant; /* the worker's part in a training run's episode; NULL: it has none */
    uint64_t episode; /* the episode that the worker runs; 0: it is idle */
    bool has_order;   /* order must be sent */
    struct episode_order order;
    bool must_go; /* the worker must detach, because of err */
    struct error err;
    /* Called when has_order or must_go was set. It comes inside other calls of this module, so it
     * must call nothing of this module. */
    void (*notify)(struct env_worker *o);
};

/* Attaches a worker, which is zeroed but for model, principal, env_id, run_id and notify. An
 * earlier worker with this env_id must go. INVALID, UNAVAILABLE, PRECONDITION if the model does not
 * learn. */
enum status env_worker_open(struct env_worker *o, struct trainers *all,
                            struct error *err) MUST_CHECK;
/* Takes the result of the worker's episode. INVALID if it is not that; the caller must then close
 * the worker. */
enum status env_worker_result(struct env_worker *o, const struct episode_result *result,
                              struct error *err) MUST_CHECK;
void env_worker_close(struct env_worker *o);

/* --- training runs --- */

struct training_config {
    uint32_t n_workers, n_episodes, n_steps;
    float gamma;
    uint64_t seed; /* the seed of the environments and of the policy's draws */
    struct learn_config learn;
    float until; /* the run ends after an episode with this running reward; 0: it does not */
    const char *save_path; /* borrowed until the end; "": the policy is not saved */
    uint32_t timeout_ms;   /* how long the run waits for workers */
};

struct training_event {
    uint32_t episode; /* 1, 2, … */
    float mean_reward, running_reward;
    uint64_t rollout_us, train_us;
    uint64_t n_actions, n_forwards; /* since the run's start */
    uint32_t n_workers;             /* workers that completed the episode */
    uint64_t params_version;
};

enum training_state {
    TRAINING_WAITING,  /* the run waits for workers */
    TRAINING_ROLLOUT,  /* n_open workers run the episode */
    TRAINING_LEARNING, /* the optimiser step is on the compute thread */
    TRAINING_SAVING,   /* the policy is being saved, on the compute thread */
    TRAINING_OVER,
};

struct act_training_run {
    struct link link;
    struct trainers *all;
    struct model *model;
    struct training_config config;
    enum training_state state;
    bool is_cancelled;
    uv_timer_t timer;                          /* ends the wait for workers */
    struct training_participant *participants; /* [n_workers] by row */
    size_t n_open;                             /* participants that run the episode */
    bool is_width_reduced; /* in lock-step the batch width was reduced after a worker left */
    float *returns;        /* [n_workers][n_steps] by row; while learning, of completed rollouts */
    struct clone **clones; /* [n_workers] of completed rollouts */
    size_t n_done;         /* completed rollouts */
    struct training_event event;
    uint64_t begun_us, n_actions_before, n_forwards_before;
    struct job job;
    struct learn_report report; /* as err, the compute thread's until the job is back */
    struct error err;
    void (*tell)(struct act_training_run *t, const struct training_event *event);
    /* Called once, after all else and never inside another call; then t is the caller's again. err
     * is CANCELLED after training_run_cancel. */
    void (*ended)(struct act_training_run *t, const struct error *err);
};

/* Starts a training run, which is zeroed but for model, config, tell and ended. INVALID names the
 * field of TrainRequest that is at fault; PRECONDITION if the model does not learn, or learns
 * already; EXHAUSTED, UNAVAILABLE. */
enum status training_run_start(struct act_training_run *t, struct trainers *all,
                               struct error *err) MUST_CHECK;
/* Requests the end of the run: ended is called once the compute thread is done. Workers finish
 * their episode, which does not count. */
void training_run_cancel(struct act_training_run *t);

#endif
