/* A round: batch_act, on the compute thread, makes the next snapshot in the block of the round's
 * first gradient, so that a round needs no block beyond the uploaded ones; stepped publishes the
 * snapshot on the loop. All other memory of a round is allocated before anything is changed. If
 * that fails, the round's rows fail, and parameters and optimiser are unchanged. */
#include "agents/params/params.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/params/pass.h"
#include "base/alloc.h"

struct params {
    struct agent base;
    const struct params_spec *spec;
    struct params_memory *memory;
    struct params_budget *budget;
    struct snapshot *current; /* owned by the loop */
    /* Owned by the compute thread while a step runs. */
    float *m, *v;    /* [spec->n] or NULL */
    uint64_t *steps; /* [spec->n_tensors] of the optimiser, that each tensor has had */
    size_t moments_bytes;
    struct sha256 *sha;
    struct params_turn **order; /* [round_size] */
    struct snapshot *next;      /* made, not published yet */
    uint64_t made_version;      /* number of the version that was made last */
    bool has_gone_on; /* the set continues one of an earlier process; set before the first round */
};

static struct params *params_of(struct agent *a)
{
    return container_of(a, struct params, base);
}

static const struct params *const_params_of(const struct agent *a)
{
    return container_of(a, const struct params, base);
}

struct params_client *params_client_of(struct clone *c)
{
    return container_of(c, struct params_client, base);
}

static struct params_turn *turn_of(struct row *row)
{
    return container_of(agent_turn_of(row), struct params_turn, base);
}

static enum status params_take_moments(struct params *p, struct error *err)
{
    size_t n_moments = params_spec_moments(p->spec);
    size_t size_bytes = n_moments * p->spec->n * sizeof(float);
    enum status rc = params_budget_take(p->budget, size_bytes, err);

    if (rc == STATUS_PRECONDITION) /* too large for any memory */
        return error_name_field(err, "specs");
    if (rc != STATUS_OK)
        return rc;
    p->moments_bytes = size_bytes;
    if (n_moments > 0)
        p->m = try_alloc(p->spec->n, sizeof(float));
    if (n_moments > 1)
        p->v = try_alloc(p->spec->n, sizeof(float));
    if ((n_moments > 0 && p->m == NULL) || (n_moments > 1 && p->v == NULL))
        return error_no_memory(err, size_bytes, "the optimiser's state");
    return STATUS_OK;
}

static enum status params_open(struct agent *a, const struct agent_config *config,
                               struct error *err)
{
    const struct params_open *open = config->spec;
    struct params *p = params_of(a);
    enum status rc;

    p->spec = open->spec;
    p->memory = open->memory;
    p->budget = open->budget;
    p->order = try_alloc(p->spec->round_size, sizeof(p->order[0]));
    p->steps = try_alloc(p->spec->n_tensors, sizeof(p->steps[0]));
    if (p->order == NULL || p->steps == NULL)
        return error_no_memory(err, p->spec->round_size * sizeof(p->order[0]), "a round");
    rc = sha256_open(&p->sha, err);
    return rc == STATUS_OK ? params_take_moments(p, err) : rc;
}

static void params_close(struct agent *a)
{
    struct params *p = params_of(a);

    snapshot_unref(p->current);
    snapshot_unref(p->next);
    if (p->moments_bytes > 0)
        params_budget_give(p->budget, p->moments_bytes);
    free(p->m);
    free(p->v);
    free(p->steps);
    free(p->order);
    sha256_close(p->sha);
}

static void params_info(const struct agent *a, struct agent_info *out)
{
    out->weight_bytes = const_params_of(a)->spec->n * sizeof(float);
}

static void params_batching(const struct agent *a, struct batcher_config *out)
{
    const struct params_spec *s = const_params_of(a)->spec;

    *out = (struct batcher_config){
        .policy = BATCH_FIXED,
        .max_rows = s->round_size,
        .min_rows = s->quorum.may_be_partial ? s->quorum.min : s->round_size,
        .max_delay_us = s->quorum.timeout_ms * 1000,
        .max_waiting = 2 * s->round_size + s->max_queue,
    };
}

static void params_clone_close(struct clone *c)
{
    free(params_client_of(c)->id);
}

enum status params_client_open(struct params_client **out, struct agent *a, const char *id,
                               struct error *err)
{
    struct clone *c;
    enum status rc = clone_open(&c, a, &(struct clone_config){0}, err);

