/* A step: observe checks the observation and allocates all memory that the turn needs; batch_act
 * makes one pass for all rows and draws an action for each; stepped puts the action into the reply;
 * self_observe counts the step. Until self_observe the clone is unchanged. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "agents/policy/head.h"
#include "agents/policy/parts.h"
#include "base/counter_rng.h"

static enum status check_observation(const struct policy_spec *s, const struct observation *seen,
                                     struct error *err)
{
    const int64_t shape[] = {(int64_t)s->n_observations};
    const struct tensor_view *t = seen->tensors;
    const float *numbers;
    enum status rc;

    if (seen->n_tensors != 1)
        return error_field(err, "observation", "has %zu tensors, it must have one",
                           seen->n_tensors);
    if (t->name == NULL || strcmp(t->name, "observation") != 0)
        return error_field(err, "observation", "is called '%.40s', it must be 'observation'",
                           t->name == NULL ? "" : t->name);
    rc = tensor_expect(t, TENSOR_F32, shape, 1, err);
    if (rc != STATUS_OK)
        return rc;
    numbers = t->data;
    for (size_t i = 0; i < s->n_observations; i++)
        if (!isfinite(numbers[i]))
            return error_field(err, "observation", "holds %g at %zu", (double)numbers[i], i);
    return STATUS_OK;
}

static enum status policy_step_check_turn(const struct policy_clone *c,
                                          const struct observation *seen, struct error *err)
{
    float temperature = seen->sampling.temperature;
    enum status rc = check_observation(spec_of(c), seen, err);

    if (rc != STATUS_OK)
        return rc;
    if (temperature != 0.0f && temperature != 1.0f)
        return error_field(err, "temperature",
                           "is %g, it must be 1 (draw an action) or 0 (take the likeliest action)",
                           (double)temperature);
    if (c->record != NULL && c->record->n == c->record->cap)
        return error_because(err, STATUS_PRECONDITION, REASON_EPISODE_OVER, NULL,
                             "the record of %zu steps is full", c->record->cap);
    return STATUS_OK;
}

/* Lays out the tensors of the reply. */
static void policy_step_lay_out(struct policy_turn *t, const struct policy_spec *s)
{
    struct tensor_view *out = t->outputs;

    if (s->head == POLICY_GAUSSIAN)
        *out++ = (struct tensor_view){.name = "action",
                                      .type = TENSOR_F32,
                                      .n_dims = 1,
                                      .dims = {(int64_t)s->n_actions},
                                      .data = t->numbers,
                                      .size_bytes = s->n_actions * sizeof(*t->numbers)};
    else
        *out++ = (struct tensor_view){.name = "action",
                                      .type = TENSOR_I64,
                                      .data = &t->action,
                                      .size_bytes = sizeof(t->action)};
    if (s->head != POLICY_DUELLING)
        *out++ = (struct tensor_view){
            .name = "logp", .type = TENSOR_F32, .data = &t->logp, .size_bytes = sizeof(t->logp)};
    *out++ = (struct tensor_view){
        .name = "value", .type = TENSOR_F32, .data = &t->value, .size_bytes = sizeof(t->value)};
    t->n_outputs = (size_t)(out - t->outputs);
}

enum status policy_observe(struct clone *base, struct agent_turn *turn, struct error *err)
{
    struct policy_clone *c = container_of(base, struct policy_clone, base);
    const struct policy *p = policy_of(c);
    const struct observation *seen = &turn->seen;
    struct policy_turn *t;
    enum status rc = policy_step_check_turn(c, seen, err);

    if (rc != STATUS_OK)
        return rc;
    t = arena_alloc(turn->arena, 1, sizeof(*t));
    if (t != NULL && c->state != NULL)
        t->state_after =
            arena_alloc(turn->arena, 2 * p->net.spec.n_hidden, sizeof(*t->state_after));
    if (t != NULL && p->net.spec.head == POLICY_GAUSSIAN)
        t->numbers = arena_alloc(turn->arena, p->net.spec.n_actions, sizeof(*t->numbers));
    if (t == NULL || (c->state != NULL && t->state_after == NULL) ||
        (p->net.spec.head == POLICY_GAUSSIAN && t->numbers == NULL))
        return error_no_memory(err, sizeof(*t), "a step");
    t->observation = seen->tensors[0].data;
    t->is_first = seen->is_first;
    t->state = seen->is_first ? NULL : c->state;
    t->is_greedy = seen->sampling.temperature == 0.0f;
    t->epsilon = seen->epsilon;
    t->draw = (struct net_draw){.seed = seen->sampling.seed,
                                .step = c->n_steps,
                                .row = seen->row_key,
                                .drops = p->trains && p->net.spec.dropout > 0.0f};
    policy_step_lay_out(t, &p->net.spec);
    turn->row.clone = base;
    turn->row.turn = t;
    return STATUS_OK;
}

