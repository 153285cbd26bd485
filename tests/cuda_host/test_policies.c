/* Policies on the CUDA backend, whose kernels run on fibres: their actions, reports of learning and
 * parameters afterwards have the bits of `ref`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/counter_rng.h"
#include "compute/cuda/module.h"
#include "compute/ref/ref.h"
#include "tests/cuda_host/control.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

extern const struct cuda_module parley_cuda_module;

enum {
    N = 5,        /* clones */
    N_STEPS = 4,  /* of an episode */
    N_LESSONS = 3 /* the first two lists of a kind are not graphs */
};

static struct error err;

static const struct policy_spec mlp = {.kind = POLICY_MLP,
                                       .n_observations = 3,
                                       .n_actions = 3,
                                       .n_hidden = 9,
                                       .n_layers = 2,
                                       .dropout = 0.3f,
                                       .has_value = true};
static const struct policy_spec lstm = {.kind = POLICY_LSTM,
                                        .n_observations = 3,
                                        .n_actions = 3,
                                        .n_hidden = 5,
                                        .n_layers = 1,
                                        .has_value = true};

/* A policy on one backend, and its clones. */
struct side {
    struct agent *agent;
    struct clone *clones[N];
};

static void side_open(struct side *s, const struct backend_type *type,
                      const struct policy_spec *spec)
{
    struct agent_config config = {.name = "p", .backend_type = type, .max_step_rows = 4};

    ck_assert_msg(policy_drive_open(&s->agent, spec, 21, &config, &err) == STATUS_OK, "%s",
                  err.text);
    s->agent->type->learning->train(s->agent, true);
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(clone_open(&s->clones[i], s->agent, &(struct clone_config){0}, &err),
                         STATUS_OK);
        ck_assert_int_eq(s->agent->type->learning->record(s->clones[i], N_STEPS, &err), STATUS_OK);
    }
}

static void side_close(struct side *s)
{
    for (size_t i = 0; i < N; i++)
        clone_close(s->clones[i]);
    agent_unref(s->agent);
}

/* One step of clones first … first + n - 1. */
static void step(struct side *s, uint32_t first, uint32_t n, uint32_t at, struct answer *answers)
{
    float observations[N][3];
    uint32_t keys[N];
    const struct policy_batch b = {.clones = s->clones + first,
                                   .observations = observations[0],
                                   .n = n,
                                   .n_observations = 3,
                                   .seed = 3,
                                   .is_first = at == 2, /* a second episode begins */
                                   .row_keys = keys};

    for (uint32_t i = 0; i < n; i++) {
        keys[i] = first + i;
        for (uint32_t k = 0; k < 3; k++)
            observations[i][k] = 2.0f * counter_rng_uniform(11, first + i, at, k) - 1.0f;
    }
    ck_assert_msg(policy_drive(&b, answers, &err) == STATUS_OK, "%s", err.text);
}

/* Runs all clones' steps; with in_batches, in batches that differ from step to step. */
static void episode(struct side *s, bool in_batches, struct answer answers[N_STEPS][N])
{
    for (uint32_t at = 0; at < N_STEPS; at++)
        for (uint32_t first = 0, n; first < N; first += n) {
            n = in_batches ? 1 + (at + first) % 4 : 1;
            n = n < N - first ? n : N - first;
            step(s, first, n, at, answers[at] + first);
        }
}

static enum status try_learn(struct side *s, struct learn_report *out)
{
    const struct learn_config config = {
        .learning_rate = 0.01f, .normalise = true, .value_weight = 0.5f, .entropy_weight = 0.01f};
    float returns[N * N_STEPS];

    for (uint32_t i = 0; i < N * N_STEPS; i++)
        returns[i] = counter_rng_uniform(5, i, 0, 77);
    return s->agent->type->learning->learn(s->agent, s->clones, N, returns, N_STEPS, &config, out,
                                           &err);
}

static struct learn_report learn(struct side *s)
{
    struct learn_report report;

    ck_assert_msg(try_learn(s, &report) == STATUS_OK, "%s", err.text);
    return report;
}