    if (rc != STATUS_OK)
        return rc;
    params_client_of(c)->id = try_strndup(id, strlen(id));
    if (params_client_of(c)->id == NULL) {
        clone_close(c);
        return error_no_memory(err, strlen(id), "a client's name");
    }
    *out = params_client_of(c);
    return STATUS_OK;
}

static void params_reset(struct clone *c)
{
    params_client_of(c)->has_step = false;
}

enum status params_check_fresh(const struct agent *a, uint64_t base_version, struct error *err)
{
    const struct params *p = const_params_of(a);
    uint64_t have = p->current->version, most = p->spec->max_staleness;

    if (base_version > have && p->has_gone_on) {
        (void)error_because(err, STATUS_ABORTED, REASON_PARAMS_RESTORED, "base_version",
                            "the server was started again, and '%s' goes on from version %llu: "
                            "the rounds up to %llu are lost",
                            p->spec->name, (unsigned long long)have,
                            (unsigned long long)base_version);
        err->have_version = base_version;
        err->want_version = have;
        return err->status;
    }
    if (base_version > have)
        return error_field(err, "base_version", "is %llu, but '%s' is only at version %llu",
                           (unsigned long long)base_version, p->spec->name,
                           (unsigned long long)have);
    if (most == 0 || have - base_version <= most)
        return STATUS_OK;
    (void)error_because(err, STATUS_PRECONDITION, REASON_GRADIENT_TOO_OLD, "base_version",
                        "the gradient is for version %llu, but '%s' is at version %llu and takes "
                        "gradients that are at most %llu versions old",
                        (unsigned long long)base_version, p->spec->name, (unsigned long long)have,
                        (unsigned long long)most);
    err->have_version = base_version;
    err->want_version = have;
    return err->status;
}

enum status params_check_step(const struct params_client *c, uint64_t step_id, struct error *err)
{
    if (!c->has_step || step_id > c->last_step)
        return STATUS_OK;
    return error_because(
        err, STATUS_EXISTS, REASON_GRADIENT_NOT_NEW, "step_id",
        "step %llu of '%.40s' is not new: its step %llu went into version %llu already",
        (unsigned long long)step_id, c->id, (unsigned long long)c->last_step,
        (unsigned long long)c->last_version);
}

static enum status check_gradient(const struct params *p, const struct params_client *c,
                                  const struct params_gradient *g, struct error *err)
{
    enum status rc =
        p->spec->dedupe && g->follows == NULL ? params_check_step(c, g->step_id, err) : STATUS_OK;

    return rc == STATUS_OK ? params_check_fresh(&p->base, g->base_version, err) : rc;
}

static enum status params_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    struct params_turn *t = container_of(turn, struct params_turn, base);
    const struct params *p = const_params_of(c->agent);
    const int64_t shape[] = {(int64_t)p->spec->n};

    assert(t->n_gradients > 0 && turn->seen.n_tensors == t->n_gradients);
    for (size_t i = 0; i < t->n_gradients; i++) {
        enum status rc = tensor_expect(&turn->seen.tensors[i], TENSOR_F32, shape, 1, err);

        if (rc == STATUS_OK)
            rc = check_gradient(p, params_client_of(c), t->gradients[i], err);
        if (rc != STATUS_OK)
            return rc;
    }
    turn->row.clone = c;
    return STATUS_OK;
}

static void params_self_observe(struct clone *c, struct agent_turn *turn)
{
    const struct params_turn *t = container_of(turn, struct params_turn, base);
    struct params_client *client = params_client_of(c);

    if (t->gradients[0]->follows != NULL)
        return;
    client->has_step = true;
    client->last_step = t->gradients[t->n_gradients - 1]->step_id;
    client->last_version = t->counted_in;
}

int params_compare(const struct params_gradient *a, const struct params_gradient *b)
{
    int by_client = strcmp(a->client, b->client);

    if (by_client != 0)
        return by_client;
    return a->step_id < b->step_id ? -1 : a->step_id > b->step_id;
}

static int compare_turns(const void *a, const void *b)
{
    const struct params_turn *const *x = a, *const *y = b;

    return params_compare((*x)->gradients[0], (*y)->gradients[0]);
}

static size_t count_gradients(const struct params *p, size_t n_rows)
{
    size_t n = 0;

    for (size_t i = 0; i < n_rows; i++)
        n += p->order[i]->n_gradients;
    return n;
}

