/* Learning by REINFORCE: the steps of the records are computed again, with the same dropout masks,
 * and the gradient of each action's log-probability is weighted by the return that followed.
 *
 * The loss is the sum over clones and steps of
 *     -weight * logp + value_weight * (value - return)^2 / 2 - entropy_weight * entropy
 * divided by the number of clones. Rows are numbered clone by clone, row = clone * n_steps + step;
 * for an MLP any rows make a pass. An LSTM goes through time with one row for each clone: forwards
 * to store the state before every step on a tape, then backwards, computing each step once more
 * from its state. So all memory but the tape's is that of one pass. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"
#include "base/real.h"

enum { CACHED_BYTES = 512 << 10, LEAST_ROWS = 32 };

struct lesson {
    struct policy *policy;
    struct clone *const *clones; /* [n] */
    size_t n, n_steps;           /* clones; steps of each */
    const struct learn_config *config;
    float *returns, *weights; /* [n][n_steps] */
    double loss, entropy;     /* sums over the steps so far */
    /* Arrays of a pass, [max_rows]. */
    int32_t *actions;
    float *pulls, *dvalues; /* gradients by the action's log-probability and by the value */
    bool *keep;             /* the row's step does not begin an episode */
    struct tape tape;       /* for an LSTM: the states before each step */
};

static const struct trajectory_record *record_of(const struct lesson *l, size_t clone)
{
    return container_of(l->clones[clone], struct policy_clone, base)->record;
}

/* --- checks and weights --- */

enum status learn_check_config(const struct policy *p, const struct learn_config *c,
                               struct error *err)
{
    const struct {
        const char *name;
        float value;
    } numbers[] = {{"value_weight", c->value_weight},
                   {"entropy_weight", c->entropy_weight},
                   {"max_gradient_norm", c->max_gradient_norm}};

    if (!isfinite(c->learning_rate) || c->learning_rate < 0.0f)
        return error_field(err, "learning_rate", "is %g, it must be 0 or above",
                           (double)c->learning_rate);
    for (size_t i = 0; i < 3; i++)
        if (!isfinite(numbers[i].value) || numbers[i].value < 0.0f)
            return error_field(err, numbers[i].name, "is %g, it must be 0 or above",
                               (double)numbers[i].value);
    if (c->value_weight > 0.0f && !p->net.spec.has_value)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "value_weight",
                             "value_weight is %g, but the policy has no value head",
                             (double)c->value_weight);
    return STATUS_OK;
}

static enum status check_records(const struct lesson *l, const float *returns, struct error *err)
{
    if (l->n == 0 || l->n_steps == 0)
        return error_set(err, STATUS_INVALID,
                         "there is nothing to learn from: there are %zu clones and %zu steps", l->n,
                         l->n_steps);
    for (size_t i = 0; i < l->n; i++) {
        const struct trajectory_record *r = record_of(l, i);

        assert(l->clones[i]->agent == &l->policy->base);
        if (r == NULL || r->n != l->n_steps)
            return error_set(err, STATUS_PRECONDITION,
                             "clone %zu has a record of %zu steps, but there are returns for %zu",
                             i, r == NULL ? 0 : r->n, l->n_steps);
        for (size_t t = 0; t < l->n_steps; t++)
            if (!isfinite(returns[i * l->n_steps + t]))
                return error_field(err, "returns", "hold %g for clone %zu, step %zu",
                                   (double)returns[i * l->n_steps + t], i, t);
    }
    return STATUS_OK;
}

void learn_normalise(float *x, size_t n)
{
    double sum = 0.0, squares = 0.0, mean;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) / (sqrt(squares / (double)n) + 1e-8));
}

/* A step's weight: its own return, or the sum of all clones' returns of that step, since the
 * tutorial's shapes [n][T][1] and [T][n] broadcast to [n][T][n]. */
static void lesson_weigh(struct lesson *l)
{
    for (size_t t = 0; t < l->n_steps; t++) {
        float sum = 0.0f;

        for (size_t i = 0; i < l->n; i++)
            sum += l->returns[i * l->n_steps + t];
        for (size_t i = 0; i < l->n; i++)
            l->weights[i * l->n_steps + t] =
                l->config->loss == LEARN_TUTORIAL ? sum : l->returns[i * l->n_steps + t];
    }
}

