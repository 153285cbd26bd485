/* Heads, V-trace and learning from steps that the caller has: formulas by their definition,
 * gradients beside finite differences, and rows that are what they are alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/head.h"
#include "agents/policy/parts.h"
#include "agents/policy/vtrace.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "base/counter_rng.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

enum { N_OBS = 3, N_TRAJECTORIES = 3, N_STEPS = 6, N = N_TRAJECTORIES * N_STEPS, N_ROWS = 40 };

static struct error err;

static float any(uint32_t i, uint32_t which)
{
    return 2.0f * counter_rng_uniform(17, i, which, 9) - 1.0f;
}

static struct policy_spec spec_of_head(enum policy_head head)
{
    return (struct policy_spec){.head = head,
                                .n_observations = N_OBS,
                                .n_actions = head == POLICY_GAUSSIAN ? 2 : 3,
                                .n_hidden = 7,
                                .n_layers = 2,
                                .has_value = true};
}

static struct policy *open_spec(const struct policy_spec *spec, const char *backend,
                                size_t max_rows)
{
    struct agent_config config = {
        .name = "p", .max_step_rows = max_rows, .options = {.n_threads = 1, .backend = backend}};
    struct agent *a = NULL;

    if (policy_drive_open(&a, spec, 5, &config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return container_of(a, struct policy, base);
}

static struct policy *open_policy(enum policy_head head, const char *backend, size_t max_rows)
{
    const struct policy_spec spec = spec_of_head(head);

    return open_spec(&spec, backend, max_rows);
}

enum { N_HIDDEN = 5 };

static struct policy *open_lstm(enum policy_head head, const char *backend, size_t max_rows)
{
    struct policy_spec spec = spec_of_head(head);

    spec.kind = POLICY_LSTM;
    spec.n_hidden = N_HIDDEN;
    spec.n_layers = 1;
    return open_spec(&spec, backend, max_rows);
}

/* V-trace by the paper's sum: target(s) = V(s) + sum over t of the product of discounts and c
 * between times delta(t). */
static void vtrace_by_sum(const struct vtrace *v, double *targets, double *advantages)
{
    for (size_t s = 0; s < v->n_steps; s++) {
        double product = 1;

        targets[s] = (double)v->values[s];
        for (size_t t = s; t < v->n_steps && !v->resets[t]; t++) {
            double w = v->log_weights != NULL ? exp((double)v->log_weights[t]) : 1;
            double d = v->terminated[t] ? 0 : (double)v->gamma;
            double delta =
                fmin((double)v->rho_max, w) *
                ((double)v->rewards[t] + d * (double)v->values[t + 1] - (double)v->values[t]);

            targets[s] += product * delta;
            product *= d * (double)v->lambda * fmin((double)v->c_max, w);
        }
    }
    for (size_t s = 0; s < v->n_steps; s++) {
        double w = v->log_weights != NULL ? exp((double)v->log_weights[s]) : 1;
        double next = (double)v->values[s + 1];

        if (s + 1 < v->n_steps)
            next += (double)v->lambda * (targets[s + 1] - next);
        advantages[s] = v->resets[s] ? 0
                                     : fmin((double)v->rho_max, w) *
                                           ((double)v->rewards[s] +
                                            (v->terminated[s] ? 0 : (double)v->gamma) * next -
                                            (double)v->values[s]);
    }
}

/* For weights on both sides of the clips, ends by rule and by cutting, and resets. */
START_TEST(vtrace_is_its_definition)
{
    enum { T = 12 };
    float values[T + 1], weights[T], rewards[T], targets[T], advantages[T];
    bool terminated[T] = {[3] = true}, resets[T] = {[4] = true, [8] = true};
    double want[T], want_advantages[T];
    struct vtrace v = {.n_steps = T,
                       .values = values,
                       .log_weights = weights,
                       .rewards = rewards,
                       .terminated = terminated,
                       .resets = resets,
                       .gamma = 0.9f,
                       .lambda = 1,
                       .rho_max = 1,
                       .c_max = 1};

    for (uint32_t t = 0; t <= T; t++)
        values[t] = any(t, 0);
    for (uint32_t t = 0; t < T; t++) {
        weights[t] = 1.5f * any(t, 1);
        rewards[t] = any(t, 2);
    }
    for (int round = 0; round < 4; round++) {
        v.lambda = round == 1 ? 0.8f : 1;
        v.rho_max = round == 2 ? 1.5f : 1;
        v.log_weights = round == 3 ? NULL : weights;
        vtrace_compute(&v, targets, advantages);
        vtrace_by_sum(&v, want, want_advantages);
        for (size_t t = 0; t < T; t++) {
            ck_assert_double_eq_tol((double)targets[t], want[t], 1e-5);
            ck_assert_double_eq_tol((double)advantages[t], want_advantages[t], 1e-5);
        }
    }
    /* on the policy, without lambda: returns to the end, with the last value */
    ck_assert_double_eq_tol(
        (double)targets[1],
        (double)rewards[1] + 0.9 * ((double)rewards[2] + 0.9 * (double)rewards[3]), 1e-5);
    ck_assert_double_eq_tol((double)targets[7], (double)rewards[7] + 0.9 * (double)values[8], 1e-5);
}
END_TEST

