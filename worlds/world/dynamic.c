/* A dynamic world has many slots; those with turns of similar length take the next parley. Each
 * slot's turn waits in the agent's batcher, whose policy sorts by length; a parley is one step. A
 * slot that has got its answer continues at once: the task scores the answer and acts again, the
 * agent observes, and the next turn waits before the next step is formed. A slot whose tasks have
 * no more turns for it is idle.
 *
 * A turn that waits too long starts the next batch, so none starves. A slot chooses its task anew
 * after each episode, as in a plain world, and an epoch ends when every slot is idle, so no task is
 * left out. A turn without text has the shortest length and takes part. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/world/kinds.h"
#include "worlds/world/world.h"
#include "worlds/world/world_slot.h"

enum { LENGTH_UNIT = 8, ROWS_MULTIPLE = 4, DEFAULT_AGE = 64 };

static const uint64_t most_delay_us =
    UINT64_C(86400) * 1000 * 1000; /* the longest delay that a batcher accepts */

struct dynamic_slot {
    struct offline_request request;
    struct dynamic *world;
    struct arena arena; /* memory of the acts of the slot's turn */
    bool is_waiting;    /* the slot's request is in flight */
};

struct dynamic {
    struct world base;
    size_t n, n_waiting,
        n_world_slots; /* slots; those with a request in flight; initialised ones */
    char *world_slots; /* [n] of world_slot_size */
    size_t world_slot_size;
    struct dynamic_slot *slots;                        /* [n] */
    struct offline_scheduler *scheduler, **schedulers; /* the agent's; [members] */
    bool pads, is_ending; /* rows of a batch are padded to the longest one; requests are being
                             cancelled, so slots do not continue */
    struct error failed;  /* the first failure of a parley */
    /* Of the last parley, for a watcher: copies, since slots continue. */
    struct world_row *rows; /* [n] */
    struct act *acts;       /* [n][2] */
    size_t n_rows;
    struct arena arena;
};

static struct dynamic *dynamic_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct dynamic, base);
}

static struct world_slot *dynamic_world_slot_at(const struct dynamic *d, size_t i)
{
    return (struct world_slot *)(void *)(d->world_slots + i * d->world_slot_size);
}

static void dynamic_fail(struct dynamic *d, const struct error *err)
{
    if (d->failed.status == STATUS_OK)
        d->failed = *err;
}

static uint32_t round_length(const struct dynamic *d, uint32_t length)
{
    return d->pads && length <= UINT32_MAX - LENGTH_UNIT
               ? (length + LENGTH_UNIT - 1) / LENGTH_UNIT * LENGTH_UNIT
               : length;
}

static enum status dynamic_ask(struct dynamic *d, struct dynamic_slot *slot, struct world_slot *s,
                               struct error *err)
{
    struct offline_request *r = &slot->request;

    r->observation = world_slot_heard(s)[1];
    r->out = &world_slot_acts(s)[1];
    act_init(r->out, &slot->arena);
    participants_lengths(d->base.participants, r->clone, r->observation, &r->lengths);
    r->lengths.text = round_length(d, r->lengths.text);
    r->lengths.label = round_length(d, r->lengths.label);
    slot->is_waiting = true;
    d->n_waiting++;
    if (offline_scheduler_ask(d->scheduler, r, err) == STATUS_OK)
        return STATUS_OK;
    slot->is_waiting = false;
    d->n_waiting--;
    return error_prefix(err, "'%.40s'", r->clone->original->type->name);
}

/* Submits the slot's next turn, or leaves it idle. Of several tasks, one may be done for the slot
 * while another is not. Once all are done for a slot they act again only to begin a new epoch. */
static enum status dynamic_fill(struct dynamic *d, struct dynamic_slot *slot, bool begins_anew,
                                struct error *err)
{
    struct world_slot *s = dynamic_world_slot_at(d, (size_t)(slot - d->slots));

    for (size_t i = 0; i <= d->base.participants->n_tasks && !s->is_over; i++) {
        if (world_slot_epoch_done(s) && !(begins_anew && i == 0))
            return STATUS_OK;
        arena_deinit(&slot->arena);
        world_slot_choose(s);
        if (world_slot_speak(s, 0, &slot->arena, err) != STATUS_OK)
            return err->status;
        if (act_is_padding(world_slot_acts(s)))
            continue;
        if (!world_slot_admits(s))
            return STATUS_OK;
        if (world_slot_hear(s, 0, false, err) != STATUS_OK)
            return err->status;
        return dynamic_ask(d, slot, s, err);
    }
    return STATUS_OK;
}

/* Copies a row for the watcher: the slot's memory is reused for its next turn. */
static enum status dynamic_keep_row(struct dynamic *d, struct world_slot *s, struct error *err)
{
    struct act *acts = &d->acts[2 * d->n_rows];

