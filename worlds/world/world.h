/* A world: participants that talk to each other, one parley after another. Kinds are const tables:
 *
 *   dialog       a task (a teacher) and one agent, or any two participants
 *   round_robin  one task and several agents; in a parley each speaks once, and all others observe
 *                what it says, or those that a graph names
 *   multi        several tasks with the same agents; the task is chosen anew at each episode
 *   batch        many clones of one of the above, which all take each parley together
 *   dynamic      many clones of a world with one agent; those with similar lengths take the next
 *                parley
 *   scripted     clones of a world, in each of which a script says who speaks and who hears it
 *   hogwild      threads, each with a world of one of the above over shared participants
 *
 * A world is opened from originals of participants. Dialog, round_robin and multi are the *plain*
 * worlds: they have one slot (worlds/world/world_slot.h), which is a clone of each participant;
 * batch, dynamic and scripted hold a slab of slots. A world is used by one thread; hogwild's own
 * threads use only their own worlds. */
#ifndef WORLDS_WORLD_WORLD_H
#define WORLDS_WORLD_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/message/act.h"
#include "worlds/world/config.h"
#include "worlds/world/counters.h"

struct participants;
struct quota;
struct report;
struct world;

/* The acts of one clone and its partners in the last parley. */
struct world_row {
    size_t slot;            /* number of the clone in its world; constant during an episode */
    size_t task;            /* index of the task in the config */
    const struct act *acts; /* [n_acts], in the order of participants, the task's first */
    size_t n_acts;
    const uint8_t *speakers; /* [n_acts], the positions of who said them, as a script has let them
                                speak; NULL: all positions in turn. With a script n_acts may be 0 */
    bool ends_episode;
};

/* A kind of world. Its functions are called on the world's thread. */
struct world_type {
    const char *name;
    /* Runs one parley; world_parley counts it. Errors name the participant at fault. */
    enum status (*parley)(struct world *w, struct error *err);
    void (*reset)(struct world *w); /* resets the clones, and nothing shared */
    bool (*episode_done)(const struct world *w);
    bool (*epoch_done)(const struct world *w);
    /* The rows of the last parley. row is NULL if the kind has no rows of its own. */
    size_t (*n_rows)(const struct world *w);
    void (*row)(const struct world *w, size_t i, struct world_row *out);
    void (*close)(struct world *w);
};

struct world {
    const struct world_type *type;
    struct participants *participants; /* owned by the kind (hogwild: its first thread's) */
    struct quota *quota; /* owned; NULL: hogwild has the quota for all of its threads */
    struct world_counters counters;
};

/* Opens the world that config describes. More than one thread makes a hogwild world; else a script
 * makes a scripted world of batch_size slots; else a batch_size above 1 makes a dynamic world if
 * dynamic batching is asked for, or a batch world; else the world is a dialog, round_robin or
 * multi.
 *
 * STATUS_INVALID names what is wrong: there is no task or no agent; several tasks have no names; a
 * number is too large; dynamic batching has no text_truncate, a graph, more than one agent, an
 * agent without batch_act, or a task that makes batches. Other errors are those of the
 * participants. */
enum status world_open(struct world **out, const struct world_config *config,
                       struct error *err) MUST_CHECK;
/* Ends requests in flight, closes each clone once, and releases the participants. w may be NULL. */
void world_close(struct world *w);

/* Runs one parley, in which each participant speaks once: in a batch world for every clone, in a
 * dynamic world for the clones of one batch. A hogwild world runs as many parleys as its threads
 * manage in 20 ms, so that the caller gets control in between. A failure names the participant; the
 * world can then only be reset or closed. */
enum status world_parley(struct world *w, struct error *err) MUST_CHECK;
/* Runs parleys until world_epoch_done, or until one fails. */
enum status world_run(struct world *w, struct error *err) MUST_CHECK;

/* Resets the clones, what participants share (reset_shared), the quota and the counters. */
void world_reset(struct world *w);
bool world_episode_done(const struct world *w); /* always false for many slots and for hogwild */
/* Returns whether nothing is left to do: the epoch is over, or n_examples are done. */
bool world_epoch_done(const struct world *w);

/* Merges all participants' reports into one: of two metrics with one name the first participant's
 * counts; several tasks' reports are aggregated by the tasks' names. It may be called between any
 * two parleys, any number of times. The caller calls report_deinit. */
enum status world_report(struct report *out, struct world *w, struct error *err) MUST_CHECK;
void world_counters(const struct world *w, struct world_counters *out);
/* Return the numbers of an epoch, over all tasks; SIZE_MAX if they are not known. */
size_t world_n_examples(const struct world *w);
size_t world_n_episodes(const struct world *w);

/* The rows of the last parley, padding among them. A dynamic world keeps rows only if the config
 * has a watcher. A hogwild world has none: the worlds of its threads have them. */
size_t world_n_rows(const struct world *w);
void world_row(const struct world *w, size_t i, struct world_row *out);

#endif
