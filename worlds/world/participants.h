/* The participants of a world, shared by all of its clones on one thread: the originals (this
 * thread's shares), how a task is chosen, and the bound on examples. */
#ifndef WORLDS_WORLD_PARTICIPANTS_H
#define WORLDS_WORLD_PARTICIPANTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "worlds/participant/offline_scheduler.h"
#include "worlds/world/config.h"

struct world_counters;

/* Examples left, of all threads together. */
struct quota {
    atomic_uint_least64_t n_left;
    bool is_bounded;
    uint64_t n; /* n_left at the start */
};

void quota_init(struct quota *q, uint64_t n); /* 0: no bound */
void quota_reset(struct quota *q);
/* Takes one example; false when none is left. Any thread. */
bool quota_take(struct quota *q);
bool quota_is_out(const struct quota *q);

struct participants {
    struct participant **members; /* [n_tasks + n_agents], tasks first: this thread's shares */
    size_t n_tasks, n_agents;
    bool has_graph;
    struct world_graph graph;
    double *ends; /* [n_tasks], where each task's part of [0, 1] ends; NULL: they take turns */
    struct text *task_names; /* [n_tasks], or NULL */
    bool aggregate_micro;
    uint64_t seed;
    size_t text_truncate, label_truncate; /* 0: no bound */
    uint32_t thread;
    struct quota *quota; /* borrowed; all threads' */
    bool counts_words;
    world_watch_fn watch;
    void *watch_arg;
    struct env chance; /* only its random numbers, by seed and thread: where batches start */
    uint64_t n_drawn;  /* numbers drawn from chance */
};

/* A share of each participant. The quota is borrowed. */
enum status participants_open(struct participants **out, const struct world_config *config,
                              uint32_t thread, struct quota *quota, struct error *err) MUST_CHECK;
void participants_close(struct participants *p); /* NULL is fine */

static inline size_t participants_n_members(const struct participants *p)
{
    return p->n_tasks + p->n_agents;
}

/* Resets all shared state, the quota too. */
void participants_reset(struct participants *p);

/* All members' reports in one: tasks' aggregated by name, agents' beside each. */
enum status participants_report(struct report *out, struct participants *p,
                                struct error *err) MUST_CHECK;

/* Sums over tasks; SIZE_MAX: not known. */
size_t participants_n_examples(const struct participants *p);
size_t participants_n_episodes(const struct participants *p);

/* The clone's own lengths of an observation; else its words, cut to the bounds. */
void participants_lengths(const struct participants *p, const struct participant_clone *clone,
                          const struct act *observation, struct lengths *out);

/* Opens one for each member that answers in batches, in the order of members; NULL for the others.
 */
enum status participants_open_schedulers(struct offline_scheduler ***out, struct participants *p,
                                         const struct batcher_config *config,
                                         struct error *err) MUST_CHECK;
/* What the agents' schedulers have counted, into the counters of batches. */
void participants_count_batches(const struct participants *p,
                                struct offline_scheduler *const *schedulers,
                                struct world_counters *counters);
void participants_close_schedulers(struct participants *p, struct offline_scheduler **schedulers);

#endif
