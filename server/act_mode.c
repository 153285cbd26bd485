#include "server/act_mode.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/model.h"

enum { TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000 };

static enum status check_lockstep(const struct act_config *c, size_t most, struct error *err)
{
    if (c->n == 0)
        return error_field(err, "n", "is 0, a lock-step batch has at least one row");
    if (c->n > most)
        return error_field(err, "n", "is %u, the model takes at most %zu rows", c->n, most);
    if (c->timeout_ms > TIMEOUT_MAX_MS)
        return error_field(err, "timeout_ms", "is %u, it may be at most %d, a day", c->timeout_ms,
                           TIMEOUT_MAX_MS);
    return STATUS_OK;
}

static enum status check_dynamic(const struct act_config *c, size_t most, struct error *err)
{
    if (c->max > most)
        return error_field(err, "max", "is %u, the model takes at most %zu rows", c->max, most);
    if (c->min > (c->max == 0 ? most : c->max))
        return error_field(err, "min", "is %u, above max, %zu", c->min,
                           c->max == 0 ? most : c->max);
    return STATUS_OK;
}

static enum status policy_of_mode(struct batcher_config *out, const struct act_config *c,
                                  size_t most, struct error *err)
{
    switch (c->mode) {
    case ACT_AUTO:
        out->policy = BATCH_GATHER;
        return STATUS_OK;
    case ACT_NONE:
        out->policy = BATCH_CONTINUOUS;
        out->max_rows = 1;
        return STATUS_OK;
    case ACT_LOCKSTEP:
        out->policy = BATCH_FIXED;
        out->max_rows = c->n;
        out->min_rows = c->is_partial ? 1 : 0;
        out->max_delay_us = (uint64_t)c->timeout_ms * 1000;
        return check_lockstep(c, most, err);
    case ACT_DYNAMIC:
        out->policy = BATCH_WINDOW;
        out->max_rows = c->max == 0 ? most : c->max;
        out->min_rows = c->min;
        out->max_delay_us = c->delay_us;
        return check_dynamic(c, most, err);
    }
    return error_field(err, "mode", "is %d, which is none that there is", (int)c->mode);
}

/* Kinds that learn are those that act. */
enum status act_check(const struct model *m, struct error *err)
{
    enum status rc = model_check_ready(m, err);

    if (rc == STATUS_OK && m->agent->type->record == NULL)
        rc = error_set(err, STATUS_PRECONDITION,
                       "model '%s' is of kind '%s', which does not act on observations", m->name,
                       m->agent->type->name);
    return rc;
}

enum status act_configure(struct model *m, const struct act_config *config, struct error *err)
{
    struct batcher_config batching;
    struct act_rows rows = {.mode = config->mode};
    enum status rc = act_check(m, err);

    if (rc != STATUS_OK)
        return rc;
    batching = m->batching;
    rc = policy_of_mode(&batching, config, m->batching.max_rows, err);
    if (rc != STATUS_OK)
        return rc;
    if (config->mode == ACT_LOCKSTEP) {
        rows.n = config->n;
        rows.at_row = try_alloc(rows.n, sizeof(rows.at_row[0]));
        if (rows.at_row == NULL)
            return error_no_memory(err, rows.n * sizeof(rows.at_row[0]), "the rows of a batch");
        for (uint32_t i = 0; i < rows.n && i < m->act.n; i++)
            rows.at_row[i] = m->act.at_row[i]; /* who waits stays where it stands */
    }
    rows.batching = batching;
    rc = batcher_configure(m->batcher, &batching, err);
    if (rc == STATUS_OK) {
        act_rows_deinit(&m->act);
        m->act = rows;
    } else {
        act_rows_deinit(&rows);
    }
    return rc;
}

void act_narrow(struct model *m, uint32_t n)
{
    struct batcher_config batching = m->act.batching;
    struct error err;
    enum status rc;

    if (m->act.at_row == NULL)
        return;
    assert(n >= 1 && n <= m->act.n);
    batching.max_rows = n;
    rc = batcher_configure(m->batcher, &batching, &err);
    assert(rc == STATUS_OK); /* fewer rows of what was good */
    (void)rc;
}

void act_rows_deinit(struct act_rows *rows)
{
    free(rows->at_row);
    *rows = (struct act_rows){0};
}

enum status act_row_check(const struct model *m, uint32_t row, struct error *err)
{
    if (m->act.at_row != NULL && row >= m->act.n)
        return error_field(err, "row", "is %u, under lock-step there are %u, from 0", row,
                           m->act.n);
    return STATUS_OK;
}

enum status act_row_take(struct model *m, uint32_t row, struct session *s, const char *env_id,
                         struct error *err)
{
    struct session **at;

    if (m->act.at_row == NULL)
        return STATUS_OK;
    at = &m->act.at_row[row];
    if (*at != NULL && *at != s)
        return error_set(err, STATUS_PRECONDITION,
                         "row %u has another's observation already, env_id '%.64s' cannot have it",
                         row, env_id);
    *at = s;
    return STATUS_OK;
}

void act_row_leave(struct model *m, uint32_t row, const struct session *s)
{
    if (m->act.at_row != NULL && row < m->act.n && m->act.at_row[row] == s)
        m->act.at_row[row] = NULL;
}
