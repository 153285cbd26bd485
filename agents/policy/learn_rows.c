/* Learning from steps that the caller has: from trajectories, by V-trace, and from transitions, by
 * double Q-learning. A first forward pass over all steps gives the outputs, from which the host
 * computes targets and the outputs' gradients, so that no head needs operators of its own. A second
 * pass goes forward and backward with these. How rows are split into passes does not change the
 * bits. Rows of an LSTM go through time (learn_time.c). */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/head.h"
#include "agents/policy/parts.h"
#include "agents/policy/vtrace.h"
#include "base/alloc.h"
#include "base/real.h"
#include "compute/numerics/net_rows.h"

/* Rows and what is computed of them. A row is an observation; those of trajectories that follow
 * the last step have no action. */
struct row_lesson {
    struct policy *policy;
    const struct learn_config *config;
    size_t n_rows;
    const float *observations; /* [n_rows][n_observations] */
    struct time_rows *time;    /* of an LSTM, whose rows go through time; else NULL */
    /* On the host, of all rows. */
    float *outputs; /* [n_rows][n_outputs] */
    float *values;  /* [n_rows] 0 without a value head */
    /* [n_rows][n_outputs] and [n_rows]: the gradients */
    float *doutputs, *dvalues;
};

static void row_lesson_close(struct row_lesson *l)
{
    free(l->outputs);
    free(l->values);
    free(l->doutputs);
    free(l->dvalues);
}

static enum status row_lesson_open(struct row_lesson *l, struct error *err)
{
    size_t n_outputs = l->policy->net.n_outputs;

    l->outputs = try_alloc(l->n_rows, n_outputs * sizeof(*l->outputs));
    l->doutputs = try_alloc(l->n_rows, n_outputs * sizeof(*l->doutputs));
    l->values = try_alloc(l->n_rows, sizeof(*l->values));
    l->dvalues = try_alloc(l->n_rows, sizeof(*l->dvalues));
    if (l->outputs != NULL && l->doutputs != NULL && l->values != NULL && l->dvalues != NULL)
        return STATUS_OK;
    return error_no_memory(err, 2 * (uint64_t)l->n_rows * n_outputs * sizeof(*l->outputs),
                           "steps to learn from");
}

static enum status steps_check_finite(const char *field, const float *x, size_t n,
                                      struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return error_field(err, field, "holds %g at %zu", (double)x[i], i);
    return STATUS_OK;
}

static enum status steps_check_choices(const struct policy *p, const int64_t *choices, size_t n,
                                       struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (choices[i] < 0 || (uint64_t)choices[i] >= p->net.spec.n_actions)
            return error_field(err, "action",
                               "has the action %lld at %zu, but there are only %zu actions",
                               (long long)choices[i], i, p->net.spec.n_actions);
    return STATUS_OK;
}

/* --- passes --- */

/* A forward pass of rows first … first + n - 1 of observations. */
static void forward_rows(struct policy *p, struct network *net, const float *observations,
                         size_t first, size_t n)
{
    size_t width = net->spec.n_observations;

    memset(p->draws, 0, n * sizeof(*p->draws)); /* no dropout */
    p->backend->type->upload(p->backend, net->in, observations + first * width,
                             n * width * sizeof(*observations));
    network_forward(net, p->draws, n);
}

/* Computes outputs [n_rows][n_outputs] and values [n_rows] by a network. */
static enum status compute_rows(struct policy *p, struct network *net, const float *observations,
                                size_t n_rows, float *outputs, float *values, struct error *err)
{
    struct backend *b = p->backend;
    size_t step = learn_pass_rows(p), n_outputs = net->n_outputs;
    enum status rc = STATUS_OK;

    for (size_t first = 0; rc == STATUS_OK && first < n_rows; first += step) {
        size_t n = n_rows - first < step ? n_rows - first : step;

        forward_rows(p, net, observations, first, n);
        b->type->download(b, outputs + first * n_outputs, net->outputs,
                          n * n_outputs * sizeof(*outputs));
        if (net->values != NULL)
            b->type->download(b, values + first, net->values, n * sizeof(*values));
        rc = policy_sync(p, err);
    }
    return rc;
}

