/* The kind of agents that lie in shared objects (parley_agent.h). agent_open_type opens one, with
 * the object's path as the config's path. The kind is not in the registry: only a file that an
 * administrator names may be run as code, never one that was found as a model. */
#ifndef AGENTS_PLUGIN_PLUGIN_H
#define AGENTS_PLUGIN_PLUGIN_H

#include "agents/agent.h"

extern const struct agent_type plugin_agent;

#endif
