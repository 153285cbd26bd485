/* Agents that act on observations, not on messages: what their workers take and give. Such agents
 * are stateless, and answer each row once. Loop. */
#ifndef AGENTS_REMOTE_TENSORS_H
#define AGENTS_REMOTE_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/tensor.h"
#include "agents/turn.h"
#include "base/status.h"

enum { REMOTE_MAX_NUMBERS = 65536 };

/* An action is one of n_actions choices, or n_action_numbers numbers. */
struct remote_tensors {
    size_t n_observations; /* 0: the agent takes messages */
    size_t n_actions, n_action_numbers;
    bool has_logp, has_value;
};

bool remote_tensors_are_equal(const struct remote_tensors *a, const struct remote_tensors *b);
/* Of an offer. */
enum status remote_tensors_check(const struct remote_tensors *t, struct error *err) MUST_CHECK;
/* Of a turn. */
enum status remote_tensors_check_observation(const struct remote_tensors *t,
                                             const struct observation *seen,
                                             struct error *err) MUST_CHECK;
/* Of a worker's answer. */
enum status remote_tensors_check_output(const struct remote_tensors *t,
                                        const struct tensor_view *output, size_t n_output,
                                        struct error *err) MUST_CHECK;
/* Copies what was checked into the turn's reply. */
enum status remote_tensors_keep(struct agent_turn *turn, const struct tensor_view *output,
                                size_t n_output, struct error *err) MUST_CHECK;

#endif
