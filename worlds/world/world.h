/* A world: participants that talk to each other, one parley after another. Kinds are const tables:
 *
 *   dialog       a task (a teacher) and one agent; any two participants
 *   round_robin  any number, each speaks once a parley and all others observe it, or those that a
 *                graph names
 *   multi        several tasks with the same agents; the task is chosen anew at each episode
 *   batch        many clones of one of those, which all take each parley together
 *   dynamic      many clones; those with similar lengths take the next parley
 *   hogwild      threads, each with a share of one of those
 *
 * A world is opened from originals of participants; a clone of a plain one
 * (worlds/world/world_slot.h) is a clone of each participant, and batch and dynamic hold a slab of
 * those. A world is used by one thread, except for hogwild's own threads. */
#ifndef WORLDS_WORLD_WORLD_H
#define WORLDS_WORLD_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/message/act.h"
#include "worlds/world/config.h"

struct participants;
struct quota;
struct report;
struct world;

/* The acts of one clone and its partners in the last parley. */
struct world_row {
    size_t slot;            /* the clone's place in its world; constant during an episode */
    size_t task;            /* index of the task */
    const struct act *acts; /* [n_acts], in the order of participants, the task's first */
    size_t n_acts;
    bool ends_episode;
};

struct world_counters {
    uint64_t n_parleys;
    uint64_t n_examples; /* rows of all parleys, padding not counted */
    /* Of the batches that agents answered, where config counts words or lengths decide; words as
     * the agent counts them: a language model's are its tokens. */
    uint64_t n_batches, n_rows;
    uint64_t n_cells;  /* what was computed: of packed rows their words, else rows times longest */
    uint64_t n_words;  /* the part of the cells that was not padding */
    uint64_t n_padded; /* rows times longest */
};

struct world_type {
    const char *name;
    enum status (*parley)(struct world *w, struct error *err);
    void (*reset)(struct world *w); /* clones and counters; nothing shared */
    bool (*episode_done)(const struct world *w);
    bool (*epoch_done)(const struct world *w);
    /* Of the last parley. */
    size_t (*n_rows)(const struct world *w);
    void (*row)(const struct world *w, size_t i, struct world_row *out);
    void (*close)(struct world *w);
};

struct world {
    const struct world_type *type;
    struct participants *participants; /* worlds/world/participants.h */
    struct quota *quota;               /* its own; NULL: the world of a thread, or hogwild */
    struct world_counters counters;
};

/* Opens the world that the config describes: threads make it hogwild, dynamic batching with a
 * batch_size above 1 dynamic, a batch_size above 1 batch, else dialog, round_robin or multi.
 * STATUS_INVALID names what is wrong: no task or agent, dynamic batching without a bound of length,
 * or with an agent that has no batch_act, or with more than one agent. */
enum status world_open(struct world **out, const struct world_config *config,
                       struct error *err) MUST_CHECK;
/* Ends requests in flight, closes each clone once, releases the participants. NULL is fine. */
void world_close(struct world *w);

/* One exchange: each participant speaks once. Of batch: of every clone; of dynamic: of one batch;
 * of hogwild: as many as keep its threads busy for a moment, so that the caller gets control in
 * between. A failure names the participant; the world can then only be reset or closed. */
enum status world_parley(struct world *w, struct error *err) MUST_CHECK;
/* Parleys until the epoch or n_examples are done. */
enum status world_run(struct world *w, struct error *err) MUST_CHECK;

void world_reset(struct world *w);
bool world_episode_done(const struct world *w); /* false for batch, dynamic and hogwild */
/* Nothing is left to do: the epoch is over, or n_examples are done. */
bool world_epoch_done(const struct world *w);

/* All participants' reports in one, the first member that has a name wins; with several tasks
 * aggregated by their names. May be called at any time, any number of times. The caller calls
 * report_deinit. */
enum status world_report(struct report *out, struct world *w, struct error *err) MUST_CHECK;
void world_counters(const struct world *w, struct world_counters *out);
/* Of an epoch, over all tasks; SIZE_MAX: not known. */
size_t world_n_examples(const struct world *w);
size_t world_n_episodes(const struct world *w);

/* Of the last parley; padding rows are rows. Dynamic worlds keep rows only for a watcher; hogwild's
 * rows are its threads'. */
size_t world_n_rows(const struct world *w);
void world_row(const struct world *w, size_t i, struct world_row *out);

#endif
