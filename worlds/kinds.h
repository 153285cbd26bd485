/* The kinds of worlds, as worlds/world.c opens them. Each takes the cast, also on failure. */
#ifndef WORLDS_KINDS_H
#define WORLDS_KINDS_H

#include "base/status.h"
#include "worlds/cast.h"
#include "worlds/world.h"

enum status plain_open(struct world **out, struct cast *cast, struct error *err) MUST_CHECK;
enum status batch_open(struct world **out, struct cast *cast, size_t n,
                       struct error *err) MUST_CHECK;
enum status dynamic_open(struct world **out, struct cast *cast, const struct world_config *config,
                         struct error *err) MUST_CHECK;
enum status hogwild_open(struct world **out, const struct world_config *config,
                         struct error *err) MUST_CHECK;

/* A world of one thread: everything but hogwild. */
enum status world_open_thread(struct world **out, const struct world_config *config,
                              uint32_t thread, struct quota *quota, struct error *err) MUST_CHECK;

#endif