    if (act_copy(&acts[0], &world_slot_acts(s)[0], &d->arena, err) != STATUS_OK ||
        act_copy(&acts[1], &world_slot_acts(s)[1], &d->arena, err) != STATUS_OK)
        return err->status;
    world_slot_row(s, &d->rows[d->n_rows]);
    d->rows[d->n_rows++].acts = acts;
    return STATUS_OK;
}

static void on_answer(struct offline_request *r, const struct error *answer)
{
    struct dynamic_slot *slot = r->arg;
    struct dynamic *d = slot->world;
    struct world_slot *s = dynamic_world_slot_at(d, (size_t)(slot - d->slots));
    struct error err = *answer;

    slot->is_waiting = false;
    d->n_waiting--;
    if (d->is_ending)
        return;
    if (err.status != STATUS_OK)
        (void)error_prefix(&err, "'%.40s'", r->clone->original->type->name);
    else
        err.status = world_slot_hear(s, 1, true, &err);
    if (err.status == STATUS_OK) {
        d->base.counters.n_examples++;
        if (d->rows != NULL)
            err.status = dynamic_keep_row(d, s, &err);
    }
    if (err.status == STATUS_OK)
        err.status = dynamic_fill(d, slot, false, &err);
    if (err.status != STATUS_OK)
        dynamic_fail(d, &err);
}

/* Fills all slots when none waits: at the start, and at the end of an epoch of training data, which
 * begin again. */
