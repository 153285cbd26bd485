/* The kinds of worlds, as worlds/world/world.c opens them. All but
 * hogwild_open take participants, also on failure. */
#ifndef WORLDS_WORLD_KINDS_H
#define WORLDS_WORLD_KINDS_H

#include "base/status.h"
#include "worlds/world/config.h"
#include "worlds/world/participants.h"

struct world;
struct world_script;

/* dialog, round_robin or multi, by the numbers of tasks and agents. */
enum status plain_open(struct world **out, struct participants *participants,
                       struct error *err) MUST_CHECK;
/* n clones of a plain world. INVALID if a task that makes batches is one of several. */
enum status batch_open(struct world **out, struct participants *participants, size_t n,
                       struct error *err) MUST_CHECK;
/* n slots, each with a script of its own. Borrows script; participants have a graph with names.
 * INVALID if a task makes batches. */
enum status scripted_open(struct world **out, struct participants *participants,
                          const struct world_script *script, size_t n,
                          struct error *err) MUST_CHECK;
/* INVALID as world_open says for dynamic batching. */
enum status dynamic_open(struct world **out, struct participants *participants,
                         const struct world_config *config, struct error *err) MUST_CHECK;

/* Opens the world of one thread, of any kind but hogwild. Called on that thread. Borrows quota. */
typedef enum status (*open_thread_fn)(struct world **out, const struct world_config *config,
                                      uint32_t thread, struct quota *quota, struct error *err);
/* Starts config->n_threads threads, each of which opens its own world by open_thread. Returns when
 * all are open. EXHAUSTED if a thread cannot be started; else the first failure of open_thread. */
enum status hogwild_open(struct world **out, const struct world_config *config,
                         open_thread_fn open_thread, struct error *err) MUST_CHECK;

#endif
