/* A slot is one clone of a plain world: a clone of each participant, and what each of them said
 * last. Dialog, round_robin and multi have one slot; batch and dynamic hold a slab of slots.
 *
 * Members of the conversation have positions: 0 is the clone of the current task, then come the
 * clones of the agents. In a parley each position in turn speaks, and all others observe what it
 * says, or those that the graph names. One thread.
 *
 * A parley of a slot is: world_slot_begin; world_slot_choose; position 0 speaks;
 * world_slot_admits; world_slot_hear; then each other position speaks and is heard. A member
 * speaks by world_slot_speak, or it is asked in a batch, by the world. */
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

/* In memory the slot is followed by the act that each position said last, by pointers to the
 * observation that each had last, and by the clones, in the order of members. The world owns the
 * memory; world_slot_init and world_slot_deinit begin and end the slot's life. is_over ends its
 * parleys until world_slot_reset. */
struct world_slot {
    struct participants *participants; /* borrowed */
    uint32_t index;                    /* number of the slot in its world */
    uint32_t task;                     /* index of the current task */
    uint32_t n_chosen;                 /* how often a task was chosen */
    bool has_task;                     /* a task was chosen */
    bool is_over; /* the quota is used up, or the graph ended the world: no member speaks again */
};

/* Returns the bytes of a slot, a multiple of 16. */
size_t world_slot_size(const struct participants *p);
/* Makes a slot in zeroed memory of that size, in O(tasks + agents); only the clones may allocate.
 * Errors are those of clone_init; after a failure there is nothing to deinit. */
enum status world_slot_init(struct world_slot *s, struct participants *p, uint32_t index,
                            struct error *err) MUST_CHECK;
void world_slot_deinit(struct world_slot *s);
/* Resets the clones and forgets all acts; changes nothing shared. */
void world_slot_reset(struct world_slot *s);

static inline size_t world_slot_n_positions(const struct participants *p)
{
    return p->n_agents + 1;
}
/* Returns what each position said last, [world_slot_n_positions]. */
struct act *world_slot_acts(const struct world_slot *s);
/* Returns what each position observed last, [world_slot_n_positions]; NULL: nothing yet. */
const struct act **world_slot_heard(const struct world_slot *s);
struct participant_clone *world_slot_clone(const struct world_slot *s, size_t position);
/* Returns the index in participants->members of the member at the position. */
size_t world_slot_member(const struct world_slot *s, size_t position);

/* Begins a parley. With a graph, if an episode has ended, it resets the agents, or makes the slot
 * over if the graph ends the world. Returns false if the slot is over; its acts are padding then.
 */
bool world_slot_begin(struct world_slot *s);
/* Chooses the task of this parley: the current one until its episode is done, then by the config
 * another whose epoch is not over. */
void world_slot_choose(struct world_slot *s);
/* Called when position 0 has spoken. Returns whether the parley goes on to the agents. It does not
 * if the quota is used up: the act is discarded, and the slot is over. It does not, with several
 * agents, if the act is padding: their acts become padding. Takes one example of the quota for an
 * act that is not padding. */
bool world_slot_admits(struct world_slot *s);
/* Returns whether the last world_slot_admits returned false. */
bool world_slot_is_idle(const struct world_slot *s);
/* Calls the act function of the member at the position. The act is made in arena. */
enum status world_slot_speak(struct world_slot *s, size_t position, struct arena *arena,
                             struct error *err) MUST_CHECK;
/* Has the other members observe the act at the position. was_asked: the speaker was asked in a
 * batch, so it self-observes its act, too. */
enum status world_slot_hear(struct world_slot *s, size_t position, bool was_asked,
                            struct error *err) MUST_CHECK;

/* Returns whether the last parley ended an episode: with one agent the task's act says so, with
 * several agents any act, and with a graph the acts that it names. */
bool world_slot_episode_done(const struct world_slot *s);
/* Returns whether nothing is left for the slot: it is over, the quota is used up, every task's
 * epoch is over for it, or an agent's is. */
bool world_slot_epoch_done(const struct world_slot *s);
/* Returns whether an epoch has ended for the clone of a member, by its index in participants.
 */
bool world_slot_is_through(const struct world_slot *s, size_t member);
/* Returns whether the last parley had an example: position 0 said something that is not padding. */
bool world_slot_has_example(const struct world_slot *s);

/* Writes the row of the last parley; its acts are borrowed from the slot. */
void world_slot_row(const struct world_slot *s, struct world_row *out);

#endif
