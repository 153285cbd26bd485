/* A policy when memory or a write fails: opening, a step, learning and saving, each fault point in
 * turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/parts.h"
#include "tests/fault/sweep.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 3, N_STEPS = 4, N_OBS = 2 };

static const struct policy_spec specs[] = {
    {POLICY_MLP, POLICY_SOFTMAX, N_OBS, 2, 5, 2, 0.5f, true, 0, "E"},
    {POLICY_LSTM, POLICY_SOFTMAX, N_OBS, 2, 5, 1, 0.0f, true, 0, "E"},
};

/* The file is written and read. */
static enum status open_once(void *arg)
{
    struct agent_config config = {.name = "p", .options.backend = "ref"};
    struct agent *a = NULL;
    struct error err;
    enum status rc = policy_drive_open(&a, arg, 1, &config, &err);

    ck_assert((rc == STATUS_OK) == (a != NULL));
    agent_unref(a);
    return rc;
}

START_TEST(open_survives)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
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
        rc = a->type->learning->record(clones[i], N_STEPS, err);
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
        rc = a->type->learning->learn(a, clones, N, returns, N_STEPS, &config, &report, &err);
        clone_describe(clones[0], &info);
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

/* Clones of two policies, and their steps together: on failure the rows that were to come fail. */
static enum status act_together(void *arg)
{
    struct agent *const *policies = arg;
    const float observations[N][N_OBS] = {{0.5f, -1.0f}, {1.0f, 0.0f}, {-0.25f, 2.0f}};
    struct clone *clones[N] = {NULL};
    const struct policy_batch b = {
        .clones = clones, .observations = observations[0], .n = N, .n_observations = N_OBS};
    struct answer answers[N];
    enum status rc = STATUS_OK;
    struct error err;

    for (size_t i = 0; rc == STATUS_OK && i < N; i++)
        rc = clone_open(&clones[i], policies[i / 2], &(struct clone_config){0}, &err);
    for (size_t t = 0; rc == STATUS_OK && t < N_STEPS; t++) {
        rc = policy_drive(&b, answers, &err);
        for (size_t i = 0; rc == STATUS_OK && i < N; i++)
            ck_assert_uint_eq(answers[i].batch_rows, N);
    }
    for (size_t i = 0; i < N; i++)
        clone_close(clones[i]);
    return rc;
}

static struct agent *open_good(const struct policy_spec *spec)
{
    struct agent_config config = {.name = "p", .options.backend = "ref"};
    struct agent *a = NULL;
    struct error err;

    ck_assert_int_eq(policy_drive_open(&a, spec, 1, &config, &err), STATUS_OK);
    return a;
}

START_TEST(learning_survives)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        struct agent *a = open_good(&specs[i]);

        ck_assert_int_gt(sweep(learn_once, a), 40);
        agent_unref(a);
    }
}
END_TEST

START_TEST(acting_together_survives)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        struct agent *policies[] = {open_good(&specs[i]), open_good(&specs[i])};

        ck_assert_int_gt(sweep(act_together, policies), 10);
        agent_unref(policies[0]);
        agent_unref(policies[1]);
    }
}
END_TEST

/* Steps that the caller has, and the target parameters that they make. */
static enum status learn_rows_once(void *arg)
{
    const struct policy_spec *spec = arg;
    const struct learn_config config = {
        .learning_rate = 0.1f, .value_weight = 0.5f, .max_gradient_norm = 1e-3f, .normalise = true};
    const float observations[2 * N][N_OBS] = {{0.5f, -1}, {1, 0}, {-0.25f, 2}}, rewards[N] = {1, 2};
    const float zeros[N] = {0};
    const int64_t choices[N] = {0, 1};
    const bool ends[N] = {false};
    float errors[N];
    const struct learn_trajectories trajectories = {.n = 1,
                                                    .n_steps = N,
                                                    .observations = observations[0],
                                                    .choices = choices,
                                                    .logp = zeros,
                                                    .rewards = rewards,
                                                    .terminated = ends,
                                                    .resets = ends,
                                                    .rho_max = 1,
                                                    .c_max = 1};
    const struct learn_transitions transitions = {.n = N,
                                                  .observations = observations[0],
                                                  .next = observations[N],
                                                  .choices = choices,
                                                  .rewards = rewards,
                                                  .discounts = zeros,
                                                  .moves_target = true,
                                                  .errors = errors};
    struct agent_config agent = {.name = "p", .options.backend = "ref"};
    struct agent *a = NULL;
    struct learn_report report;
    struct error err;
    enum status rc = policy_drive_open(&a, spec, 1, &agent, &err);

