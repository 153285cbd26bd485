/* CartPole-v1: a pole on a cart that is pushed left (action 0) or right (1); a reward of 1 a step
 * until the pole leans by more than 12 degrees, the cart is more than 2.4 away, or 500 steps are
 * over. Equations and constants of Barto, Sutton and Anderson, "Neuronlike adaptive elements that
 * can solve difficult learning control problems" (1983), with Euler steps as gymnasium takes them:
 * f64 inside, f32 out. Observation: position, speed, angle (radians), angular speed. */
#ifndef WORLDS_ENVIRONMENT_CARTPOLE_H
#define WORLDS_ENVIRONMENT_CARTPOLE_H

#include "worlds/environment/environment.h"

struct cartpole {
    struct environment base;
    double x, x_dot, theta, theta_dot;
};

extern const struct environment_type cartpole_environment;

#endif
