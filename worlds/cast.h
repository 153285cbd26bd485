/* Who takes part in a world, as all clones of it on one thread share them: the participants'
 * originals (this thread's shares), how the task is chosen, and what bounds the whole. */
#ifndef WORLDS_CAST_H
#define WORLDS_CAST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "worlds/driver.h"
#include "worlds/world.h"

/* Examples still to be done, of all threads together. */
struct quota {
    atomic_uint_least64_t n_left;
    bool is_bounded;
    uint64_t n; /* n_left at the start */
};

void quota_init(struct quota *q, uint64_t n); /* 0: no bound */
void quota_reset(struct quota *q);
/* One example is taken; false when none is left. Any thread. */
bool quota_take(struct quota *q);
bool quota_is_out(const struct quota *q);

struct cast {
    struct participant **members; /* [n_tasks + n_agents], tasks first: this thread's shares */
    size_t n_tasks, n_agents;
    double *ends; /* [n_tasks], where each task's part of [0, 1] ends; NULL: they take turns */
    struct text *task_names; /* [n_tasks], or NULL */
    bool aggregate_micro;
    uint64_t seed;
    size_t text_truncate, label_truncate; /* 0: no bound */
    uint32_t thread;
    struct quota *quota; /* borrowed; all threads' */
    world_watch_fn watch;
    void *watch_arg;
    struct env chance; /* of batches' starts: random alone, by seed and thread */
    uint64_t n_drawn;  /* by it */
};

/* A share of each participant. The quota is borrowed. */
enum status cast_open(struct cast **out, const struct world_config *config, uint32_t thread,
                      struct quota *quota, struct error *err) MUST_CHECK;
void cast_close(struct cast *c); /* NULL is fine */

static inline size_t cast_n_members(const struct cast *c)
{
    return c->n_tasks + c->n_agents;
}

/* Everything shared begins anew, the quota too. */
void cast_reset(struct cast *c);

/* All members' reports in one: tasks' aggregated by name, agents' beside each. */
enum status cast_report(struct report *out, struct cast *c, struct error *err) MUST_CHECK;

/* Sums over tasks; SIZE_MAX: not known. */
size_t cast_n_examples(const struct cast *c);
size_t cast_n_episodes(const struct cast *c);

/* What the clone says of an observation; else its words, cut to the bounds. */
void cast_lengths(const struct cast *c, const struct participant_clone *clone,
                  const struct act *observation, struct lengths *out);

/* Drivers of those who are asked by batches, in the order of members; NULL for the others. */
enum status cast_open_drivers(struct driver ***out, struct cast *c,
                              const struct batcher_config *config, struct error *err) MUST_CHECK;
void cast_close_drivers(struct cast *c, struct driver **drivers);

#endif
