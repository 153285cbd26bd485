/* Happy path: when a checkpoint is due, a job on the set's compute thread copies the moments. Jobs
 * run in order, and come back in order: at its end on the loop the current version is the one whose
 * moments they are, with the steps that are remembered at that moment. Then values and moments go
 * into the journal, one part after the other, so that conversations are written between two parts;
 * behind the last the record that says they are complete, which replaces the checkpoint before. The
 * next rounds go on meanwhile: a snapshot does not change.
 *
 * Failure: the attempt ends, and the next round begins another, whose parts replace those that were
 * written, unless the record may be. A crash between leaves parts that nothing refers to, which the
 * next start deletes. */
#include "server/params/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/params/checkpoint_body.h"

#define CHECKPOINT_MAX_BYTES ((size_t)256 << 20)

struct checkpoint {
    struct params_set *set; /* NULL: given up */
    struct journal *journal;
    struct agent *agent;
    struct params_memory *memory;
    struct params_moments moments; /* blocks of memory */
    struct snapshot *snapshot;     /* NULL until the moments are copied */
    char *principal, *name;
    uint8_t id[JOURNAL_ID_BYTES];
    struct buf body;
    bool is_complete;         /* the record behind the parts was appended */
    size_t size_bytes;        /* of the values, and of each moment */
    unsigned which, n_arrays; /* the array whose parts are being written, of the values and the
                                 moments */
    size_t offset;            /* of the part that comes next, in it */
    struct job job;
};

uint32_t checkpoint_block(size_t size_bytes, unsigned which, size_t offset)
{
    size_t n_parts = (size_bytes + CHECKPOINT_PART_BYTES - 1) / CHECKPOINT_PART_BYTES;

    return (uint32_t)(which * n_parts + offset / CHECKPOINT_PART_BYTES);
}

static void checkpoint_free(struct checkpoint *c)
{
    snapshot_unref(c->snapshot);
    params_memory_give(c->memory, c->moments.m);
    params_memory_give(c->memory, c->moments.v);
    params_memory_unref(c->memory);
    buf_deinit(&c->body);
    free(c->principal);
    free(c->name);
    free(c);
}

void checkpoint_draw_id(struct params_set *set)
{
    const struct env *env = set->sets->env;

    env->random(env->self, set->next_checkpoint, sizeof(set->next_checkpoint));
}

/* The attempt is over. */
static void checkpoint_end(struct checkpoint *c, const struct error *err)
{
    struct params_set *set = c->set;

    if (set == NULL) {
        checkpoint_free(c);
        return;
    }
    set->checkpoint = NULL;
    set->has_failed_to_keep = err->status != STATUS_OK;
    if (err->status == STATUS_OK) {
        set->is_kept = true;
        set->kept_version = c->moments.version;
        checkpoint_draw_id(set);
    } else {
        /* It may be complete all the same: then its parts must stay as they are. */
        if (c->is_complete)
            checkpoint_draw_id(set);
        log_warn("checkpoint", "params=%s version=%llu error=\"%s\"", set->spec.name,
                 (unsigned long long)c->moments.version, err->text);
    }
    checkpoint_free(c);
    params_checkpointed(set, err);
}

static void on_checkpoint_complete(void *arg, const struct error *err)
{
    checkpoint_end(arg, err);
}

static void on_checkpoint_part(void *arg, const struct error *err);

static const float *checkpoint_array(const struct checkpoint *c)
{
    const float *const arrays[] = {c->snapshot->values, c->moments.m, c->moments.v};

    return arrays[c->which];
}

/* Appends the next part, or what completes the checkpoint. */
static void checkpoint_write(struct checkpoint *c)
{
    struct journal_record r = {
        .kind = JOURNAL_CHECKPOINT,
        .principal = c->principal,
        .name = c->name,
        .body = c->body.data,
        .size_bytes = c->body.len,
    };
    journal_done_fn done = on_checkpoint_complete;
    struct error err;

    memcpy(r.conversation, c->id, sizeof(r.conversation));
    if (c->which < c->n_arrays) {
        size_t left = c->size_bytes - c->offset;

        r.kind = JOURNAL_BLOCK;
        r.principal = r.name = NULL;
        r.turn = checkpoint_block(c->size_bytes, c->which, c->offset);
        r.body = (const char *)checkpoint_array(c) + c->offset;
        r.size_bytes = left < CHECKPOINT_PART_BYTES ? left : CHECKPOINT_PART_BYTES;
        c->offset += r.size_bytes;
        if (c->offset == c->size_bytes) {
            c->which++;
            c->offset = 0;
        }
        done = on_checkpoint_part;
    }
    if (journal_append(c->journal, &r, done, c, &err) != STATUS_OK)
        checkpoint_end(c, &err);
    else
        c->is_complete = r.kind == JOURNAL_CHECKPOINT;
}

