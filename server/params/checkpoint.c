/* Happy path: when a checkpoint is due, a job on the set's compute thread copies the moments. Jobs
 * run in order, and come back in order: at its end on the loop the current version is the one whose
 * moments they are, with the steps that are remembered at that moment. Then the keeper writes
 * values and moments, one part after the other. The next rounds go on meanwhile: a snapshot does
 * not change. At the start the keeper makes each set again, fills its blocks part by part, and lets
 * it begin with that version.
 *
 * Failure: the attempt ends, and the next round begins another. A checkpoint that is damaged stays
 * in the journal, and its set is closed. */
#include "server/params/checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/access/access.h"
#include "server/params/checkpoint_body.h"

#define CHECKPOINT_MAX_BYTES ((size_t)256 << 20)

/* The part that comes next, of the values (which 0) and of the moments behind them. */
struct checkpoint_place {
    size_t size_bytes;        /* of the values, and of each moment */
    unsigned which, n_arrays; /* of them all */
    size_t offset;            /* in that array */
};

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

/* What was read of a set that is being made again. */
struct params_restored {
    struct checkpoint_body body;
    float *values; /* a block of the set's memory */
    struct checkpoint_place place;
};

static struct params_set *kept_set(const struct kept_thing *k)
{
    return container_of(k, struct params_set, kept);
}

static void set_kept_name(const struct kept_thing *k, const char **ret_principal,
                          const char **ret_name)
{
    const struct params_set *set = kept_set(k);

    *ret_principal = set->name.owner->name;
    *ret_name = set->name.text;
}

static uint64_t set_kept_version_of(const struct kept_thing *k)
{
    return kept_set(k)->checkpoint_version;
}

static struct checkpoint_place place_begin(const struct params_set *set)
{
    return (struct checkpoint_place){
        .size_bytes = set->spec.n * sizeof(float),
        .n_arrays = 1 + (unsigned)params_spec_moments(&set->spec),
    };
}

/* Returns where the next part lies in arrays, and how long it is; NULL behind the last. */
static void *place_next(struct checkpoint_place *p, float *const arrays[3], size_t *ret_len)
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
    };
    enum status rc = params_remembered(&body, set, err);

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

static enum status take_moments(struct params_moments *out, struct params_memory *memory,
                                size_t n_moments, struct error *err)
{
    enum status rc = STATUS_OK;

    if (n_moments > 0)
        rc = params_memory_take(&out->m, memory, err);
    if (rc == STATUS_OK && n_moments > 1)
        rc = params_memory_take(&out->v, memory, err);
    return rc;
}

static enum status set_kept_begin(struct kept_thing *k, struct error *err)
{
    struct params_set *set = kept_set(k);
    struct checkpoint *c = xalloc(sizeof(*c));

    set->checkpoint = c;
    set->checkpoint_version = 0;
    c->set = set;
    c->agent = set->model->agent;
    c->memory = params_memory_ref(set->memory);
    c->place = place_begin(set);
    buf_init(&c->body, CHECKPOINT_MAX_BYTES);
    if (take_moments(&c->moments, c->memory, c->place.n_arrays - 1, err) != STATUS_OK)
        return err->status;
    c->job = (struct job){.run = checkpoint_run, .done = checkpoint_copied};
    model_run(set->model, &c->job);
    return STATUS_OK;
}

static const void *set_kept_bytes(struct kept_thing *k, size_t *ret_len)
{
    struct checkpoint *c = kept_set(k)->checkpoint;
    float *const arrays[] = {c->snapshot->values, c->moments.m, c->moments.v};

    return place_next(&c->place, arrays, ret_len);
}

static void set_kept_body(struct kept_thing *k, struct body_writer *w)
{
    const struct buf *body = &kept_set(k)->checkpoint->body;

    if (buf_append(w->out, body->data, body->len) != STATUS_OK)
        w->has_failed = true;
}

/* While the moments are being copied, it is the job's. */
static void set_kept_ended(struct kept_thing *k)
{
    struct params_set *set = kept_set(k);
    struct checkpoint *c = set->checkpoint;

    set->checkpoint = NULL;
    c->set = NULL;
    if (c->job.run == NULL || c->snapshot != NULL)
        checkpoint_free(c);
}

