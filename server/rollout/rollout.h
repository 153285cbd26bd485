/* In a rollout a policy acts in all environments of a vector for a number of steps. A rollout runs
 * inside the daemon, so only the trajectories leave the daemon. The step after the end of an
 * episode resets the environment and ignores the action. This folder knows nothing of gRPC. All
 * functions are called on the loop. */
#ifndef SERVER_ROLLOUT_ROLLOUT_H
#define SERVER_ROLLOUT_ROLLOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/status.h"
#include "server/environment/vectors.h"

struct model;
struct rollout_row;

enum { ROLLOUT_MAX_STEPS = 1 << 16, ROLLOUT_MAX_BYTES = 32 << 20 /* of all results */ };

/* All rollouts of a daemon. */
struct rollouts {
    struct list list;
    void (*on_idle)(void *arg); /* called when no rollout is left; may be NULL */
    void *idle_arg;
};

struct vector_rollout_config {
    struct rollouts *all;
    struct vectors *vectors;
    uint32_t principal;
    uint64_t handle;     /* the vector's */
    struct model *model; /* the policy */
    size_t n_steps;
    uint64_t seed;         /* the seed of the policy's draws */
    bool resets;           /* all environments begin an episode; else only those that do not run */
    bool is_greedy;        /* the policy takes its likeliest actions */
    const float *epsilons; /* [n_epsilons] one for each environment, or one for all, or none: 0 */
    size_t n_epsilons;
    const float *states;   /* [n][n_state] of a recurrent policy, at the start; NULL: zeros */
    size_t n_states;       /* numbers of states, which must be n * n_state */
    uint32_t row_multiple; /* the number of rows of the model's batches in lock-step; 0: any */
    uint64_t deadline_us;  /* 0: no deadline */
};

/* A rollout, in the caller's memory. Before rollout_start it is zeroed but for config and done. Its
 * arrays lie in arena; those from observation to reset are the results. */
struct vector_rollout {
    struct link link;
    struct vector_rollout_config config;
    struct environment_spaces spaces;
    size_t n;                 /* environments */
    size_t t;                 /* steps that are complete */
    struct rollout_row *rows; /* [n] the environments' clones and turns */
    size_t n_asked;           /* rows whose turns are under way */
    uint64_t draw_seed;
    bool is_starting, is_cancelled;
    struct error err;
    struct vector_request request;
    struct arena arena, step_arena;
    uint32_t *indices;     /* [n] the environments that are reset at first */
    int64_t *step_choices; /* [n] the actions of a step, if they are choices */
    float *step_numbers;   /* [n][n_action_numbers] else */
    float *observation;    /* [n][n_steps + 1][n_observation] */
    int64_t *choices;      /* [n][n_steps] the actions, if they are choices */
    float *numbers;        /* [n][n_steps][n_action_numbers] else */
    float *logp, *value;   /* [n][n_steps] 0 if the policy gives none */
    float *reward;         /* [n][n_steps] */
    bool *terminated;      /* [n][n_steps] */
    bool *truncated;       /* [n][n_steps] */
    bool *reset;           /* [n][n_steps] whether the step was a reset */
    /* [n][n_state] of a recurrent policy, before the first step and after the last; 0 where an
     * episode begins there */
    float *state, *last_state;
    size_t n_state;                       /* 0: the policy has none */
    uint64_t first_version, last_version; /* of the parameters that acted */
    /* [n] the first loss of an environment's worker, or NULL. The steps until the environment has
     * another worker are resets. */
    const struct error **lost;
    /* Called once, after all else; then r is the caller's again. After a failure the environments
     * stay as they are then. */
    void (*done)(struct vector_rollout *r, const struct error *err);
};

void rollouts_init(struct rollouts *all);
bool rollouts_are_idle(const void *rollouts);
/* Cancels all rollouts. */
void rollouts_end(void *rollouts);

/* Starts a rollout. INVALID names the field of EnvRolloutRequest; NOT_FOUND if there is no such
 * vector; PRECONDITION if the model's inputs or actions do not fit the environments, or the vector
 * is in use; UNAVAILABLE, EXHAUSTED. */
enum status rollout_start(struct vector_rollout *r, struct error *err) MUST_CHECK;
/* Cancels a rollout: done is called with CANCELLED, soon, or inside if nothing is under way. */
void rollout_cancel(struct vector_rollout *r);

#endif
