/* An environment of one's own, as a shared object that parleyd loads with --plugin FILE.so and
 * serves by name through parley.v1.Env:
 *
 *   cc -shared -fPIC -O2 my_environment.c $(pkg-config --cflags parley) -o my_environment.so
 *
 * The object defines one variable, parley_environment, with or without a parley_agent. Its
 * functions run inside parleyd, on the thread that serves all clients: if one of them crashes,
 * parleyd crashes. An environment whose steps take longer than some hundred microseconds should run
 * in a process of its own, which attaches to parleyd (Agents.Attach). `parley eval --world
 * plugin:FILE.so` and `parley observe --env` load the object, too, if its actions are choices.
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

/* The number rises if functions get other meanings. Otherwise members are only added, at the end of
 * structs; a struct's size_bytes says which of them it has. */
#define PARLEY_ENVIRONMENT_ABI 1

/* Where reset and step write the results of n environments. The arrays are zeroed before a call;
 * all numbers must be finite. reset need write observations and failures alone. */
struct parley_environment_results {
    float *observations; /* [n][n_observations] */
    float *rewards;      /* [n] written by step */
    bool *terminated;    /* [n] written by step: the episode has ended by its own rules */
    bool *truncated;     /* [n] written by step: the episode was cut */
    /* [n] One line that says why this environment has failed, valid until the next call; NULL: it
     * has not failed. A failed environment is not stepped again before a reset. */
    const char **failures;
};

/* One action for each of n environments, in the array for their kind of action. */
struct parley_environment_actions {
    const int64_t *choices; /* [n] each from 0 to n_actions - 1 */
    const float *numbers;   /* [n][n_action_numbers], finite */
};

struct parley_environment {
    uint32_t abi;            /* PARLEY_ENVIRONMENT_ABI */
    uint32_t size_bytes;     /* sizeof(struct parley_environment) */
    const char *name;        /* "MountainCar-v0": 1 to 63 letters, digits, '.', '_' and '-' */
    uint32_t n_observations; /* numbers of an observation, 1 to 65536 */
    uint32_t n_actions;      /* an action is one of so many choices, 2 to 65536; 0: it is numbers */
    uint32_t n_action_numbers; /* an action is so many numbers, 1 to 65536; 0: it is a choice */
    uint32_t max_steps;        /* an episode is cut after so many steps; 0: no bound */

    /* Returns a new environment, which parleyd resets before its first step. NULL: there is no
     * memory. parleyd frees it by free. */
    void *(*make)(void);
    void (*free)(void *environment);
    /* Begins an episode in each of n environments: number episodes[i] (0, 1, …) of the series that
     * follows from seeds[i]. */
    void (*reset)(void *const *environments, size_t n, const uint64_t *seeds,
                  const uint32_t *episodes, struct parley_environment_results *out);
    /* Takes one action in each of n environments. */
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
