/* Groups of processes. */
#include "server/registry/groups.h"

#include "server/cluster/places.h"
#include "server/part.h"
#include "server/server.h"

static void groups_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct place_holder holder = {.leave = groups_leave, .self = self};

    groups_init(self, host->env, alarm);
    places_hold(host->server->places, JOURNAL_PLACE_GROUPS, &holder);
}

const struct part groups_part = {
    .size_bytes = sizeof(struct groups),
    .init = groups_part_init,
    .tick = groups_tick,
    .deinit = groups_deinit,
};