/* Each wait may be freed when it is done. */
static void checkpoint_tell(struct list *waits, const struct error *err)
{
    struct link *l;

    while ((l = list_pop(waits)) != NULL) {
        struct kept_wait *w = container_of(l, struct kept_wait, link);

        w->done(w, err);
    }
}

static void on_checkpoint_end(struct kept_wait *w, const struct error *err)
{
    struct params_set *set = container_of(w, struct params_set, checkpoint_wait);
    struct error why = *err;
    struct list over;

    set->has_failed_to_keep = why.status != STATUS_OK;
    if (why.status == STATUS_OK)
        set->kept_version = set->checkpoint_version;
    list_init(&over);
    list_move(&set->keeping, &over);
    params_checkpointed(set, &why);
    if (!list_is_empty(&set->asked) && set->checkpoint == NULL && set->state == PARAMS_SERVING)
        checkpoint_begin(set);
    checkpoint_tell(&over, &why);
}

void checkpoint_begin(struct params_set *set)
{
    list_move(&set->asked, &set->keeping);
    set->checkpoint_wait.done = on_checkpoint_end;
    kept_begin(&set->sets->keeper, &set->kept, &set->checkpoint_wait);
}

static bool set_is_kept(const struct params_set *set)
{
    return set->sets->keeper.keeping.journal != NULL && set->config != NULL;
}

void checkpoint_after_round(struct params_set *set)
{
    if (!set_is_kept(set) || set->checkpoint != NULL || set->state != PARAMS_SERVING)
        return;
    if (set->has_failed_to_keep || params_current(set->model->agent)->version - set->kept_version >=
                                       set->sets->checkpoint_rounds)
        checkpoint_begin(set);
}

enum status params_settle(struct params_set *set, struct kept_wait *w, bool *ret_is_kept,
                          struct error *err)
{
    const uint64_t version = params_current(set->model->agent)->version;

    if (!set_is_kept(set))
        return error_set(err, STATUS_PRECONDITION, "the server has no --data, so no %s outlives it",
                         params_keeper.noun);
    *ret_is_kept = !set->has_failed_to_keep && set->kept_version == version;
    if (*ret_is_kept)
        return STATUS_OK;
    list_push(&set->asked, &w->link);
    if (set->checkpoint == NULL)
        checkpoint_begin(set);
    return STATUS_OK;
}

bool params_sets_are_kept(struct params_sets *s)
{
    struct link *l;

    for (l = list_first(&s->names.all); l != NULL; l = list_next(&s->names.all, l)) {
        struct params_set *set = params_at(l);

        if (set->state == PARAMS_SERVING && set_is_kept(set) && set->checkpoint == NULL &&
            !(s->keeper.is_ending && set->has_failed_to_keep) &&
            params_current(set->model->agent)->version != set->kept_version)
            checkpoint_begin(set);
    }
    return keeper_is_idle(&s->keeper);
}

enum status params_unkeep(struct params_set *set, struct error *err)
{
    return set->config == NULL ? STATUS_OK : kept_forget(&set->sets->keeper, &set->kept, err);
}

/* --- reading --- */

static enum status set_restore_memory(struct params_set *set, struct error *err)
{
    struct params_restored *r = set->restored;
    enum status rc = params_memory_take(&r->values, set->memory, err);

    return rc == STATUS_OK ? take_moments(&set->first_moments, set->memory, r->body.n_moments, err)
                           : rc;
}

/* Makes the set as it was described. */
static enum status set_kept_make(struct keeper *kp, struct kept_thing **out,
                                 const struct principal *owner, const char *name,
                                 struct body_reader *body, struct error *err)
{
    struct params_sets *s = kp->self;
    struct checkpoint_body read;
    struct access_sharing sharing;
    struct params_spec spec;
    struct params_set *set;