    for (int round = 0; rc == STATUS_OK && round < 2; round++)
        rc = spec->head == POLICY_DUELLING
                 ? a->type->learning->learn_transitions(a, &transitions, &config, &report, &err)
                 : a->type->learning->learn_trajectories(a, &trajectories, &config, &report, &err);
    agent_unref(a);
    return rc;
}

START_TEST(learning_from_steps_survives)
{
    struct policy_spec spec = specs[0];

    ck_assert_int_gt(sweep(learn_rows_once, &spec), 60);
    spec.head = POLICY_DUELLING;
    ck_assert_int_gt(sweep(learn_rows_once, &spec), 60);
    spec = specs[1];
    ck_assert_int_gt(sweep(learn_rows_once, &spec), 60);
}
END_TEST

static char saved[] = "/tmp/policy-fault-XXXXXX.gguf";

/* A failed save leaves no file, not even a part of one. */
static enum status save_once(void *arg)
{
    struct agent *a = arg;
    struct error err;
    enum status rc = a->type->learning->save(a, saved, &err);

    ck_assert((access(saved, F_OK) == 0) == (rc == STATUS_OK));
    (void)unlink(saved);
    return rc;
}

START_TEST(saving_survives)
{
    struct agent *a = open_good(&specs[0]);
    int fd = mkstemps(saved, 5);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    (void)unlink(saved);
    ck_assert_int_gt(sweep(save_once, a), 20);
    ck_assert_int_eq(learn_once(a), STATUS_OK); /* Adam's moments are saved with it */
    ck_assert_int_gt(sweep(save_once, a), 40);
    agent_unref(a);
}
END_TEST

/* --- a failing device --- */

enum { N_ROUNDS = 2, MANY = 100 /* calls of a device in a story, of the fewest */ };

/* The actions and reports of two rounds of steps and learning, and the policy's final parameters
 * with Adam's moments. */
struct told {
    struct answer answers[N_ROUNDS][N_STEPS][N];
    struct learn_report reports[N_ROUNDS];
    float kept[1024];
};

struct story {
    const char *path;
    struct told known;
    size_t n_faults, n_failed_lessons;
};

