/* The participants of a world on one thread, which all clones of the world there share: the
 * originals (this thread's shares), how a task is chosen, and the bound on examples. */
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

/* The examples that all threads of a world together may still act. */
struct quota {
    atomic_uint_least64_t n_left; /* relaxed: only its value counts */
    bool is_bounded;
    uint64_t n; /* n_left at the start */
};

void quota_init(struct quota *q, uint64_t n); /* n 0: no bound */
/* Begins anew with all n examples. No other thread may use q meanwhile. */
void quota_reset(struct quota *q);
/* Takes one example; returns false if none is left. Any thread. */
bool quota_take(struct quota *q);
/* Returns whether none is left. Any thread. */
bool quota_is_out(const struct quota *q);

/* participants_open makes it on the thread that uses it; participants_close releases the shares.
 * The world of the thread owns it. */
struct participants {
    struct participant **members; /* [n_tasks + n_agents], this thread's shares, tasks first */
    size_t n_tasks, n_agents;
    bool has_graph;
    struct world_graph graph; /* if has_graph */
    double *ends;             /* [n_tasks], where each task's part of [0, 1] ends when one is drawn;
                                 NULL: tasks are taken in turn */
    struct text *task_names;  /* [n_tasks] copies; NULL with one task */
    bool aggregate_micro;
    uint64_t seed;
    size_t text_truncate, label_truncate; /* words or tokens; 0: no bound */
    uint32_t thread;
    struct quota *quota; /* borrowed; shared by all threads of the world */
    bool counts_words;
    world_watch_fn watch; /* may be NULL */
    void *watch_arg;
    struct env chance; /* random numbers for the starts of batches; by seed and thread unless the
                          config gave others */
    uint64_t n_drawn;  /* how many numbers by seed and thread were drawn */
};

/* Takes a share of each participant of config. Borrows quota. Errors name the participant or the
 * config's field that is at fault: INVALID for weights that are negative or all 0. */
enum status participants_open(struct participants **out, const struct world_config *config,
                              uint32_t thread, struct quota *quota, struct error *err) MUST_CHECK;
void participants_close(struct participants *p); /* p may be NULL */

static inline size_t participants_n_members(const struct participants *p)
{
    return p->n_tasks + p->n_agents;
}

/* Resets all shared state, the quota too. No clone of any thread may be in use. */
void participants_reset(struct participants *p);

/* Merges the members' reports into one. A task's report is joined with those of all agents (of two
 * metrics with one name the first member's counts); those of several tasks are then aggregated
 * (report_aggregate_named). */
enum status participants_report(struct report *out, struct participants *p,
                                struct error *err) MUST_CHECK;

/* Return sums over tasks, SIZE_MAX if one of the tasks does not know its number. */
size_t participants_n_examples(const struct participants *p);
size_t participants_n_episodes(const struct participants *p);

/* Writes the lengths of an observation, by the clone's table; without such an entry they are its
 * words, cut to the bounds. observation NULL: both lengths are 0. */
void participants_lengths(const struct participants *p, const struct participant_clone *clone,
                          const struct act *observation, struct lengths *out);

/* Opens a scheduler for each member that answers in batches. *out is an array in the order of
 * members, with NULL for all others. */
enum status participants_open_schedulers(struct offline_scheduler ***out, struct participants *p,
                                         const struct batcher_config *config,
                                         struct error *err) MUST_CHECK;
/* Sets the counters of batches to the sums over the agents' schedulers. */
void participants_count_batches(const struct participants *p,
                                struct offline_scheduler *const *schedulers,
                                struct world_counters *counters);
/* Closes the schedulers and frees the array, which may be NULL. No request may be in flight. */
void participants_close_schedulers(struct participants *p, struct offline_scheduler **schedulers);

#endif
