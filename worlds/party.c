#include "worlds/party.h"

#include <assert.h>
#include <stdalign.h>

#include "base/chance.h"

static size_t round_up(size_t n)
{
    return (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
}

static size_t clones_at(const struct cast *c)
{
    return round_up(sizeof(struct party) +
                    party_n(c) * (sizeof(struct act) + sizeof(const struct act *)));
}

size_t party_size(const struct cast *c)
{
    size_t size = clones_at(c);

    for (size_t i = 0; i < cast_n_members(c); i++)
        size += participant_clone_size(c->members[i]);
    return size;
}

static struct participant_clone *clone_of_member(const struct party *p, size_t member)
{
    const struct cast *c = p->cast;
    size_t at = clones_at(c);

    for (size_t i = 0; i < member; i++)
        at += participant_clone_size(c->members[i]);
    return (struct participant_clone *)(void *)((char *)(uintptr_t)p + at);
}

struct act *party_acts(const struct party *p)
{
    return (struct act *)(uintptr_t)(p + 1);
}

const struct act **party_heard(const struct party *p)
{
    return (const struct act **)(uintptr_t)(party_acts(p) + party_n(p->cast));
}

size_t party_member(const struct party *p, size_t position)
{
    return position == 0 ? p->task : p->cast->n_tasks + position - 1;
}

struct participant_clone *party_clone(const struct party *p, size_t position)
{
    return clone_of_member(p, party_member(p, position));
}

enum status party_init(struct party *p, struct cast *c, uint32_t index, struct error *err)
{
    const struct place place = {.index = index, .thread = c->thread};
    enum status rc = STATUS_OK;

    *p = (struct party){.cast = c, .index = index};
    for (size_t i = 0; i < cast_n_members(c) && rc == STATUS_OK; i++)
        rc = participant_clone_init(clone_of_member(p, i), c->members[i], &place, err);
    if (rc != STATUS_OK)
        party_deinit(p);
    return rc;
}

void party_deinit(struct party *p)
{
    for (size_t i = 0; i < cast_n_members(p->cast); i++)
        participant_clone_deinit(clone_of_member(p, i));
}

void party_reset(struct party *p)
{
    struct cast *c = p->cast;

    for (size_t i = 0; i < cast_n_members(c); i++)
        participant_clone_reset(clone_of_member(p, i));
    for (size_t i = 0; i < party_n(c); i++)
        act_init(&party_acts(p)[i], NULL);
    for (size_t i = 0; i < party_n(c); i++)
        party_heard(p)[i] = NULL;
    *p = (struct party){.cast = c, .index = p->index};
}

static bool member_is_through(const struct party *p, size_t member)
{
    const struct participant_clone *clone = clone_of_member(p, member);
    const struct participant_type *type = clone->original->type;

    return type->epoch_done != NULL && type->epoch_done(clone);
}

/* The task itself, or the next in turn that is not through; itself when all are. */
static uint32_t not_through(const struct party *p, uint32_t task)
{
    uint32_t n = (uint32_t)p->cast->n_tasks;

    for (uint32_t i = 0; i < n; i++)
        if (!member_is_through(p, (task + i) % n))
            return (task + i) % n;
    return task;
}

static uint32_t draw_task(const struct party *p)
{
    const struct cast *c = p->cast;
    double x = (double)chance_uniform(c->seed, p->n_chosen, p->index, c->thread);
    uint32_t task = 0;

    while (task + 1 < c->n_tasks && x >= c->ends[task])
        task++;
    return task;
}

static uint32_t next_task(const struct party *p)
{
    return p->has_task ? (p->task + 1) % (uint32_t)p->cast->n_tasks : 0;
}

void party_choose(struct party *p)
{
    if (p->cast->n_tasks == 1 || (p->has_task && !party_episode_done(p)))
        return;
    p->task = not_through(p, p->cast->ends != NULL ? draw_task(p) : next_task(p));
    p->has_task = true;
    p->n_chosen++;
}

bool party_admits(struct party *p)
{
    struct act *acts = party_acts(p);

    if (act_is_padding(&acts[0]) || quota_take(p->cast->quota))
        return true;
    for (size_t i = 0; i < party_n(p->cast); i++)
        act_padding(&acts[i], NULL);
    p->is_over = true;
    return false;
}

enum status party_speak(struct party *p, size_t position, struct arena *arena, struct error *err)
{
    struct participant_clone *clone = party_clone(p, position);
    struct act *act = &party_acts(p)[position];

    act_init(act, arena);
    if (clone->original->type->act(clone, act, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", clone->original->type->name);
    return STATUS_OK;
}

enum status party_hear(struct party *p, size_t position, bool was_asked, struct error *err)
{
    const struct act *act = &party_acts(p)[position];

    for (size_t o = 0; o < party_n(p->cast); o++) {
        struct participant_clone *clone = party_clone(p, o);
        enum status rc = STATUS_OK;

        if (o != position)
            rc = participant_observe(clone, act, &party_heard(p)[o], err);
        else if (was_asked)
            rc = participant_self_observe(clone, act, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "'%.40s'", clone->original->type->name);
    }
    return STATUS_OK;
}

/* Of the members at [0, n). */
static bool any_episode_done(const struct party *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct participant_clone *clone = party_clone(p, i);
        const struct participant_type *type = clone->original->type;

        if (type->episode_done != NULL ? type->episode_done(clone)
                                       : act_is(&party_acts(p)[i], ACT_EPISODE_DONE))
            return true;
    }
    return false;
}

bool party_episode_done(const struct party *p)
{
    /* Two who talk: the first one says when. Of more, any may. */
    return any_episode_done(p, party_n(p->cast) == 2 ? 1 : party_n(p->cast));
}

bool party_epoch_done(const struct party *p)
{
    if (p->is_over || quota_is_out(p->cast->quota))
        return true;
    for (size_t i = p->cast->n_tasks; i < cast_n_members(p->cast); i++)
        if (member_is_through(p, i))
            return true;
    for (size_t i = 0; i < p->cast->n_tasks; i++)
        if (!member_is_through(p, i))
            return false;
    return true;
}

bool party_has_example(const struct party *p)
{
    return !p->is_over && !act_is_padding(party_acts(p));
}

void party_row(const struct party *p, struct world_row *out)
{
    *out = (struct world_row){
        .slot = p->index, .task = p->task, .acts = party_acts(p), .n_acts = party_n(p->cast)};
}