static void on_checkpoint_part(void *arg, const struct error *err)
{
    struct checkpoint *c = arg;

    if (c->set == NULL || err->status != STATUS_OK)
        checkpoint_end(c, err);
    else
        checkpoint_write(c);
}

static enum status checkpoint_write_body(struct checkpoint *c, struct error *err)
{
    const struct params_set *set = c->set;
    struct checkpoint_body body = {
        .principal = set->owner->name,
        .config = set->config,
        .config_size = set->config_size,
        .n = set->spec.n,
        .n_moments = (uint32_t)params_spec_moments(&set->spec),
        .version = c->moments.version,
        .counters = set->counters,
    };
    enum status rc = params_remembered(&body, set, err);

    memcpy(body.id, c->id, sizeof(body.id));
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
    struct snapshot *current = c->set == NULL ? NULL : params_current(c->agent);
    struct error err = {0};

    if (current == NULL) {
        checkpoint_free(c);
        return;
    }
    c->snapshot = snapshot_ref(current);
    if (current->version != c->moments.version)
        (void)error_set(&err, STATUS_INTERNAL, "the moments are of another version than %llu",
                        (unsigned long long)current->version);
    else
        (void)!checkpoint_write_body(c, &err); /* it is in err */
    if (err.status != STATUS_OK)
        checkpoint_end(c, &err);
    else
        checkpoint_write(c);
}

static enum status checkpoint_take_memory(struct checkpoint *c, size_t n_moments, struct error *err)
{
    enum status rc = STATUS_OK;

    if (n_moments > 0)
        rc = params_memory_take(&c->moments.m, c->memory, err);
    if (rc == STATUS_OK && n_moments > 1)
        rc = params_memory_take(&c->moments.v, c->memory, err);
    return rc;
}

void checkpoint_begin(struct params_set *set)
{
    struct checkpoint *c = xalloc(sizeof(*c));
    const size_t n_moments = params_spec_moments(&set->spec);
    struct error err;

    set->checkpoint = c;
    c->set = set;
    c->journal = set->sets->keeping.journal;
    c->agent = set->model->agent;
    c->memory = params_memory_ref(set->memory);
    c->size_bytes = set->spec.n * sizeof(float);
    c->n_arrays = (unsigned)n_moments + 1;
    c->principal = xstrdup(set->owner->name);
    c->name = xstrdup(set->spec.name);
    buf_init(&c->body, CHECKPOINT_MAX_BYTES);
    if (!set->is_kept && !set->has_failed_to_keep)
        checkpoint_draw_id(set); /* the first of a new set */
    memcpy(c->id, set->next_checkpoint, sizeof(c->id));
    if (checkpoint_take_memory(c, n_moments, &err) != STATUS_OK) {
        checkpoint_end(c, &err);
        return;
    }
    c->job = (struct job){.run = checkpoint_run, .done = checkpoint_copied};
    model_run(set->model, &c->job);
}

void checkpoint_after_round(struct params_set *set)
{
    const struct params_keeping *k = &set->sets->keeping;

    if (k->journal == NULL || set->config == NULL || set->checkpoint != NULL ||
        set->state != PARAMS_SERVING)
        return;
    if (set->has_failed_to_keep ||
        params_current(set->model->agent)->version - set->kept_version >= k->checkpoint_rounds)
        checkpoint_begin(set);
}

void checkpoint_abandon(struct params_set *set)
{
    if (set->checkpoint != NULL)
        set->checkpoint->set = NULL;
    set->checkpoint = NULL;
}

bool params_sets_are_kept(struct params_sets *s)
{
    bool are_kept = true;

    for (struct link *l = list_first(&s->all); l != NULL; l = list_next(&s->all, l)) {
        struct params_set *set = container_of(l, struct params_set, link);

        if (set->state != PARAMS_SERVING || set->config == NULL || s->keeping.journal == NULL)
            continue;
        if (set->checkpoint == NULL && !(s->is_ending && set->has_failed_to_keep) &&
            params_current(set->model->agent)->version != set->kept_version)
            checkpoint_begin(set);
        are_kept = are_kept && set->checkpoint == NULL;
    }
    s->is_ending = true;
    return are_kept;
}

enum status params_unkeep(struct params_set *set, struct error *err)
{
    struct journal_record r = {
        .kind = JOURNAL_NO_PARAMS, .principal = set->owner->name, .name = set->spec.name};
    struct journal *journal = set->sets->keeping.journal;

    if (journal == NULL || set->config == NULL)
        return STATUS_OK;
    memcpy(r.conversation, set->next_checkpoint, sizeof(r.conversation));
    return journal_append(journal, &r, NULL, NULL, err);
}

void params_keep(struct params_sets *s, const struct params_keeping *k)
{
    s->keeping = *k;
    if (k->journal != NULL)
        params_restore_begin(s);
}