static void row_lesson_backward(struct row_lesson *l)
{
    struct policy *p = l->policy;
    struct network *net = &p->net;
    struct backend *b = p->backend;
    size_t step = learn_pass_rows(p), n_outputs = net->n_outputs;

    network_zero_gradients(net);
    if (l->time != NULL) {
        time_rows_backward(l->time, l->doutputs, l->dvalues);
        return;
    }
    for (size_t first = 0; first < l->n_rows; first += step) {
        size_t n = l->n_rows - first < step ? l->n_rows - first : step;

        forward_rows(p, net, l->observations, first, n);
        b->type->upload(b, net->dlogits, l->doutputs + first * n_outputs,
                        n * n_outputs * sizeof(*l->doutputs));
        if (net->dvalues != NULL)
            b->type->upload(b, net->dvalues, l->dvalues + first, n * sizeof(*l->dvalues));
        network_backward(net, p->draws, n);
    }
}

/* Opens what a lesson needs, and computes its rows. */
static enum status row_lesson_begin(struct row_lesson *l, struct error *err)
{
    struct policy *p = l->policy;
    enum status rc = network_prepare(&p->net, err);

    if (rc == STATUS_OK)
        rc = row_lesson_open(l, err);
    if (rc == STATUS_OK && l->time != NULL)
        rc = time_rows_open(l->time, err);
    if (rc != STATUS_OK)
        return rc;
    if (l->time != NULL)
        return time_rows_forward(l->time, l->outputs, l->values, err);
    return compute_rows(p, &p->net, l->observations, l->n_rows, l->outputs, l->values, err);
}

/* --- trajectories --- */

struct trajectory_lesson {
    struct row_lesson rows; /* row = trajectory * (n_steps + 1) + step */
    const struct learn_trajectories *from;
    float *log_weights;          /* [n][n_steps] */
    float *targets, *advantages; /* [n][n_steps] */
    size_t n_counted;            /* steps that are not resets */
    double loss, entropy;        /* sums */
};

static enum status check_trajectories(const struct policy *p, const struct learn_trajectories *f,
                                      struct error *err)
{
    const struct {
        const char *name;
        float value, most;
    } numbers[] = {{"gamma", f->gamma, 1},
                   {"lambda", f->lambda, 1},
                   {"rho_max", f->rho_max, INFINITY},
                   {"c_max", f->c_max, INFINITY},
                   {"clip", f->clip, 1}};
    size_t n = f->n * f->n_steps, n_actions = p->net.spec.n_actions;
    enum status rc = STATUS_OK;

    if (p->net.spec.head == POLICY_DUELLING || !p->net.spec.has_value)
        rc = error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                           "trajectories need a softmax or a gaussian head, and a value head");
    for (size_t i = 0; rc == STATUS_OK && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!(numbers[i].value >= 0 && numbers[i].value <= numbers[i].most))
            rc = error_field(err, numbers[i].name, "is %g, it must be from 0 to %g",
                             (double)numbers[i].value, (double)numbers[i].most);
    if (rc == STATUS_OK)
        rc = steps_check_finite("observation", f->observations,
                                (n + f->n) * p->net.spec.n_observations, err);
    if (rc == STATUS_OK && f->states != NULL && p->net.spec.kind != POLICY_LSTM)
        rc = error_field(err, "state", "is given, but the policy has none: it is no lstm");
    if (rc == STATUS_OK && f->states != NULL)
        rc = steps_check_finite("state", f->states, f->n * 2 * p->net.spec.n_hidden, err);
    if (rc == STATUS_OK)
        rc = steps_check_finite("reward", f->rewards, n, err);
    if (rc == STATUS_OK && f->logp != NULL)
        rc = steps_check_finite("logp", f->logp, n, err);
    if (rc == STATUS_OK)
        rc = p->net.spec.head == POLICY_GAUSSIAN
                 ? steps_check_finite("action", f->numbers, n * n_actions, err)
                 : steps_check_choices(p, f->choices, n, err);
    return rc;
}

/* The log-probability that the policy gives to the action of a step. */
static float step_logp(const struct trajectory_lesson *l, size_t row, size_t step)
{
    const struct policy_spec *s = &l->rows.policy->net.spec;
    const float *outputs = l->rows.outputs + row * l->rows.policy->net.n_outputs;

    if (s->head == POLICY_GAUSSIAN)
        return head_gaussian_logp(outputs, s->n_actions, l->from->numbers + step * s->n_actions);
    return outputs[l->from->choices[step]];
}

