/* Pendulum-v1: a free pendulum is to be swung up and held by a torque of -2 to 2; 200 steps.
 * Equations and constants of gymnasium's classic_control/pendulum.py, with its order of operations:
 * f64 inside, the torque f32. Observation: cosine and sine of the angle (0: upright), angular
 * speed. Reward: minus the squares of angle, speed (by 0.1) and torque (by 0.001). */
#ifndef WORLDS_ENVIRONMENT_PENDULUM_H
#define WORLDS_ENVIRONMENT_PENDULUM_H

#include "worlds/environment/environment.h"

struct pendulum {
    struct environment base;
    double theta, theta_dot;
};

extern const struct environment_type pendulum_environment;

#endif