/* --- a pass --- */

/* Loads rows first, first + stride, … into the network's input. */
static void lesson_load(struct lesson *l, size_t first, size_t stride, size_t n)
{
    struct policy *p = l->policy;
    size_t width = p->net.spec.n_observations;

    for (size_t i = 0; i < n; i++) {
        size_t row = first + i * stride, t = row % l->n_steps;
        const struct trajectory_record *r = record_of(l, row / l->n_steps);

        memcpy(p->in + i * width, r->observations + t * width, width * sizeof(*p->in));
        p->draws[i] = r->draws[t];
        l->actions[i] = r->actions[t];
        l->keep[i] = !r->are_first[t];
    }
    p->backend->type->upload(p->backend, p->net.in, p->in, n * width * sizeof(*p->in));
}

/* Adds the losses and gradients of the forward pass of these rows. */
static enum status pull(struct lesson *l, size_t first, size_t stride, size_t n, struct error *err)
{
    struct policy *p = l->policy;
    struct backend *b = p->backend;
    const struct learn_config *config = l->config;
    size_t n_actions = p->net.spec.n_actions;
    float share = 1.0f / (float)l->n;
    enum status rc;

    b->type->download(b, p->outputs, p->net.logp, n * n_actions * sizeof(*p->outputs));
    if (p->net.values != NULL)
        b->type->download(b, p->values, p->net.values, n * sizeof(*p->values));
    rc = policy_sync(p, err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const float *logp = p->outputs + i * n_actions;
        size_t row = first + i * stride;
        float weight = l->weights[row], error = 0.0f;
        double entropy = 0.0;

        if (config->value_weight > 0.0f) {
            error = p->values[i] - l->returns[row];
            weight -= p->values[i];
        }
        for (size_t a = 0; a < n_actions; a++)
            entropy -= real_exp((double)logp[a]) * (double)logp[a];
        l->pulls[i] = -weight * share;
        l->dvalues[i] = config->value_weight * error * share;
        l->entropy += entropy;
        l->loss += -(double)weight * (double)logp[l->actions[i]] +
                   (double)config->value_weight * (double)error * (double)error / 2.0 -
                   (double)config->entropy_weight * entropy;
    }
    if (p->net.dvalues != NULL)
        b->type->upload(b, p->net.dvalues, l->dvalues, n * sizeof(*l->dvalues));
    b->type->net->log_prob_backward(b, p->net.logp, l->actions, l->pulls,
                                    config->entropy_weight * share, n, n_actions, p->net.dlogits);
    network_backward(&p->net, p->draws, n);
    return STATUS_OK;
}

/* Rows of one pass: as many as keep one layer's activations in a core's L2 cache while its weights
 * stream by once for all rows; fewer rows would read the weights too often (hidden 2048: passes of
 * 256 rows take 1.4 times as long as passes of 64). The split into passes does not change the bits
 * of the gradients. */
size_t learn_pass_rows(const struct policy *p)
{
    size_t layer_row_bytes = p->net.spec.n_hidden * sizeof(float);
    size_t rows = CACHED_BYTES / layer_row_bytes;

    if (rows < LEAST_ROWS)
        rows = LEAST_ROWS;
    return rows < p->max_rows ? rows : p->max_rows;
}

static enum status learn_rows(struct lesson *l, struct error *err)
{
    struct policy *p = l->policy;
    size_t n_rows = l->n * l->n_steps, step = learn_pass_rows(p);
    enum status rc = STATUS_OK;

    for (size_t first = 0; rc == STATUS_OK && first < n_rows; first += step) {
        size_t n = n_rows - first < step ? n_rows - first : step;

        lesson_load(l, first, 1, n);
        network_forward(&p->net, p->draws, n);
        rc = pull(l, first, 1, n, err);
    }
    return rc;
}

/* --- through time --- */

static void first_states(struct lesson *l, size_t first, size_t n)
{
    struct policy *p = l->policy;
    size_t h = p->net.spec.n_hidden;

    for (size_t i = 0; i < n; i++) {
        const float *state = record_of(l, first + i)->state;

        memcpy(p->h + i * h, state, h * sizeof(*p->h));
        memcpy(p->c + i * h, state + h, h * sizeof(*p->c));
    }
    tape_upload(&l->tape, 0, p->h, p->c, n);
}

