/* The acts of a world as conversations: one JSON object a line, {"dialog": [[act, act, …], …]}, an
 * episode with its parleys, written once the episode is over. Padding is left out; a batch's turns
 * are written with their own conversations. */
#ifndef WORLDS_VERBS_WORLD_LOG_H
#define WORLDS_VERBS_WORLD_LOG_H

#include <stdint.h>

#include "base/status.h"
#include "worlds/world/world.h"

struct world_log;

enum status world_log_open(struct world_log **out, const char *path, struct error *err) MUST_CHECK;
/* A world_watch_fn whose arg is the log. Any thread. */
void world_log_watch(void *log, const struct world *w, uint32_t thread);
/* Writes the episodes that are open: what follows begins others. NULL is fine. Any thread. */
void world_log_end(struct world_log *log);
/* Writes the episodes that did not end, and returns the first failure. NULL is fine. */
enum status world_log_close(struct world_log *log, struct error *err) MUST_CHECK;

#endif