/* --- gradients --- */

struct lesson_data {
    float observations[N + N_TRAJECTORIES][N_OBS], next[N][N_OBS];
    int64_t choices[N];
    float numbers[N][2], rewards[N], discounts[N], weights[N], errors[N];
    bool terminated[N], resets[N];
    float states[N_TRAJECTORIES][2 * N_HIDDEN];
};

static void draw_data(struct lesson_data *d)
{
    memset(d, 0, sizeof(*d));
    for (uint32_t i = 0; i < N + N_TRAJECTORIES; i++)
        for (uint32_t k = 0; k < N_OBS; k++) {
            d->observations[i][k] = any(i, 10 + k);
            if (i < N)
                d->next[i][k] = any(i, 20 + k);
        }
    for (uint32_t i = 0; i < N; i++) {
        d->choices[i] = (int64_t)(3 * counter_rng_uniform(17, i, 30, 9));
        d->numbers[i][0] = any(i, 31);
        d->numbers[i][1] = any(i, 32);
        d->rewards[i] = any(i, 33);
        d->discounts[i] = i % 5 == 0 ? 0 : 0.9f;
        d->weights[i] = 0.5f + counter_rng_uniform(17, i, 34, 9);
        d->terminated[i] = i == 8;
        d->resets[i] = i == 9;
    }
    for (uint32_t i = 0; i < N_TRAJECTORIES; i++)
        for (uint32_t k = 0; k < 2 * N_HIDDEN; k++)
            d->states[i][k] = any(i, 40 + k);
}