static void trajectory_targets(struct trajectory_lesson *l, size_t i)
{
    const struct learn_trajectories *f = l->from;
    size_t first = i * f->n_steps, first_row = i * (f->n_steps + 1);
    const struct vtrace v = {.n_steps = f->n_steps,
                             .values = l->rows.values + first_row,
                             .log_weights = l->log_weights + first,
                             .rewards = f->rewards + first,
                             .terminated = f->terminated + first,
                             .resets = f->resets + first,
                             .gamma = f->gamma,
                             .lambda = f->lambda,
                             .rho_max = f->rho_max,
                             .c_max = f->c_max};

    for (size_t t = 0; t < f->n_steps; t++) {
        if (f->logp != NULL && !f->resets[first + t])
            l->log_weights[first + t] = step_logp(l, first_row + t, first + t) - f->logp[first + t];
        l->n_counted += !f->resets[first + t];
    }
    vtrace_compute(&v, l->targets + first, l->advantages + first);
}

/* Of the advantages of the steps that count. */
static enum status normalise_advantages(struct trajectory_lesson *l, struct error *err)
{
    const struct learn_trajectories *f = l->from;
    size_t n = f->n * f->n_steps, at = 0;
    float *counted = try_alloc(l->n_counted + 1, sizeof(*counted));

    if (counted == NULL)
        return error_no_memory(err, l->n_counted * sizeof(*counted), "advantages");
    for (size_t i = 0; i < n; i++)
        if (!f->resets[i])
            counted[at++] = l->advantages[i];
    learn_normalise(counted, at);
    at = 0;
    for (size_t i = 0; i < n; i++)
        if (!f->resets[i])
            l->advantages[i] = counted[at++];
    free(counted);
    return STATUS_OK;
}

/* Entropy of the action at a row. */
static double row_entropy(const struct policy *p, const float *outputs)
{
    double entropy = 0;

    if (p->net.spec.head == POLICY_GAUSSIAN)
        return head_gaussian_entropy(outputs, p->net.spec.n_actions);
    for (size_t a = 0; a < p->net.spec.n_actions; a++)
        entropy -= real_exp((double)outputs[a]) * (double)outputs[a];
    return entropy;
}

static bool is_clipped(const struct trajectory_lesson *l, size_t step)
{
    double change = real_exp((double)l->log_weights[step]) - 1, clip = (double)l->from->clip;

    return clip > 0 && (l->advantages[step] > 0 ? change > clip : change < -clip);
}

static void pull_step(struct trajectory_lesson *l, size_t row, size_t step)
{
    const struct policy *p = l->rows.policy;
    const struct learn_config *c = l->rows.config;
    size_t n_actions = p->net.spec.n_actions;
    const float *outputs = l->rows.outputs + row * p->net.n_outputs;
    float *doutputs = l->rows.doutputs + row * p->net.n_outputs;
    float share = 1.0f / (float)l->n_counted, error = l->rows.values[row] - l->targets[step];
    float advantage = is_clipped(l, step) ? 0.0f : l->advantages[step];
    double entropy = row_entropy(p, outputs);

    if (p->net.spec.head == POLICY_GAUSSIAN)
        head_gaussian_backward(outputs, n_actions, l->from->numbers + step * n_actions,
                               -advantage * share, c->entropy_weight * share, doutputs);
    else
        net_row_log_prob_backward(outputs, (int32_t)l->from->choices[step], -advantage * share,
                                  c->entropy_weight * share, n_actions, doutputs);
    l->rows.dvalues[row] = c->value_weight * error * share;
    l->entropy += entropy;
    l->loss += -(double)advantage * (double)step_logp(l, row, step) +
               (double)c->value_weight * (double)error * (double)error / 2.0 -
               (double)c->entropy_weight * entropy;
}

static enum status trajectory_lesson_run(struct trajectory_lesson *l, struct error *err)
{
    const struct learn_trajectories *f = l->from;
    enum status rc = row_lesson_begin(&l->rows, err);

    for (size_t i = 0; rc == STATUS_OK && i < f->n; i++)
        trajectory_targets(l, i);
    if (rc == STATUS_OK && l->n_counted == 0)
        rc = error_field(err, "reset", "is true everywhere: there is nothing to learn from");
    if (rc == STATUS_OK && l->rows.config->normalise)
        rc = normalise_advantages(l, err);
    for (size_t i = 0; rc == STATUS_OK && i < f->n * f->n_steps; i++)
        if (!f->resets[i])
            pull_step(l, i + i / f->n_steps, i);
    if (rc == STATUS_OK)
        row_lesson_backward(&l->rows);
    return rc;
}

