/* Happy path: when a checkpoint is due, a job on the set's compute thread copies the moments. Jobs
 * run in order, and come back in order: at its end on the loop the current version is the one whose
 * moments they are, with the steps that are remembered at that moment. Then the keeper writes
 * values and moments, one part after the other. The next rounds go on meanwhile: a snapshot does
 * not change.
 *
 * Failure: the attempt ends, and the next round begins another. */
#include "server/params/checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/access/access.h"
#include "server/params/checkpoint_body.h"
#include "server/params/contributors.h"

struct params_set *checkpoint_set(const struct kept_thing *k)
{
    return container_of(k, struct params_set, kept);
}

/* What is written. */
struct checkpoint {
    struct params_set *set; /* NULL: given up */
    struct agent *agent;
    struct params_memory *memory;
    struct params_moments moments; /* blocks of memory */
    struct snapshot *snapshot;     /* NULL until the moments are copied */
    struct checkpoint_place place;
    struct buf body;
    struct job job;
};

void checkpoint_name(const struct kept_thing *k, const char **ret_principal, const char **ret_name)
{
    const struct params_set *set = checkpoint_set(k);

    *ret_principal = set->name.owner->name;
    *ret_name = set->name.text;
}

uint64_t checkpoint_version_of(const struct kept_thing *k)
{
    return checkpoint_set(k)->checkpoint_version;
}

struct checkpoint_place checkpoint_place_begin(const struct params_set *set)
{
    return (struct checkpoint_place){
        .size_bytes = set->spec.n * sizeof(float),
        .n_arrays = 1 + (unsigned)params_spec_moments(&set->spec),
    };
}

/* Returns where the next part lies in arrays, and how long it is; NULL behind the last. */
void *checkpoint_place_next(struct checkpoint_place *p, float *const arrays[3], size_t *ret_len)
{
    const size_t left = p->size_bytes - p->offset;
    char *at;

    if (p->which == p->n_arrays)
        return NULL;
    at = (char *)arrays[p->which] + p->offset;
    *ret_len = left < KEEPER_PART_BYTES ? left : KEEPER_PART_BYTES;
    p->offset += *ret_len;
    if (p->offset == p->size_bytes) {
        p->which++;
        p->offset = 0;
    }
    return at;
}

/* --- writing --- */

static void checkpoint_free(struct checkpoint *c)
{
    snapshot_unref(c->snapshot);
    params_memory_give(c->memory, c->moments.m);
    params_memory_give(c->memory, c->moments.v);
    free(c->moments.steps);
    params_memory_unref(c->memory);
    buf_deinit(&c->body);
    free(c);
}

static enum status checkpoint_write_body(struct checkpoint *c, struct error *err)
{
    const struct params_set *set = c->set;
    struct checkpoint_body body = {
        .config = set->config,
        .config_size = set->config_size,
        .n = set->spec.n,
        .n_moments = (uint32_t)params_spec_moments(&set->spec),
        .version = c->moments.version,
        .counters = set->counters,
        .steps = c->moments.steps,
        .n_steps = (uint32_t)set->spec.n_tensors,
    };
    enum status rc = contributors_remembered(&body, set, err);

    memcpy(body.sha256, c->snapshot->sha256, sizeof(body.sha256));
    if (rc == STATUS_OK)
        rc = checkpoint_body_write(&c->body, &body, err);
    free((void *)body.clients);
    return rc;
}

/* Compute thread. */
static void checkpoint_run(struct job *job)
{
    struct checkpoint *c = container_of(job, struct checkpoint, job);

    params_copy_moments(c->agent, &c->moments);
}

static void checkpoint_copied(struct job *job)
{
    struct checkpoint *c = container_of(job, struct checkpoint, job);
    struct params_set *set = c->set;
    struct snapshot *current;
    struct error err = {.status = STATUS_OK};

    if (set == NULL) {
        checkpoint_free(c);
        return;
    }
    current = params_current(c->agent);
    c->snapshot = snapshot_ref(current);
    set->checkpoint_version = c->moments.version;
    if (current->version != c->moments.version)
        (void)error_set(&err, STATUS_INTERNAL, "the moments are of another version than %llu",
                        (unsigned long long)current->version);
    else
        (void)!checkpoint_write_body(c, &err); /* it is in err */
    kept_go_on(&set->sets->keeper, &set->kept, &err);
}