static double learn_data(struct policy *p, struct lesson_data *d, const struct learn_config *config)
{
    bool is_lstm = p->net.spec.kind == POLICY_LSTM;
    const struct learn_trajectories trajectories = {.n = N_TRAJECTORIES,
                                                    .n_steps = N_STEPS,
                                                    .observations = d->observations[0],
                                                    .states = is_lstm ? d->states[0] : NULL,
                                                    .choices = d->choices,
                                                    .numbers = d->numbers[0],
                                                    .rewards = d->rewards,
                                                    .terminated = d->terminated,
                                                    .resets = d->resets,
                                                    .rho_max = 1,
                                                    .c_max = 1};
    const struct learn_transitions transitions = {.n = N,
                                                  .observations = d->observations[0],
                                                  .next = d->next[0],
                                                  .choices = d->choices,
                                                  .rewards = d->rewards,
                                                  .discounts = d->discounts,
                                                  .weights = d->weights,
                                                  .errors = d->errors};
    struct learn_report report;
    enum status rc = p->net.spec.head == POLICY_DUELLING
                         ? p->base.type->learning->learn_transitions(&p->base, &transitions, config,
                                                                     &report, &err)
                         : p->base.type->learning->learn_trajectories(&p->base, &trajectories,
                                                                      config, &report, &err);

    if (rc != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return report.loss;
}

static void copy_buffer(struct policy *p, const struct buffer *from, float *out, size_t n)
{
    p->backend->type->download(p->backend, out, from, n * sizeof(*out));
    ck_assert_int_eq(p->backend->type->sync(p->backend, &err), STATUS_OK);
}

/* The loss of config, less that of base if there is one: what both have in common cancels. */
static double loss_above(struct policy *p, struct lesson_data *d, const struct learn_config *config,
                         const struct learn_config *base)
{
    return learn_data(p, d, config) - (base != NULL ? learn_data(p, d, base) : 0);
}

/* Of one layer's parameters, since values are constants to the policy's loss. */
static void check_layer(struct policy *p, struct lesson_data *d, const char *layer,
                        const struct learn_config *config, const struct learn_config *base)
{
    enum { MOST = 512 };
    static float gradient[MOST], less[MOST], values[MOST];
    const float little = 1e-3f;
    size_t n_checked = 0;

    for (size_t i = 0; i < 2 * p->net.n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *param = network_param(&p->net, i / 2, (int)(i % 2), name);
        size_t n = param->n_rows * param->n_cols;

        if (strncmp(name, layer, strlen(layer)) != 0)
            continue;
        ck_assert_uint_le(n, MOST);
        memset(less, 0, sizeof(less));
        if (base != NULL) {
            (void)learn_data(p, d, base);
            copy_buffer(p, param->gradient, less, n);
        }
        (void)learn_data(p, d, config);
        copy_buffer(p, param->gradient, gradient, n);
        copy_buffer(p, param->value, values, n);
        for (size_t k = 0; k < n; k++, n_checked++) {
            float was = values[k];
            double loss[2];

            for (int side = 0; side < 2; side++) {
                values[k] = side == 0 ? was + little : was - little;
                p->backend->type->upload(p->backend, param->value, values, n * sizeof(*values));
                loss[side] = loss_above(p, d, config, base);
            }
            values[k] = was;
            p->backend->type->upload(p->backend, param->value, values, n * sizeof(*values));
            ck_assert_double_eq_tol((double)gradient[k] - (double)less[k],
                                    (loss[0] - loss[1]) / (2 * (double)little), 1e-3);
        }
    }
    ck_assert_uint_gt(n_checked, 0);
}

START_TEST(gradients_of_heads)
{
    static const enum policy_head heads[] = {POLICY_SOFTMAX, POLICY_GAUSSIAN};
    const struct learn_config base = {.learning_rate = 1e-30f, .entropy_weight = 0.3f};
    struct learn_config values = base;
    struct lesson_data d;

    draw_data(&d);
    values.value_weight = 1;
    for (size_t i = 0; i < 2; i++) {
        struct policy *p = open_policy(heads[i], "ref", 0);

        check_layer(p, &d, "actions.", &base, NULL);
        check_layer(p, &d, "value.", &values, &base);
        check_layer(p, &d, "hidden.", &values, &base);
        agent_unref(&p->base);
    }
}
END_TEST

/* Through time: the recurrent layers' gradients, past the end and the reset of an episode, with
 * states before the first step. */
START_TEST(gradients_of_an_lstm)
{
    static const enum policy_head heads[] = {POLICY_SOFTMAX, POLICY_GAUSSIAN};
    const struct learn_config base = {.learning_rate = 1e-30f, .entropy_weight = 0.3f};
    struct learn_config values = base;
    struct lesson_data d;

    draw_data(&d);
    values.value_weight = 1;
    for (size_t i = 0; i < 2; i++) {
        struct policy *p = open_lstm(heads[i], "ref", i == 0 ? 0 : 2);

        check_layer(p, &d, "actions.", &base, NULL);
        check_layer(p, &d, "value.", &values, &base);
        check_layer(p, &d, "lstm.", &values, &base);
        agent_unref(&p->base);
    }
}
END_TEST

/* The gradient by the recurrent layer's weights, of trajectories of the policy with actions 0. */
static void time_gradient(const struct lesson_data *d, const float *observations, size_t n,
                          size_t n_steps, float out[4 * N_HIDDEN * N_HIDDEN])
{
    const struct learn_config config = {.learning_rate = 1e-30f, .value_weight = 0.5f};
    const struct learn_trajectories f = {.n = n,
                                         .n_steps = n_steps,
                                         .observations = observations,
                                         .choices = d->choices,
                                         .rewards = d->rewards,
                                         .terminated = d->terminated,
                                         .resets = d->resets,
                                         .gamma = 0.9f,
                                         .lambda = 1,
                                         .rho_max = 1,
                                         .c_max = 1};
    struct policy *p = open_lstm(POLICY_SOFTMAX, "cpu", 0);
    struct learn_report report;

    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err), STATUS_OK);
    copy_buffer(p, p->net.layers[1].weight.gradient, out, 4 * N_HIDDEN * N_HIDDEN);
    agent_unref(&p->base);
}

