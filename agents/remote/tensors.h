/* The tensors of remote agents that act on observations and not on messages: what their workers
 * take and give. Such agents are stateless, and answer each row once. Loop. */
#ifndef AGENTS_REMOTE_TENSORS_H
#define AGENTS_REMOTE_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/tensor.h"
#include "agents/turn.h"
#include "base/status.h"

enum { REMOTE_MAX_NUMBERS = 65536 }; /* bound of each number of struct remote_tensors */

/* An action is one of n_actions choices, or n_action_numbers numbers; the other of the two is 0. */
struct remote_tensors {
    size_t n_observations; /* numbers of an observation; 0: the agent takes messages */
    size_t n_actions, n_action_numbers;
    bool has_logp, has_value; /* the output has the action's log-probability; a value */
};

bool remote_tensors_are_equal(const struct remote_tensors *a, const struct remote_tensors *b);
/* Checks the tensors of a worker's offer. INVALID names the field that is at fault. */
enum status remote_tensors_check(const struct remote_tensors *t, struct error *err) MUST_CHECK;
/* Checks that a turn has exactly one tensor, an observation of this shape with finite numbers.
 * INVALID names the field that is at fault. */
enum status remote_tensors_check_observation(const struct remote_tensors *t,
                                             const struct observation *seen,
                                             struct error *err) MUST_CHECK;
/* Checks that the output in a worker's answer has these tensors. INVALID says which is wrong. */
enum status remote_tensors_check_output(const struct remote_tensors *t,
                                        const struct tensor_view *output, size_t n_output,
                                        struct error *err) MUST_CHECK;
/* Copies an output that was checked into the turn's reply, in the turn's arena. EXHAUSTED. */
enum status remote_tensors_keep(struct agent_turn *turn, const struct tensor_view *output,
                                size_t n_output, struct error *err) MUST_CHECK;

#endif