static enum status learn_clones(struct lesson *l, size_t first, size_t n, struct error *err)
{
    struct network *net = &l->policy->net;
    struct backend *b = net->backend;
    enum status rc = STATUS_OK;

    first_states(l, first, n);
    for (size_t t = 0; t < l->n_steps; t++) {
        lesson_load(l, first * l->n_steps + t, l->n_steps, n);
        tape_cut(l->policy, l->keep, n, l->tape.h[t], l->tape.c[t]);
        if (t + 1 == l->n_steps)
            break; /* no step follows that would need its state */
        tape_load(&l->tape, t, net->h_in, net->c_in, n);
        network_forward(net, l->policy->draws, n);
        tape_keep(&l->tape, t + 1, net->hidden[0], net->c_out, n);
    }
    b->type->net->zero(b, net->dh, n, net->spec.n_hidden);
    b->type->net->zero(b, net->dc, n, net->spec.n_hidden);
    for (size_t t = l->n_steps; rc == STATUS_OK && t-- > 0;) {
        lesson_load(l, first * l->n_steps + t, l->n_steps, n);
        tape_load(&l->tape, t, net->h_in, net->c_in, n);
        network_forward(net, l->policy->draws, n);
        rc = pull(l, first * l->n_steps + t, l->n_steps, n, err);
        tape_cut(l->policy, l->keep, n, net->dh, net->dc);
    }
    return rc;
}

static enum status learn_through_time(struct lesson *l, struct error *err)
{
    size_t max_rows = l->policy->max_rows;
    enum status rc = STATUS_OK;

    for (size_t first = 0; rc == STATUS_OK && first < l->n; first += max_rows)
        rc = learn_clones(l, first, l->n - first < max_rows ? l->n - first : max_rows, err);
    return rc;
}

/* --- memory --- */

static enum status open_lesson(struct lesson *l, const float *returns, struct error *err)
{
    size_t n = l->n * l->n_steps, max_rows = l->policy->max_rows;

    l->returns = try_alloc(n, sizeof(*l->returns));
    l->weights = try_alloc(n, sizeof(*l->weights));
    l->actions = try_alloc(max_rows, sizeof(*l->actions));
    l->pulls = try_alloc(max_rows, sizeof(*l->pulls));
    l->dvalues = try_alloc(max_rows, sizeof(*l->dvalues));
    l->keep = try_alloc(max_rows, sizeof(*l->keep));
    if (l->returns == NULL || l->weights == NULL || l->actions == NULL || l->pulls == NULL ||
        l->dvalues == NULL || l->keep == NULL)
        return error_no_memory(err, 2 * (uint64_t)n * sizeof(*l->returns), "returns");
    memcpy(l->returns, returns, n * sizeof(*l->returns));
    if (l->config->normalise)
        learn_normalise(l->returns, n);
    lesson_weigh(l);
    if (l->policy->net.spec.kind != POLICY_LSTM)
        return STATUS_OK;
    return tape_open(&l->tape, l->policy, l->n < max_rows ? l->n : max_rows, l->n_steps, err);
}

static void close_lesson(struct lesson *l)
{
    tape_close(&l->tape);
    free(l->returns);
    free(l->weights);
    free(l->actions);
    free(l->pulls);
    free(l->dvalues);
    free(l->keep);
}

/* --- the step --- */

static enum status add_squares(struct policy *policy, struct param *p, double *sum,
                               struct error *err)
{
    struct backend *b = policy->backend;
    size_t n = p->n_rows * p->n_cols;
    float *g = try_alloc(n, sizeof(*g));
    enum status rc;

    if (g == NULL)
        return error_no_memory(err, n * sizeof(*g), "a gradient");
    b->type->download(b, g, p->gradient, n * sizeof(*g));
    rc = policy_sync(policy, err);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        *sum += (double)g[i] * (double)g[i];
    free(g);
    return rc;
}

