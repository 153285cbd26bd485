/* The built-in worlds, by the names that a plan has. */
#ifndef SERVER_SERVICE_WORLDS_H
#define SERVER_SERVICE_WORLDS_H

#include <stddef.h>

#include "server/service/world.h"

/* Returns the world of this name; NULL: there is none. kind: of those alone. */
const struct service_world *service_world_find(enum scene_kind kind, const char *name);
/* Writes the names of a kind as "a, b, c", cut to size. */
void service_world_list(enum scene_kind kind, char *out, size_t size);

#endif