static struct agent *open_faulty(const char *path)
{
    struct agent_config config = {
        .name = "p", .path = path, .backend_type = &faulty_backend, .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    ck_assert_msg(agent_open(&a, NULL, &config, &err) == STATUS_OK, "%s", err.text);
    a->type->learning->train(a, true);
    return a;
}

static void read_kept(struct agent *a, struct told *t)
{
    const struct network *net = &container_of(a, struct policy, base)->net;
    size_t n = 3 * net->n_numbers;

    ck_assert(net->n_steps == N_ROUNDS && n < sizeof(t->kept) / sizeof(t->kept[0]));
    memcpy(t->kept, net->kept, n * sizeof(*t->kept));
}

/* Makes a policy's file, once: writing one takes as long as a hundred stories. */
static void make_file(char path[], const struct policy_spec *spec)
{
    int fd = mkstemps(path, 5);
    struct error err;

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(policy_file_create(path, spec, 1, &err), STATUS_OK);
}

/* Trains the file's policy once, and saves it in its place. */
static void teach_file(const char *path)
{
    struct agent_config config = {
        .name = "p", .path = path, .options.backend = "ref", .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    ck_assert_msg(agent_open(&a, NULL, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(learn_once(a), STATUS_OK);
    ck_assert_int_eq(a->type->learning->save(a, path, &err), STATUS_OK);
    agent_unref(a);
}

static enum status open_again(void *arg)
{
    struct agent_config config = {
        .name = "p", .path = arg, .backend_type = &faulty_backend, .env = &env_real};
    struct agent *a = NULL;
    struct error err;
    enum status rc = agent_open(&a, NULL, &config, &err);

    ck_assert((rc == STATUS_OK) == (a != NULL));
    agent_unref(a);
    return rc;
}

/* A trained policy is opened with Adam's moments. */
START_TEST(opening_the_learned_survives)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        char path[] = "/tmp/policy-fault-XXXXXX.gguf";
        long n_fresh;

        make_file(path, &specs[i]);
        n_fresh = sweep(open_again, path);
        teach_file(path);
        ck_assert_int_gt(sweep(open_again, path), n_fresh + 8);
        (void)unlink(path);
    }
}
END_TEST

static enum status step_together(struct clone *const *clones, uint32_t round, uint32_t at,
                                 struct answer answers[N], struct error *err)
{
    float observations[N][N_OBS];
    const struct policy_batch b = {.clones = clones,
                                   .observations = observations[0],
                                   .n = N,
                                   .n_observations = N_OBS,
                                   .seed = 3};

    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < N_OBS; k++)
            observations[i][k] = 0.25f * (float)((i + 2 * at + 3 * round + k) % 7) - 0.5f;
    return policy_drive(&b, answers, err);
}

/* A fault ended it: a device fault has opened the device again, once. */
static void check_fault(struct story *s, enum status rc, uint64_t n_opened, const struct error *err)
{
    ck_assert(rc == faulty_status || rc == STATUS_EXHAUSTED);
    ck_assert_str_ne(err->text, "");
    ck_assert_uint_eq(faulty_n_opened, n_opened + (rc == STATUS_INTERNAL));
    s->n_faults += rc == faulty_status;
}

/* Steps and learning; each operation is repeated if a fault ends it. */
static enum status tell(void *arg)
{
    const struct learn_config config = {.learning_rate = 0.1f, .value_weight = 0.5f};
    const float returns[N * N_STEPS] = {1, 2, 3, 4};
    struct story *s = arg;
    const long armed = fault_after;
    struct clone *clones[N];
    struct told told;
    struct agent *a;
    struct error err;
    enum status all = STATUS_OK, rc;

    fault_after = -1;
    memset(&told, 0, sizeof(told));
    a = open_faulty(s->path);
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(clone_open(&clones[i], a, &(struct clone_config){0}, &err), STATUS_OK);
        ck_assert_int_eq(a->type->learning->record(clones[i], N_STEPS, &err), STATUS_OK);
    }
    fault_after = armed;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        uint64_t n_opened = faulty_n_opened;

        for (uint32_t at = 0; at < N_STEPS; at++)
            if ((rc = step_together(clones, round, at, told.answers[round][at], &err)) !=
                STATUS_OK) {
                check_fault(s, rc, n_opened, &err);
                all = STATUS_EXHAUSTED;
                at--; /* the clone is unchanged: its next step is the same */
            }
        n_opened = faulty_n_opened;
        while ((rc = a->type->learning->learn(a, clones, N, returns, N_STEPS, &config,
                                              &told.reports[round], &err)) != STATUS_OK) {
            check_fault(s, rc, n_opened, &err);
            all = STATUS_EXHAUSTED;
            s->n_failed_lessons++;
        }
    }
    rc = all;
    {
        const long left = fault_after;

        fault_after = -1;
        read_kept(a, &told);
        if (armed < 0)
            s->known = told;
        for (size_t i = 0; i < N; i++)
            clone_close(clones[i]);
        agent_unref(a);
        fault_after = left;
    }
    ck_assert_mem_eq(&told, &s->known, sizeof(told));
    return rc;
}

static void sweep_story(enum status status)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        char path[] = "/tmp/policy-fault-XXXXXX.gguf";
        struct story s = {.path = path};

        make_file(path, &specs[i]);
        faulty_status = status;
        ck_assert_int_eq(tell(&s), STATUS_OK); /* without faults */
        (void)sweep(tell, &s);
        faulty_status = STATUS_EXHAUSTED;
        ck_assert_uint_ge(s.n_faults, (size_t)(MANY / sweep_stride()));
        ck_assert_uint_ge(s.n_failed_lessons, 1);
        (void)unlink(path);
    }
}

