/* A batch world has many slots, which take each parley together, position after position.
 * Participants with batch_act answer for all slots in one batch, the others are called slot by
 * slot; then all observe. With several tasks the rows of a position may belong to several
 * originals: each original has its own batch. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/world/kinds.h"
#include "worlds/world/world.h"
#include "worlds/world/world_slot.h"

struct batch_world {
    struct world base;
    size_t n, n_rows;  /* slots; rows of the last parley */
    bool deals;        /* the task answers for all rows at once, so its batches stay whole */
    bool begins_anew;  /* all epochs were over after the last parley: each task acts again */
    char *world_slots; /* [n] of world_slot_size */
    size_t world_slot_size, n_world_slots;
    struct offline_scheduler **schedulers; /* [members], NULL for members that act directly */
    struct offline_request *requests;      /* [n], NULL without schedulers */
    struct error failed;                   /* the first failure of a parley */
    struct arena arena;                    /* memory of the acts of a parley */
    struct arena last; /* of the acts of the parley before, which a member may still observe */
};

static struct batch_world *batch_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct batch_world, base);
}

static struct world_slot *batch_world_slot_at(const struct batch_world *b, size_t i)
{
    return (struct world_slot *)(void *)(b->world_slots + i * b->world_slot_size);
}

static void on_answer(struct offline_request *request, const struct error *err)
{
    struct batch_world *b = request->arg;

    if (err->status == STATUS_OK || b->failed.status != STATUS_OK)
        return;
    b->failed = *err;
    (void)error_prefix(&b->failed, "'%.40s'", request->clone->original->type->name);
}

static enum status batch_world_ask(struct batch_world *b, size_t i, size_t position,
                                   struct offline_scheduler *scheduler, struct error *err)
{
    struct world_slot *slot = batch_world_slot_at(b, i);
    struct offline_request *request = &b->requests[i];

