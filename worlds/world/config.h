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
struct world_script;

/* Called after each parley of a world that has rows of its own, on that world's thread; under
 * hogwild it is called on several threads at a time. Rows of w are valid until it returns. */
typedef void (*world_watch_fn)(void *arg, const struct world *w, uint32_t thread);

enum dynamic_batching {
    DYNAMIC_NONE,
    DYNAMIC_BATCHSORT, /* rows of similar length, at most batch_size */
    DYNAMIC_FULL,      /* rows of similar length while their cost is within the budget */
};

enum { WORLD_DYNAMIC_SLOTS = 1021, WORLD_GRAPH_POSITIONS = 26 };

/* A graph says which members of a conversation hear which, and what ends an episode. Members have
 * positions: 0 is the task, then come the agents, in the order in which they speak. Once an episode
 * has ended, the agents are reset before the next one. */
struct world_graph {
    uint32_t hears[WORLD_GRAPH_POSITIONS]; /* bit p: the member observes what position p says */
    uint32_t ends;        /* bit p: episode_done in an act of position p ends the episode */
    struct text end_text; /* a text that has this in it ends the episode, too; text NULL: none */
    bool ends_world;      /* the first episode is a slot's last: the slot is over after it */
    bool gives_names;     /* an act's id is its member's name; a script's always is */
    struct text names[WORLD_GRAPH_POSITIONS]; /* of the members; a script's world has all */
};

/* What a world is made of. The caller zeroes it, then sets members; world_open takes what it needs,
 * and one reference to each participant. */
struct world_config {
    struct participant *const *tasks;  /* [n_tasks], at least one; the task speaks first */
    size_t n_tasks;                    /* several tasks make a multi world */
    const struct text *task_names;     /* [n_tasks], prefixes in a report; NULL with one task */
    struct participant *const *agents; /* [n_agents], at least one; the agents answer */
    size_t n_agents;                   /* several agents make a round robin */
    const struct world_graph *graph;   /* copied; its texts are borrowed as long as the world lives.
                                          NULL: each member hears all others */
    const struct world_script *script; /* borrowed; says who speaks and who hears it, in place
                                          of the graph, which names the members. NULL: none */

    /* How one of several tasks is chosen. shuffle draws a task by its weight (a missing weight is
     * 1), stochastic by its number of episodes; without both, tasks are taken in turn. Tasks whose
     * epoch is over are skipped. */
    bool shuffle, stochastic;
    const double *weights; /* [n_weights], each 0 or above, not all 0 */
    size_t n_weights;
    bool aggregate_micro; /* averages in a report are over examples, not over tasks */
    uint64_t seed;        /* of all draws of the world */

    size_t batch_size; /* rows of a batch, for each thread; 0 or 1: no batches */
    bool counts_words; /* counts batches and words (struct world_counters) in each kind of world */
    enum dynamic_batching dynamic;
    /* Bounds of a text's and a label's length, in words or tokens; label_truncate 0: as
     * text_truncate. Dynamic batching needs text_truncate: a step's budget is the sum of both
     * times batch_size. */
    size_t text_truncate, label_truncate;
    size_t n_slots;       /* dynamic: clones among which lengths are matched; 0:
                             WORLD_DYNAMIC_SLOTS */
    bool start_by_chance; /* dynamic: a batch starts at a random length, not at the longest one */
    const struct env *chance; /* random numbers for start_by_chance; NULL: they follow from seed, so
                                 they are the same in each run */
    uint32_t max_age; /* dynamic: steps after which a waiting row starts the next batch; 0: 64 */

    size_t n_threads;    /* threads of a hogwild world; 0 or 1: the caller's thread alone */
    uint64_t n_examples; /* bound on the examples of all threads together; 0: no bound */

    world_watch_fn watch; /* may be NULL */
    void *watch_arg;
};

#endif
