/* Agents in shared objects (parley_agent.h), opened by agent_open_type with the object's path. The
 * kind is not in the registry: only what an administrator names is code to run, never a file that
 * was found. */
#ifndef AGENTS_PLUGIN_PLUGIN_H
#define AGENTS_PLUGIN_PLUGIN_H

#include "agents/agent.h"

extern const struct agent_type plugin_agent;

#endif
