/* A world: participants who talk to each other, one parley after the other. Kinds are const tables:
 *
 *   dialog       a task (a teacher) and one agent; any two participants
 *   round_robin  any number, each speaks once a parley and all others observe it
 *   multi        several tasks with the same agents; which one is chosen anew at each episode
 *   batch        many clones of one of those, all of which take the same parley together
 *   dynamic      many clones, of which those that fit together take the next parley
 *   hogwild      threads, each with a share of one of those
 *
 * A world is opened from originals of participants; a clone of a plain one (worlds/party.h) is a
 * clone of each participant, and batch and dynamic hold a slab of those. A world is one thread's,
 * but for hogwild's own threads. */
#ifndef WORLDS_WORLD_H
#define WORLDS_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/act.h"

struct cast;
struct env;
struct participant;
struct quota;
struct report;
struct world;

/* What was said in the last parley by one clone and its partners. */
struct world_row {
    size_t slot;            /* the clone's place in its world; turns of an episode keep it */
    size_t task;            /* index of the task */
    const struct act *acts; /* [n_acts], in the order of participants, the task's first */
    size_t n_acts;
};

/* Called after each parley of a world that has rows of its own, on the thread of that world: under
 * hogwild on several at a time. Rows are there until it returns. */
typedef void (*world_watch_fn)(void *arg, const struct world *w, uint32_t thread);

enum dynamic_batching {
    DYNAMIC_NONE,
    DYNAMIC_BATCHSORT, /* rows of like length, at most batch_size */
    DYNAMIC_FULL,      /* rows of like length while their cost is within the budget */
};

enum { WORLD_DYNAMIC_SLOTS = 1021 };

/* What a world is made of; zeroed, then filled. Participants are shared (a reference each). */
struct world_config {
    struct participant *const *tasks;  /* [n_tasks], at least one: who speaks first */
    size_t n_tasks;                    /* several: a multi world */
    const struct text *task_names;     /* [n_tasks], prefixes in a report; NULL with one task */
    struct participant *const *agents; /* [n_agents], at least one: who answers */
    size_t n_agents;                   /* several: a round robin */

    /* Of several tasks. By chance (shuffle): drawn by weight, missing ones are 1, or by the number
     * of episodes (stochastic). Else in turn, those that are through left out. */
    bool shuffle, stochastic;
    const double *weights; /* [n_weights] */
    size_t n_weights;
    bool aggregate_micro; /* averages over examples, not over tasks */
    uint64_t seed;        /* of all draws */

    size_t batch_size; /* 0 or 1: no batches */
    enum dynamic_batching dynamic;
    /* Bounds of a text's and a label's length in words or tokens; label 0: the same as text.
     * Dynamic batching needs one: a step's budget is their sum times batch_size. */
    size_t text_truncate, label_truncate;
    size_t n_slots;           /* dynamic: clones to choose from; 0: WORLD_DYNAMIC_SLOTS */
    bool start_by_chance;     /* a batch starts at a random length, not at the longest one */
    const struct env *chance; /* where a batch starts by chance; NULL: by seed, so that a run can be
                                 had again */
    uint32_t max_age;         /* steps after which a row that waits starts the next batch; 0: 64 */

    size_t n_threads;    /* 0 or 1: none of its own; each thread has its batch_size */
    uint64_t n_examples; /* so many and not one more, of all threads together; 0: no bound */

    world_watch_fn watch; /* NULL: nobody */
    void *watch_arg;
};

struct world_counters {
    uint64_t n_parleys;
    uint64_t n_examples; /* rows of all parleys, padding not counted */
    uint64_t n_cells;    /* batches by length: rows times longest, summed over steps */
    uint64_t n_words;    /* and what of it was not padding */
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
    struct cast *cast;   /* who takes part, worlds/cast.h */
    struct quota *quota; /* its own; NULL: a thread's world, or hogwild */
    struct world_counters counters;
};

/* The world that the config asks for: threads make it hogwild, dynamic batching with a batch_size
 * above 1 dynamic, a batch_size above 1 batch, else dialog, round_robin or multi. STATUS_INVALID
 * names what is wrong: no task or agent, dynamic batching without a bound of length, or with an
 * agent that has no batch_act or beside more than one other. */
enum status world_open(struct world **out, const struct world_config *config,
                       struct error *err) MUST_CHECK;
/* Ends what is under way, closes each clone once, gives the participants back. NULL is fine. */
void world_close(struct world *w);

/* One exchange: each participant speaks once. Of batch: of every clone; of dynamic: of one batch;
 * of hogwild: as many as keep its threads busy for a moment, so that the caller can look about in
 * between. A failure names the participant; the world can then only be reset or closed. */
enum status world_parley(struct world *w, struct error *err) MUST_CHECK;
/* Parleys until the epoch is done or n_examples are through. */
enum status world_run(struct world *w, struct error *err) MUST_CHECK;

void world_reset(struct world *w);
bool world_episode_done(const struct world *w); /* of batch and beyond: false */
/* Nothing is left to do: of the epoch, or of the examples that were asked for. */
bool world_epoch_done(const struct world *w);

/* All participants' reports in one, the first one that has a name wins; with several tasks
 * aggregated by their names. Can be asked for at any time and twice. report_deinit it. */
enum status world_report(struct report *out, struct world *w, struct error *err) MUST_CHECK;
void world_counters(const struct world *w, struct world_counters *out);
/* Of an epoch, over all tasks; SIZE_MAX: not known. */
size_t world_n_examples(const struct world *w);
size_t world_n_episodes(const struct world *w);

/* Of the last parley; padding rows are rows. Dynamic worlds keep theirs only if somebody watches,
 * hogwild's are its threads'. */
size_t world_n_rows(const struct world *w);
void world_row(const struct world *w, size_t i, struct world_row *out);

#endif
