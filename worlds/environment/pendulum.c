#include "worlds/environment/pendulum.h"

#include <math.h>

#include "base/counter_rng.h"
#include "base/list.h"
#include "base/real.h"

static const double max_speed = 8.0, tau_s = 0.05, gravity = 10.0, mass = 1.0, length = 1.0;
static const float max_torque = 2.0F;

static void pendulum_observe(const struct pendulum *p, float *observation)
{
    observation[0] = (float)real_cos(p->theta);
    observation[1] = (float)real_sin(p->theta);
    observation[2] = (float)p->theta_dot;
}

/* The angle uniform in [-pi, pi), the speed in [-1, 1). */
static void pendulum_reset(struct environment *e, uint64_t seed, uint32_t episode,
                           float *observation)
{
    struct pendulum *p = container_of(e, struct pendulum, base);

    p->theta = (double)counter_rng_uniform(seed, episode, 0, 0) * 2 * M_PI - M_PI;
    p->theta_dot = (double)counter_rng_uniform(seed, episode, 1, 0) * 2 - 1;
    pendulum_observe(p, observation);
}

/* Within [-pi, pi). */
static double normal_angle(double angle)
{
    double turned = fmod(angle + M_PI, 2 * M_PI);

    return (turned < 0 ? turned + 2 * M_PI : turned) - M_PI;
}

static void pendulum_step(struct environment *e, const float *action, struct environment_step *out)
{
    struct pendulum *p = container_of(e, struct pendulum, base);
    float torque = fminf(fmaxf(action[0], -max_torque), max_torque);
    double angle = normal_angle(p->theta);
    double push = (double)((float)(3.0 / (mass * length * length)) * torque);

    out->reward = (float)-(angle * angle + 0.1 * (p->theta_dot * p->theta_dot) +
                           (double)(0.001F * (torque * torque)));
    p->theta_dot += (3 * gravity / (2 * length) * real_sin(p->theta) + push) * tau_s;
    p->theta_dot = fmin(fmax(p->theta_dot, -max_speed), max_speed);
    p->theta += p->theta_dot * tau_s; /* by the new speed */
    pendulum_observe(p, out->observation);
    out->terminated = false;
}

const struct environment_type pendulum_environment = {
    .name = "Pendulum-v1",
    .size = sizeof(struct pendulum),
    .n_observation = 3,
    .n_action_numbers = 1,
    .spaces = "{\"observation\": {\"type\": \"box\", \"dtype\": \"float32\", \"shape\": [3], "
              "\"low\": [-1, -1, -8], \"high\": [1, 1, 8]}, \"action\": {\"type\": \"box\", "
              "\"dtype\": \"float32\", \"shape\": [1], \"low\": -2, \"high\": 2}}",
    .max_steps = 200,
    .reset = pendulum_reset,
    .step_numbers = pendulum_step,
};
