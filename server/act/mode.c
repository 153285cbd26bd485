/* Checks the mode that a call asks for, and makes the batching policy of it. In lock-step it gives
 * each session its row, and takes the row back when the session leaves. */
#include "server/act/mode.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/model/attached.h"
#include "server/model/model.h"

enum { TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000 };

static enum status check_lockstep(const struct act_config *c, size_t most, struct error *err)
{
    if (c->n == 0)
        return error_field(err, "n", "is 0, a lock-step batch has at least one row");
    if (c->n > most)
        return error_field(err, "n", "is %u, the model accepts at most %zu rows", c->n, most);
    if (c->timeout_ms > TIMEOUT_MAX_MS)
        return error_field(err, "timeout_ms", "is %u, it may be at most %d, a day", c->timeout_ms,
                           TIMEOUT_MAX_MS);
    return STATUS_OK;
}

static enum status check_dynamic(const struct act_config *c, size_t most, struct error *err)
{
    if (c->max > most)
        return error_field(err, "max", "is %u, the model accepts at most %zu rows", c->max, most);
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
        out->policy = BATCH_ADAPTIVE;
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

/* Agents that act are those that learn. */
enum status act_check(const struct model *m, struct error *err)
{
    enum status rc = model_check_ready(m, err);

    if (rc == STATUS_OK && m->info.acting.n_observations == 0)
        rc = error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                           "model '%s' is of kind '%s', which does not act on observations",
                           m->name, m->agent->type->name);
    return rc;
}

/* The mode of one model. */
struct act_rows {
    struct link link;
    const struct model *model;
    struct batcher_config batching; /* the batcher's configuration for the mode */
    bool is_lockstep;
    uint32_t n;
    struct session *at_row[]; /* [n] lock-step: the session whose observation waits or runs there */
};

void act_modes_init(struct act_modes *all)
{
    list_init(&all->rows);
}

static void free_rows(struct act_rows *rows)
{
    list_remove(&rows->link);
    free(rows);
}

void act_modes_deinit(struct act_modes *all)
{
    struct link *l;

    while ((l = list_first(&all->rows)) != NULL)
        free_rows(container_of(l, struct act_rows, link));
}

static struct act_rows *mode_rows_of(const struct act_modes *all, const struct model *m)
{
    for (struct link *l = list_first(&all->rows); l != NULL; l = list_next(&all->rows, l)) {
        struct act_rows *rows = container_of(l, struct act_rows, link);

        if (rows->model == m)
            return rows;
    }
    return NULL;
}

/* NULL: the model is not in lock-step. */
static struct act_rows *lockstep_of(const struct act_modes *all, const struct model *m)
{
    struct act_rows *rows = mode_rows_of(all, m);

    return rows != NULL && rows->is_lockstep ? rows : NULL;
}

void act_forget(struct act_modes *all, const struct model *m)
{
    struct act_rows *rows = mode_rows_of(all, m);

    if (rows != NULL)
        free_rows(rows);
}

enum status act_configure(struct act_modes *all, struct model *m, const struct act_config *config,
                          struct error *err)
{
    bool is_lockstep = config->mode == ACT_LOCKSTEP;
    bool is_by_workers = m->agent != NULL && m->agent->type->elsewhere != NULL;
    struct act_rows *rows, *before;
    struct batcher_config batching;
    uint32_t n = is_lockstep ? config->n : 0;
    enum status rc = act_check(m, err);

    if (rc != STATUS_OK)
        return rc;
    batching = m->batching;
    if (!is_by_workers || config->mode != ACT_AUTO) /* AUTO: as the workers' rows and slots say */
        rc = policy_of_mode(&batching, config, m->batching.max_rows, err);
    if (rc != STATUS_OK)
        return rc;
    rows = try_alloc(1, sizeof(*rows) + n * sizeof(rows->at_row[0]));
    if (rows == NULL)
        return error_no_memory(err, n * sizeof(rows->at_row[0]), "the rows of a batch");
    rc = batcher_configure(m->batcher, &batching, err);
    if (rc != STATUS_OK) {
        free(rows);
        return rc;
    }
    if (is_by_workers) {
        m->is_gathered = config->mode != ACT_AUTO;
        attached_follow_workers(m);
    }
    rows->model = m;
    rows->batching = batching;
    rows->is_lockstep = is_lockstep;
    rows->n = n;
    before = mode_rows_of(all, m);
    for (uint32_t i = 0; before != NULL && i < n && i < before->n; i++)
        rows->at_row[i] = before->at_row[i]; /* waiting observations keep their rows */
    if (before != NULL)
        free_rows(before);
    list_push(&all->rows, &rows->link);
    return STATUS_OK;
}

uint32_t act_lockstep_n(const struct act_modes *all, const struct model *m)
{
    const struct act_rows *rows = lockstep_of(all, m);

    return rows == NULL ? 0 : rows->n;
}

void act_set_batch_width(struct act_modes *all, struct model *m, uint32_t n)
{
    const struct act_rows *rows = lockstep_of(all, m);
    struct batcher_config batching;
    struct error err;
    enum status rc;

    if (rows == NULL)
        return;
    assert(n >= 1 && n <= rows->n);
    batching = rows->batching;
    batching.max_rows = n;
    rc = batcher_configure(m->batcher, &batching, &err);
    assert(rc == STATUS_OK); /* it has fewer rows than a valid configuration */
    (void)rc;
}

enum status act_row_check(const struct act_modes *all, const struct model *m, uint32_t row,
                          struct error *err)
{
    const struct act_rows *rows = lockstep_of(all, m);

    if (rows != NULL && row >= rows->n)
        return error_field(err, "row", "is %u, under lock-step there are %u, from 0", row, rows->n);
    return STATUS_OK;
}

enum status act_row_take(struct act_modes *all, const struct model *m, uint32_t row,
                         struct session *s, const char *env_id, struct error *err)
{
    struct act_rows *rows = lockstep_of(all, m);

    if (rows == NULL)
        return STATUS_OK;
    if (rows->at_row[row] != NULL && rows->at_row[row] != s)
        return error_because(
            err, STATUS_PRECONDITION, REASON_ROW_TAKEN, "row",
            "row %u has another's observation already, env_id '%.64s' cannot have it", row, env_id);
    rows->at_row[row] = s;
    return STATUS_OK;
}

void act_row_leave(struct act_modes *all, const struct model *m, uint32_t row,
                   const struct session *s)
{
    struct act_rows *rows = lockstep_of(all, m);

    if (rows != NULL && row < rows->n && rows->at_row[row] == s)
        rows->at_row[row] = NULL;
}