/* A failing device ends the step or the learning, INTERNAL, and is opened again once. When
 * repeated, clones act the same, and the learned parameters are the same to the last bit. */
START_TEST(policies_outlive_their_device)
{
    sweep_story(STATUS_INTERNAL);
}
END_TEST

/* A step or a learning batch without memory on the device changes nothing. */
START_TEST(no_memory_on_the_device_is_no_fault)
{
    sweep_story(STATUS_EXHAUSTED);
}
END_TEST

/* While the device cannot be opened again each step and learning batch fails with that, and the
 * policy can be saved and closed; later ones succeed. */
START_TEST(a_device_may_stay_away)
{
    const struct learn_config config = {.learning_rate = 0.1f};
    const float returns[N] = {1, 2, 3};
    char path[] = "/tmp/policy-fault-XXXXXX.gguf", copy[] = "/tmp/policy-fault-XXXXXX.gguf";
    struct agent *a, *same;
    struct clone *clones[N], *others[N];
    struct answer answers[2][N];
    struct learn_report report;
    struct agent_info info;
    struct error err;
    enum status rc = STATUS_EXHAUSTED;

    make_file(path, &specs[0]);
    teach_file(path);
    make_file(copy, &specs[1]);
    a = open_faulty(path);
    same = open_faulty(path);
    memset(answers, 0, sizeof(answers));
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(clone_open(&clones[i], a, &(struct clone_config){0}, &err), STATUS_OK);
        ck_assert_int_eq(clone_open(&others[i], same, &(struct clone_config){0}, &err), STATUS_OK);
        ck_assert_int_eq(a->type->learning->record(clones[i], 1, &err), STATUS_OK);
    }
    ck_assert_int_eq(step_together(others, 0, 0, answers[0], &err), STATUS_OK);
    faulty_status = STATUS_INTERNAL;
    faulty_cannot_open = true;
    for (long n = 0; rc == STATUS_EXHAUSTED; n++) { /* faults of the host, until the device's */
        fault_after = n;
        rc = step_together(clones, 0, 0, answers[1], &err);
    }
    ck_assert_int_eq(rc, STATUS_INTERNAL);
    ck_assert_int_lt(fault_after, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(step_together(clones, 0, 0, answers[1], &err), STATUS_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "not ready again yet"));
    }
    ck_assert_int_eq(a->type->learning->save(a, copy, &err), STATUS_OK);
    ck_assert(policy_same_files(path, copy));
    faulty_cannot_open = false;
    ck_assert_int_eq(step_together(clones, 0, 0, answers[1], &err), STATUS_OK);
    ck_assert_mem_eq(answers[1], answers[0], sizeof(answers[0]));
    agent_describe(a, &info);
    ck_assert_uint_eq(info.device_losses, 1);
    faulty_cannot_open = true;
    rc = STATUS_EXHAUSTED;
    for (long n = 0; rc == STATUS_EXHAUSTED; n++) {
        fault_after = n;
        rc = a->type->learning->learn(a, clones, N, returns, 1, &config, &report, &err);
    }
    ck_assert_int_eq(rc, STATUS_INTERNAL);
    ck_assert_int_eq(a->type->learning->learn(a, clones, N, returns, 1, &config, &report, &err),
                     STATUS_UNAVAILABLE);
    for (size_t i = 0; i < N; i++) {
        clone_close(clones[i]);
        clone_close(others[i]);
    }
    agent_unref(a); /* its device is lost */
    agent_unref(same);
    (void)unlink(path);
    (void)unlink(copy);
    fault_after = -1;
    faulty_cannot_open = false;
    faulty_status = STATUS_EXHAUSTED;
}
END_TEST

SUITE_MAIN("fault/policy", open_survives, learning_survives, acting_together_survives,
           learning_from_steps_survives, saving_survives, opening_the_learned_survives,
           policies_outlive_their_device, no_memory_on_the_device_is_no_fault,
           a_device_may_stay_away)