/* The memory that a round allocates; the snapshot holds its contributors. */
struct round {
    struct snapshot *snapshot;
    struct params_group *groups; /* [n_rows] */
    float **gradients;           /* the gradients of all groups, one after the other */
    struct params_range *ranges; /* [n_ranges] whose step is not the round; NULL: there are none */
    size_t n_ranges;
};

static void round_free(struct round *r)
{
    snapshot_unref(r->snapshot);
    free(r->groups);
    free(r->gradients);
    free(r->ranges);
}

static bool round_skips(const struct params *p, size_t n_rows, size_t tensor)
{
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < p->order[i]->n_gradients; k++) {
            const struct params_gradient *g = p->order[i]->gradients[k];

            if (g->skips == NULL || !g->skips[tensor])
                return false;
        }
    return true;
}

/* Which step of the optimiser a tensor takes in a round; 0: none of the gradients has it. */
static uint64_t round_step(const struct params *p, size_t n_rows, size_t tensor)
{
    bool may_skip = p->order[0]->gradients[0]->skips != NULL;

    return may_skip && round_skips(p, n_rows, tensor) ? 0 : p->steps[tensor] + 1;
}

/* Finds the tensors whose step is not the round's number: neighbours of one step are one range. */
static enum status round_find_ranges(struct round *r, const struct params *p, size_t n_rows,
                                     struct error *err)
{
    uint64_t round = p->current->version + 1;
    size_t at = 0;

    for (size_t t = 0; t < p->spec->n_tensors; t++) {
        size_t end = at + p->spec->tensors[t].size_bytes / sizeof(float);
        uint64_t step = round_step(p, n_rows, t);
        struct params_range *last = r->n_ranges > 0 ? &r->ranges[r->n_ranges - 1] : NULL;

        if (step != round && r->ranges == NULL)
            r->ranges = try_alloc(p->spec->n_tensors, sizeof(r->ranges[0]));
        if (step != round && r->ranges == NULL)
            return error_no_memory(err, p->spec->n_tensors * sizeof(r->ranges[0]), "a round");
        if (step != round && last != NULL && last->end == at && last->step == step)
            last->end = end;
        else if (step != round)
            r->ranges[r->n_ranges++] = (struct params_range){at, end, step};
        at = end;
    }
    return STATUS_OK;
}

/* The learning rate of a round: its first gradient's that asks for one, else the spec's. */
static float round_rate(const struct params *p, size_t n_rows, uint64_t round)
{
    struct schedule schedule = p->spec->schedule;

    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < p->order[i]->n_gradients; k++)
            if (p->order[i]->gradients[k]->has_rate) {
                schedule.rate = p->order[i]->gradients[k]->rate;
                return schedule_rate(&schedule, round);
            }
    return schedule_rate(&schedule, round);
}

static enum status round_prepare(struct round *out, const struct params *p, size_t n_rows,
                                 struct error *err)
{
    size_t n = count_gradients(p, n_rows), at = 0;
    struct round r = {0};
    enum status rc = snapshot_make(&r.snapshot, p->memory, p->spec->n, n, err);

    if (rc != STATUS_OK)
        return rc;
    r.groups = try_alloc(n_rows, sizeof(r.groups[0]));
    r.gradients = try_alloc(n, sizeof(r.gradients[0]));
    if (r.groups == NULL || r.gradients == NULL) {
        rc = error_no_memory(err, n * sizeof(r.gradients[0]), "a round");
        goto out;
    }
    rc = round_find_ranges(&r, p, n_rows, err);
    if (rc != STATUS_OK)
        goto out;
    for (size_t i = 0; i < n_rows; i++) {
        const struct params_turn *t = p->order[i];

        r.groups[i] = (struct params_group){r.gradients + at, t->n_gradients};
        for (size_t k = 0; k < t->n_gradients; k++, at++) {
            r.snapshot->contributors[at] = xstrdup(t->gradients[k]->client);
            r.gradients[at] = t->gradients[k]->values;
        }
    }
    *out = r;
    r = (struct round){0}; /* owned by the caller */
out:
    round_free(&r);
    return rc;
}

