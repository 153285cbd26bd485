/* Observers that offered themselves to a model, and its training: rounds of an episode, run by all
 * of them at once against the one policy, and a step of the optimiser. An observer that fails or
 * goes away in an episode does not count in it; the others go on. Knows nothing of gRPC. Loop. */
#ifndef SERVER_ACT_TRAINER_H
#define SERVER_ACT_TRAINER_H

#include <uv.h>

#include "agents/agent.h"
#include "compute/worker.h"
#include "server/session.h"

struct model;
struct participant;

enum { EPISODES_MAX = 1000000, EPISODE_MAX_STEPS = 1000000 };

/* All observers and trainings of a daemon. */
struct trainers {
    struct list observers;
    struct list trainings;
    uint64_t n_episodes; /* asked for since the start: numbers them */
    struct sessions *sessions;
    void (*quiet)(void *arg); /* the last of either has gone; may be NULL */
    void *quiet_arg;
};

void trainers_init(struct trainers *all, struct sessions *sessions);
bool trainers_are_idle(const struct trainers *all);

/* --- observers --- */

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

/* One who attached: the caller's memory until observer_close. */
struct observer {
    struct link link;
    struct trainers *all;
    struct model *model;
    const char *env_id; /* the caller's, kept as long */
    uint64_t run_id;
    uint32_t row;                    /* the lowest that was free */
    struct participant *participant; /* of a training whose episode it runs; NULL: none */
    uint64_t episode;                /* that it runs; 0: it is idle */
    struct episode_order order;      /* with has_order: to be sent */
    bool has_order;
    bool must_go; /* with err */
    struct error err;
    /* There is an order, or it must go; called inside other calls of the domain, so it only notes
     * it. */
    void (*wake)(struct observer *o);
};

/* o is zeroed but for model, env_id, run_id and wake. One there is with its env_id must go.
 * INVALID, UNAVAILABLE, PRECONDITION for a model that does not learn. */
enum status observer_open(struct observer *o, struct trainers *all, struct error *err) MUST_CHECK;
/* INVALID for what is no result of the episode that it runs: then it is to be closed. */
enum status observer_result(struct observer *o, const struct episode_result *result,
                            struct error *err) MUST_CHECK;
void observer_close(struct observer *o);

/* --- training --- */

struct training_config {
    uint32_t n_observers, n_episodes, n_steps;
    float gamma;
    uint64_t seed; /* of environments and of the policy's draws */
    struct learn_config learn;
    float until;           /* no episode follows one with that running reward; 0: none */
    const char *save_path; /* "": nowhere; the caller's, kept until the end */
    uint32_t timeout_ms;   /* to wait for observers */
};

struct training_event {
    uint32_t episode; /* 1, 2, … */
    float mean_reward, running_reward;
    uint64_t rollout_us, train_us;
    uint64_t n_actions, n_forwards; /* since the start */
    uint32_t n_observers;           /* that ran it to its end */
    uint64_t params_version;
};

enum training_state {
    TRAINING_WAITING,  /* for observers */
    TRAINING_ROLLOUT,  /* n_open of them run the episode */
    TRAINING_LEARNING, /* the job is on compute */
    TRAINING_SAVING,   /* the job is on compute */
    TRAINING_OVER,
};

struct training {
    struct link link;
    struct trainers *all;
    struct model *model;
    struct training_config config;
    enum training_state state;
    bool is_cancelled;
    uv_timer_t timer;                 /* while it waits */
    struct participant *participants; /* [n_observers] by row, of the episode */
    size_t n_open;
    bool is_narrow;        /* lock-step goes on with fewer */
    float *returns;        /* [n_observers][n_steps] by row; of those who are done, to learn */
    struct clone **clones; /* [n_observers] of those who are done */
    size_t n_done;
    struct training_event event;
    uint64_t begun_us, n_actions_before, n_forwards_before;
    struct job job;
    struct learn_report report; /* compute's until the job is back, as err */
    struct error err;
    void (*tell)(struct training *t, const struct training_event *event);
    /* Once, the last, never inside; t is the caller's again. CANCELLED after training_cancel. */
    void (*ended)(struct training *t, const struct error *err);
};

/* t is zeroed but for model, config, tell and ended. INVALID naming the field of TrainRequest,
 * PRECONDITION for a model that does not learn or that learns already, EXHAUSTED, UNAVAILABLE. */
enum status training_start(struct training *t, struct trainers *all, uv_loop_t *loop,
                           struct error *err) MUST_CHECK;
/* A wish: ended comes, once compute is back. Observers come to the end of their episode, which
 * counts for nothing. */
void training_cancel(struct training *t);

#endif
