/* Groups of processes. */
#include "server/registry/groups.h"

#include "server/part.h"

static void groups_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    groups_init(self, host->env, alarm);
}

const struct part groups_part = {
    .size_bytes = sizeof(struct groups),
    .init = groups_part_init,
    .tick = groups_tick,
    .deinit = groups_deinit,
};
