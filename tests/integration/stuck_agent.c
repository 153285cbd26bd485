/* A plug-in whose step never returns: on the compute thread, or with STUCK_ON_LOOP on the loop.
 * Others' code may do that. */
#include <stdatomic.h>
#include <stddef.h>

#include "agents/plugin/parley_agent.h"

#ifdef STUCK_ON_LOOP
#define STUCK_FLAGS PARLEY_AGENT_LIGHT
#else
#define STUCK_FLAGS 0
#endif

static atomic_uint n_rounds;

static void *stuck_open(const struct parley_agent_host *host, struct parley_agent_error *err)
{
    return &n_rounds;
}

static void stuck_close(void *agent)
{
}

static void *stuck_create(void *agent, const char *system, size_t system_len,
                          struct parley_agent_error *err)
{
    return agent;
}

static void *stuck_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    return agent;
}

static void stuck_free(void *agent, void *clone)
{
}

static bool stuck_observe(void *agent, void *clone, const struct parley_agent_row *row,
                          struct parley_agent_error *err)
{
    return true;
}

static void stuck_batch_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    for (;;)
        atomic_fetch_add(&n_rounds, 1);
}

const struct parley_agent parley_agent = {
    .abi = PARLEY_AGENT_ABI,
    .size_bytes = sizeof(struct parley_agent),
    .name = "stuck",
    .version = "1",
    .flags = STUCK_FLAGS,
    .open = stuck_open,
    .close = stuck_close,
    .create = stuck_create,
    .fork = stuck_fork,
    .free = stuck_free,
    .observe = stuck_observe,
    .batch_act = stuck_batch_act,
};
