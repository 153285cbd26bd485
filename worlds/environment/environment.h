/* An environment that an agent acts in, as gymnasium's. Kinds are const tables; environment_open
 * allocates. An episode begins with a reset and ends with the step that is terminated or truncated;
 * the caller must reset the environment before the next step. One thread at a time. */
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
    bool truncated;  /* the episode was cut at max_steps */
};

struct environment_type {
    const char *name;        /* gymnasium's name: "CartPole-v1" */
    size_t size;             /* size of the struct, whose first member is struct environment */
    size_t n_observation;    /* numbers of an observation */
    size_t n_actions;        /* an action is one of so many choices; 0: it is numbers */
    size_t n_action_numbers; /* an action is so many numbers; 0: it is a choice */
    const char *spaces;      /* what the numbers mean, as parley.v1's EnvOpenResponse.spaces */
    size_t max_steps;        /* an episode is cut after so many steps, at least 1 */
    double solved;           /* mean reward from which on it counts as solved; 0: not known */
    /* Starts episode number `episode` of the series that follows from seed, and writes the first
     * observation, [n_observation]. */
    void (*reset)(struct environment *e, uint64_t seed, uint32_t episode, float *observation);
    /* Takes one action that is a choice. NULL if actions are numbers. */
    void (*step)(struct environment *e, size_t action, struct environment_step *out);
    /* Takes one action of numbers, [n_action_numbers], all finite. NULL if actions are choices. */
    void (*step_numbers)(struct environment *e, const float *action, struct environment_step *out);
};

struct environment {
    const struct environment_type *type;
    bool is_over;   /* no episode has begun, or it has ended: the caller must reset */
    size_t n_steps; /* steps of this episode so far */
};

/* Opens an environment by its name. Case does not matter, and a name without its version stands for
 * the one with it: "cartpole" for "CartPole-v1". STATUS_NOT_FOUND lists the known names. */
enum status environment_open(struct environment **out, const char *name,
                             struct error *err) MUST_CHECK;
void environment_close(struct environment *e);

/* Starts an episode, as the table's reset. observation: [n_observation]. */
void environment_reset(struct environment *e, uint64_t seed, uint32_t episode, float *observation);
/* Takes one action, which is below n_actions; the episode must not be over (both asserted). Cuts
 * the episode at max_steps. */
void environment_step(struct environment *e, size_t action, struct environment_step *out);
/* Takes one action of numbers, [n_action_numbers], all finite; else as environment_step. */
void environment_step_numbers(struct environment *e, const float *action,
                              struct environment_step *out);

/* Returns the kind of that name (as for environment_open), NULL if there is none. */
const struct environment_type *environment_type_find(const char *name);
/* Opens an environment of a kind; never NULL. */
struct environment *environment_open_type(const struct environment_type *type);
/* Returns the i-th kind, NULL behind the last. */
const struct environment_type *environment_type_at(size_t i);

#endif
