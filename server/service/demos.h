/* The worlds of ParlAI's own demos, by the classes that its YAML files name: which built-in world
 * plays each, and what it says there. */
#ifndef SERVER_SERVICE_DEMOS_H
#define SERVER_SERVICE_DEMOS_H

#include "server/service/plan.h"
#include "server/service/worlds.h"

/* Whether the module's classes are known; then class names are those of demo_find. */
bool demo_has_module(const char *module);
/* Fills in what the class says. False: the module has none of this name and kind. */
bool demo_find(struct service_script *out, const char *module, enum scene_kind kind,
               const char *class_name);
/* What the module's menu calls a pool. */
const char *demo_title(const char *module, const char *pool);
/* Writes the classes of a kind as "a, b, c", cut to size. */
void demo_list(const char *module, enum scene_kind kind, char *out, size_t size);
/* Writes the modules in the same way. */
void demo_list_modules(char *out, size_t size);

#endif
