/* Many parties, of which those that fit together take the next parley. Each slot's turn waits in
 * the agent's batcher, whose policy sorts by length; a parley is a step. Who has an answer goes on
 * at once: the task scores it, acts again, the agent observes, and the next turn waits before the
 * next step is formed. A slot whose task has nothing more for it is idle.
 *
 * Who waits too long starts a batch, so nobody starves. A slot chooses its task anew after each
 * episode, as in a plain world, and an epoch ends when every slot is idle: with several tasks none
 * is left out. A turn without text is as short as can be, and takes part. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/kinds.h"
#include "worlds/party.h"

enum { LENGTH_UNIT = 8, ROWS_MULTIPLE = 4, DEFAULT_AGE = 64 };

static const uint64_t most_delay_us = UINT64_C(86400) * 1000 * 1000; /* a batcher's */

struct slot {
    struct question question;
    struct dynamic *world;
    struct arena arena; /* of what is said in its turn */
    bool is_waiting;
};

struct dynamic {
    struct world base;
    size_t n, n_waiting, n_parties;
    char *parties; /* [n] of party_size */
    size_t party_size;
    struct slot *slots; /* [n] */
    struct driver *driver, **drivers;
    bool pads, is_ending; /* ending: who has an answer does not go on */
    struct error failed;  /* the first of a parley */
    /* Of the last parley, when somebody watches: copies, since slots go on. */
    struct world_row *rows; /* [n] */
    struct act *acts;       /* [n][2] */
    size_t n_rows;
    struct arena arena;
};

static struct dynamic *dynamic_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct dynamic, base);
}

static struct party *party_at(const struct dynamic *d, size_t i)
{
    return (struct party *)(void *)(d->parties + i * d->party_size);
}

static void fail(struct dynamic *d, const struct error *err)
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

static enum status wait_for_step(struct dynamic *d, struct slot *slot, struct party *p,
                                 struct error *err)
{
    struct question *q = &slot->question;

    q->observation = party_heard(p)[1];
    q->out = &party_acts(p)[1];
    act_init(q->out, &slot->arena);
    cast_lengths(d->base.cast, q->clone, q->observation, &q->lengths);
    q->lengths.text = round_length(d, q->lengths.text);
    q->lengths.label = round_length(d, q->lengths.label);
    slot->is_waiting = true;
    d->n_waiting++;
    if (driver_ask(d->driver, q, err) == STATUS_OK)
        return STATUS_OK;
    slot->is_waiting = false;
    d->n_waiting--;
    return error_prefix(err, "'%.40s'", q->clone->original->type->name);
}

/* The slot's next turn, or it is idle. Of several tasks one may have nothing for it where another
 * still has. Once all are through for a slot they are asked again only to begin anew. */
static enum status fill(struct dynamic *d, struct slot *slot, bool begins_anew, struct error *err)
{
    struct party *p = party_at(d, (size_t)(slot - d->slots));

    for (size_t i = 0; i <= d->base.cast->n_tasks && !p->is_over; i++) {
        if (party_epoch_done(p) && !(begins_anew && i == 0))
            return STATUS_OK;
        arena_deinit(&slot->arena);
        party_choose(p);
        if (party_speak(p, 0, &slot->arena, err) != STATUS_OK)
            return err->status;
        if (act_is_padding(party_acts(p)))
            continue;
        if (!party_admits(p))
            return STATUS_OK;
        if (party_hear(p, 0, false, err) != STATUS_OK)
            return err->status;
        return wait_for_step(d, slot, p, err);
    }
    return STATUS_OK;
}

/* What a watcher may look at: the slot's memory is used anew for its next turn. */
static enum status keep_row(struct dynamic *d, struct party *p, struct error *err)
{
    struct act *acts = &d->acts[2 * d->n_rows];

    if (act_copy(&acts[0], &party_acts(p)[0], &d->arena, err) != STATUS_OK ||
        act_copy(&acts[1], &party_acts(p)[1], &d->arena, err) != STATUS_OK)
        return err->status;
    party_row(p, &d->rows[d->n_rows]);
    d->rows[d->n_rows++].acts = acts;
    return STATUS_OK;
}