/* A trajectory in which an episode ends is two trajectories; one that goes on is not. */
START_TEST(episodes_of_an_lstm_are_apart)
{
    enum { HALF = N_STEPS / 2, N_WEIGHTS = 4 * N_HIDDEN * N_HIDDEN };
    float halves[2][HALF + 1][N_OBS], one[N_WEIGHTS], two[N_WEIGHTS];
    struct lesson_data d;

    draw_data(&d);
    memset(d.resets, 0, sizeof(d.resets));
    for (size_t half = 0; half < 2; half++)
        memcpy(halves[half], d.observations[half * HALF], sizeof(halves[half]));
    for (int ends = 0; ends < 2; ends++) {
        double most = 0;

        memset(d.terminated, 0, sizeof(d.terminated));
        d.terminated[HALF - 1] = ends;
        time_gradient(&d, d.observations[0], 1, N_STEPS, one);
        time_gradient(&d, halves[0][0], 2, HALF, two);
        for (size_t i = 0; i < N_WEIGHTS; i++)
            most = fmax(most, fabs((double)one[i] - (double)two[i]));
        ck_assert_msg(ends ? most < 1e-6 : most > 1e-4, "%g", most);
    }
}
END_TEST

START_TEST(gradients_of_duelling_q)
{
    const struct learn_config config = {.learning_rate = 1e-30f};
    struct policy *p = open_policy(POLICY_DUELLING, "ref", 0);
    struct lesson_data d;

    draw_data(&d);
    check_layer(p, &d, "", &config, NULL);
    agent_unref(&p->base);
}
END_TEST

/* Actions that are already likelier than they were, and better than the value, are left by PPO's
 * clip. */
START_TEST(clipped_actions_have_no_gradient)
{
    const struct learn_config config = {.learning_rate = 1e-30f};
    struct policy *p = open_policy(POLICY_SOFTMAX, "cpu", 0);
    float logp[N], before[3];
    struct lesson_data d;
    struct learn_report report;
    struct learn_trajectories f = {.n = N_TRAJECTORIES,
                                   .n_steps = N_STEPS,
                                   .observations = d.observations[0],
                                   .choices = d.choices,
                                   .logp = logp,
                                   .rewards = d.rewards,
                                   .terminated = d.terminated,
                                   .resets = d.resets,
                                   .rho_max = 1,
                                   .c_max = 1};

    draw_data(&d);
    for (size_t i = 0; i < N; i++) {
        logp[i] = -20;
        d.rewards[i] = 5;
    }
    for (int round = 0; round < 2; round++) {
        f.clip = round == 0 ? 0 : 0.2f;
        ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                         STATUS_OK);
        copy_buffer(p, p->net.actions->bias.gradient, before, 3);
        ck_assert((before[0] != 0) == (round == 0));
    }
    for (size_t i = 0; i < N; i++)
        logp[i] = 20; /* less likely: they are to come back */
    f.rho_max = 2;
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err), STATUS_OK);
    agent_unref(&p->base);
}
END_TEST

/* Rows computed one by one give the same parameters as all together, on each backend. */
START_TEST(lessons_in_any_passes)
{
    static const enum policy_head heads[] = {POLICY_SOFTMAX, POLICY_GAUSSIAN, POLICY_DUELLING};
    const struct learn_config config = {.learning_rate = 0.01f,
                                        .value_weight = 0.5f,
                                        .entropy_weight = 0.01f,
                                        .max_gradient_norm = 0.1f,
                                        .normalise = true};
    enum { N_HEADS = sizeof(heads) / sizeof(heads[0]) };
    float want[256], got[256];
    struct lesson_data d;

    draw_data(&d);
    for (size_t i = 0; i < N_HEADS + 2; i++) /* the last two are of an lstm */
        for (size_t k = 0; k < 4; k++) {
            const char *backend = k < 2 ? "ref" : "cpu";
            size_t max_rows = k % 2 == 0 ? 0 : k == 1 ? 1 : 2;
            struct policy *p = i < N_HEADS ? open_policy(heads[i], backend, max_rows)
                                           : open_lstm(heads[i - N_HEADS], backend, max_rows);

            for (int round = 0; round < 3; round++)
                (void)learn_data(p, &d, &config);
            copy_buffer(p, p->net.layers[1].weight.value, k == 0 ? want : got, 7 * 7);
            if (k > 0)
                ck_assert_mem_eq(want, got, 7 * 7 * sizeof(*want));
            agent_unref(&p->base);
        }
}
END_TEST

/* --- steps --- */

struct head_answer {
    int64_t action;
    float numbers[2], logp, value;
};

