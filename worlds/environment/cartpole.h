/* CartPole-v1: a pole stands on a cart, which action 0 pushes left and action 1 right. Each step
 * has a reward of 1 until the pole leans by more than 12 degrees, the cart is more than 2.4 away
 * from the middle, or 500 steps are over. Equations and constants are those of Barto, Sutton and
 * Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems"
 * (1983), with Euler steps as gymnasium takes them: f64 inside, f32 out. An observation is
 * position, speed, angle (radians) and angular speed. */
#ifndef WORLDS_ENVIRONMENT_CARTPOLE_H
#define WORLDS_ENVIRONMENT_CARTPOLE_H

#include "worlds/environment/environment.h"

struct cartpole {
    struct environment base;
    double x, x_dot, theta, theta_dot; /* position, speed, angle, angular speed */
};

extern const struct environment_type cartpole_environment;

#endif
