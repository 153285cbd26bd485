/* libparley's parameter calls against a real parleyd, number for number: a schedule, Push, Pull,
 * and values that are not numbers. `params_calls ADDRESS`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/parley.h"

enum { N = 3 };

static void must(bool holds, const char *what, const struct parley_error *err)
{
    if (holds)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

/* Waits for a version above *after; NULL: takes the current one. */
static uint64_t pull(struct parley_channel *channel, const char *params, const uint64_t *after,
                     float values[N])
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    struct parley_version version = {0};
    struct parley_error err = {0};

    while (!version.has_values) {
        must(parley_params_pull(channel, params, after, values, N, &version, &err) == PARLEY_OK,
             "Pull", &err);
        if (!version.has_values)
            (void)nanosleep(
                &pause,
                NULL); /* Push does not wait for the round, and Pull does not wait for a version */
    }
    return version.version;
}

/* The learning rate halves every two rounds: 1, 1, 1/2, 1/2, 1/4, … of a gradient of ones. */
static void a_schedule(struct parley_channel *channel)
{
    const int64_t shape[] = {N};
    const struct parley_tensor_spec spec = {"w", shape, 1};
    const struct parley_params_config config = {.name = "steps",
                                                .specs = &spec,
                                                .n_specs = 1,
                                                .optimiser = PARLEY_SGD,
                                                .learning_rate = 1,
                                                .round_size = 1,
                                                .schedule = PARLEY_STEP_DOWN,
                                                .step_size = 2,
                                                .factor = 0.5};
    const float first[N] = {10, 20, 30}, ones[N] = {1, 1, 1};
    const float lost[] = {1, 2, 2.5F, 3, 3.25F};
    float values[N];
    uint64_t version;
    struct parley_error err;

    must(parley_params_create(channel, &config, first, N, &err) == PARLEY_OK, "Create", &err);
    version = pull(channel, "steps", NULL, values);
    must(memcmp(values, first, sizeof(first)) == 0, "the first values", &err);
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        const struct parley_gradient gradient = {.params = "steps",
                                                 .client_id = "c",
                                                 .step_id = i + 1,
                                                 .base_version = version,
                                                 .values = ones,
                                                 .n = N};
        struct parley_pushed pushed;

        must(parley_params_push(channel, &gradient, &pushed, &err) == PARLEY_OK, "Push", &err);
        must(pull(channel, "steps", &version, values) == version + 1, "one round", &err);
        version++;
        for (size_t k = 0; k < N; k++)
            must(values[k] == first[k] - lost[i], "a step of the schedule", &err);
    }
}

/* With betas of 0 Adam goes by the signs of the gradients; with the defaults it would not. */
static void explicit_zeros(struct parley_channel *channel)
{
    const int64_t shape[] = {N};
    const struct parley_tensor_spec spec = {"w", shape, 1};
    const float zeros[N] = {0}, steps[2][N] = {{5, -3, 0.5F}, {-1e-3F, -7, 2}};
    const float want[N] = {0, 2, -2};
    float values[N];

    for (int given = 0; given < 2; given++) {
        const struct parley_params_config config = {.name = given != 0 ? "signs" : "moments",
                                                    .specs = &spec,
                                                    .n_specs = 1,
                                                    .optimiser = PARLEY_ADAM,
                                                    .learning_rate = 1,
                                                    .beta1 = given != 0 ? PARLEY_ZERO : 0,
                                                    .beta2 = given != 0 ? PARLEY_ZERO : 0,
                                                    .epsilon = 1e-30,
                                                    .round_size = 1};
        struct parley_error err;
        uint64_t version;

        must(parley_params_create(channel, &config, zeros, N, &err) == PARLEY_OK, "Create", &err);
        version = pull(channel, config.name, NULL, values);
        for (size_t i = 0; i < 2; i++) {
            const struct parley_gradient gradient = {.params = config.name,
                                                     .client_id = "c",
                                                     .step_id = i + 1,
                                                     .base_version = version,
                                                     .values = steps[i],
                                                     .n = N};
            struct parley_pushed pushed;

            must(parley_params_push(channel, &gradient, &pushed, &err) == PARLEY_OK, "Push", &err);
            version = pull(channel, config.name, &version, values);
        }
        must((memcmp(values, want, sizeof(want)) == 0) == (given != 0), "steps by the signs", &err);
    }
}

static void not_a_number(struct parley_channel *channel, bool is_allowed)
{
    const int64_t shape[] = {N};
    const struct parley_tensor_spec spec = {"w", shape, 1};
    const struct parley_params_config config = {.name = is_allowed ? "any" : "finite",
                                                .specs = &spec,
                                                .n_specs = 1,
                                                .learning_rate = 1,
                                                .round_size = 1,
                                                .allow_non_finite = is_allowed};
    const float odd[N] = {1, NAN, 1};
    float values[N];
    struct parley_version version;
    struct parley_trainer *trainer = parley_trainer_open(channel);
    struct parley_gradient gradient = {
        .params = config.name, .client_id = "c", .step_id = 1, .values = odd, .n = N};
    struct parley_error err;
    enum parley_status rc;

    must(parley_params_create(channel, &config, NULL, 0, &err) == PARLEY_OK, "Create", &err);
    gradient.base_version = pull(channel, config.name, NULL, values);
    rc = parley_update_and_fetch(trainer, &gradient, values, &version, NULL, NULL, &err);
    if (is_allowed)
        must(rc == PARLEY_OK && isnan(values[1]) && values[0] == -1, "NaN, allowed", &err);
    else
        must(rc == PARLEY_INVALID_ARGUMENT && strstr(err.text, "w") != NULL, "NaN, refused", &err);
    parley_trainer_close(trainer);
}

static void what_is_refused(struct parley_channel *channel)
{
    uint64_t none = 0;
    float values[N];
    struct parley_version version;
    struct parley_error err;

    must(parley_params_pull(channel, "nobody", &none, values, N, &version, &err) ==
                 PARLEY_NOT_FOUND &&
             strstr(err.text, "steps") != NULL,
         "an unknown name", &err);
}

int main(int argc, char **argv)
{
    struct parley_channel *channel;

    if (argc != 2)
        return 2;
    channel = parley_channel_open(argv[1]);
    a_schedule(channel);
    explicit_zeros(channel);
    not_a_number(channel, false);
    not_a_number(channel, true);
    what_is_refused(channel);
    parley_channel_close(channel);
    return 0;
}
