#include "worlds/environment/cartpole.h"

#include <math.h>

#include "base/counter_rng.h"
#include "base/list.h"
#include "base/real.h"

static const double gravity = 9.8, cart_mass = 1.0, pole_mass = 0.1;
static const double half_length = 0.5; /* of the pole */
static const double push = 10.0, tau_s = 0.02;
static const double max_x = 2.4, max_theta = 12 * 2 * M_PI / 360;

static struct cartpole *cartpole_of(struct environment *e)
{
    return container_of(e, struct cartpole, base);
}

static void cartpole_observe(const struct cartpole *c, float *observation)
{
    observation[0] = (float)c->x;
    observation[1] = (float)c->x_dot;
    observation[2] = (float)c->theta;
    observation[3] = (float)c->theta_dot;
}

/* Each of the four uniform in [-0.05, 0.05). */
static void cartpole_reset(struct environment *e, uint64_t seed, uint32_t episode,
                           float *observation)
{
    struct cartpole *c = cartpole_of(e);
    double start[4];

    for (uint32_t i = 0; i < 4; i++)
        start[i] = (double)counter_rng_uniform(seed, episode, i, 0) * 0.1 - 0.05;
    c->x = start[0];
    c->x_dot = start[1];
    c->theta = start[2];
    c->theta_dot = start[3];
    cartpole_observe(c, observation);
}

static void cartpole_step(struct environment *e, size_t action, struct environment_step *out)
{
    struct cartpole *c = cartpole_of(e);
    const double mass = cart_mass + pole_mass, pole_moment = pole_mass * half_length;
    double force = action == 1 ? push : -push;
    double sin_theta = real_sin(c->theta), cos_theta = real_cos(c->theta);
    double temp = (force + pole_moment * (c->theta_dot * c->theta_dot) * sin_theta) / mass;
    double theta_acc = (gravity * sin_theta - cos_theta * temp) /
                       (half_length * (4.0 / 3.0 - pole_mass * (cos_theta * cos_theta) / mass));
    double x_acc = temp - pole_moment * theta_acc * cos_theta / mass;

    c->x += tau_s * c->x_dot; /* by the old speeds */
    c->x_dot += tau_s * x_acc;
    c->theta += tau_s * c->theta_dot;
    c->theta_dot += tau_s * theta_acc;
    cartpole_observe(c, out->observation);
    out->reward = 1;
    out->terminated = fabs(c->x) > max_x || fabs(c->theta) > max_theta;
}

const struct environment_type cartpole_environment = {
    .name = "CartPole-v1",
    .size = sizeof(struct cartpole),
    .n_observation = 4,
    .n_actions = 2,
    .spaces = "{\"observation\": {\"type\": \"box\", \"dtype\": \"float32\", \"shape\": [4], "
              "\"low\": [-4.8, null, -0.41887903, null], \"high\": [4.8, null, 0.41887903, null]}, "
              "\"action\": {\"type\": \"discrete\", \"n\": 2, \"start\": 0}}",
    .max_steps = 500,
    .solved = 475,
    .reset = cartpole_reset,
    .step = cartpole_step,
};
