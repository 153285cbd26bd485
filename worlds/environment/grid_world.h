/* GridWorld-v0: from its cell in a grid of 5 x 5 an agent is to reach another one, the target.
 * Rules of gymnasium's tutorial "Create a Custom Environment", registered with 300 steps: actions 0
 * to 3 go to (+1, 0), (0, +1), (-1, 0) and (0, -1), a border holds; a reward of 1 at the target,
 * else 0. Observation: the agent's cell and the target's, two numbers each. */
#ifndef WORLDS_ENVIRONMENT_GRID_WORLD_H
#define WORLDS_ENVIRONMENT_GRID_WORLD_H

#include "worlds/environment/environment.h"

struct grid_world {
    struct environment base;
    int agent[2], target[2];
};

extern const struct environment_type grid_world_environment;

#endif
