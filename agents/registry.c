/* The kinds of agents there are: the one place that names them. */
#include "agents/agent.h"

extern const struct agent_type echo_agent, lm_agent;

static const struct agent_type *const types[] = {&echo_agent, &lm_agent};

const struct agent_type *agent_type_at(size_t i)
{
    return i < sizeof types / sizeof types[0] ? types[i] : NULL;
}