void policy_self_observe(struct clone *base, struct agent_turn *turn)
{
    struct policy_clone *c = container_of(base, struct policy_clone, base);
    const struct policy_turn *t = turn->row.turn;

    policy_clone_note(c, t);
    if (c->state != NULL)
        memcpy(c->state, t->state_after, 2 * spec_of(c)->n_hidden * sizeof(*c->state));
    c->n_steps++;
}

void policy_stepped(struct agent *a, struct row *row)
{
    struct policy *p = container_of(a, struct policy, base);
    struct reply *reply = &agent_turn_of(row)->reply;
    const struct policy_turn *t = row->turn;

    p->n_losses_seen = t->n_losses;
    if (row->outcome != ROW_DONE)
        return;
    reply->tensors = t->outputs;
    reply->n_tensors = t->n_outputs;
    reply->params_version = t->params_version;
    reply->batch_rows = t->batch_rows;
    reply->finish = FINISH_STOP;
}

/* --- compute --- */

static struct policy_turn *turn_at(const struct policy *p, size_t i)
{
    return p->rows[i]->turn;
}

/* Sorts rows by key, independent of arrival; a stable sort. */
static void policy_step_order(struct policy *p, struct row *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct policy_turn *t = rows[i]->turn;
        size_t at = i;

        for (; at > 0 && turn_at(p, at - 1)->draw.row > t->draw.row; at--)
            p->rows[at] = p->rows[at - 1];
        p->rows[at] = rows[i];
    }
}

/* The n rows of p, into the pass of to from its row at on. */
static void policy_step_gather(struct policy *to, size_t at, const struct policy *p, size_t n)
{
    const struct policy_spec *s = &p->net.spec;
    size_t h = s->n_hidden, row_bytes = s->n_observations * sizeof(*to->in);

    for (size_t i = 0; i < n; i++, at++) {
        const struct policy_turn *t = turn_at(p, i);

        memcpy(to->in + at * s->n_observations, t->observation, row_bytes);
        to->draws[at] = t->draw;
        if (s->kind != POLICY_LSTM)
            continue;
        if (t->state != NULL) {
            memcpy(to->h + at * h, t->state, h * sizeof(*to->h));
            memcpy(to->c + at * h, t->state + h, h * sizeof(*to->c));
        } else {
            memset(to->h + at * h, 0, h * sizeof(*to->h));
            memset(to->c + at * h, 0, h * sizeof(*to->c));
        }
    }
}

static void policy_step_send(struct policy *p, size_t n)
{
    const struct policy_spec *s = &p->net.spec;
    struct backend *b = p->backend;
    size_t h = s->n_hidden;

    b->type->upload(b, p->net.in, p->in, n * s->n_observations * sizeof(*p->in));
    if (s->kind == POLICY_LSTM) {
        b->type->upload(b, p->net.h_in, p->h, n * h * sizeof(*p->h));
        b->type->upload(b, p->net.c_in, p->c, n * h * sizeof(*p->c));
    }
}

static enum status policy_step_fetch(struct policy *p, size_t n, struct error *err)
{
    const struct policy_spec *s = &p->net.spec;
    struct backend *b = p->backend;
    size_t state_bytes = n * s->n_hidden * sizeof(*p->h);

    b->type->download(b, p->outputs, p->net.outputs, n * p->net.n_outputs * sizeof(*p->outputs));
    if (s->has_value)
        b->type->download(b, p->values, p->net.values, n * sizeof(*p->values));
    if (s->kind == POLICY_LSTM) {
        b->type->download(b, p->h, p->net.hidden[0], state_bytes);
        b->type->download(b, p->c, p->net.c_out, state_bytes);
    }
    return policy_sync(p, err);
}

/* Draws 2 and 3 of a step are of exploration; see head.c. */
static bool policy_step_explores(const struct policy_turn *t)
{
    return t->epsilon > 0.0f &&
           counter_rng_uniform(t->draw.seed, t->draw.row, t->draw.step, 2) < t->epsilon;
}

static size_t policy_step_choose(const struct policy_spec *s, const float *outputs,
                                 const struct policy_turn *t)
{
    if (policy_step_explores(t)) {
        float drawn = counter_rng_uniform(t->draw.seed, t->draw.row, t->draw.step, 3);
        size_t action = (size_t)(drawn * (float)s->n_actions);

        return action < s->n_actions ? action : s->n_actions - 1; /* the product may round up */
    }
    if (t->is_greedy || s->head == POLICY_DUELLING)
        return head_greatest(outputs, s->n_actions);
    return head_draw_choice(outputs, s->n_actions, &t->draw);
}

