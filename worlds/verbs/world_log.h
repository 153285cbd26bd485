/* Writes the acts of a world as conversations. A line has one episode as a JSON object, {"dialog":
 * [[act, act, …], …]}, and is written when the episode is over. The log leaves padding out, and
 * writes each turn of a batch with the turn's own conversation. */
#ifndef WORLDS_VERBS_WORLD_LOG_H
#define WORLDS_VERBS_WORLD_LOG_H

#include <stdint.h>

#include "base/status.h"
#include "worlds/world/world.h"

struct world_log;

enum status world_log_open(struct world_log **out, const char *path, struct error *err) MUST_CHECK;
/* Is a world_watch_fn whose arg is the log. Any thread may call the function. */
void world_log_watch(void *log, const struct world *w, uint32_t thread);
/* Writes the episodes that are not over; what follows begins new ones. log may be NULL. Any thread
 * may call the function. */
void world_log_end(struct world_log *log);
/* Writes the episodes that are not over, and returns the log's first failure. log may be NULL. */
enum status world_log_close(struct world_log *log, struct error *err) MUST_CHECK;

#endif
