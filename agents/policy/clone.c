/* A clone's private state: how many steps it has completed, an LSTM's state, and the record for
 * learning. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"

static struct policy_clone *policy_clone_of(struct clone *c)
{
    return container_of(c, struct policy_clone, base);
}

static size_t state_bytes(const struct policy_clone *c)
{
    return spec_of(c)->kind == POLICY_LSTM ? 2 * spec_of(c)->n_hidden * sizeof(float) : 0;
}

enum status policy_clone_open(struct clone *base, const struct clone_config *config,
                              struct error *err)
{
    struct policy_clone *c = policy_clone_of(base);
    size_t size = state_bytes(c);

    if (size == 0)
        return STATUS_OK;
    c->state = try_alloc(1, size);
    return c->state != NULL ? STATUS_OK : error_no_memory(err, size, "a policy's state");
}

static void free_record(struct policy_clone *c)
{
    if (c->record != NULL) {
        free(c->record->observations);
        free(c->record->state);
        free(c->record->draws);
        free(c->record->actions);
        free(c->record->are_first);
        free(c->record);
    }
    c->record = NULL;
}

void policy_clone_close(struct clone *base)
{
    struct policy_clone *c = policy_clone_of(base);

    free_record(c);
    free(c->state);
}

void policy_clone_info(const struct clone *base, struct clone_info *out)
{
    const struct policy_clone *c = container_of(base, const struct policy_clone, base);
    const struct trajectory_record *r = c->record;

    *out = (struct clone_info){.state_bytes = sizeof(*c) + state_bytes(c)};
    if (r != NULL) {
        out->n_recorded = r->n;
        out->state_bytes +=
            sizeof(*r) + state_bytes(c) +
            r->cap * (spec_of(c)->n_observations * sizeof(*r->observations) + sizeof(*r->draws) +
                      sizeof(*r->actions) + sizeof(*r->are_first));
    }
}

/* An LSTM's clone has only its current state and the zero state of the start. */
static enum status policy_clone_check_turn(const struct policy_clone *c, uint32_t at_turn,
                                           struct error *err)
{
    if (at_turn > c->n_steps)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "step %u does not exist, the clone has done %u steps", at_turn,
                             c->n_steps);
    if (c->state != NULL && at_turn != 0 && at_turn != c->n_steps)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the recurrent state of step %u is not kept, only those of steps 0 and %u",
                         at_turn, c->n_steps);
    return STATUS_OK;
}

enum status policy_clone_fork(struct clone *base, const struct clone *parent, uint32_t at_turn,
                              struct error *err)
{
    const struct policy_clone *from = container_of(parent, const struct policy_clone, base);
    struct policy_clone *c = policy_clone_of(base);
    enum status rc = policy_clone_check_turn(from, at_turn, err);

    if (rc == STATUS_OK)
        rc = policy_clone_open(base, NULL, err);
    if (rc != STATUS_OK)
        return rc;
    c->n_steps = at_turn;
    if (c->state != NULL && at_turn != 0)
        memcpy(c->state, from->state, state_bytes(c));
    return STATUS_OK;
}

void policy_clone_forget(struct policy_clone *c)
{
    if (c->record != NULL)
        c->record->n = 0;
}

enum status policy_clone_rewind(struct clone *base, uint32_t at_turn, struct error *err)
{
    struct policy_clone *c = policy_clone_of(base);
    enum status rc = policy_clone_check_turn(c, at_turn, err);
    uint32_t n_undone;

    if (rc != STATUS_OK)
        return rc;
    n_undone = c->n_steps - at_turn;
    if (c->record != NULL)
        c->record->n = c->record->n > n_undone ? c->record->n - n_undone : 0;
    if (c->state != NULL && at_turn == 0)
        memset(c->state, 0, state_bytes(c));
    c->n_steps = at_turn;
    return STATUS_OK;
}

void policy_clone_reset(struct clone *base)
{
    struct policy_clone *c = policy_clone_of(base);

    policy_clone_forget(c);
    if (c->state != NULL)
        memset(c->state, 0, state_bytes(c));
    c->n_steps = 0;
}

/* Saved state: a magic, the count of steps in little endian, the LSTM's state as in memory. */
static const char state_magic[] = {'p', 'l', 'c', 'y', 1};

enum { HEAD_BYTES = sizeof(state_magic) + 4 };

enum status policy_clone_save(const struct clone *base, struct buf *out, struct error *err)
{
    const struct policy_clone *c = container_of(base, const struct policy_clone, base);
    size_t size = HEAD_BYTES + state_bytes(c);
    unsigned char *bytes = try_alloc(1, size);
    enum status rc = STATUS_EXHAUSTED;