static void params_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct params *p = params_of(a);
    struct params_gradient *first;
    struct params_pass pass;
    struct error err;
    struct round r = {0};

    assert(n <= p->spec->round_size && p->next == NULL);
    for (size_t i = 0; i < n; i++)
        p->order[i] = turn_of(rows[i]);
    qsort(p->order, n, sizeof(p->order[0]), compare_turns);
    if (round_prepare(&r, p, n, &err) != STATUS_OK) {
        for (size_t i = 0; i < n; i++) {
            rows[i]->outcome = ROW_FAILED;
            rows[i]->err = err;
        }
        return;
    }
    pass = (struct params_pass){
        .optim = &p->spec->optim,
        .step = optim_ref_step,
        .round = p->current->version + 1,
        .is_sum = p->spec->is_sum,
        .groups = r.groups,
        .n_groups = n,
        .values = p->current->values,
        .m = p->m,
        .v = p->v,
        .ranges = r.ranges,
        .n_ranges = r.n_ranges,
    };
    pass.rate = round_rate(p, n, pass.round);
    first = p->order[0]->gradients[0];
    r.snapshot->version = pass.round;
    r.snapshot->values = first->values;
    first->values = NULL; /* owned by the snapshot now */
    if (first->follows == NULL) {
        for (size_t t = 0; t < p->spec->n_tensors; t++)
            p->steps[t] += round_step(p, n, t) > 0;
        params_pass_run(&pass, r.snapshot, p->sha);
    } else {
        assert(n == 1 && first->follows->n == r.snapshot->n);
        params_pass_follow(pass.values, first->follows->values, first->tau, r.snapshot, p->sha);
    }
    p->made_version = pass.round;
    p->next = snapshot_ref(r.snapshot);
    round_free(&r);
    for (size_t i = 0; i < n; i++) {
        rows[i]->outcome = ROW_DONE;
        turn_of(rows[i])->n_rows = n;
    }
}

void params_publish(struct agent *a)
{
    struct params *p = params_of(a);

    assert(p->next != NULL);
    snapshot_unref(p->current);
    p->current = p->next;
    p->next = NULL;
}

static void params_stepped(struct agent *a, struct row *row)
{
    struct params *p = params_of(a);
    struct params_turn *t = turn_of(row);

    if (row->outcome != ROW_DONE)
        return;
    if (p->next != NULL)
        params_publish(a); /* called by the first of the round's rows */
    t->counted_in = p->current->version;
    t->base.reply.params_version = p->current->version;
    t->base.reply.batch_rows = (uint32_t)t->n_rows;
}

enum status params_begin(struct agent *a, float *values, const struct params_moments *from,
                         struct error *err)
{
    struct params *p = params_of(a);
    struct snapshot *s;
    enum status rc = snapshot_make(&s, p->memory, p->spec->n, 0, err);

    if (rc != STATUS_OK)
        return rc;
    s->values = values;
    if (from != NULL) {
        const size_t size_bytes = p->spec->n * sizeof(float);

        if (p->m != NULL)
            memcpy(p->m, from->m, size_bytes);
        if (p->v != NULL)
            memcpy(p->v, from->v, size_bytes);
        for (size_t t = 0; t < p->spec->n_tensors; t++)
            p->steps[t] = from->steps != NULL ? from->steps[t] : from->version;
        p->has_gone_on = true;
        s->version = p->made_version = from->version;
    }
    for (size_t i = 0; i < s->n_chunks; i++)
        snapshot_add_checksum(s, p->sha, i * SNAPSHOT_CHUNK_BYTES, snapshot_chunk_bytes(s, i));
    sha256_take(p->sha, s->sha256);
    p->next = s;
    return STATUS_OK;
}

void params_copy_moments(const struct agent *a, struct params_moments *out)
{
    const struct params *p = const_params_of(a);
    const size_t size_bytes = p->spec->n * sizeof(float);

    if (p->m != NULL)
        memcpy(out->m, p->m, size_bytes);
    if (p->v != NULL)
        memcpy(out->v, p->v, size_bytes);
    if (out->steps != NULL)
        memcpy(out->steps, p->steps, p->spec->n_tensors * sizeof(p->steps[0]));
    out->version = p->made_version;
}

struct snapshot *params_current(const struct agent *a)
{
    return const_params_of(a)->current;
}

const struct agent_type params_agent = {
    .name = "params",
    .agent_size = sizeof(struct params),
    .clone_size = sizeof(struct params_client),
    .open = params_open,
    .close = params_close,
    .info = params_info,
    .batching = params_batching,
    .clone_close = params_clone_close,
    .reset = params_reset,
    .observe = params_observe,
    .self_observe = params_self_observe,
    .batch_act = params_batch_act,
    .stepped = params_stepped,
};