    act_init(&world_slot_acts(slot)[position], &b->arena);
    request->clone = world_slot_clone(slot, position);
    request->observation = world_slot_heard(slot)[position];
    request->out = &world_slot_acts(slot)[position];
    request->slot = (uint32_t)i;
    if (position > 0 && b->base.participants->counts_words)
        participants_lengths(b->base.participants, request->clone, request->observation,
                             &request->lengths);
    request->then = on_answer;
    request->arg = b;
    if (offline_scheduler_ask(scheduler, request, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", request->clone->original->type->name);
    return STATUS_OK;
}

/* Runs steps until every request has its answer. */
static enum status batch_world_run_steps(struct batch_world *b, struct error *err)
{
    for (size_t m = 0; m < participants_n_members(b->base.participants); m++)
        while (b->schedulers[m] != NULL && offline_scheduler_step(b->schedulers[m]))
            continue;
    if (b->failed.status == STATUS_OK)
        return STATUS_OK;
    *err = b->failed;
    b->failed = (struct error){0};
    return err->status;
}

static enum status batch_world_speak(struct batch_world *b, size_t position, struct error *err)
{
    enum status rc = STATUS_OK;
    struct error ignored;
    bool has_asked = false;

    for (size_t i = 0; i < b->n && rc == STATUS_OK; i++) {
        struct world_slot *slot = batch_world_slot_at(b, i);
        struct offline_scheduler *scheduler;

        if (position == 0 ? slot->is_over : world_slot_is_idle(slot))
            continue;
        if (position == 0 && !b->begins_anew && !b->deals && world_slot_epoch_done(slot)) {
            /* The slot has ended and waits for the others. */
            act_padding(world_slot_acts(slot), &b->arena);
            continue;
        }
        if (position == 0)
            world_slot_choose(slot);
        scheduler = b->schedulers[world_slot_member(slot, position)];
        has_asked |= scheduler != NULL;
        rc = scheduler != NULL ? batch_world_ask(b, i, position, scheduler, err)
                               : world_slot_speak(slot, position, &b->arena, err);
    }
    if (rc != STATUS_OK)
        (void)batch_world_run_steps(b, &ignored); /* the first failure is returned */
    else if (has_asked)
        rc = batch_world_run_steps(b, err);
    return rc;
}

static enum status batch_world_hear(struct batch_world *b, size_t position, struct error *err)
{
    for (size_t i = 0; i < b->n; i++) {
        struct world_slot *slot = batch_world_slot_at(b, i);
        bool was_asked = b->schedulers[world_slot_member(slot, position)] != NULL;

        if (slot->is_over || (position == 0 ? !world_slot_admits(slot) : world_slot_is_idle(slot)))
            continue;
        if (world_slot_hear(slot, position, was_asked, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

static bool batch_epoch_done(const struct world *w)
{
    const struct batch_world *b = batch_of(w);

    for (size_t i = 0; i < b->n; i++)
        if (!world_slot_epoch_done(batch_world_slot_at(b, i)))
            return false;
    return true;
}

static enum status batch_parley(struct world *w, struct error *err)
{
    struct batch_world *b = batch_of(w);

    b->n_rows = 0;
    arena_deinit(&b->last);
    b->last = b->arena;
    arena_init(&b->arena, SIZE_MAX);
    for (size_t i = 0; i < b->n; i++)
        (void)world_slot_begin(batch_world_slot_at(b, i)); /* a slot that has ended is skipped */
    for (size_t position = 0; position < world_slot_n_positions(w->participants); position++)
        if (batch_world_speak(b, position, err) != STATUS_OK ||
            batch_world_hear(b, position, err) != STATUS_OK)
            return err->status;
    b->n_rows = b->n;
    for (size_t i = 0; i < b->n; i++)
        w->counters.n_examples += world_slot_has_example(batch_world_slot_at(b, i));
    if (w->participants->counts_words)
        participants_count_batches(w->participants, b->schedulers, &w->counters);
    /* Computed here, not at the next parley: another thread may take the last episode in
     * between, and a slot that has not yet reported its end must not begin again. */
    b->begins_anew = batch_epoch_done(w);
    return STATUS_OK;
}

static void batch_reset(struct world *w)
{
    struct batch_world *b = batch_of(w);

    b->n_rows = 0;
    b->begins_anew = false;
    for (size_t i = 0; i < b->n; i++)
        world_slot_reset(batch_world_slot_at(b, i));
}

static bool batch_episode_done(const struct world *w)
{
    return false;
}

static size_t batch_n_rows(const struct world *w)
{
    return batch_of(w)->n_rows;
}

static void batch_row(const struct world *w, size_t i, struct world_row *out)
{
    world_slot_row(batch_world_slot_at(batch_of(w), i), out);
}

static void batch_close(struct world *w)
{
    struct batch_world *b = batch_of(w);

    for (size_t i = 0; i < b->n_world_slots; i++)
        world_slot_deinit(batch_world_slot_at(b, i));
    free(b->world_slots);
    participants_close_schedulers(w->participants, b->schedulers);
    free(b->requests);
    arena_deinit(&b->arena);
    arena_deinit(&b->last);
    participants_close(w->participants);
    free(b);
}

static const struct world_type batch_world = {
    .name = "batch",
    .parley = batch_parley,
    .reset = batch_reset,
    .episode_done = batch_episode_done,
    .epoch_done = batch_epoch_done,
    .n_rows = batch_n_rows,
    .row = batch_row,
    .close = batch_close,
};

static bool batch_world_has_scheduler(const struct batch_world *b)
{
    for (size_t m = 0; m < participants_n_members(b->base.participants); m++)
        if (b->schedulers[m] != NULL)
            return true;
    return false;
}

static enum status batch_world_make(struct batch_world *b, struct error *err)
{
    const struct batcher_config all = {
        .policy = BATCH_CONTINUOUS, .max_rows = b->n, .max_waiting = b->n};
    enum status rc = participants_open_schedulers(&b->schedulers, b->base.participants, &all, err);

    for (size_t i = 0; rc == STATUS_OK && i < b->base.participants->n_tasks; i++)
        b->deals |= b->schedulers[i] != NULL;
    if (rc == STATUS_OK && b->deals && b->base.participants->n_tasks > 1)
        rc = error_set(err, STATUS_INVALID,
                       "a task that makes batches must be the only one, but there are %zu tasks",
                       b->base.participants->n_tasks);
    if (rc == STATUS_OK && batch_world_has_scheduler(b)) {
        b->requests = try_alloc(b->n, sizeof(b->requests[0]));
        if (b->requests == NULL)
            rc = error_no_memory(err, (uint64_t)b->n * sizeof(b->requests[0]), "requests");
    }
    if (rc == STATUS_OK) {
        b->world_slot_size = world_slot_size(b->base.participants);
        b->world_slots = try_alloc(b->n, b->world_slot_size);
        if (b->world_slots == NULL)
            rc = error_no_memory(err, (uint64_t)b->n * b->world_slot_size, "clones of a world");
    }
    for (; rc == STATUS_OK && b->n_world_slots < b->n; b->n_world_slots++)
        rc = world_slot_init(batch_world_slot_at(b, b->n_world_slots), b->base.participants,
                             (uint32_t)b->n_world_slots, err);
    return rc;
}

enum status batch_open(struct world **out, struct participants *participants, size_t n,
                       struct error *err)
{
    struct batch_world *b = xalloc(sizeof(*b));
    enum status rc;

    b->base = (struct world){.type = &batch_world, .participants = participants};
    b->n = n;
    arena_init(&b->arena, SIZE_MAX);
    arena_init(&b->last, SIZE_MAX);
    rc = batch_world_make(b, err);
    if (rc == STATUS_OK)
        *out = &b->base;
    else
        batch_close(&b->base);
    return rc;
}
