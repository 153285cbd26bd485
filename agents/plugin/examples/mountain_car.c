/* A car in a valley that is too weak to drive straight up: gymnasium's MountainCar-v0, for
 * parley.v1.Env.
 *
 *   cc -shared -fPIC -O2 mountain_car.c $(pkg-config --cflags parley) -lm -o mountain_car.so
 *   parleyd --plugin ./mountain_car.so */
#include <math.h>
#include <parley_environment.h>
#include <stdlib.h>

struct car {
    double position, velocity;
};

static void *car_make(void)
{
    return calloc(1, sizeof(struct car));
}

static void car_show(const struct car *car, float *observation)
{
    observation[0] = (float)car->position;
    observation[1] = (float)car->velocity;
}

/* Uniform in [0, 1), by the seed and the episode alone (splitmix64). */
static float draw(uint64_t seed, uint32_t episode)
{
    uint64_t x = seed + (episode + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((x ^ x >> 31) >> 40) / (float)(1 << 24);
}

static void car_reset(void *const *environments, size_t n, const uint64_t *seeds,
                      const uint32_t *episodes, struct parley_environment_results *out)
{
    for (size_t i = 0; i < n; i++) {
        struct car *car = environments[i];

        car->position = (double)(-0.6F + 0.2F * draw(seeds[i], episodes[i]));
        car->velocity = 0;
        car_show(car, out->observations + 2 * i);
    }
}

static void car_step(void *const *environments, size_t n,
                     const struct parley_environment_actions *actions,
                     struct parley_environment_results *out)
{
    const double force = 0.001, gravity = 0.0025, max_speed = 0.07, left = -1.2, right = 0.6;

    for (size_t i = 0; i < n; i++) {
        struct car *car = environments[i];

        car->velocity +=
            (double)(actions->choices[i] - 1) * force - cos(3 * car->position) * gravity;
        car->velocity = fmin(fmax(car->velocity, -max_speed), max_speed);
        car->position = fmin(fmax(car->position + car->velocity, left), right);
        if (car->position == left && car->velocity < 0)
            car->velocity = 0;
        out->rewards[i] = -1;
        out->terminated[i] = car->position >= 0.5;
        car_show(car, out->observations + 2 * i);
    }
}

const struct parley_environment parley_environment = {
    .abi = PARLEY_ENVIRONMENT_ABI,
    .size_bytes = sizeof(struct parley_environment),
    .name = "MountainCar-v0",
    .n_observations = 2,
    .n_actions = 3,
    .max_steps = 200,
    .make = car_make,
    .free = free,
    .reset = car_reset,
    .step = car_step,
};