    if (bytes != NULL) {
        memcpy(bytes, state_magic, sizeof(state_magic));
        for (size_t i = 0; i < 4; i++)
            bytes[sizeof(state_magic) + i] = (unsigned char)(c->n_steps >> 8 * i);
        if (c->state != NULL)
            memcpy(bytes + HEAD_BYTES, c->state, state_bytes(c));
        rc = buf_append(out, bytes, size);
    }
    free(bytes);
    return rc == STATUS_OK ? rc : error_no_memory(err, size, "a saved state");
}

enum status policy_clone_restore(struct clone *base, const void *data, size_t size_bytes,
                                 struct error *err)
{
    struct policy_clone *c = policy_clone_of(base);
    const unsigned char *bytes = data;
    uint32_t n_steps = 0;

    if (size_bytes != HEAD_BYTES + state_bytes(c) ||
        memcmp(bytes, state_magic, sizeof(state_magic)) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the saved state is not one of such a policy, version 1");
    for (size_t at = HEAD_BYTES; at < size_bytes; at += sizeof(float)) {
        float x;

        memcpy(&x, bytes + at, sizeof(x));
        if (!isfinite(x))
            return error_set(err, STATUS_DATA_LOSS,
                             "the recurrent state has the number %g, all must be finite",
                             (double)x);
    }
    for (size_t i = 0; i < 4; i++)
        n_steps |= (uint32_t)bytes[sizeof(state_magic) + i] << 8 * i;
    policy_clone_forget(c);
    if (c->state != NULL)
        memcpy(c->state, bytes + HEAD_BYTES, state_bytes(c));
    c->n_steps = n_steps;
    return STATUS_OK;
}

void policy_clone_get_state(const struct clone *base, float *out)
{
    const struct policy_clone *c = container_of(base, const struct policy_clone, base);

    if (c->state != NULL)
        memcpy(out, c->state, state_bytes(c));
}

void policy_clone_set_state(struct clone *base, const float *state)
{
    struct policy_clone *c = policy_clone_of(base);

    if (c->state != NULL)
        memcpy(c->state, state, state_bytes(c));
}

/* --- the record --- */

enum { RECORD_MAX_STEPS = 1 << 20 };

enum status policy_clone_record(struct clone *base, size_t max_steps, struct error *err)
{
    struct policy_clone *c = policy_clone_of(base);
    size_t n_observations = spec_of(c)->n_observations;
    struct trajectory_record *r;

    free_record(c);
    if (max_steps == 0)
        return STATUS_OK;
    if (max_steps > RECORD_MAX_STEPS)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "n_steps",
                             "a record of %zu steps is too long, it may have at most %d", max_steps,
                             RECORD_MAX_STEPS);
    if (spec_of(c)->head != POLICY_SOFTMAX)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                             "a policy with a %s head keeps no record: train it with Learn",
                             policy_head_name(spec_of(c)->head));
    r = c->record = try_alloc(1, sizeof(*r));
    if (r != NULL) {
        r->cap = max_steps;
        r->observations = try_alloc(max_steps, n_observations * sizeof(*r->observations));
        r->draws = try_alloc(max_steps, sizeof(*r->draws));
        r->actions = try_alloc(max_steps, sizeof(*r->actions));
        r->are_first = try_alloc(max_steps, sizeof(*r->are_first));
        r->state = state_bytes(c) > 0 ? try_alloc(1, state_bytes(c)) : NULL;
        if (r->observations != NULL && r->draws != NULL && r->actions != NULL &&
            r->are_first != NULL && (r->state != NULL || c->state == NULL))
            return STATUS_OK;
    }
    free_record(c);
    return error_no_memory(err, max_steps * n_observations * sizeof(*r->observations),
                           "a session's record");
}

void policy_clone_note(struct policy_clone *c, const struct policy_turn *t)
{
    size_t n_observations = spec_of(c)->n_observations;
    struct trajectory_record *r = c->record;

    if (r == NULL)
        return;
    if (r->n == 0 && r->state != NULL) {
        if (t->state != NULL)
            memcpy(r->state, t->state, state_bytes(c));
        else
            memset(r->state, 0, state_bytes(c));
    }
    memcpy(r->observations + r->n * n_observations, t->observation,
           n_observations * sizeof(*r->observations));
    r->draws[r->n] = t->draw;
    r->actions[r->n] = (int32_t)t->action;
    r->are_first[r->n] = t->is_first;
    r->n++;
}
