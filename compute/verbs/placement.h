/* Which device each model goes to, so that devices are evenly loaded and models that talk much are
 * near each other. The objective is that of Machin's ModelAssigner (machin/parallel/assigner.py)
 * with three differences: a device's memory is a bound rather than a cost, the minimum is searched
 * for exactly, and both costs are scaled to the problem, so that weights mean the same in each.
 *
 *   cost            = connection_weight · connection_cost + load_weight · load_cost
 *   connection_cost = Σ over pairs of models: traffic · distance of their devices,
 *                     divided by Σ traffic · the largest distance: 0 (all together) to 1
 *   load_cost       = Σ over devices: (its part of all complexity − its part of all speed)²
 *
 * Where no device has a speed, each is to get the same part. */
#ifndef COMPUTE_VERBS_PLACEMENT_H
#define COMPUTE_VERBS_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { PLACEMENT_MODELS_MAX = 64, PLACEMENT_DEVICES_MAX = 64 };

/* Each number is 0, or within 1e-100 and 1e100. */
struct placement_problem {
    uint32_t n_models, n_devices; /* from 1 */
    struct {
        double bytes, complexity;
    } models[PLACEMENT_MODELS_MAX];
    struct {
        double bytes, speed;
    } devices[PLACEMENT_DEVICES_MAX];
    double traffic[PLACEMENT_MODELS_MAX][PLACEMENT_MODELS_MAX];    /* symmetric */
    double distance[PLACEMENT_DEVICES_MAX][PLACEMENT_DEVICES_MAX]; /* symmetric, 0 to itself */
    double connection_weight, load_weight;
};

struct placement {
    uint32_t device[PLACEMENT_MODELS_MAX]; /* of each model */
    double connection_cost, load_cost, cost;
    bool is_exact; /* no placement costs less; false: the search ended at its bound */
};

/* Searches at most max_nodes partial placements; the same problem has the same answer. Fails with
 * STATUS_EXHAUSTED where no placement has room for all models, or none was found within the
 * bound. */
enum status placement_find(struct placement *out, const struct placement_problem *problem,
                           uint64_t max_nodes, struct error *err) MUST_CHECK;

#endif
