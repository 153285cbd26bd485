/* A policy when memory or a write fails: opening, a step, learning and saving, each fault point in
 * turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/policy.h"
#include "tests/fault/sweep.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 3, N_STEPS = 4, N_OBS = 2 };

static const struct policy_spec specs[] = {
    {POLICY_MLP, N_OBS, 2, 5, 2, 0.5f, true, 0, "E"},
    {POLICY_LSTM, N_OBS, 2, 5, 1, 0.0f, true, 0, "E"},
};

/* The file is written and read. */
static enum status open_once(void *arg)
{
    struct agent_config config = {.name = "p", .backend = "ref"};
    struct agent *a = NULL;
    struct error err;
    enum status rc = policy_drive_open(&a, arg, 1, &config, &err);

    ck_assert((rc == STATUS_OK) == (a != NULL));
    agent_unref(a);
    return rc;
}

START_TEST(open_survives)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        ck_assert_int_gt(sweep(open_once, (void *)(uintptr_t)&specs[i]), 20);
}
END_TEST

static enum status act(struct agent *a, struct clone **clones, struct error *err)
{
    float observations[N][N_OBS] = {{0.5f, -1.0f}, {1.0f, 0.0f}, {-0.25f, 2.0f}};
    const struct policy_batch b = {
        .clones = clones, .observations = observations[0], .n = N, .n_observations = N_OBS};
    struct answer answers[N];
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < N; i++)
        rc = clone_open(&clones[i], a, &(struct clone_config){0}, err);
    for (size_t i = 0; rc == STATUS_OK && i < N; i++)
        rc = a->type->record(clones[i], N_STEPS, err);
    for (size_t t = 0; rc == STATUS_OK && t < N_STEPS; t++)
        rc = policy_drive(&b, answers, err);
    return rc;
}

/* Clones, their records, steps, learning, a fork and a saved state. */
static enum status learn_once(void *arg)
{
    const struct learn_config config = {.learning_rate = 0.1f, .value_weight = 0.5f};
    const float returns[N * N_STEPS] = {1, 2, 3, 4};
    struct agent *a = arg;
    struct clone *clones[N] = {NULL}, *fork = NULL;
    struct learn_report report;
    struct clone_info info;
    struct error err;
    struct buf state;
    enum status rc;

    buf_init(&state, 1 << 16);
    rc = act(a, clones, &err);
    if (rc == STATUS_OK) {
        rc = a->type->learn(a, clones, N, returns, N_STEPS, &config, &report, &err);
        a->type->clone_info(clones[0], &info);
        ck_assert_uint_eq(info.n_recorded, rc == STATUS_OK ? 0 : N_STEPS);
    }
    if (rc == STATUS_OK)
        rc = clone_fork(&fork, clones[0], N_STEPS, &err);
    if (rc == STATUS_OK)
        rc = a->type->save(fork, &state, &err);
    buf_deinit(&state);
    clone_close(fork);
    for (size_t i = 0; i < N; i++)
        clone_close(clones[i]);
    return rc;
}

static struct agent *open_good(const struct policy_spec *spec)
{
    struct agent_config config = {.name = "p", .backend = "ref"};
    struct agent *a = NULL;
    struct error err;

    ck_assert_int_eq(policy_drive_open(&a, spec, 1, &config, &err), STATUS_OK);
    return a;
}

START_TEST(learning_survives)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct agent *a = open_good(&specs[i]);

        ck_assert_int_gt(sweep(learn_once, a), 40);
        agent_unref(a);
    }
}
END_TEST

static const char *const saved = "/tmp/policy-fault.gguf";

/* A save that fails leaves no file, whole or in parts. */
static enum status save_once(void *arg)
{
    struct agent *a = arg;
    struct error err;
    enum status rc = a->type->save_original(a, saved, &err);

    ck_assert((access(saved, F_OK) == 0) == (rc == STATUS_OK));
    (void)unlink(saved);
    return rc;
}

START_TEST(saving_survives)
{
    struct agent *a = open_good(&specs[0]);

    ck_assert_int_gt(sweep(save_once, a), 20);
    agent_unref(a);
}
END_TEST

SUITE_MAIN("fault/policy", open_survives, learning_survives, saving_survives)
