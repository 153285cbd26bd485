/* The parts of a parley that every kind of world shares: choosing a task, speaking, hearing, and
 * finding the ends of episodes and epochs. A slot is one block of memory, so that a million of them
 * fit in a slab. */
#include "worlds/world/world_slot.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "base/counter_rng.h"
#include "worlds/world/world.h"

static size_t round_up(size_t n)
{
    return (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
}

static size_t clones_at(const struct participants *p)
{
    return round_up(sizeof(struct world_slot) +
                    world_slot_n_positions(p) * (sizeof(struct act) + sizeof(const struct act *)));
}

size_t world_slot_size(const struct participants *p)
{
    size_t size = clones_at(p);

    for (size_t i = 0; i < participants_n_members(p); i++)
        size += participant_clone_size(p->members[i]);
    return size;
}

static struct participant_clone *world_slot_clone_of(const struct world_slot *s, size_t member)
{
    const struct participants *p = s->participants;
    size_t at = clones_at(p);

    for (size_t i = 0; i < member; i++)
        at += participant_clone_size(p->members[i]);
    return (struct participant_clone *)(void *)((char *)(uintptr_t)s + at);
}

struct act *world_slot_acts(const struct world_slot *s)
{
    return (struct act *)(uintptr_t)(s + 1);
}

const struct act **world_slot_heard(const struct world_slot *s)
{
    return (const struct act **)(uintptr_t)(world_slot_acts(s) +
                                            world_slot_n_positions(s->participants));
}

size_t world_slot_member(const struct world_slot *s, size_t position)
{
    return position == 0 ? s->task : s->participants->n_tasks + position - 1;
}

struct participant_clone *world_slot_clone(const struct world_slot *s, size_t position)
{
    return world_slot_clone_of(s, world_slot_member(s, position));
}

enum status world_slot_init(struct world_slot *s, struct participants *p, uint32_t index,
                            struct error *err)
{
    const struct participant_slot place = {.index = index, .thread = p->thread};
    enum status rc = STATUS_OK;

    *s = (struct world_slot){.participants = p, .index = index};
    for (size_t i = 0; i < participants_n_members(p) && rc == STATUS_OK; i++)
        rc = participant_clone_init(world_slot_clone_of(s, i), p->members[i], &place, err);
    if (rc != STATUS_OK)
        world_slot_deinit(s);
    return rc;
}

void world_slot_deinit(struct world_slot *s)
{
    for (size_t i = 0; i < participants_n_members(s->participants); i++)
        participant_clone_deinit(world_slot_clone_of(s, i));
}

void world_slot_reset(struct world_slot *s)
{
    struct participants *p = s->participants;

    for (size_t i = 0; i < participants_n_members(p); i++)
        participant_clone_reset(world_slot_clone_of(s, i));
    for (size_t i = 0; i < world_slot_n_positions(p); i++)
        act_init(&world_slot_acts(s)[i], NULL);
    for (size_t i = 0; i < world_slot_n_positions(p); i++)
        world_slot_heard(s)[i] = NULL;
    *s = (struct world_slot){.participants = p, .index = s->index};
}

bool world_slot_is_through(const struct world_slot *s, size_t member)
{
    const struct participant_clone *clone = world_slot_clone_of(s, member);
    const struct participant_type *type = clone->original->type;

    return type->epoch_done != NULL && type->epoch_done(clone);
}

/* The task itself, or the next in turn that is not done; itself when all are done. */
static uint32_t world_slot_next_open(const struct world_slot *s, uint32_t task)
{
    uint32_t n = (uint32_t)s->participants->n_tasks;

    for (uint32_t i = 0; i < n; i++)
        if (!world_slot_is_through(s, (task + i) % n))
            return (task + i) % n;
    return task;
}

static uint32_t world_slot_draw_task(const struct world_slot *s)
{
    const struct participants *p = s->participants;
    double x = (double)counter_rng_uniform(p->seed, s->n_chosen, s->index, p->thread);
    uint32_t task = 0;

    while (task + 1 < p->n_tasks && x >= p->ends[task])
        task++;
    return task;
}

static uint32_t world_slot_next_task(const struct world_slot *s)
{
    return s->has_task ? (s->task + 1) % (uint32_t)s->participants->n_tasks : 0;
}

static void world_slot_end(struct world_slot *s)
{
    for (size_t i = 0; i < world_slot_n_positions(s->participants); i++)
        act_padding(&world_slot_acts(s)[i], NULL);
    s->is_over = true;
}

bool world_slot_begin(struct world_slot *s)
{
    const struct participants *p = s->participants;

    if (!p->has_graph || s->is_over || !world_slot_episode_done(s))
        return !s->is_over;
    if (p->graph.ends_world) {
        world_slot_end(s);
        return false;
    }
    for (size_t i = 1; i < world_slot_n_positions(p); i++) {
        participant_clone_reset(world_slot_clone(s, i));
        world_slot_heard(s)[i] = NULL;
    }
    return true;
}

void world_slot_choose(struct world_slot *s)
{
    if (s->participants->n_tasks == 1 || (s->has_task && !world_slot_episode_done(s)))
        return;
    s->task = world_slot_next_open(s, s->participants->ends != NULL ? world_slot_draw_task(s)
                                                                    : world_slot_next_task(s));
    s->has_task = true;
    s->n_chosen++;
}

bool world_slot_is_idle(const struct world_slot *s)
{
    return s->is_over || (s->participants->n_agents > 1 && act_is_padding(world_slot_acts(s)));
}

bool world_slot_admits(struct world_slot *s)
{
    struct act *acts = world_slot_acts(s);

    if (act_is_padding(acts) &&
        s->participants->n_agents >
            1) { /* the task gave padding, so agents have nothing to answer */
        for (size_t i = 1; i < world_slot_n_positions(s->participants); i++)
            act_padding(&acts[i], NULL);
        return false;
    }
    if (act_is_padding(acts) || quota_take(s->participants->quota))
        return true;
    world_slot_end(s);
    return false;
}

enum status world_slot_speak(struct world_slot *s, size_t position, struct arena *arena,
                             struct error *err)
{
    struct participant_clone *clone = world_slot_clone(s, position);
    struct act *act = &world_slot_acts(s)[position];

    act_init(act, arena);
    if (clone->original->type->act(clone, act, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", clone->original->type->name);
    return STATUS_OK;
}

static bool world_slot_hears(const struct world_slot *s, size_t listener, size_t speaker)
{
    const struct participants *p = s->participants;

    return !p->has_graph || (p->graph.hears[listener] >> speaker & 1) != 0;
}

enum status world_slot_hear(struct world_slot *s, size_t position, bool was_asked,
                            struct error *err)
{
    const struct participants *p = s->participants;
    struct act *act = &world_slot_acts(s)[position];

    if (p->has_graph && p->graph.gives_names && !act_is_padding(act) &&
        act_force(act, ACT_ID, value_text(p->graph.names[position]), err) != STATUS_OK)
        return err->status;
    for (size_t o = 0; o < world_slot_n_positions(s->participants); o++) {
        struct participant_clone *clone = world_slot_clone(s, o);
        enum status rc = STATUS_OK;

        if (o != position && world_slot_hears(s, o, position))
            rc = participant_observe(clone, act, &world_slot_heard(s)[o], err);
        else if (o == position && was_asked)
            rc = participant_self_observe(clone, act, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "'%.40s'", clone->original->type->name);
    }
    return STATUS_OK;
}

static bool world_slot_member_done(const struct world_slot *s, size_t position)
{
    const struct participant_clone *clone = world_slot_clone(s, position);
    const struct participant_type *type = clone->original->type;

    return type->episode_done != NULL ? type->episode_done(clone)
                                      : act_is(&world_slot_acts(s)[position], ACT_EPISODE_DONE);
}

static bool world_slot_says_end(const struct world_slot *s, size_t position)
{
    const struct text end = s->participants->graph.end_text;
    const struct text text = act_text(&world_slot_acts(s)[position]);

    return end.text != NULL && text.text != NULL &&
           memmem(text.text, text.len, end.text, end.len) != NULL;
}

bool world_slot_episode_done(const struct world_slot *s)
{
    const struct participants *p = s->participants;
    const size_t n = world_slot_n_positions(p);

    for (size_t i = 0; i < n; i++) {
        /* With two positions the first decides whether the episode ends; with more, any of them
         * may; in a graph, those that it names. */
        const bool decides = p->has_graph ? (p->graph.ends >> i & 1) != 0 : i == 0 || n > 2;

        if ((decides && world_slot_member_done(s, i)) ||
            (p->has_graph && world_slot_says_end(s, i)))
            return true;
    }
    return false;
}

bool world_slot_epoch_done(const struct world_slot *s)
{
    if (s->is_over || quota_is_out(s->participants->quota) ||
        (s->participants->graph.ends_world && world_slot_episode_done(s)))
        return true;
    for (size_t i = s->participants->n_tasks; i < participants_n_members(s->participants); i++)
        if (world_slot_is_through(s, i))
            return true;
    for (size_t i = 0; i < s->participants->n_tasks; i++)
        if (!world_slot_is_through(s, i))
            return false;
    return true;
}

bool world_slot_has_example(const struct world_slot *s)
{
    return !s->is_over && !act_is_padding(world_slot_acts(s));
}

void world_slot_row(const struct world_slot *s, struct world_row *out)
{
    *out = (struct world_row){.slot = s->index,
                              .task = s->task,
                              .acts = world_slot_acts(s),
                              .n_acts = world_slot_n_positions(s->participants),
                              .ends_episode = world_slot_episode_done(s)};
}
