/* The options of a world (worlds/world/world.h). */
#ifndef WORLDS_WORLD_CONFIG_H
#define WORLDS_WORLD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worlds/message/act.h"

struct env;
struct participant;
struct world;

/* Called after each parley of a world that has rows of its own, on that world's thread: under
 * hogwild, on several threads at a time. Rows are valid until it returns. */
typedef void (*world_watch_fn)(void *arg, const struct world *w, uint32_t thread);

enum dynamic_batching {
    DYNAMIC_NONE,
    DYNAMIC_BATCHSORT, /* rows of similar length, at most batch_size */
    DYNAMIC_FULL,      /* rows of similar length while their cost is within the budget */
};

enum { WORLD_DYNAMIC_SLOTS = 1021, WORLD_GRAPH_POSITIONS = 26 };

/* Who hears whom, and what ends an episode, by positions: 0 is the task, then the agents, in the
 * order in which they speak. Once an episode has ended, the agents begin anew. */
struct world_graph {
    uint32_t hears[WORLD_GRAPH_POSITIONS]; /* bit p: it observes what position p says */
    uint32_t ends;                         /* bit p: the episode_done of its act ends an episode */
    struct text end_text; /* an act whose text has it ends an episode, too; text NULL: none */
    bool ends_world;      /* no episode follows: the slot has had its last parley */
};

/* What a world is made of; zeroed, then filled. Participants are shared (one reference each). */
struct world_config {
    struct participant *const *tasks;  /* [n_tasks], at least one; the task speaks first */
    size_t n_tasks;                    /* several: a multi world */
    const struct text *task_names;     /* [n_tasks], prefixes in a report; NULL with one task */
    struct participant *const *agents; /* [n_agents], at least one; the agents answer */
    size_t n_agents;                   /* several: a round robin */
    const struct world_graph *graph; /* its text is borrowed as long as the world lives. NULL: each
                                        hears all others */

    /* How one of several tasks is chosen. shuffle: drawn by weight (a missing weight is 1);
     * stochastic: drawn by number of episodes; neither: in turn. Tasks whose epoch is over are
     * skipped. */
    bool shuffle, stochastic;
    const double *weights; /* [n_weights] */
    size_t n_weights;
    bool aggregate_micro; /* averages over examples, not over tasks */
    uint64_t seed;        /* of all draws */

    size_t batch_size; /* 0 or 1: no batches */
    bool counts_words; /* for the counters of batches that are not made by length */
    enum dynamic_batching dynamic;
    /* Bounds of a text's and a label's length in words or tokens; label 0: the same as text.
     * Dynamic batching needs one: a step's budget is their sum times batch_size. */
    size_t text_truncate, label_truncate;
    size_t n_slots;       /* dynamic: clones to choose from; 0: WORLD_DYNAMIC_SLOTS */
    bool start_by_chance; /* a batch starts at a random length, not at the longest one */
    const struct env
        *chance;      /* random numbers for start_by_chance; NULL: by seed, the same in each run */
    uint32_t max_age; /* steps after which a waiting row starts the next batch; 0: 64 */

    size_t n_threads;    /* 0 or 1: none of its own; each thread has its batch_size */
    uint64_t n_examples; /* bound on the examples of all threads together; 0: none */

    world_watch_fn watch; /* may be NULL */
    void *watch_arg;
};

#endif
