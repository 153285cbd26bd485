/* Many parties that take the same parley together. Position after position: those who are asked by
 * batches are all asked and answered, the others called one after the other; only then does
 * everybody observe. With several tasks the rows of a position may be of several originals: each
 * original has a batch of its own. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/kinds.h"
#include "worlds/party.h"

struct batch {
    struct world base;
    size_t n, n_rows; /* rows: of the last parley */
    bool deals;       /* the task answers for all rows at once: its batches stay whole */
    bool begins_anew; /* all were through after the last parley: each task is asked again */
    char *parties;    /* [n] of party_size */
    size_t party_size, n_parties;
    struct driver **drivers;    /* [members], NULL for who is called */
    struct question *questions; /* [n], NULL when nobody is asked */
    struct error failed;        /* the first of a parley */
    struct arena arena;         /* of what is said in a parley */
};

static struct batch *batch_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct batch, base);
}

static struct party *party_at(const struct batch *b, size_t i)
{
    return (struct party *)(void *)(b->parties + i * b->party_size);
}

static void on_answer(struct question *q, const struct error *err)
{
    struct batch *b = q->arg;

    if (err->status == STATUS_OK || b->failed.status != STATUS_OK)
        return;
    b->failed = *err;
    (void)error_prefix(&b->failed, "'%.40s'", q->clone->original->type->name);
}

static enum status ask(struct batch *b, size_t i, size_t position, struct driver *d,
                       struct error *err)
{
    struct party *p = party_at(b, i);
    struct question *q = &b->questions[i];

    act_init(&party_acts(p)[position], &b->arena);
    q->clone = party_clone(p, position);
    q->observation = party_heard(p)[position];
    q->out = &party_acts(p)[position];
    q->slot = (uint32_t)i;
    q->then = on_answer;
    q->arg = b;
    if (driver_ask(d, q, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", q->clone->original->type->name);
    return STATUS_OK;
}

/* All that is asked, to its end. */
static enum status answer(struct batch *b, struct error *err)
{
    for (size_t m = 0; m < cast_n_members(b->base.cast); m++)
        while (b->drivers[m] != NULL && driver_step(b->drivers[m]))
            continue;
    if (b->failed.status == STATUS_OK)
        return STATUS_OK;
    *err = b->failed;
    b->failed = (struct error){0};
    return err->status;
}

static enum status speak(struct batch *b, size_t position, struct error *err)
{
    enum status rc = STATUS_OK;
    struct error ignored;
    bool has_asked = false;

    for (size_t i = 0; i < b->n && rc == STATUS_OK; i++) {
        struct party *p = party_at(b, i);
        struct driver *d;

        if (p->is_over)
            continue;
        if (position == 0 && !b->begins_anew && !b->deals && party_epoch_done(p)) {
            act_padding(party_acts(p), &b->arena); /* it waits for the others */
            continue;
        }
        if (position == 0)
            party_choose(p);
        d = b->drivers[party_member(p, position)];
        has_asked |= d != NULL;
        rc = d != NULL ? ask(b, i, position, d, err) : party_speak(p, position, &b->arena, err);
    }
    if (rc != STATUS_OK)
        (void)answer(b, &ignored); /* the first failure is told */
    else if (has_asked)
        rc = answer(b, err);
    return rc;
}

static enum status hear(struct batch *b, size_t position, struct error *err)
{
    for (size_t i = 0; i < b->n; i++) {
        struct party *p = party_at(b, i);
        bool was_asked = b->drivers[party_member(p, position)] != NULL;

        if (p->is_over || (position == 0 && !party_admits(p)))
            continue;
        if (party_hear(p, position, was_asked, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

static bool batch_epoch_done(const struct world *w)
{
    const struct batch *b = batch_of(w);

    for (size_t i = 0; i < b->n; i++)
        if (!party_epoch_done(party_at(b, i)))
            return false;
    return true;
}

static enum status batch_parley(struct world *w, struct error *err)
{
    struct batch *b = batch_of(w);

    b->n_rows = 0;
    arena_deinit(&b->arena);
    for (size_t position = 0; position < party_n(w->cast); position++)
        if (speak(b, position, err) != STATUS_OK || hear(b, position, err) != STATUS_OK)
            return err->status;
    b->n_rows = b->n;
    for (size_t i = 0; i < b->n; i++)
        w->counters.n_examples += party_has_example(party_at(b, i));
    /* Now and not when the next begins: another thread may take the last episode meanwhile, and
     * who was still to hear of it must not begin anew. */
    b->begins_anew = batch_epoch_done(w);
    return STATUS_OK;
}

static void batch_reset(struct world *w)
{
    struct batch *b = batch_of(w);

    b->n_rows = 0;
    b->begins_anew = false;
    for (size_t i = 0; i < b->n; i++)
        party_reset(party_at(b, i));
}

static bool batch_episode_done(const struct world *w)
{
    (void)w; /* rows have episodes, the batch has none */
    return false;
}

static size_t batch_n_rows(const struct world *w)
{
    return batch_of(w)->n_rows;
}

static void batch_row(const struct world *w, size_t i, struct world_row *out)
{
    party_row(party_at(batch_of(w), i), out);
}

static void batch_close(struct world *w)
{
    struct batch *b = batch_of(w);

    for (size_t i = 0; i < b->n_parties; i++)
        party_deinit(party_at(b, i));
    free(b->parties);
    cast_close_drivers(w->cast, b->drivers);
    free(b->questions);
    arena_deinit(&b->arena);
    cast_close(w->cast);
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

static bool has_driver(const struct batch *b)
{
    for (size_t m = 0; m < cast_n_members(b->base.cast); m++)
        if (b->drivers[m] != NULL)
            return true;
    return false;
}

static enum status make(struct batch *b, struct error *err)
{
    const struct batcher_config all = {
        .policy = BATCH_CONTINUOUS, .max_rows = b->n, .max_waiting = b->n};
    enum status rc = cast_open_drivers(&b->drivers, b->base.cast, &all, err);

    for (size_t i = 0; rc == STATUS_OK && i < b->base.cast->n_tasks; i++)
        b->deals |= b->drivers[i] != NULL;
    if (rc == STATUS_OK && b->deals && b->base.cast->n_tasks > 1)
        rc = error_set(err, STATUS_INVALID,
                       "a task that comes in batches stands alone, and there are %zu",
                       b->base.cast->n_tasks);
    if (rc == STATUS_OK && has_driver(b)) {
        b->questions = try_alloc(b->n, sizeof b->questions[0]);
        if (b->questions == NULL)
            rc = error_no_memory(err, (uint64_t)b->n * sizeof b->questions[0], "questions");
    }
    if (rc == STATUS_OK) {
        b->party_size = party_size(b->base.cast);
        b->parties = try_alloc(b->n, b->party_size);
        if (b->parties == NULL)
            rc = error_no_memory(err, (uint64_t)b->n * b->party_size, "clones of a world");
    }
    for (; rc == STATUS_OK && b->n_parties < b->n; b->n_parties++)
        rc = party_init(party_at(b, b->n_parties), b->base.cast, (uint32_t)b->n_parties, err);
    return rc;
}

enum status batch_open(struct world **out, struct cast *cast, size_t n, struct error *err)
{
    struct batch *b = xalloc(sizeof *b);
    enum status rc;

    b->base = (struct world){.type = &batch_world, .cast = cast};
    b->n = n;
    arena_init(&b->arena, SIZE_MAX);
    rc = make(b, err);
    if (rc == STATUS_OK)
        *out = &b->base;
    else
        batch_close(&b->base);
    return rc;
}