static enum status dynamic_fill_idle(struct dynamic *d, struct error *err)
{
    if (d->n_waiting > 0)
        return STATUS_OK;
    for (size_t i = 0; i < d->n; i++)
        if (dynamic_fill(d, &d->slots[i], true, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

static enum status dynamic_parley(struct world *w, struct error *err)
{
    struct dynamic *d = dynamic_of(w);
    enum status rc;

    d->n_rows = 0;
    arena_deinit(&d->arena);
    rc = dynamic_fill_idle(d, err);
    if (rc == STATUS_OK) {
        (void)offline_scheduler_step(d->scheduler); /* false: nothing is left */
        participants_count_batches(w->participants, d->schedulers, &w->counters);
        *err = d->failed;
        rc = err->status;
        d->failed = (struct error){0};
    }
    return rc;
}

static void dynamic_end_all(struct dynamic *d)
{
    d->is_ending = true;
    for (size_t i = 0; i < d->n && d->scheduler != NULL; i++)
        offline_scheduler_cancel(d->scheduler, &d->slots[i].request);
    if (d->scheduler != NULL)
        offline_scheduler_finish(d->scheduler);
    d->is_ending = false;
}

static void dynamic_reset(struct world *w)
{
    struct dynamic *d = dynamic_of(w);

    dynamic_end_all(d);
    d->n_rows = 0;
    d->failed = (struct error){0};
    for (size_t i = 0; i < d->n; i++)
        world_slot_reset(dynamic_world_slot_at(d, i));
}

static bool dynamic_episode_done(const struct world *w)
{
    return false;
}

static bool dynamic_epoch_done(const struct world *w)
{
    const struct dynamic *d = dynamic_of(w);

    if (d->n_waiting > 0)
        return false;
    for (size_t i = 0; i < d->n; i++)
        if (!world_slot_epoch_done(dynamic_world_slot_at(d, i)))
            return false;
    return true;
}

static size_t dynamic_n_rows(const struct world *w)
{
    return dynamic_of(w)->n_rows;
}

static void dynamic_row(const struct world *w, size_t i, struct world_row *out)
{
    *out = dynamic_of(w)->rows[i];
}

static void dynamic_close(struct world *w)
{
    struct dynamic *d = dynamic_of(w);

    if (d->slots != NULL)
        dynamic_end_all(d);
    for (size_t i = 0; i < d->n_world_slots; i++)
        world_slot_deinit(dynamic_world_slot_at(d, i));
    for (size_t i = 0; d->slots != NULL && i < d->n; i++)
        arena_deinit(&d->slots[i].arena);
    participants_close_schedulers(w->participants, d->schedulers);
    free(d->world_slots);
    free(d->slots);
    free(d->rows);
    free(d->acts);
    arena_deinit(&d->arena);
    participants_close(w->participants);
    free(d);
}

static const struct world_type dynamic_world = {
    .name = "dynamic",
    .parley = dynamic_parley,
    .reset = dynamic_reset,
    .episode_done = dynamic_episode_done,
    .epoch_done = dynamic_epoch_done,
    .n_rows = dynamic_n_rows,
    .row = dynamic_row,
    .close = dynamic_close,
};

static enum status dynamic_check(const struct participants *p, const struct world_config *config,
                                 struct error *err)
{
    size_t bound;

    if (p->n_agents != 1)
        return error_set(err, STATUS_INVALID,
                         "dynamic batching works only with one agent, not with %zu", p->n_agents);
    if (!participant_has_batch_act(p->members[p->n_tasks]))
        return error_set(
            err, STATUS_INVALID,
            "dynamic batching needs an agent that answers in batches, but '%.40s' has no batch_act",
            p->members[p->n_tasks]->type->name);
    for (size_t i = 0; i < p->n_tasks; i++)
        if (p->members[i]->type->act == NULL || participant_has_batch_act(p->members[i]))
            return error_set(
                err, STATUS_INVALID,
                "dynamic batching makes batches itself, but the task '%.40s' makes batches already",
                p->members[i]->type->name);
    if (p->text_truncate == 0)
        return error_field(err, "text_truncate",
                           "is not set, dynamic batching needs a limit of the length");
    if (__builtin_add_overflow(p->text_truncate, p->label_truncate, &bound) ||
        __builtin_mul_overflow(bound, config->batch_size, &bound))
        return error_field(err, "text_truncate", "is %zu, which is too large for a batch",
                           p->text_truncate);
    return STATUS_OK;
}

static enum status dynamic_make_slots(struct dynamic *d, struct error *err)
{
    struct participants *p = d->base.participants;
    enum status rc = STATUS_OK;

    d->world_slot_size = world_slot_size(p);
    d->world_slots = try_alloc(d->n, d->world_slot_size);
    d->slots = try_alloc(d->n, sizeof(d->slots[0]));
    if (d->world_slots == NULL || d->slots == NULL)
        return error_no_memory(err, (uint64_t)d->n * (d->world_slot_size + sizeof(d->slots[0])),
                               "clones of a world");
    if (p->watch != NULL) {
        d->rows = try_alloc(d->n, sizeof(d->rows[0]));
        d->acts = try_alloc(d->n, 2 * sizeof(d->acts[0]));
        if (d->rows == NULL || d->acts == NULL)
            return error_no_memory(err, (uint64_t)d->n * 2 * sizeof(d->acts[0]), "rows");
    }
    for (; d->n_world_slots < d->n && rc == STATUS_OK; d->n_world_slots++) {
        struct dynamic_slot *slot = &d->slots[d->n_world_slots];

        arena_init(&slot->arena, SIZE_MAX);
        slot->world = d;
        slot->request.slot = (uint32_t)d->n_world_slots;
        slot->request.then = on_answer;
        slot->request.arg = slot;
        rc = world_slot_init(dynamic_world_slot_at(d, d->n_world_slots), p,
                             (uint32_t)d->n_world_slots, err);
        if (rc == STATUS_OK)
            slot->request.clone = world_slot_clone(dynamic_world_slot_at(d, d->n_world_slots), 1);
    }
    return rc;
}

static enum status dynamic_make(struct dynamic *d, const struct world_config *config,
                                struct error *err)
{
    struct participants *p = d->base.participants;
    size_t agent = p->n_tasks;
    struct batcher_config b = {.max_waiting = d->n, .start_by_chance = config->start_by_chance};
    uint32_t age = config->max_age != 0 ? config->max_age : DEFAULT_AGE;
    enum status rc = dynamic_check(p, config, err);

    if (rc != STATUS_OK)
        return rc;
    d->pads = !p->members[agent]->type->is_ragged;
    b.policy = config->dynamic == DYNAMIC_FULL ? BATCH_FULL : BATCH_BATCHSORT;
    b.max_rows = config->dynamic == DYNAMIC_FULL ? d->n : config->batch_size;
    b.max_cost = (p->text_truncate + p->label_truncate) * config->batch_size;
    b.max_delay_us = (uint64_t)age * OFFLINE_STEP_US;
    if (b.max_delay_us > most_delay_us)
        b.max_delay_us = most_delay_us;
    b.pads = d->pads;
    b.rows_multiple = d->pads ? ROWS_MULTIPLE : 0;
    rc = participants_open_schedulers(&d->schedulers, p, &b, err);
    if (rc != STATUS_OK)
        return rc;
    d->scheduler = d->schedulers[agent];
    return dynamic_make_slots(d, err);
}

enum status dynamic_open(struct world **out, struct participants *participants,
                         const struct world_config *config, struct error *err)
{
    struct dynamic *d = xalloc(sizeof(*d));
    enum status rc;

    d->base = (struct world){.type = &dynamic_world, .participants = participants};
    d->n = config->n_slots != 0 ? config->n_slots : WORLD_DYNAMIC_SLOTS;
    arena_init(&d->arena, SIZE_MAX);
    rc = dynamic_make(d, config, err);
    if (rc == STATUS_OK)
        *out = &d->base;
    else
        dynamic_close(&d->base);
    return rc;
}