    if (checkpoint_body_read(&read, body, err) != STATUS_OK ||
        s->read_config(&spec, &sharing, read.config, read.config_size, body->arena, err) !=
            STATUS_OK ||
        params_make(&set, s, owner, &spec, &sharing, false, err) != STATUS_OK)
        return err->status;
    *out = &set->kept; /* dropped, where this fails */
    set->restored = xalloc(sizeof(*set->restored));
    *set->restored = (struct params_restored){.body = read, .place = place_begin(set)};
    set->checkpoint_version = read.version;
    if (params_describe(set, read.config, read.config_size, err) != STATUS_OK)
        return err->status;
    if (set->spec.n != read.n || params_spec_moments(&set->spec) != read.n_moments)
        return error_set(err, STATUS_DATA_LOSS,
                         "the checkpoint has not as many numbers as its set");
    if (set_restore_memory(set, err) != STATUS_OK)
        return err->status;
    set->first_moments.version = set->kept_version = set->told_version = read.version;
    set->goes_on = true;
    set->counters = read.counters;
    return STATUS_OK;
}

static uint32_t set_kept_n_parts(const struct kept_thing *k)
{
    const struct checkpoint_place *p = &kept_set(k)->restored->place;

    return p->n_arrays * (uint32_t)((p->size_bytes + KEEPER_PART_BYTES - 1) / KEEPER_PART_BYTES);
}

static enum status set_kept_take(struct kept_thing *k, struct body_reader *part, struct error *err)
{
    struct params_set *set = kept_set(k);
    float *const arrays[] = {set->restored->values, set->first_moments.m, set->first_moments.v};
    size_t wanted = 0;
    void *to = place_next(&set->restored->place, arrays, &wanted);

    if (to == NULL || (size_t)(part->end - part->at) != wanted)
        return error_set(err, STATUS_DATA_LOSS, "the journal lacks a part of the checkpoint");
    memcpy(to, part->at, wanted);
    return STATUS_OK;
}

static void set_restored_free(struct params_set *set)
{
    if (set->restored != NULL)
        params_memory_give(set->memory, set->restored->values);
    free(set->restored);
    set->restored = NULL;
}

static void on_restored_made(void *arg, const struct error *err)
{
    struct params_set *set = arg;
    const struct checkpoint_body *body = &set->restored->body;
    struct error why = *err;

    if (why.status == STATUS_OK &&
        memcmp(params_current(set->model->agent)->sha256, body->sha256, sizeof(body->sha256)) != 0)
        (void)error_because(&why, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, NULL,
                            "the stored values are not those that were written");
    for (uint32_t i = body->n_clients; i > 0 && why.status == STATUS_OK; i--) {
        const struct checkpoint_client *c = &body->clients[i - 1];

        (void)!params_remember(set, c->id, c->last_step, c->last_version, &why); /* in why */
    }
    set_restored_free(set);
    kept_go_on(&set->sets->keeper, &set->kept, &why);
}

static enum status set_kept_made(struct kept_thing *k, struct error *err)
{
    struct params_set *set = kept_set(k);
    float *values = set->restored->values;

    set->restored->values = NULL; /* given away */
    params_fill(set, values, on_restored_made, set);
    return STATUS_OK;
}

static void set_kept_drop(struct kept_thing *k)
{
    const struct error why = {.status = STATUS_DATA_LOSS, .text = "the parameters cannot be read"};

    params_close(kept_set(k), &why);
}

void checkpoint_abandon(struct params_set *set, const struct error *why)
{
    if (set->restored != NULL)
        set->made = NULL;
    set_restored_free(set);
    kept_leave(&set->checkpoint_wait);
    kept_deinit(&set->sets->keeper, &set->kept, why);
    checkpoint_tell(&set->keeping, why);
    checkpoint_tell(&set->asked, why);
}

const struct keeper_type params_keeper = {
    .kind = KEEPER_PARAMS,
    .version = 1,
    .max_body_bytes = CHECKPOINT_MAX_BYTES,
    .noun = "params",
    .is_slow = true,
    .is_untimed = true,
    .name = set_kept_name,
    .version_of = set_kept_version_of,
    .begin = set_kept_begin,
    .bytes = set_kept_bytes,
    .body = set_kept_body,
    .ended = set_kept_ended,
    .make = set_kept_make,
    .n_parts = set_kept_n_parts,
    .take = set_kept_take,
    .made = set_kept_made,
    .drop = set_kept_drop,
};