/* The saved parameters; the caller frees them. */
static unsigned char *saved(struct side *s, size_t *ret_n)
{
    char path[] = "/tmp/policy-XXXXXX.gguf";
    int fd = mkstemps(path, 5);
    unsigned char *bytes = malloc(1 << 16);
    ssize_t n;

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(s->agent->type->learning->save(s->agent, path, &err), STATUS_OK);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = read(fd, bytes, 1 << 16);
    ck_assert(n > 0 && n < 1 << 16);
    (void)close(fd);
    (void)unlink(path);
    *ret_n = (size_t)n;
    return bytes;
}

static void check_same_answers(struct answer a[N_STEPS][N], struct answer b[N_STEPS][N])
{
    for (size_t at = 0; at < N_STEPS; at++)
        for (size_t i = 0; i < N; i++) {
            ck_assert_int_eq(a[at][i].action, b[at][i].action);
            ck_assert_mem_eq(&a[at][i].logp, &b[at][i].logp, sizeof(float));
            ck_assert_mem_eq(&a[at][i].value, &b[at][i].value, sizeof(float));
            ck_assert_uint_eq(a[at][i].params_version, b[at][i].params_version);
        }
}

static void check_same_bits(const struct policy_spec *spec)
{
    struct answer said[2][N_STEPS][N];
    struct side cuda, ref;
    unsigned char *bytes[2];
    size_t n[2];

    side_open(&cuda, parley_cuda_module.type, spec);
    side_open(&ref, &ref_backend, spec);
    for (int lesson = 0; lesson < N_LESSONS; lesson++) {
        struct learn_report a, b;

        memset(said, 0, sizeof(said));
        episode(&cuda, true, said[0]);
        episode(&ref, false, said[1]);
        check_same_answers(said[0], said[1]);
        a = learn(&cuda);
        b = learn(&ref);
        ck_assert_mem_eq(&a, &b, sizeof(a));
        ck_assert_double_gt(a.gradient_norm, 0.0);
    }
    bytes[0] = saved(&cuda, &n[0]);
    bytes[1] = saved(&ref, &n[1]);
    ck_assert_uint_eq(n[0], n[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
    side_close(&cuda);
    side_close(&ref);
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}

/* Steps in batches, alone on ref, and steps of the optimiser between them. */
START_TEST(an_mlp_is_the_same)
{
    check_same_bits(&mlp);
}
END_TEST

/* Also through time, and into a second episode. */
START_TEST(an_lstm_is_the_same)
{
    check_same_bits(&lstm);
}
END_TEST

/* A device that breaks in a lesson fails it with INTERNAL; the lesson repeated gives the same bits,
 * after an earlier lesson and without one. */
START_TEST(lessons_outlive_the_device)
{
    static const long n_calls[] = {0, 3, 9, 20};

    for (size_t k = 0; k < sizeof(n_calls) / sizeof(n_calls[0]); k++) {
        const struct policy_spec *spec = k % 2 == 0 ? &lstm : &mlp;
        struct answer said[2][N_STEPS][N];
        struct side cuda, ref;

        side_open(&cuda, parley_cuda_module.type, spec);
        side_open(&ref, &ref_backend, spec);
        for (int lesson = 0; lesson < N_LESSONS; lesson++) {
            struct learn_report a, b;

            episode(&cuda, true, said[0]);
            episode(&ref, true, said[1]);
            check_same_answers(said[0], said[1]);
            cuda_host_fail(n_calls[k], cudaErrorIllegalAddress);
            ck_assert_int_eq(try_learn(&cuda, &a), STATUS_INTERNAL);
            cuda_host_fail(-1, cudaSuccess);
            a = learn(&cuda);
            b = learn(&ref);
            ck_assert_mem_eq(&a, &b, sizeof(a));
        }
        side_close(&cuda);
        side_close(&ref);
    }
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}
END_TEST

static void learn_unhealed(void)
{
    struct answer said[N_STEPS][N];
    struct learn_report report;
    struct side s;

    side_open(&s, parley_cuda_module.type, &mlp);
    episode(&s, true, said);
    cuda_host_set_reset(cudaErrorIllegalAddress);
    cuda_host_fail(3, cudaErrorIllegalAddress);
    if (s.agent->lost.status != STATUS_OK || try_learn(&s, &report) != STATUS_INTERNAL ||
        s.agent->lost.status != STATUS_INTERNAL)
        abort();
}

/* A policy whose device no reset heals says that it is lost, so that the daemon ends. */
START_TEST(a_lost_device_is_told)
{
    ck_assert_int_eq(suite_fate(learn_unhealed), 0);
}
END_TEST

/* A lesson from steps that the caller has; errors of Q go to errors. */
static enum status learn_steps(struct side *s, enum policy_head head, struct learn_report *out,
                               float errors[N])
{
    const struct learn_config config = {
        .learning_rate = 0.01f, .value_weight = 0.5f, .entropy_weight = 0.01f};
    float observations[N + 1][3], numbers[N][3], rewards[N], discounts[N], zeros[N] = {0};
    const bool ends[N] = {[2] = true}, resets[N] = {[3] = true};
    int64_t choices[N];
    const struct learn_trajectories trajectories = {.n = 1,
                                                    .n_steps = N,
                                                    .observations = observations[0],
                                                    .choices = choices,
                                                    .numbers = numbers[0],
                                                    .logp = zeros,
                                                    .rewards = rewards,
                                                    .terminated = ends,
                                                    .resets = resets,
                                                    .gamma = 0.9f,
                                                    .lambda = 1,
                                                    .rho_max = 1,
                                                    .c_max = 1};
    const struct learn_transitions transitions = {.n = N,
                                                  .observations = observations[0],
                                                  .next = observations[1],
                                                  .choices = choices,
                                                  .rewards = rewards,
                                                  .discounts = discounts,
                                                  .moves_target = true,
                                                  .errors = errors};

    for (uint32_t i = 0; i <= N; i++)
        for (uint32_t k = 0; k < 3; k++) {
            observations[i][k] = counter_rng_uniform(6, i, k, 77);
            if (i < N)
                numbers[i][k] = counter_rng_uniform(6, i, k, 78);
        }
    for (uint32_t i = 0; i < N; i++) {
        choices[i] = i % 3;
        rewards[i] = counter_rng_uniform(6, i, 3, 77);
        discounts[i] = 0.9f;
    }
    return head == POLICY_DUELLING
               ? s->agent->type->learning->learn_transitions(s->agent, &transitions, &config, out,
                                                             &err)
               : s->agent->type->learning->learn_trajectories(s->agent, &trajectories, &config, out,
                                                              &err);
}

/* Each head learns the same from steps that the caller has, also where the device breaks in a
 * lesson, which is then repeated. */
START_TEST(heads_learn_the_same)
{
    static const enum policy_head heads[] = {POLICY_SOFTMAX, POLICY_GAUSSIAN, POLICY_DUELLING};

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct side cuda = {0}, ref = {0};
        struct policy_spec spec = mlp;
        struct agent_config config = {.name = "p", .backend_type = parley_cuda_module.type};
        unsigned char *bytes[2];
        size_t n[2];

        spec.head = heads[i];
        ck_assert_int_eq(policy_drive_open(&cuda.agent, &spec, 21, &config, &err), STATUS_OK);
        config.backend_type = &ref_backend;
        ck_assert_int_eq(policy_drive_open(&ref.agent, &spec, 21, &config, &err), STATUS_OK);
        for (long lesson = 0; lesson < 2 * N_LESSONS; lesson++) {
            float errors[2][N] = {{0}};
            struct learn_report a, b;

            if (lesson % 2 == 1) {
                cuda_host_fail(4 * lesson, cudaErrorIllegalAddress);
                ck_assert_int_eq(learn_steps(&cuda, spec.head, &a, errors[0]), STATUS_INTERNAL);
                cuda_host_fail(-1, cudaSuccess);
            }
            ck_assert_int_eq(learn_steps(&cuda, spec.head, &a, errors[0]), STATUS_OK);
            ck_assert_int_eq(learn_steps(&ref, spec.head, &b, errors[1]), STATUS_OK);
            ck_assert_mem_eq(&a, &b, sizeof(a));
            ck_assert_mem_eq(errors[0], errors[1], sizeof(errors[0]));
        }
        bytes[0] = saved(&cuda, &n[0]);
        bytes[1] = saved(&ref, &n[1]);
        ck_assert_uint_eq(n[0], n[1]);
        ck_assert_mem_eq(bytes[0], bytes[1], n[0]);
        free(bytes[0]);
        free(bytes[1]);
        side_close(&cuda);
        side_close(&ref);
    }
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}
END_TEST

SUITE_MAIN("cuda_host/policies", an_mlp_is_the_same, an_lstm_is_the_same,
           lessons_outlive_the_device, a_lost_device_is_told, heads_learn_the_same)