static enum status gradient_norm(struct policy *policy, double *out, struct error *err)
{
    struct network *net = &policy->net;
    double sum = 0.0;
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];

        rc = add_squares(policy, network_param(net, i / 2, (int)(i % 2), name), &sum, err);
    }
    if (rc == STATUS_OK && !isfinite(sum))
        rc = error_set(err, STATUS_INTERNAL, "the gradient is not finite: nothing was learned");
    else if (rc == STATUS_OK && sum > (double)FLT_MAX) /* Adam's squares would be infinite */
        rc = error_set(
            err, STATUS_INTERNAL,
            "the gradient's norm is %g, whose square is too large for f32: nothing was learned",
            sqrt(sum));
    *out = sqrt(sum);
    return rc;
}

/* A gradient that is too long is shortened on the host. */
static enum status gradient_scale(struct policy *policy, float factor, struct error *err)
{
    struct network *net = &policy->net;
    struct backend *b = policy->backend;
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < 2 * net->n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *p = network_param(net, i / 2, (int)(i % 2), name);
        size_t n = p->n_rows * p->n_cols;
        float *g = try_alloc(n, sizeof(*g));

        if (g == NULL)
            return error_no_memory(err, n * sizeof(*g), "a gradient");
        b->type->download(b, g, p->gradient, n * sizeof(*g));
        rc = policy_sync(policy, err);
        for (size_t k = 0; k < n; k++)
            g[k] *= factor;
        if (rc == STATUS_OK)
            b->type->upload(b, p->gradient, g, n * sizeof(*g));
        free(g);
    }
    return rc;
}

enum status learn_step(struct policy *p, const struct learn_config *config,
                       struct learn_report *report, struct error *err)
{
    struct network *net = &p->net;
    float *made = NULL; /* for a device: the new numbers, until net.kept takes them */
    double most = (double)config->max_gradient_norm;
    enum status rc = gradient_norm(p, &report->gradient_norm, err);

    if (rc == STATUS_OK && most > 0 && report->gradient_norm > most)
        rc = gradient_scale(p, (float)(most / report->gradient_norm), err);
    if (rc == STATUS_OK && backend_is_device(p->backend)) {
        made = try_alloc(net->n_numbers, 3 * sizeof(*made));
        if (made == NULL)
            rc = error_no_memory(err, 3 * network_weight_bytes(net), "a policy");
    }
    if (rc == STATUS_OK) {
        network_step(net, config->learning_rate);
        if (made != NULL)
            network_fetch(net, 3, made);
        rc = policy_sync(p, err);
    }
    if (rc == STATUS_OK) {
        network_stepped(net, made);
        made = NULL; /* owned by net.kept from here on */
        report->params_version = ++p->params_version;
    }
    free(made);
    return rc;
}

enum status learn_end(struct policy *p, enum status rc, struct error *err)
{
    struct error synced;

    /* a failed device may have been reported as out of memory */
    if (rc == STATUS_EXHAUSTED && policy_sync(p, &synced) == STATUS_INTERNAL) {
        rc = STATUS_INTERNAL;
        *err = synced;
    }
    p->is_stale =
        rc != STATUS_OK && p->net.kept != NULL; /* the parameters on the device may have changed */
    policy_recover(p);
    return rc;
}

enum status policy_learn(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err)
{
    struct policy *p = container_of(a, struct policy, base);
    struct lesson l = {.policy = p, .clones = clones, .n = n, .n_steps = n_steps, .config = config};
    struct learn_report report = {0};
    enum status rc = learn_check_config(p, config, err);

    if (rc == STATUS_OK)
        rc = check_records(&l, returns, err);
    if (rc == STATUS_OK)
        rc = policy_ready(p, err);
    if (rc != STATUS_OK)
        return rc;
    rc = network_prepare(&p->net, err);
    if (rc == STATUS_OK)
        rc = open_lesson(&l, returns, err);
    if (rc == STATUS_OK) {
        network_zero_gradients(&p->net);
        rc = p->net.spec.kind == POLICY_LSTM ? learn_through_time(&l, err) : learn_rows(&l, err);
    }
    if (rc == STATUS_OK)
        rc = learn_step(p, config, &report, err);
    if (rc == STATUS_OK) {
        for (size_t i = 0; i < n; i++)
            policy_clone_forget(container_of(clones[i], struct policy_clone, base));
        report.loss = l.loss / (double)n;
        report.entropy = l.entropy / (double)(n * n_steps);
        *out = report;
    }
    close_lesson(&l);
    return learn_end(p, rc, err);
}
