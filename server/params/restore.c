/* Sets that are made again from the journal. The keeper makes each set as it was described, fills
 * its blocks part by part, and lets it begin with the version that was written. A checkpoint that
 * is damaged stays in the journal, and its set is closed. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/access/access.h"
#include "server/params/checkpoint.h"
#include "server/params/contributors.h"
#include "server/params/params.h"

static enum status set_restore_memory(struct params_set *set, struct error *err)
{
    struct params_restored *r = set->restored;
    enum status rc = params_memory_take(&r->values, set->memory, err);

    return rc == STATUS_OK
               ? checkpoint_take_moments(&set->first_moments, set->memory, r->body.n_moments, err)
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
    *set->restored = (struct params_restored){.body = read, .place = checkpoint_place_begin(set)};
    set->checkpoint_version = read.version;
    if (params_describe(set, read.config, read.config_size, err) != STATUS_OK)
        return err->status;
    if (set->spec.n != read.n || params_spec_moments(&set->spec) != read.n_moments)
        return error_set(err, STATUS_DATA_LOSS,
                         "the checkpoint has not as many numbers as its set");
    if (read.n_steps != 0 && read.n_steps != set->spec.n_tensors)
        return error_set(err, STATUS_DATA_LOSS,
                         "the checkpoint has not as many tensors as its set");
    if (set_restore_memory(set, err) != STATUS_OK)
        return err->status;
    if (read.n_steps > 0) {
        set->first_moments.steps = try_alloc(read.n_steps, sizeof(read.steps[0]));
        if (set->first_moments.steps == NULL)
            return error_no_memory(err, read.n_steps * sizeof(read.steps[0]), "a set");
        memcpy(set->first_moments.steps, read.steps, read.n_steps * sizeof(read.steps[0]));
    }
    set->first_moments.version = set->kept_version = set->told_version = read.version;
    set->goes_on = true;
    set->counters = read.counters;
    return STATUS_OK;
}

static uint32_t set_kept_n_parts(const struct kept_thing *k)
{
    const struct checkpoint_place *p = &checkpoint_set(k)->restored->place;

    return p->n_arrays * (uint32_t)((p->size_bytes + KEEPER_PART_BYTES - 1) / KEEPER_PART_BYTES);
}

static enum status set_kept_take(struct kept_thing *k, struct body_reader *part, struct error *err)
{
    struct params_set *set = checkpoint_set(k);
    float *const arrays[] = {set->restored->values, set->first_moments.m, set->first_moments.v};
    size_t wanted = 0;
    void *to = checkpoint_place_next(&set->restored->place, arrays, &wanted);

    if (to == NULL || (size_t)(part->end - part->at) != wanted)
        return error_set(err, STATUS_DATA_LOSS, "the journal lacks a part of the checkpoint");
    memcpy(to, part->at, wanted);
    return STATUS_OK;
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

        (void)!contributors_remember(set, c->id, c->last_step, c->last_version, &why); /* in why */
    }
    params_restored_free(set);
    kept_go_on(&set->sets->keeper, &set->kept, &why);
}

static enum status set_kept_made(struct kept_thing *k, struct error *err)
{
    struct params_set *set = checkpoint_set(k);
    float *values = set->restored->values;

    set->restored->values = NULL; /* given away */
    params_fill(set, values, on_restored_made, set);
    return STATUS_OK;
}

static void set_kept_drop(struct kept_thing *k)
{
    const struct error why = {.status = STATUS_DATA_LOSS, .text = "the parameters cannot be read"};

    params_close(checkpoint_set(k), &why);
}

const struct keeper_type params_keeper = {
    .kind = KEEPER_PARAMS,
    .version = CHECKPOINT_BODY_VERSION,
    .max_body_bytes = CHECKPOINT_MAX_BYTES,
    .noun = "params",
    .is_slow = true,
    .is_untimed = true,
    .name = checkpoint_name,
    .version_of = checkpoint_version_of,
    .begin = checkpoint_write_begin,
    .bytes = checkpoint_write_bytes,
    .body = checkpoint_write_tail,
    .ended = checkpoint_write_ended,
    .make = set_kept_make,
    .n_parts = set_kept_n_parts,
    .take = set_kept_take,
    .made = set_kept_made,
    .drop = set_kept_drop,
};