enum status checkpoint_take_moments(struct params_moments *out, struct params_memory *memory,
                                    size_t n_moments, struct error *err)
{
    enum status rc = STATUS_OK;

    if (n_moments > 0)
        rc = params_memory_take(&out->m, memory, err);
    if (rc == STATUS_OK && n_moments > 1)
        rc = params_memory_take(&out->v, memory, err);
    return rc;
}

enum status checkpoint_write_begin(struct kept_thing *k, struct error *err)
{
    struct params_set *set = checkpoint_set(k);
    struct checkpoint *c = xalloc(sizeof(*c));

    set->checkpoint = c;
    set->checkpoint_version = 0;
    c->set = set;
    c->agent = set->model->agent;
    c->memory = params_memory_ref(set->memory);
    c->place = checkpoint_place_begin(set);
    buf_init(&c->body, CHECKPOINT_MAX_BYTES);
    if (checkpoint_take_moments(&c->moments, c->memory, c->place.n_arrays - 1, err) != STATUS_OK)
        return err->status;
    c->moments.steps = try_alloc(set->spec.n_tensors, sizeof(c->moments.steps[0]));
    if (c->moments.steps == NULL)
        return error_no_memory(err, set->spec.n_tensors * sizeof(c->moments.steps[0]),
                               "a checkpoint");
    c->job = (struct job){.run = checkpoint_run, .done = checkpoint_copied};
    model_run(set->model, &c->job);
    return STATUS_OK;
}

const void *checkpoint_write_bytes(struct kept_thing *k, size_t *ret_len)
{
    struct checkpoint *c = checkpoint_set(k)->checkpoint;
    float *const arrays[] = {c->snapshot->values, c->moments.m, c->moments.v};

    return checkpoint_place_next(&c->place, arrays, ret_len);
}

void checkpoint_write_tail(struct kept_thing *k, struct body_writer *w)
{
    const struct buf *body = &checkpoint_set(k)->checkpoint->body;

    if (buf_append(w->out, body->data, body->len) != STATUS_OK)
        w->has_failed = true;
}

/* While the moments are being copied, it is the job's. */
void checkpoint_write_ended(struct kept_thing *k)
{
    struct params_set *set = checkpoint_set(k);
    struct checkpoint *c = set->checkpoint;

    set->checkpoint = NULL;
    c->set = NULL;
    if (c->job.run == NULL || c->snapshot != NULL)
        checkpoint_free(c);
}

void checkpoint_tell(struct list *waits, const struct error *err)
{
    struct link *l;

    while ((l = list_pop(waits)) != NULL) {
        struct kept_wait *w = container_of(l, struct kept_wait, link);

        w->done(w, err);
    }
}

void checkpoint_begin(struct params_set *set)
{
    list_move(&set->asked, &set->keeping);
    kept_begin(&set->sets->keeper, &set->kept, &set->checkpoint_wait);
}

bool checkpoint_is_possible(const struct params_set *set)
{
    return set->sets->keeper.keeping.journal != NULL && set->config != NULL;
}

void checkpoint_after_round(struct params_set *set)
{
    if (!checkpoint_is_possible(set) || set->checkpoint != NULL || set->state != PARAMS_SERVING)
        return;
    if (set->has_failed_to_keep || params_current(set->model->agent)->version - set->kept_version >=
                                       set->sets->checkpoint_rounds)
        checkpoint_begin(set);
}

enum status params_settle(struct params_set *set, struct kept_wait *w, bool *ret_is_kept,
                          struct error *err)
{
    const uint64_t version = params_current(set->model->agent)->version;

    if (!checkpoint_is_possible(set))
        return error_set(err, STATUS_PRECONDITION, "the server has no --data, so no %s outlives it",
                         set->sets->keeper.type->noun);
    *ret_is_kept = !set->has_failed_to_keep && set->kept_version == version;
    if (*ret_is_kept)
        return STATUS_OK;
    list_push(&set->asked, &w->link);
    if (set->checkpoint == NULL)
        checkpoint_begin(set);
    return STATUS_OK;
}

enum status params_unkeep(struct params_set *set, struct error *err)
{
    return set->config == NULL ? STATUS_OK : kept_forget(&set->sets->keeper, &set->kept, err);
}

void checkpoint_abandon(struct params_set *set, const struct error *why)
{
    kept_leave(&set->checkpoint_wait);
    kept_deinit(&set->sets->keeper, &set->kept, why);
    checkpoint_tell(&set->keeping, why);
    checkpoint_tell(&set->asked, why);
}

void params_restored_free(struct params_set *set)
{
    if (set->restored != NULL)
        params_memory_give(set->memory, set->restored->values);
    free(set->restored);
    set->restored = NULL;
}
