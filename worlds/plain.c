/* Dialog, round_robin and multi: one party. Who has an act of its own is called; who can only be
 * asked by a batch is asked by a batch of one. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/kinds.h"
#include "worlds/party.h"

struct plain {
    struct world base;
    struct driver **drivers; /* [members], NULL for who has an act */
    struct question question;
    struct error answer;
    struct arena arena; /* of what is said in a parley */
    struct party *party;
};

static struct plain *plain_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct plain, base);
}

static void on_answer(struct question *q, const struct error *err)
{
    struct plain *w = q->arg;

    w->answer = *err;
}

static enum status ask(struct plain *w, size_t position, struct error *err)
{
    struct party *p = w->party;
    struct driver *d = w->drivers[party_member(p, position)];
    struct question *q = &w->question;

    act_init(&party_acts(p)[position], &w->arena);
    q->clone = party_clone(p, position);
    q->observation = party_heard(p)[position];
    q->out = &party_acts(p)[position];
    q->then = on_answer;
    q->arg = w;
    if (driver_ask(d, q, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", q->clone->original->type->name);
    while (driver_step(d))
        continue;
    if (w->answer.status != STATUS_OK) {
        *err = w->answer;
        return error_prefix(err, "'%.40s'", q->clone->original->type->name);
    }
    return STATUS_OK;
}

static enum status plain_parley(struct world *base, struct error *err)
{
    struct plain *w = plain_of(base);
    struct party *p = w->party;

    arena_deinit(&w->arena);
    party_choose(p);
    for (size_t position = 0; position < party_n(base->cast); position++) {
        bool is_asked = party_clone(p, position)->original->type->act == NULL;
        enum status rc =
            is_asked ? ask(w, position, err) : party_speak(p, position, &w->arena, err);

        if (rc == STATUS_OK && position == 0 && !party_admits(p))
            return STATUS_OK;
        if (rc == STATUS_OK)
            rc = party_hear(p, position, is_asked, err);
        if (rc != STATUS_OK)
            return rc;
    }
    base->counters.n_examples += party_has_example(p);
    return STATUS_OK;
}

static void plain_reset(struct world *w)
{
    party_reset(plain_of(w)->party);
}

static bool plain_episode_done(const struct world *w)
{
    return party_episode_done(plain_of(w)->party);
}

static bool plain_epoch_done(const struct world *w)
{
    return party_epoch_done(plain_of(w)->party);
}

static size_t plain_n_rows(const struct world *w)
{
    return w->counters.n_parleys > 0 && !plain_of(w)->party->is_over ? 1 : 0;
}

static void plain_row(const struct world *w, size_t i, struct world_row *out)
{
    (void)i; /* 0 */
    party_row(plain_of(w)->party, out);
}

static void plain_close(struct world *base)
{
    struct plain *w = plain_of(base);

    if (w->party != NULL)
        party_deinit(w->party);
    free(w->party);
    cast_close_drivers(base->cast, w->drivers);
    arena_deinit(&w->arena);
    cast_close(base->cast);
    free(w);
}

#define PLAIN(kind)                                                         \
    {                                                                       \
        .name = kind, .parley = plain_parley, .reset = plain_reset,         \
        .episode_done = plain_episode_done, .epoch_done = plain_epoch_done, \
        .n_rows = plain_n_rows, .row = plain_row, .close = plain_close      \
    }

static const struct world_type dialog_world = PLAIN("dialog");
static const struct world_type round_robin_world = PLAIN("round_robin");
static const struct world_type multi_world = PLAIN("multi");

static const struct world_type *type_of(const struct cast *c)
{
    if (c->n_tasks > 1)
        return &multi_world;
    return c->n_agents > 1 ? &round_robin_world : &dialog_world;
}

enum status plain_open(struct world **out, struct cast *cast, struct error *err)
{
    const struct batcher_config one = {.policy = BATCH_CONTINUOUS, .max_rows = 1, .max_waiting = 1};
    struct plain *w = xalloc(sizeof *w);
    struct party *p = try_alloc(1, party_size(cast));
    enum status rc = STATUS_OK;

    w->base = (struct world){.type = type_of(cast), .cast = cast};
    arena_init(&w->arena, SIZE_MAX);
    if (p == NULL)
        rc = error_no_memory(err, party_size(cast), "a world");
    if (rc == STATUS_OK)
        rc = cast_open_drivers(&w->drivers, cast, &one, err);
    if (rc == STATUS_OK)
        rc = party_init(p, cast, 0, err);
    if (rc == STATUS_OK) {
        w->party = p;
        *out = &w->base;
        return STATUS_OK;
    }
    free(p);
    plain_close(&w->base);
    return rc;
}
