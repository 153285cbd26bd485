/* Pendulum-v1: a free pendulum is to be swung up and held upright for 200 steps by a torque of -2
 * to 2. Equations and constants are those of gymnasium's classic_control/pendulum.py, with its
 * order of operations: f64 inside, the torque f32. An observation is cosine and sine of the angle
 * (0: upright) and the angular speed. The reward is -(angle^2 + 0.1 speed^2 + 0.001 torque^2). */
#ifndef WORLDS_ENVIRONMENT_PENDULUM_H
#define WORLDS_ENVIRONMENT_PENDULUM_H

#include "worlds/environment/environment.h"

struct pendulum {
    struct environment base;
    double theta, theta_dot; /* angle and angular speed */
};

extern const struct environment_type pendulum_environment;

#endif
