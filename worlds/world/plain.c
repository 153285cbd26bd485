/* The plain worlds dialog, round_robin and multi have one slot. A participant with act is called
 * directly; one without gets batches of one row. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/world/kinds.h"
#include "worlds/world/world.h"
#include "worlds/world/world_slot.h"

struct plain {
    struct world base;
    struct offline_scheduler **schedulers; /* [members], NULL for those that only act directly */
    struct offline_request request;
    struct error answer;               /* how the request ended */
    uint64_t n_direct, n_direct_words; /* answers of agents that act directly, and their words */
    struct arena arena;                /* memory of the acts of a parley */
    struct arena last; /* of the acts of the parley before, which a member may still observe */
    struct world_slot *slot;
};

static struct plain *plain_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct plain, base);
}

static void on_answer(struct offline_request *request, const struct error *err)
{
    struct plain *w = request->arg;

    w->answer = *err;
}

static enum status plain_ask(struct plain *w, size_t position, struct error *err)
{
    struct world_slot *slot = w->slot;
    struct offline_scheduler *scheduler = w->schedulers[world_slot_member(slot, position)];
    struct offline_request *request = &w->request;

    act_init(&world_slot_acts(slot)[position], &w->arena);
    request->clone = world_slot_clone(slot, position);
    request->observation = world_slot_heard(slot)[position];
    request->out = &world_slot_acts(slot)[position];
    request->then = on_answer;
    request->arg = w;
    if (offline_scheduler_ask(scheduler, request, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", request->clone->original->type->name);
    while (offline_scheduler_step(scheduler))
        continue;
    if (w->answer.status != STATUS_OK) {
        *err = w->answer;
        return error_prefix(err, "'%.40s'", request->clone->original->type->name);
    }
    return STATUS_OK;
}

/* Measures what an agent is to answer. Who acts directly has no scheduler that counts it. */
static void plain_measure(struct plain *w, size_t position, bool is_asked)
{
    const struct act *heard = world_slot_heard(w->slot)[position];
    struct lengths *l = &w->request.lengths;

    participants_lengths(w->base.participants, world_slot_clone(w->slot, position), heard, l);
    if (is_asked || (heard != NULL && act_is_padding(heard)))
        return;
    w->n_direct++;
    w->n_direct_words += (uint64_t)l->text + l->label;
}

static void plain_count(struct plain *w)
{
    struct world_counters *c = &w->base.counters;

    participants_count_batches(w->base.participants, w->schedulers, c);
    c->n_batches += w->n_direct;
    c->n_rows += w->n_direct;
    c->n_words += w->n_direct_words;
    c->n_cells += w->n_direct_words;
    c->n_padded += w->n_direct_words;
}

static enum status plain_parley(struct world *base, struct error *err)
{
    struct plain *w = plain_of(base);
    struct world_slot *slot = w->slot;

    arena_deinit(&w->last);
    w->last = w->arena;
    arena_init(&w->arena, SIZE_MAX);
    if (!world_slot_begin(slot))
        return STATUS_OK;
    world_slot_choose(slot);
    for (size_t position = 0; position < world_slot_n_positions(base->participants); position++) {
        bool is_asked = world_slot_clone(slot, position)->original->type->act == NULL;
        enum status rc;

        if (position > 0 && base->participants->counts_words)
            plain_measure(w, position, is_asked);
        rc = is_asked ? plain_ask(w, position, err)
                      : world_slot_speak(slot, position, &w->arena, err);
        if (rc == STATUS_OK && position == 0 && !world_slot_admits(slot))
            return STATUS_OK;
        if (rc == STATUS_OK)
            rc = world_slot_hear(slot, position, is_asked, err);
        if (rc != STATUS_OK)
            return rc;
    }
    base->counters.n_examples += world_slot_has_example(slot);
    if (base->participants->counts_words)
        plain_count(w);
    return STATUS_OK;
}

static void plain_reset(struct world *w)
{
    world_slot_reset(plain_of(w)->slot);
}

static bool plain_episode_done(const struct world *w)
{
    return world_slot_episode_done(plain_of(w)->slot);
}

static bool plain_epoch_done(const struct world *w)
{
    return world_slot_epoch_done(plain_of(w)->slot);
}

static size_t plain_n_rows(const struct world *w)
{
    return w->counters.n_parleys > 0 && !plain_of(w)->slot->is_over ? 1 : 0;
}

static void plain_row(const struct world *w, size_t i, struct world_row *out)
{
    world_slot_row(plain_of(w)->slot, out);
}

static void plain_close(struct world *base)
{
    struct plain *w = plain_of(base);

    if (w->slot != NULL)
        world_slot_deinit(w->slot);
    free(w->slot);
    participants_close_schedulers(base->participants, w->schedulers);
    arena_deinit(&w->arena);
    arena_deinit(&w->last);
    participants_close(base->participants);
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

static const struct world_type *plain_type_of(const struct participants *p)
{
    if (p->n_tasks > 1)
        return &multi_world;
    return p->n_agents > 1 ? &round_robin_world : &dialog_world;
}

enum status plain_open(struct world **out, struct participants *participants, struct error *err)
{
    const struct batcher_config one = {.policy = BATCH_CONTINUOUS, .max_rows = 1, .max_waiting = 1};
    struct plain *w = xalloc(sizeof(*w));
    struct world_slot *slot = try_alloc(1, world_slot_size(participants));
    enum status rc = STATUS_OK;

    w->base = (struct world){.type = plain_type_of(participants), .participants = participants};
    arena_init(&w->arena, SIZE_MAX);
    arena_init(&w->last, SIZE_MAX);
    if (slot == NULL)
        rc = error_no_memory(err, world_slot_size(participants), "a world");
    if (rc == STATUS_OK)
        rc = participants_open_schedulers(&w->schedulers, participants, &one, err);
    if (rc == STATUS_OK)
        rc = world_slot_init(slot, participants, 0, err);
    if (rc == STATUS_OK) {
        w->slot = slot;
        *out = &w->base;
        return STATUS_OK;
    }
    free(slot);
    plain_close(&w->base);
    return rc;
}
