/* An environment of one's own, as a shared object that parleyd loads with --plugin FILE.so and
 * serves by name through parley.v1.Env:
 *
 *   cc -shared -fPIC -O2 my_environment.c $(pkg-config --cflags parley) -o my_environment.so
 *
 * The object defines one variable, parley_environment, beside or without a parley_agent. Its
 * functions run inside parleyd, on the thread that serves everybody: one that crashes takes parleyd
 * with it, and one that takes longer than some hundred microseconds is better a worker's, who
 * attaches itself (Agents.Attach). `parley eval --world plugin:FILE.so` and `parley observe --env`
 * load it, too, where its actions are choices.
 *
 * An episode begins with a reset and ends when a step says so, or after max_steps. parleyd steps no
 * environment whose episode is over. */
#ifndef PARLEY_ENVIRONMENT_H
#define PARLEY_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Another number: functions have other meanings. Members are only added, at the end of structs;
 * size_bytes says which of them are there. */
#define PARLEY_ENVIRONMENT_ABI 1

/* What became of n environments. Zeroed when a function gets it; all numbers are to be finite. */
struct parley_environment_results {
    float *observations; /* [n][n_observations] */
    /* Of a step: */
    float *rewards;   /* [n] */
    bool *terminated; /* [n] the episode ended by its own rules */
    bool *truncated;  /* [n] it was cut */
    /* [n] A line that says why this environment failed, valid until the next call; it is lost for
     * its user until it is reset. NULL: it has not failed. */
    const char **failures;
};

/* What n environments are to do. */
struct parley_environment_actions {
    const int64_t *choices; /* [n] each less than n_actions, or */
    const float *numbers;   /* [n][n_action_numbers], finite */
};

struct parley_environment {
    uint32_t abi;              /* PARLEY_ENVIRONMENT_ABI */
    uint32_t size_bytes;       /* sizeof(struct parley_environment) */
    const char *name;          /* "MountainCar-v0": 1 to 63 letters, digits, '.', '_' and '-' */
    uint32_t n_observations;   /* numbers of an observation, 1 to 65536 */
    uint32_t n_actions;        /* an action is one of so many choices, 2 to 65536; or */
    uint32_t n_action_numbers; /* it is so many numbers, 1 to 65536 */
    uint32_t max_steps;        /* of an episode, which is then cut; 0: no bound */

    /* An environment, not reset yet. NULL: there is no memory. */
    void *(*make)(void);
    void (*free)(void *environment);
    /* Begins an episode of each: number episodes[i], 0, 1, …, of the series that follows from
     * seeds[i]. */
    void (*reset)(void *const *environments, size_t n, const uint64_t *seeds,
                  const uint32_t *episodes, struct parley_environment_results *out);
    /* One action of each. */
    void (*step)(void *const *environments, size_t n,
                 const struct parley_environment_actions *actions,
                 struct parley_environment_results *out);
};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
extern const struct parley_environment parley_environment;

#ifdef __cplusplus
}
#endif

#endif
