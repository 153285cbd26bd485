/* One clone of a plain world: a clone of each participant and what each said last. Dialog,
 * round_robin and multi have one slot; batch and dynamic hold a slab of them.
 *
 * Members of the conversation have positions: 0 is the current task's clone, then the agents'. In a
 * parley each position in turn speaks, and all others observe, or those that the graph names. */
#ifndef WORLDS_WORLD_WORLD_SLOT_H
#define WORLDS_WORLD_WORLD_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"
#include "worlds/world/participants.h"

struct world_row;

/* Followed in memory by what each position said last and heard last, and by the clones. */
struct world_slot {
    struct participants *participants;
    uint32_t index;
    uint32_t task;     /* the present one */
    uint32_t n_chosen; /* how often one was chosen */
    bool has_task;     /* one was chosen */
    bool is_over;      /* the quota is used up, or the world: no member speaks any more */
};

/* Bytes of a slot, a multiple of 16. */
size_t world_slot_size(const struct participants *p);
/* In zeroed memory of that size. O(tasks + agents), takes no memory beyond that of the clones.
 * After a failure there is nothing to deinit. */
enum status world_slot_init(struct world_slot *s, struct participants *p, uint32_t index,
                            struct error *err) MUST_CHECK;
void world_slot_deinit(struct world_slot *s);
void world_slot_reset(struct world_slot *s); /* the clones alone, nothing shared */

static inline size_t world_slot_n_positions(const struct participants *p)
{
    return p->n_agents + 1;
}
/* [world_slot_n_positions]: what each said last, by position. */
struct act *world_slot_acts(const struct world_slot *s);
/* [world_slot_n_positions]: what each observed last; NULL: nothing yet. */
const struct act **world_slot_heard(const struct world_slot *s);
struct participant_clone *world_slot_clone(const struct world_slot *s, size_t position);
/* Index in participants->members. */
size_t world_slot_member(const struct world_slot *s, size_t position);

/* Before a parley: with a graph the agents begin anew if an episode has ended. False: the slot is
 * over, and its acts are padding. */
bool world_slot_begin(struct world_slot *s);
/* The task of the next exchange: the present one until its episode is done. */
void world_slot_choose(struct world_slot *s);
/* After position 0 spoke: whether the exchange continues. An act beyond the quota is discarded, and
 * several agents do not talk about padding. */
bool world_slot_admits(struct world_slot *s);
/* What the last world_slot_admits said is that the agents do not speak. */
bool world_slot_is_idle(const struct world_slot *s);
/* The member's act is called directly. */
enum status world_slot_speak(struct world_slot *s, size_t position, struct arena *arena,
                             struct error *err) MUST_CHECK;
/* The others observe the act at the position; the speaker self-observes it if it was asked in a
 * batch. */
enum status world_slot_hear(struct world_slot *s, size_t position, bool was_asked,
                            struct error *err) MUST_CHECK;

bool world_slot_episode_done(const struct world_slot *s);
bool world_slot_epoch_done(const struct world_slot *s);
/* Whether the last exchange had an example, not padding. */
bool world_slot_has_example(const struct world_slot *s);

void world_slot_row(const struct world_slot *s, struct world_row *out);

#endif