static void on_answer(struct question *q, const struct error *answer)
{
    struct slot *slot = q->arg;
    struct dynamic *d = slot->world;
    struct party *p = party_at(d, (size_t)(slot - d->slots));
    struct error err = *answer;

    slot->is_waiting = false;
    d->n_waiting--;
    if (d->is_ending)
        return;
    if (err.status != STATUS_OK)
        (void)error_prefix(&err, "'%.40s'", q->clone->original->type->name);
    else
        err.status = party_hear(p, 1, true, &err);
    if (err.status == STATUS_OK) {
        d->base.counters.n_examples++;
        if (d->rows != NULL)
            err.status = keep_row(d, p, &err);
    }
    if (err.status == STATUS_OK)
        err.status = fill(d, slot, false, &err);
    if (err.status != STATUS_OK)
        fail(d, &err);
}

/* Slots that are idle and may have something again: at the start, and when all are, so that data
 * that begin anew do. */
static enum status fill_idle(struct dynamic *d, struct error *err)
{
    if (d->n_waiting > 0)
        return STATUS_OK;
    for (size_t i = 0; i < d->n; i++)
        if (fill(d, &d->slots[i], true, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

static enum status dynamic_parley(struct world *w, struct error *err)
{
    struct dynamic *d = dynamic_of(w);
    struct driver_counters steps;
    enum status rc;

    d->n_rows = 0;
    arena_deinit(&d->arena);
    rc = fill_idle(d, err);
    if (rc == STATUS_OK) {
        (void)driver_step(d->driver); /* false: nothing is left */
        driver_counters(d->driver, &steps);
        w->counters.n_cells = steps.n_cells;
        w->counters.n_words = steps.n_words;
        *err = d->failed;
        rc = err->status;
        d->failed = (struct error){0};
    }
    return rc;
}

static void end_all(struct dynamic *d)
{
    d->is_ending = true;
    for (size_t i = 0; i < d->n && d->driver != NULL; i++)
        driver_cancel(d->driver, &d->slots[i].question);
    if (d->driver != NULL)
        driver_finish(d->driver);
    d->is_ending = false;
}

static void dynamic_reset(struct world *w)
{
    struct dynamic *d = dynamic_of(w);

    end_all(d);
    d->n_rows = 0;
    d->failed = (struct error){0};
    for (size_t i = 0; i < d->n; i++)
        party_reset(party_at(d, i));
}

static bool dynamic_episode_done(const struct world *w)
{
    (void)w; /* slots have episodes, the batch has none */
    return false;
}

static bool dynamic_epoch_done(const struct world *w)
{
    const struct dynamic *d = dynamic_of(w);

    if (d->n_waiting > 0)
        return false;
    for (size_t i = 0; i < d->n; i++)
        if (!party_epoch_done(party_at(d, i)))
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
        end_all(d);
    for (size_t i = 0; i < d->n_parties; i++)
        party_deinit(party_at(d, i));
    for (size_t i = 0; d->slots != NULL && i < d->n; i++)
        arena_deinit(&d->slots[i].arena);
    cast_close_drivers(w->cast, d->drivers);
    free(d->parties);
    free(d->slots);
    free(d->rows);
    free(d->acts);
    arena_deinit(&d->arena);
    cast_close(w->cast);
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

static enum status check(const struct cast *c, const struct world_config *config, struct error *err)
{
    size_t bound;

    if (c->n_agents != 1)
        return error_set(err, STATUS_INVALID,
                         "dynamic batching is for a task and one agent, not for %zu agents",
                         c->n_agents);
    if (!participant_has_batch_act(c->members[c->n_tasks]))
        return error_set(err, STATUS_INVALID,
                         "dynamic batching needs an agent that answers in batches, and '%.40s' "
                         "has no batch_act",
                         c->members[c->n_tasks]->type->name);
    for (size_t i = 0; i < c->n_tasks; i++)
        if (c->members[i]->type->act == NULL || participant_has_batch_act(c->members[i]))
            return error_set(err, STATUS_INVALID,
                             "dynamic batching makes the batches itself, and '%.40s' comes in "
                             "batches already",
                             c->members[i]->type->name);
    if (c->text_truncate == 0)
        return error_field(err, "text_truncate",
                           "is not set, dynamic batching needs a bound of length");
    if (__builtin_add_overflow(c->text_truncate, c->label_truncate, &bound) ||
        __builtin_mul_overflow(bound, config->batch_size, &bound))
        return error_field(err, "text_truncate", "is %zu, too much for a batch", c->text_truncate);
    return STATUS_OK;
}

static enum status make_slots(struct dynamic *d, struct error *err)
{
    struct cast *c = d->base.cast;
    enum status rc = STATUS_OK;

    d->party_size = party_size(c);
    d->parties = try_alloc(d->n, d->party_size);
    d->slots = try_alloc(d->n, sizeof d->slots[0]);
    if (d->parties == NULL || d->slots == NULL)
        return error_no_memory(err, (uint64_t)d->n * (d->party_size + sizeof d->slots[0]),
                               "clones of a world");
    if (c->watch != NULL) {
        d->rows = try_alloc(d->n, sizeof d->rows[0]);
        d->acts = try_alloc(d->n, 2 * sizeof d->acts[0]);
        if (d->rows == NULL || d->acts == NULL)
            return error_no_memory(err, (uint64_t)d->n * 2 * sizeof d->acts[0], "rows");
    }
    for (; d->n_parties < d->n && rc == STATUS_OK; d->n_parties++) {
        struct slot *slot = &d->slots[d->n_parties];

        arena_init(&slot->arena, SIZE_MAX);
        slot->world = d;
        slot->question.slot = (uint32_t)d->n_parties;
        slot->question.then = on_answer;
        slot->question.arg = slot;
        rc = party_init(party_at(d, d->n_parties), c, (uint32_t)d->n_parties, err);
        if (rc == STATUS_OK)
            slot->question.clone = party_clone(party_at(d, d->n_parties), 1);
    }
    return rc;
}

static enum status make(struct dynamic *d, const struct world_config *config, struct error *err)
{
    struct cast *c = d->base.cast;
    size_t agent = c->n_tasks;
    struct batcher_config b = {.max_waiting = d->n, .start_by_chance = config->start_by_chance};
    uint32_t age = config->max_age != 0 ? config->max_age : DEFAULT_AGE;
    enum status rc = check(c, config, err);

    if (rc != STATUS_OK)
        return rc;
    d->pads = !c->members[agent]->type->is_ragged;
    b.policy = config->dynamic == DYNAMIC_FULL ? BATCH_FULL : BATCH_BATCHSORT;
    b.max_rows = config->dynamic == DYNAMIC_FULL ? d->n : config->batch_size;
    b.max_cost = (c->text_truncate + c->label_truncate) * config->batch_size;
    b.max_delay_us = (uint64_t)age * DRIVER_STEP_US;
    if (b.max_delay_us > most_delay_us)
        b.max_delay_us = most_delay_us;
    b.pads = d->pads;
    b.rows_multiple = d->pads ? ROWS_MULTIPLE : 0;
    rc = cast_open_drivers(&d->drivers, c, &b, err);
    if (rc != STATUS_OK)
        return rc;
    d->driver = d->drivers[agent];
    return make_slots(d, err);
}

enum status dynamic_open(struct world **out, struct cast *cast, const struct world_config *config,
                         struct error *err)
{
    struct dynamic *d = xalloc(sizeof *d);
    enum status rc;

    d->base = (struct world){.type = &dynamic_world, .cast = cast};
    d->n = config->n_slots != 0 ? config->n_slots : WORLD_DYNAMIC_SLOTS;
    arena_init(&d->arena, SIZE_MAX);
    rc = make(d, config, err);
    if (rc == STATUS_OK)
        *out = &d->base;
    else
        dynamic_close(&d->base);
    return rc;
}
