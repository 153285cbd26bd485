/* The facet of kinds of agents that learn from steps: policies. The loss of a step is minimised by
 * Adam (beta 0.9 and 0.999, epsilon 1e-8). All functions but train and record run on the compute
 * thread, so that no step of the agent runs meanwhile. */
#ifndef AGENTS_LEARNING_H
#define AGENTS_LEARNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct agent;
struct clone;

/* How an original learns from the records of n clones of T steps each. The loss is the sum over
 * clones and steps of -logp * weight, divided by n. */
enum learn_loss {
    LEARN_FIXED,    /* weight: the clone's own return of the step */
    LEARN_TUTORIAL, /* weight: the sum of all clones' returns of the step, a known fault */
};

struct learn_config {
    enum learn_loss loss;
    float learning_rate; /* of Adam; above 0 */
    bool normalise;      /* scales returns to mean 0 and deviation 1 before they become weights */
    /* 0: none. value_weight needs a value head: the value is subtracted from the weight, and
     * value_weight * (value - return)^2 / 2 is added to the loss. entropy_weight * entropy is
     * subtracted. */
    float value_weight, entropy_weight;
    float max_gradient_norm; /* a longer gradient is shortened to this; 0: none is */
};

/* Steps to learn from that the caller has, by V-trace (agents/policy/vtrace.h): n trajectories of
 * n_steps steps. */
struct learn_trajectories {
    size_t n, n_steps;
    const float *observations; /* [n][n_steps + 1][n_observations] */
    /* [n][n_state] of a recurrent policy, before the first observations; NULL: zeros. The state is
     * 0 again behind a reset, and behind a step that ended the episode by its own rules. */
    const float *states;
    const int64_t *choices; /* [n][n_steps], or */
    const float *numbers;   /* [n][n_steps][n_action_numbers] */
    const float *logp;      /* [n][n_steps] when they acted; NULL: importance weights are 1 */
    const float *rewards;   /* [n][n_steps] */
    const bool *terminated; /* [n][n_steps] */
    const bool *resets;     /* [n][n_steps] steps that do not count: an environment was reset */
    float gamma, lambda, rho_max, c_max;
    /* PPO's clip: an action whose importance weight is already beyond 1 ± this, on the side to
     * which its advantage would move it, has no gradient; 0: every action has. */
    float clip;
};

/* Steps to learn what actions are worth from, by double Q-learning: the target of Q is reward +
 * discount * the target parameters' Q of the next observation's best action, the loss Huber's. */
struct learn_transitions {
    size_t n;
    const float *observations, *next; /* [n][n_observations]; next: after the rewards */
    const int64_t *choices;           /* [n] */
    const float *rewards, *discounts; /* [n]; a discount is 0 where the episode ended */
    const float *weights;             /* [n] of importance; NULL: 1 */
    bool moves_target;                /* the target parameters become those after this step */
    float *errors;                    /* [n] out: Q - its target, before the step */
};

struct learn_report {
    uint64_t params_version; /* of the parameters after the step */
    double loss;             /* before the step */
    double gradient_norm;    /* of all parameters together */
    double entropy;          /* of the action, mean over all steps; nats */
};

struct agent_learning {
    /* Says whether turns observed from now on run in training mode (dropout); off at first. Loop.
     */
    void (*train)(struct agent *a, bool on);
    /* Starts an empty record, in which the clone keeps what learning needs of each completed turn,
     * at most max_steps: one more is PRECONDITION at observe. 0 drops the record, and the clone
     * keeps none. INVALID above 2^20, EXHAUSTED without memory. Loop, while no turn of c is under
     * way. */
    enum status (*record)(struct clone *c, size_t max_steps, struct error *err);
    /* Does one step of the optimiser from the records of n clones, which are then emptied. returns
     * is [n][n_steps], in the order of clones. PRECONDITION if a record has not n_steps, INVALID if
     * a number is not finite; on these and without memory nothing has changed. The clones must not
     * be used until the function returns. */
    enum status (*learn)(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err);
    /* Optional, both or none: do the same from steps that the caller has. Losses and weights are
     * means over the steps that count. */
    enum status (*learn_trajectories)(struct agent *a, const struct learn_trajectories *from,
                                      const struct learn_config *config, struct learn_report *out,
                                      struct error *err);
    enum status (*learn_transitions)(struct agent *a, const struct learn_transitions *from,
                                     const struct learn_config *config, struct learn_report *out,
                                     struct error *err);
    /* Optional, both or none, of recurrent policies: read and write a clone's state, n_state
     * numbers (struct acting_info). Loop, while no turn of c is under way. */
    void (*get_state)(const struct clone *c, float *out);
    void (*set_state)(struct clone *c, const float *state);
    /* Optional: writes the parameters to a file that the kind's open reads, by rename. */
    enum status (*save)(struct agent *a, const char *path, struct error *err);
};

#endif
