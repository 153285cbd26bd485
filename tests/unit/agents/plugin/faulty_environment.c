/* An environment that breaks a rule: by a macro, or in a step by its action. Its observation is the
 * seed, the episode and the steps; actions are two numbers. */
#include <math.h>
#include <stdlib.h>

#include "agents/plugin/parley_environment.h"

#ifndef ABI
#define ABI PARLEY_ENVIRONMENT_ABI
#endif
#ifndef SIZE
#define SIZE sizeof(struct parley_environment)
#endif
#ifndef NAME
#define NAME "faulty-v0"
#endif
#ifndef STEP
#define STEP faulty_step
#endif
#ifndef ACTIONS
#define ACTIONS 0
#endif
#ifndef NUMBERS
#define NUMBERS 2
#endif
#ifndef OBSERVATIONS
#define OBSERVATIONS 3
#endif

struct state {
    float seed, episode, n_steps;
};

static void *faulty_make(void)
{
    static int n_made;

    return n_made++ == 40 ? NULL : calloc(1, sizeof(struct state));
}

static void faulty_show(const struct state *s, float *observation)
{
    observation[0] = s->seed;
    observation[1] = s->episode;
    observation[2] = s->n_steps;
}

static void faulty_reset(void *const *environments, size_t n, const uint64_t *seeds,
                         const uint32_t *episodes, struct parley_environment_results *out)
{
    for (size_t i = 0; i < n; i++) {
        *(struct state *)environments[i] = (struct state){(float)seeds[i], (float)episodes[i], 0};
        faulty_show(environments[i], out->observations + 3 * i);
        if (seeds[i] == 666 && episodes[i] == 0)
            out->failures[i] = "it does not begin";
    }
}

static __attribute__((unused)) void faulty_step(void *const *environments, size_t n,
                                                const struct parley_environment_actions *actions,
                                                struct parley_environment_results *out)
{
    for (size_t i = 0; i < n; i++) {
        const float *action = actions->numbers + 2 * i;
        struct state *s = environments[i];

        s->n_steps++;
        faulty_show(s, out->observations + 3 * i);
        out->rewards[i] = action[0] + (float)n; /* how many were stepped together */
        out->terminated[i] = action[1] == 1;
        out->truncated[i] = action[1] == 2;
        if (action[1] == 3)
            out->failures[i] = "it was told to fail";
        if (action[1] == 4)
            out->rewards[i] = NAN;
        if (action[1] == 5)
            out->observations[3 * i] = INFINITY;
    }
}

const struct parley_environment parley_environment = {
    .abi = ABI,
    .size_bytes = SIZE,
    .name = NAME,
    .n_observations = OBSERVATIONS,
    .n_actions = ACTIONS,
    .n_action_numbers = NUMBERS,
    .max_steps = 5,
    .make = faulty_make,
    .free = free,
    .reset = faulty_reset,
    .step = STEP,
};