enum status policy_learn_trajectories(struct agent *a, const struct learn_trajectories *from,
                                      const struct learn_config *config, struct learn_report *out,
                                      struct error *err)
{
    struct policy *p = container_of(a, struct policy, base);
    size_t n = from->n * from->n_steps;
    struct trajectory_lesson l = {.rows = {.policy = p,
                                           .config = config,
                                           .n_rows = n + from->n,
                                           .observations = from->observations},
                                  .from = from};
    struct time_rows time = {.policy = p,
                             .n = from->n,
                             .n_steps = from->n_steps,
                             .observations = from->observations,
                             .states = from->states,
                             .terminated = from->terminated,
                             .resets = from->resets};
    struct learn_report report = {0};
    enum status rc = learn_check_config(p, config, err);

    assert(n > 0);
    l.rows.time = p->net.spec.kind == POLICY_LSTM ? &time : NULL;
    if (rc == STATUS_OK)
        rc = check_trajectories(p, from, err);
    if (rc == STATUS_OK)
        rc = policy_ready(p, err);
    if (rc != STATUS_OK)
        return rc;
    l.log_weights = try_alloc(n, sizeof(*l.log_weights));
    l.targets = try_alloc(n, sizeof(*l.targets));
    l.advantages = try_alloc(n, sizeof(*l.advantages));
    if (l.log_weights == NULL || l.targets == NULL || l.advantages == NULL)
        rc = error_no_memory(err, 3 * n * sizeof(*l.targets), "targets");
    else
        rc = trajectory_lesson_run(&l, err);
    if (rc == STATUS_OK)
        rc = learn_step(p, config, &report, err);
    if (rc == STATUS_OK) {
        report.loss = l.loss / (double)l.n_counted;
        report.entropy = l.entropy / (double)l.n_counted;
        *out = report;
    }
    free(l.log_weights);
    free(l.targets);
    free(l.advantages);
    time_rows_close(&time);
    row_lesson_close(&l.rows);
    return learn_end(p, rc, err);
}

/* --- transitions --- */

static enum status check_transitions(const struct policy *p, const struct learn_transitions *f,
                                     struct error *err)
{
    size_t width = p->net.spec.n_observations;
    enum status rc = STATUS_OK;

    if (p->net.spec.kind == POLICY_LSTM)
        rc = error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "transitions",
                           "have no history: a recurrent policy learns from trajectories");
    else if (p->net.spec.head != POLICY_DUELLING)
        rc = error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                           "transitions need a duelling head");
    if (rc == STATUS_OK)
        rc = steps_check_finite("observation", f->observations, f->n * width, err);
    if (rc == STATUS_OK)
        rc = steps_check_finite("next_observation", f->next, f->n * width, err);
    if (rc == STATUS_OK)
        rc = steps_check_finite("reward", f->rewards, f->n, err);
    if (rc == STATUS_OK)
        rc = steps_check_finite("discount", f->discounts, f->n, err);
    if (rc == STATUS_OK && f->weights != NULL)
        rc = steps_check_finite("weight", f->weights, f->n, err);
    return rc == STATUS_OK ? steps_check_choices(p, f->choices, f->n, err) : rc;
}

/* Takes the present parameters as the target's. */
static enum status move_target(struct policy *p, struct error *err)
{
    struct network *net = &p->net;
    float *numbers = try_alloc(net->n_numbers, sizeof(*numbers));
    enum status rc;

    if (numbers == NULL)
        return error_no_memory(err, network_weight_bytes(net), "target parameters");
    network_fetch(net, 1, numbers);
    rc = policy_sync(p, err);
    if (rc == STATUS_OK && p->target.backend != NULL)
        rc = network_load(&p->target, numbers, err);
    if (rc != STATUS_OK) {
        free(numbers);
        return rc;
    }
    free(p->target_numbers);
    p->target_numbers = numbers;
    return STATUS_OK;
}

static enum status target_ready(struct policy *p, struct error *err)
{
    enum status rc = p->target_numbers == NULL ? move_target(p, err) : STATUS_OK;

