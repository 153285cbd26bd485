/* Steps of a policy without a server: the agent on a fresh file, and batches under the test's
 * control. */
#ifndef TESTS_SUPPORT_POLICY_DRIVER_H
#define TESTS_SUPPORT_POLICY_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "agents/policy/policy.h"

/* A step's reply. */
struct answer {
    int64_t action;
    float logp, value;
    uint64_t params_version;
    uint32_t batch_rows;
};

/* Opens the agent on a temporary file with parameters drawn by seed. Sets config's path, and its
 * backend ("cpu") and env if they are not set. */
enum status policy_drive_open(struct agent **out, const struct policy_spec *spec, uint64_t seed,
                              struct agent_config *config, struct error *err);

struct policy_batch {
    struct clone *const *clones;
    const float *observations; /* [n][n_observations] */
    size_t n, n_observations;
    uint64_t seed;
    bool is_first; /* of their episodes, for all rows */
    bool is_greedy;
    const uint32_t *row_keys; /* [n]; NULL: 0, 1, … */
};

/* One step of all rows together; clones of one agent stand together. */
enum status policy_drive(const struct policy_batch *b, struct answer *answers, struct error *err);

/* Whether two non-empty files of less than 16 KiB hold the same bytes. */
bool policy_same_files(const char *a, const char *b);

#endif