static void take_tensor(const struct reply *reply, const char *name, void *out, size_t size)
{
    for (size_t i = 0; i < reply->n_tensors; i++)
        if (strcmp(reply->tensors[i].name, name) == 0) {
            ck_assert_uint_eq(reply->tensors[i].size_bytes, size);
            memcpy(out, reply->tensors[i].data, size);
            return;
        }
}

/* Rows first … first + n - 1 in one step. */
static void head_step(struct policy *p, size_t first, size_t n, float epsilon,
                      struct head_answer *answers)
{
    struct clone *clones[N_ROWS];
    struct agent_turn turns[N_ROWS];
    struct arena arenas[N_ROWS];
    struct tensor_view seen[N_ROWS];
    float observations[N_ROWS][N_OBS];
    struct row *rows[N_ROWS];

    memset(answers, 0, n * sizeof(*answers));
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < N_OBS; k++)
            observations[i][k] = any((uint32_t)(first + i), 40 + k);
        ck_assert_int_eq(clone_open(&clones[i], &p->base, &(struct clone_config){0}, &err),
                         STATUS_OK);
        arena_init(&arenas[i], 1 << 16);
        agent_turn_init(&turns[i], &arenas[i], 0);
        seen[i] = (struct tensor_view){.name = "observation",
                                       .n_dims = 1,
                                       .dims = {N_OBS},
                                       .data = observations[i],
                                       .size_bytes = sizeof(observations[i])};
        turns[i].seen.tensors = &seen[i];
        turns[i].seen.n_tensors = 1;
        turns[i].seen.row_key = (uint32_t)(first + i);
        turns[i].seen.epsilon = epsilon;
        sampling_init(&turns[i].seen.sampling);
        turns[i].seen.sampling.seed = 8;
        ck_assert_int_eq(p->base.type->observe(clones[i], &turns[i], &err), STATUS_OK);
        rows[i] = &turns[i].row;
    }
    agent_compute(&p->base, rows, n);
    for (size_t i = 0; i < n; i++) {
        p->base.type->stepped(&p->base, rows[i]);
        ck_assert_int_eq(rows[i]->outcome, ROW_DONE);
        take_tensor(&turns[i].reply, "action",
                    p->net.spec.head == POLICY_GAUSSIAN ? (void *)answers[i].numbers
                                                        : (void *)&answers[i].action,
                    sizeof(int64_t)); /* of two f32, too */
        take_tensor(&turns[i].reply, "logp", &answers[i].logp, sizeof(float));
        take_tensor(&turns[i].reply, "value", &answers[i].value, sizeof(float));
        arena_deinit(&arenas[i]);
        clone_close(clones[i]);
    }
}

START_TEST(heads_act_the_same_alone)
{
    static const enum policy_head heads[] = {POLICY_GAUSSIAN, POLICY_DUELLING};
    struct head_answer all[N_ROWS], one, before[N_ROWS];

    for (size_t i = 0; i < 2; i++)
        for (size_t b = 0; b < 2; b++) {
            struct policy *p = open_policy(heads[i], b == 0 ? "ref" : "cpu", 0);
            size_t n_moved = 0;

            head_step(p, 0, N_ROWS, 0, all);
            for (size_t row = 0; row < N_ROWS; row++) {
                head_step(p, row, 1, 0, &one);
                ck_assert_mem_eq(&one, &all[row], sizeof(one));
                n_moved += memcmp(&all[row], &all[0], sizeof(one)) != 0;
            }
            ck_assert_uint_gt(n_moved, N_ROWS / 2);
            if (b > 0)
                ck_assert_mem_eq(before, all, sizeof(all));
            memcpy(before, all, sizeof(all));
            agent_unref(&p->base);
        }
}
END_TEST

/* A duelling head explores as often as it is told to, all actions alike. */
START_TEST(exploring)
{
    struct policy *p = open_policy(POLICY_DUELLING, "cpu", 0);
    struct head_answer best[N_ROWS], drawn[N_ROWS];
    size_t n_of[3] = {0};

    head_step(p, 0, N_ROWS, 0, best);
    head_step(p, 0, N_ROWS, 1, drawn);
    for (size_t i = 0; i < N_ROWS; i++)
        n_of[drawn[i].action]++;
    for (size_t a = 0; a < 3; a++)
        ck_assert_uint_ge(n_of[a], N_ROWS / 3 / 2);
    head_step(p, 0, N_ROWS, 0.2f, drawn);
    n_of[0] = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        n_of[0] += drawn[i].action != best[i].action;
    ck_assert_uint_ge(n_of[0], 1);
    ck_assert_uint_le(n_of[0], N_ROWS / 3);
    agent_unref(&p->base);
}
END_TEST

