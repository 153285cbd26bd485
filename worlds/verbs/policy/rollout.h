/* A training run with all its processes: a parleyd that serves the policy, and environment workers
 * that attach to that parleyd. */
#ifndef WORLDS_VERBS_POLICY_ROLLOUT_H
#define WORLDS_VERBS_POLICY_ROLLOUT_H

#include <stdbool.h>

#include "base/status.h"
#include "client/lib/parley.h"
#include "worlds/verbs/policy/environment_worker.h"

enum { ROLLOUT_MAX_WORKERS = 256 };

/* Is called before each call of Train, after the call before has saved the policy. The function
 * changes *what for the next call, or says that the training is over. */
typedef enum status (*rollout_next_fn)(void *arg, struct parley_train *what, bool *ret_is_over,
                                       struct error *err);

struct rollout_config {
    const char *policy;      /* a file */
    const char *environment; /* "cartpole" */
    struct parley_act_configure mode;
    struct parley_train train; /* model is filled in */
    rollout_next_fn next;      /* called with trained's arg; NULL: there is one call of Train */
    bool is_stream;            /* workers step over a stream */
    bool has_own_seeds; /* each worker begins in a state of its own; else all begin in the same */
};

struct rollout {
    double wall_s;    /* processes started … processes ended */
    double rollout_s; /* time in which workers act, summed over episodes */
    double train_s;   /* learning */
    struct latency latency;
    uint64_t n_actions, n_forwards;
    double agent_cpu_s, workers_cpu_s;
    double running_reward;
};

/* Runs it. `trained`, which may be NULL, is called after each episode on another thread; its false
 * ends the run. */
enum status rollout_run(struct rollout *out, const struct rollout_config *config,
                        parley_trained_fn trained, void *arg, struct error *err) MUST_CHECK;

#endif