    if (rc != STATUS_OK || p->target.backend != NULL)
        return rc;
    network_shape(&p->target, &p->net.spec);
    rc = network_open(&p->target, p->backend, p->max_rows, err);
    if (rc == STATUS_OK)
        rc = network_load(&p->target, p->target_numbers, err);
    if (rc != STATUS_OK)
        network_close(&p->target);
    return rc;
}

/* The greatest Q of each next observation by the parameters, as the target parameters see it. */
static enum status next_values(struct row_lesson *l, const struct learn_transitions *f, float *out,
                               struct error *err)
{
    struct policy *p = l->policy;
    size_t n_actions = p->net.spec.n_actions;
    size_t *best = try_alloc(f->n, sizeof(*best));
    enum status rc =
        best != NULL ? STATUS_OK : error_no_memory(err, f->n * sizeof(*best), "actions");

    /* the lesson's arrays are used for these rows first */
    if (rc == STATUS_OK)
        rc = compute_rows(p, &p->net, f->next, f->n, l->outputs, l->values, err);
    for (size_t i = 0; rc == STATUS_OK && i < f->n; i++)
        best[i] = head_greatest(l->outputs + i * n_actions, n_actions);
    if (rc == STATUS_OK)
        rc = compute_rows(p, &p->target, f->next, f->n, l->outputs, l->values, err);
    for (size_t i = 0; rc == STATUS_OK && i < f->n; i++)
        out[i] = head_duelling_q(l->outputs + i * n_actions, n_actions, l->values[i], best[i]);
    free(best);
    return rc;
}

/* Huber's loss beyond 1. */
static void pull_transitions(struct row_lesson *l, const struct learn_transitions *f,
                             const float *next, double *ret_loss)
{
    size_t n_actions = l->policy->net.spec.n_actions;
    float share = 1.0f / (float)f->n;

    for (size_t i = 0; i < f->n; i++) {
        size_t action = (size_t)f->choices[i];
        float q = head_duelling_q(l->outputs + i * n_actions, n_actions, l->values[i], action);
        float error = q - (f->rewards[i] + f->discounts[i] * next[i]);
        float weight = f->weights != NULL ? f->weights[i] : 1.0f;
        float dq = weight * share * fminf(fmaxf(error, -1.0f), 1.0f);
        double size = fabs((double)error);

        f->errors[i] = error;
        head_duelling_backward(n_actions, action, dq, l->doutputs + i * n_actions);
        l->dvalues[i] = dq;
        *ret_loss += (double)weight * (size < 1 ? size * size / 2 : size - 0.5);
    }
}

enum status policy_learn_transitions(struct agent *a, const struct learn_transitions *from,
                                     const struct learn_config *config, struct learn_report *out,
                                     struct error *err)
{
    struct policy *p = container_of(a, struct policy, base);
    struct row_lesson l = {
        .policy = p, .config = config, .n_rows = from->n, .observations = from->observations};
    struct learn_report report = {0};
    float *next = NULL;
    enum status rc = learn_check_config(p, config, err);

    assert(from->n > 0);
    if (rc == STATUS_OK)
        rc = check_transitions(p, from, err);
    if (rc == STATUS_OK)
        rc = policy_ready(p, err);
    if (rc != STATUS_OK)
        return rc;
    rc = target_ready(p, err);
    next = try_alloc(from->n, sizeof(*next));
    if (rc == STATUS_OK && next == NULL)
        rc = error_no_memory(err, from->n * sizeof(*next), "values");
    if (rc == STATUS_OK)
        rc = network_prepare(&p->net, err);
    if (rc == STATUS_OK)
        rc = row_lesson_open(&l, err);
    if (rc == STATUS_OK)
        rc = next_values(&l, from, next, err);
    if (rc == STATUS_OK)
        rc = compute_rows(p, &p->net, l.observations, l.n_rows, l.outputs, l.values, err);
    if (rc == STATUS_OK) {
        pull_transitions(&l, from, next, &report.loss);
        row_lesson_backward(&l);
        rc = learn_step(p, config, &report, err);
    }
    if (rc == STATUS_OK && from->moves_target)
        rc = move_target(p, err);
    if (rc == STATUS_OK) {
        report.loss /= (double)from->n;
        *out = report;
    }
    free(next);
    row_lesson_close(&l);
    return learn_end(p, rc, err);
}
