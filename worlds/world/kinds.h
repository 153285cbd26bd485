/* The kinds of worlds, as worlds/world/world.c opens them. Each owns the participants from then on,
 * also on failure. */
#ifndef WORLDS_WORLD_KINDS_H
#define WORLDS_WORLD_KINDS_H

#include "base/status.h"
#include "worlds/world/config.h"
#include "worlds/world/participants.h"

struct world;

enum status plain_open(struct world **out, struct participants *participants,
                       struct error *err) MUST_CHECK;
enum status batch_open(struct world **out, struct participants *participants, size_t n,
                       struct error *err) MUST_CHECK;
enum status dynamic_open(struct world **out, struct participants *participants,
                         const struct world_config *config, struct error *err) MUST_CHECK;

/* Opens the world of one thread: any kind but hogwild. */
typedef enum status (*open_thread_fn)(struct world **out, const struct world_config *config,
                                      uint32_t thread, struct quota *quota, struct error *err);
/* Each thread calls open_thread for its own world. */
enum status hogwild_open(struct world **out, const struct world_config *config,
                         open_thread_fn open_thread, struct error *err) MUST_CHECK;

#endif
