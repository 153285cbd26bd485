/* An environment that an agent acts in. Kinds are const tables; the framework allocates. An
 * episode begins with a reset and ends when a step says so; the caller must not step after that.
 * One thread at a time. */
#ifndef WORLDS_ENVIRONMENT_ENVIRONMENT_H
#define WORLDS_ENVIRONMENT_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct environment;

enum { ENVIRONMENT_MAX_OBSERVATION = 64 };

struct environment_step {
    float observation[ENVIRONMENT_MAX_OBSERVATION]; /* [n_observation] after the action */
    float reward;
    bool terminated; /* the episode ended by its own rules */
    bool truncated;  /* max_steps cut it */
};

struct environment_type {
    const char *name; /* gymnasium's: "CartPole-v1" */
    size_t size;      /* of the struct, whose first member is struct environment */
    size_t n_observation;
    size_t n_actions;        /* choices; 0: an action is numbers */
    size_t n_action_numbers; /* of an action that is no choice; else 0 */
    size_t max_steps;        /* of an episode */
    double solved;           /* mean reward at which it counts as solved; 0: not said */
    /* Starts episode number `episode` of the series that follows from seed. */
    void (*reset)(struct environment *e, uint64_t seed, uint32_t episode, float *observation);
    void (*step)(struct environment *e, size_t action, struct environment_step *out);
    /* Instead, where an action is numbers, [n_action_numbers], all finite. */
    void (*step_numbers)(struct environment *e, const float *action, struct environment_step *out);
};

struct environment {
    const struct environment_type *type;
    bool is_over;   /* the caller must reset */
    size_t n_steps; /* of this episode */
};

/* By name; STATUS_NOT_FOUND lists the known names. Case does not matter, and "cartpole" stands for
 * "CartPole-v1". */
enum status environment_open(struct environment **out, const char *name,
                             struct error *err) MUST_CHECK;
void environment_close(struct environment *e);

/* observation: [n_observation] */
void environment_reset(struct environment *e, uint64_t seed, uint32_t episode, float *observation);
/* action < n_actions, the episode not over (asserted). Cuts the episode at max_steps. */
void environment_step(struct environment *e, size_t action, struct environment_step *out);
/* The same where an action is numbers: [n_action_numbers], all finite. */
void environment_step_numbers(struct environment *e, const float *action,
                              struct environment_step *out);

/* The kind of a name; NULL: none. */
const struct environment_type *environment_type_find(const char *name);
struct environment *environment_open_type(const struct environment_type *type);
/* NULL after the last. */
const struct environment_type *environment_type_at(size_t i);

#endif
