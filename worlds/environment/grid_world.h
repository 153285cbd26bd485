/* GridWorld-v0: an agent starts in a cell of a grid of 5 x 5 and is to reach another cell, the
 * target. The rules are those of gymnasium's tutorial "Create a Custom Environment", with episodes
 * of at most 300 steps: actions 0 to 3 move the agent by (+1, 0), (0, +1), (-1, 0) and (0, -1); a
 * move beyond the border leaves it where it is. The reward is 1 at the target, else 0. An
 * observation is the agent's cell and the target's, two numbers each. */
#ifndef WORLDS_ENVIRONMENT_GRID_WORLD_H
#define WORLDS_ENVIRONMENT_GRID_WORLD_H

#include "worlds/environment/environment.h"

struct grid_world {
    struct environment base;
    int agent[2], target[2]; /* cells, each coordinate 0 to 4 */
};

extern const struct environment_type grid_world_environment;

#endif