/* Chooses the action of a row, from its outputs and its value. */
static void policy_step_act(const struct policy_spec *s, const float *outputs, float value,
                            struct policy_turn *t)
{
    t->value = value;
    if (s->head == POLICY_GAUSSIAN) {
        head_draw_numbers(outputs, s->n_actions, t->is_greedy ? NULL : &t->draw, t->numbers);
        t->logp = head_gaussian_logp(outputs, s->n_actions, t->numbers);
        return;
    }
    t->action = (int64_t)policy_step_choose(s, outputs, t);
    if (s->head == POLICY_DUELLING)
        t->value = head_duelling_q(outputs, s->n_actions, value, (size_t)t->action);
    else
        t->logp = outputs[t->action];
}

/* Whether all that a reply holds are numbers. */
static bool policy_step_is_finite(const struct policy_spec *s, const struct policy_turn *t)
{
    bool is_finite = isfinite(t->logp) && isfinite(t->value);

    for (size_t k = 0; s->head == POLICY_GAUSSIAN && k < s->n_actions; k++)
        is_finite = is_finite && isfinite(t->numbers[k]);
    return is_finite;
}

/* The n rows of p, from the pass of n_pass rows of from, from its row at on. */
static void scatter(struct policy *p, size_t n, const struct policy *from, size_t at, size_t n_pass)
{
    const struct policy_spec *s = &p->net.spec;
    size_t h = s->n_hidden;

    for (size_t i = 0; i < n; i++, at++) {
        struct policy_turn *t = turn_at(p, i);

        policy_step_act(s, from->outputs + at * p->net.n_outputs,
                        s->has_value ? from->values[at] : 0.0f, t);
        t->params_version = p->params_version;
        t->batch_rows = (uint32_t)n_pass;
        if (s->kind == POLICY_LSTM) {
            memcpy(t->state_after, from->h + at * h, h * sizeof(*from->h));
            memcpy(t->state_after + h, from->c + at * h, h * sizeof(*from->c));
        }
        p->rows[i]->outcome = ROW_DONE;
        if (!policy_step_is_finite(s, t)) {
            (void)error_set(&p->rows[i]->err, STATUS_INTERNAL,
                            "the policy's log-probability is %g: its parameters or its "
                            "observations are too large",
                            (double)t->logp);
            p->rows[i]->outcome = ROW_FAILED;
        }
    }
}

static struct policy *policy_of_step(const struct agent_step *step)
{
    return container_of(step->agent, struct policy, base);
}

/* One pass, in the memory of the first policy. */
static void policy_step_pass(const struct agent_step *steps, size_t n_steps)
{
    struct network_part parts[NETWORK_MAX_GROUP];
    struct policy *first = policy_of_step(&steps[0]);
    enum status rc = STATUS_OK;
    struct error err;
    size_t n = 0, at = 0;

    for (size_t i = 0; i < n_steps; i++) {
        struct policy *p = policy_of_step(&steps[i]);

        policy_step_order(p, steps[i].rows, steps[i].n_rows);
        parts[i] = (struct network_part){&p->net, steps[i].n_rows};
        if (rc == STATUS_OK)
            rc = policy_ready(p, &err);
        if (rc == STATUS_OK)
            policy_step_gather(first, n, p, steps[i].n_rows);
        n += steps[i].n_rows;
    }
    if (rc == STATUS_OK) {
        policy_step_send(first, n);
        network_forward_group(parts, n_steps, first->draws);
        rc = policy_step_fetch(first, n, &err);
        policy_recover(first);
    }
    for (size_t i = 0; i < n_steps; at += steps[i].n_rows, i++) {
        struct policy *p = policy_of_step(&steps[i]);

        if (rc == STATUS_OK)
            scatter(p, steps[i].n_rows, first, at, n);
        for (size_t k = 0; k < steps[i].n_rows; k++) {
            turn_at(p, k)->n_losses = p->n_losses;
            if (rc == STATUS_OK)
                continue;
            p->rows[k]->err = err;
            p->rows[k]->outcome = ROW_FAILED;
        }
    }
}

void policy_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    const struct agent_step step = {a, rows, n};

    assert(n <= container_of(a, struct policy, base)->max_rows);
    policy_step_pass(&step, 1);
}

bool policy_groups_with(const struct agent *a, const struct agent *b)
{
    return network_groups_with(&container_of(a, const struct policy, base)->net,
                               &container_of(b, const struct policy, base)->net);
}

/* How many of the steps one pass has room for: at least one. */
static size_t policy_step_fitting(const struct agent_step *steps, size_t n_steps)
{
    size_t max_rows = policy_of_step(steps)->max_rows, n = steps->n_rows, i = 1;

    for (; i < n_steps && i < NETWORK_MAX_GROUP && steps[i].n_rows <= max_rows - n; i++)
        n += steps[i].n_rows;
    return i;
}

void policy_group_act(const struct agent_step *steps, size_t n)
{
    for (size_t done = 0, fitting; done < n; done += fitting) {
        fitting = policy_step_fitting(steps + done, n - done);
        policy_step_pass(steps + done, fitting);
    }
}
