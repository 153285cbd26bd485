/* A rollout: a policy acts in all environments of a vector for a number of steps, inside the
 * daemon, so only the trajectories leave it. The step after the end of an episode resets the
 * environment; its action is ignored. Knows nothing of gRPC. Loop. */
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

enum { ROLLOUT_MAX_STEPS = 1 << 16, ROLLOUT_MAX_BYTES = 32 << 20 /* of its trajectories */ };

/* All rollouts of a daemon. */
struct rollouts {
    struct list list;
    void (*on_idle)(void *arg); /* none is left; may be NULL */
    void *idle_arg;
};

struct vector_rollout_config {
    struct rollouts *all;
    struct vectors *vectors;
    uint32_t principal;
    uint64_t handle;
    struct model *model;
    size_t n_steps;
    uint64_t seed;         /* of the policy's draws */
    bool resets;           /* all environments begin an episode; else those that have none */
    bool is_greedy;        /* the likeliest actions */
    const float *epsilons; /* [n_epsilons] one each, or one, or none: 0 */
    size_t n_epsilons;
    uint32_t row_multiple; /* the model's batches have so many rows, in lock-step; 0: any */
    uint64_t deadline_us;  /* 0: none */
};

/* Zeroed but for config and done at rollout_start. The arrays are the results. */
struct vector_rollout {
    struct link link;
    struct vector_rollout_config config;
    struct environment_spaces spaces;
    size_t n;                 /* environments */
    size_t t;                 /* steps that are complete */
    struct rollout_row *rows; /* [n] */
    size_t n_asked;           /* rows whose turns are under way */
    uint64_t draw_seed;
    bool is_starting, is_cancelled;
    struct error err;
    struct vector_request request;
    struct arena arena, step_arena;
    uint32_t *indices;                    /* [n] of those that are reset at first */
    int64_t *step_choices;                /* [n] the actions of a step, or */
    float *step_numbers;                  /* [n][n_action_numbers] */
    float *observation;                   /* [n][n_steps + 1][n_observation] */
    int64_t *choices;                     /* [n][n_steps], or */
    float *numbers;                       /* [n][n_steps][n_action_numbers] */
    float *logp, *value;                  /* [n][n_steps] 0 where the policy gives none */
    float *reward;                        /* [n][n_steps] */
    bool *terminated;                     /* [n][n_steps] */
    bool *truncated;                      /* [n][n_steps] */
    bool *reset;                          /* [n][n_steps] the step was a reset */
    uint64_t first_version, last_version; /* of the parameters that acted */
    /* Called once, later, last: then r is the caller's again. After a failure the environments are
     * where they got to. */
    void (*done)(struct vector_rollout *r, const struct error *err);
};

void rollouts_init(struct rollouts *all);
bool rollouts_are_idle(const struct rollouts *all);
/* Cancels all. */
void rollouts_end(struct rollouts *all);

/* INVALID names the field of EnvRolloutRequest; NOT_FOUND; PRECONDITION for a model whose inputs or
 * actions are not the environments', or a vector that is in use; UNAVAILABLE, EXHAUSTED. */
enum status rollout_start(struct vector_rollout *r, struct error *err) MUST_CHECK;
/* done comes soon, with CANCELLED; inside, if nothing is under way. */
void rollout_cancel(struct vector_rollout *r);

#endif
