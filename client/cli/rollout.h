/* A training run with everything it takes, as real processes: a parleyd that serves the policy, and
 * observers that attach to it. */
#ifndef CLIENT_CLI_ROLLOUT_H
#define CLIENT_CLI_ROLLOUT_H

#include "base/status.h"
#include "client/cli/observer.h"
#include "client/lib/parley.h"

enum { ROLLOUT_MAX_OBSERVERS = 256 };

struct rollout_config {
    const char *policy;      /* a file */
    const char *environment; /* "cartpole" */
    struct parley_act_configure mode;
    struct parley_train train; /* model is filled in */
    bool is_stream;            /* observers step over a stream */
    bool has_own_seeds;        /* observers begin in different states; else all in the same */
};

struct rollout {
    double wall_s;    /* processes started … processes ended */
    double rollout_s; /* observers acting, the sum over episodes */
    double train_s;   /* learning */
    struct latency latency;
    uint64_t n_actions, n_forwards;
    double agent_cpu_s, observers_cpu_s;
    double running_reward;
};

/* trained (may be NULL) is called after each episode, on another thread; false ends the run. */
enum status rollout_run(struct rollout *out, const struct rollout_config *config,
                        parley_trained_fn trained, void *arg, struct error *err) MUST_CHECK;

#endif