/* A Gaussian's draws have its mean and deviation, and its log-probability is the density's. */
START_TEST(gaussian_draws)
{
    const float outputs[2] = {0.5f, -0.7f};
    double sum = 0, squares = 0, std = exp(-0.7);
    enum { N_DRAWS = 20000 };

    for (uint32_t i = 0; i < N_DRAWS; i++) {
        const struct net_draw draw = {.seed = 4, .row = i};
        float x;

        head_draw_numbers(outputs, 1, &draw, &x);
        sum += (double)x;
        squares += ((double)x - 0.5) * ((double)x - 0.5);
        ck_assert_double_eq_tol((double)head_gaussian_logp(outputs, 1, &x),
                                -((double)x - 0.5) * ((double)x - 0.5) / (2 * std * std) -
                                    log(std * sqrt(2 * M_PI)),
                                1e-4);
    }
    ck_assert_double_eq_tol(sum / N_DRAWS, 0.5, 4 * std / sqrt(N_DRAWS));
    ck_assert_double_eq_tol(sqrt(squares / N_DRAWS), std, 4 * std / sqrt(2.0 * N_DRAWS));
    ck_assert_double_eq_tol(head_gaussian_entropy(outputs, 1), log(std * sqrt(2 * M_PI * exp(1))),
                            1e-5);
}
END_TEST

/* What is wrong is named, and nothing is learned. */
START_TEST(wrong_steps_are_refused)
{
    const struct learn_config config = {.learning_rate = 0.01f};
    struct policy *p = open_policy(POLICY_SOFTMAX, "cpu", 0);
    struct lesson_data d;
    struct learn_trajectories f = {.n = 1,
                                   .n_steps = N_STEPS,
                                   .observations = d.observations[0],
                                   .choices = d.choices,
                                   .rewards = d.rewards,
                                   .terminated = d.terminated,
                                   .resets = d.resets};
    struct learn_report report;

    draw_data(&d);
    d.choices[2] = 3;
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.text, "action has the action 3 at 2, but there are only 3 actions");
    d.choices[2] = 0;
    d.rewards[1] = NAN;
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "reward holds nan at 1"));
    d.rewards[1] = 0;
    f.gamma = 1.5f;
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "gamma is 1.5"));
    f.gamma = 0;
    f.states = d.states[0];
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.text, "state is given, but the policy has none: it is no lstm");
    f.states = NULL;
    memset(d.resets, 1, sizeof(d.resets));
    ck_assert_int_eq(policy_learn_trajectories(&p->base, &f, &config, &report, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "nothing to learn from"));
    ck_assert_uint_eq(p->params_version, 1);
    agent_unref(&p->base);
}
END_TEST

/* Double Q-learning is for MLPs with a duelling head. */
START_TEST(transitions_need_their_policy)
{
    static const struct {
        struct policy *(*open)(enum policy_head head, const char *backend, size_t max_rows);
        enum policy_head head;
        const char *words;
    } cases[] = {{open_lstm, POLICY_DUELLING,
                  "have no history: a recurrent policy learns from trajectories"},
                 {open_policy, POLICY_SOFTMAX, "transitions need a duelling head"}};
    const struct learn_config config = {.learning_rate = 0.01f};
    const struct learn_transitions f = {.n = 1};
    struct learn_report report;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct policy *p = cases[i].open(cases[i].head, "cpu", 0);

        ck_assert_int_eq(policy_learn_transitions(&p->base, &f, &config, &report, &err),
                         STATUS_PRECONDITION);
        ck_assert_str_eq(err.text, cases[i].words);
        ck_assert_uint_eq(p->params_version, 1);
        agent_unref(&p->base);
    }
}
END_TEST

SUITE_MAIN("agents/policy/learn_rows", vtrace_is_its_definition, gradients_of_heads,
           gradients_of_an_lstm, episodes_of_an_lstm_are_apart, gradients_of_duelling_q,
           clipped_actions_have_no_gradient, lessons_in_any_passes, heads_act_the_same_alone,
           exploring, gaussian_draws, wrong_steps_are_refused, transitions_need_their_policy)
