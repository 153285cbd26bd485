#include "worlds/environment/grid_world.h"

#include "base/counter_rng.h"
#include "base/list.h"

enum { GRID_SIZE = 5, GRID_CELLS = GRID_SIZE * GRID_SIZE };

static void grid_world_observe(const struct grid_world *g, float *observation)
{
    observation[0] = (float)g->agent[0];
    observation[1] = (float)g->agent[1];
    observation[2] = (float)g->target[0];
    observation[3] = (float)g->target[1];
}

static void grid_world_place(int cell[2], int number)
{
    cell[0] = number / GRID_SIZE;
    cell[1] = number % GRID_SIZE;
}

/* Two different cells, each pair as likely. */
static void grid_world_reset(struct environment *e, uint64_t seed, uint32_t episode,
                             float *observation)
{
    struct grid_world *g = container_of(e, struct grid_world, base);
    int agent = (int)(counter_rng_uniform(seed, episode, 0, 0) * GRID_CELLS);
    int target = (int)(counter_rng_uniform(seed, episode, 1, 0) * (GRID_CELLS - 1));

    grid_world_place(g->agent, agent);
    grid_world_place(g->target, target >= agent ? target + 1 : target);
    grid_world_observe(g, observation);
}

static void grid_world_step(struct environment *e, size_t action, struct environment_step *out)
{
    static const int ways[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    struct grid_world *g = container_of(e, struct grid_world, base);

    for (size_t i = 0; i < 2; i++) {
        int to = g->agent[i] + ways[action][i];

        g->agent[i] = to < 0 ? 0 : to >= GRID_SIZE ? GRID_SIZE - 1 : to;
    }
    grid_world_observe(g, out->observation);
    out->terminated = g->agent[0] == g->target[0] && g->agent[1] == g->target[1];
    out->reward = out->terminated ? 1 : 0;
}

const struct environment_type grid_world_environment = {
    .name = "GridWorld-v0",
    .size = sizeof(struct grid_world),
    .n_observation = 4,
    .n_actions = 4,
    .spaces = "{\"observation\": {\"type\": \"dict\", \"spaces\": {"
              "\"agent\": {\"type\": \"box\", \"dtype\": \"int64\", \"shape\": [2], \"low\": 0, "
              "\"high\": 4}, "
              "\"target\": {\"type\": \"box\", \"dtype\": \"int64\", \"shape\": [2], \"low\": 0, "
              "\"high\": 4}}}, \"action\": {\"type\": \"discrete\", \"n\": 4, \"start\": 0}}",
    .max_steps = 300,
    .reset = grid_world_reset,
    .step = grid_world_step,
};
