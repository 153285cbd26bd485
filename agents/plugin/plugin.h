/* The kind of agents that lie in shared objects (parley_agent.h). agent_open_type opens one, with
 * the object's path as the config's path. The kind is not in the registry: only a file that an
 * administrator names may be run as code, never one that was found as a model. */
#ifndef AGENTS_PLUGIN_PLUGIN_H
#define AGENTS_PLUGIN_PLUGIN_H

#include <stdbool.h>

#include "agents/agent.h"
#include "base/status.h"

extern const struct agent_type plugin_agent;

/* Have an agent of this kind save what it has learned, or load it, between steps. PRECONDITION: the
 * object has no save_model, so it does not learn, or no load_model. */
enum status plugin_agent_save(struct agent *a, const char *path, struct error *err) MUST_CHECK;
enum status plugin_agent_load(struct agent *a, const char *path, struct error *err) MUST_CHECK;
/* Returns whether the object has save_model. */
bool plugin_agent_learns(const struct agent *a);

#endif
