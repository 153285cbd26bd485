/* Steps of a policy without a server: the agent on a fresh file, and batches in the test's own
 * hands. */
#ifndef TESTS_SUPPORT_POLICY_DRIVER_H
#define TESTS_SUPPORT_POLICY_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "agents/policy/policy.h"

/* What a step answered. */
struct answer {
    int64_t action;
    float logp, value;
    uint64_t params_version;
    uint32_t batch_rows;
};

/* The agent over a file that is written for it, with parameters by seed, and removed again.
 * config's path is set here; its backend "cpu" and its env unless they are set. */
enum status policy_drive_open(struct agent **out, const struct policy_spec *spec, uint64_t seed,
                              struct agent_config *config, struct error *err);

struct policy_batch {
    struct clone *const *clones;
    const float *observations; /* [n][n_observations] */
    size_t n, n_observations;
    uint64_t seed;
    bool is_first; /* of their episodes, all of them */
    bool is_greedy;
    const uint32_t *row_keys; /* [n]; NULL: 0, 1, … */
};

/* One step of all of them together. */
enum status policy_drive(const struct policy_batch *b, struct answer *answers, struct error *err);

/* Two files, of less than 16 KiB, of which neither is empty, hold the same bytes. */
bool policy_same_files(const char *a, const char *b);

#endif
